# SPDX-License-Identifier: Apache-2.0
"""tvm.ir.save_json of a variable crashes the process

So does that of any function or module with one in it, and with it pickle and copy.deepcopy. Only an empty module is
saved. (Wheel of PyPI, Linux, x86-64; the TVMScript text of a module still round-trips.)
"""

import tvm
from tvm import tirx

print("expected: text", flush=True)
print("seen:", "text" if tvm.ir.save_json(tirx.Var("x", "int32")) else "nothing")
