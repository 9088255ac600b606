# SPDX-License-Identifier: Apache-2.0
"""complex64 and complex128 are unknown dtypes

DLPack has a type code for complex numbers, numpy and torch hand such tensors over, and TVM refuses even to hold one:
"unknown dtype". A module with one complex tensor in it (an FFT) cannot pass it through. Parse the name, at least for
tensors that are only handed on.
"""

import numpy as np
import tvm

print("expected: complex64", flush=True)
try:
    print("seen:", tvm.runtime.tensor(np.ones(1, "complex64")).dtype)
except ValueError as error:
    print("seen: ValueError", error)
