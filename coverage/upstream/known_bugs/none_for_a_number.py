# SPDX-License-Identifier: Apache-2.0
"""relax.VirtualMachine: None for a scalar argument crashes the process

A float for an integer raises TypeError; None segfaults. The conversion of arguments to a Relax function with an
R.Prim parameter takes the object without asking whether there is one. Raise TypeError for None too.
"""

import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R


@I.ir_module
class Module:
    @R.function
    def main(n: R.Prim("int64")) -> R.Prim("int64"):  # type: ignore[valid-type]  # TVMScript
        return n


machine = relax.VirtualMachine(tvm.compile(Module, target="llvm"), tvm.cpu())
print("expected: TypeError", flush=True)
try:
    print("seen:", machine["main"](None))
except TypeError:
    print("seen: TypeError")
