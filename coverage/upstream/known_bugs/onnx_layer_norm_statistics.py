# SPDX-License-Identifier: Apache-2.0
"""relax.frontend.onnx: LayerNormalization gives scalars for the mean and the reciprocal deviation

Outputs 1 and 2 have the shape of the input with 1 in the normalised dims, and a backward graph reads them. The importer
fills both places with a constant zero-dimensional number, without a word (`LayerNormalization` in onnx_frontend.py).
Compute both, or refuse a node that has them.
"""

import numpy as np
import onnx
import tvm
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

node = helper.make_node("LayerNormalization", ["x", "scale"], ["y", "mean", "deviation"], axis=-1)
x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2])
mean = helper.make_tensor_value_info("mean", TensorProto.FLOAT, [1, 1])
scale = helper.make_tensor("scale", TensorProto.FLOAT, [2], [1.0, 1.0])
graph = helper.make_graph([node], "main", [x], [mean], [scale])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
onnx.checker.check_model(model)
values = np.array([[1.0, 3.0]], "float32")
print("expected:", np.asarray(ReferenceEvaluator(model).run(None, {"x": values})).tolist()[0], flush=True)
machine = relax.VirtualMachine(tvm.compile(from_onnx(model), target="llvm"), tvm.cpu())
print("seen:", machine["main"](tvm.runtime.tensor(values)).numpy().tolist())
