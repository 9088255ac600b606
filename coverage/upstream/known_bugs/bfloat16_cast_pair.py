# SPDX-License-Identifier: Apache-2.0
"""A cast to bfloat16 and back is removed

`x.astype("bfloat16").astype("float32")` rounds x to 8 bits of mantissa; the compiled kernel returns x itself (for
float16 it rounds). The passes that lower bfloat16 (BF16ComputeLegalize) take the pair for a no-op. A model that is cast
down at its edges gets float32 there. Keep the pair.
"""

import numpy as np
import tvm
from tvm import te

a = te.placeholder((1,), "float32")
b = te.compute((1,), lambda i: a[i].astype("bfloat16").astype("float32"))
kernel = tvm.compile(te.create_prim_func([a, b]), target="llvm")
seen = tvm.runtime.tensor(np.zeros(1, "float32"))
kernel(tvm.runtime.tensor(np.array([1.001], "float32")), seen)
print("expected: 1.0000")
print(f"seen: {seen.numpy().item():.4f}")
