# SPDX-License-Identifier: Apache-2.0
"""Ops that are ATen's on a GPU though a processor has a kernel for them: their kernels here run in one thread.

Sorts, scans, scatters and histograms need blocks that work together, which ATen has; matrix products, convolutions and
attention are cuBLAS's and cuDNN's, and are registered for every device.
"""

from __future__ import annotations

import torch

from ....importer.registry import overload, register_library

aten = torch.ops.aten

#: `namespace.op.overload`; one that this torch does not have is left out.
_NAMES = (
    "aten.sort.default", "aten.sort.stable", "aten.argsort.default", "aten.argsort.stable", "aten.topk.default",
    "aten.kthvalue.default", "aten.median.dim", "aten.median.default", "aten.nanmedian.dim", "aten.nanmedian.default",
    "aten.mode.default", "aten.msort.default", "aten._unique2.default",
    "aten.cumsum.default", "aten.cumprod.default", "aten.cummax.default", "aten.cummin.default",
    "aten.logcumsumexp.default",
    "aten.scatter.src", "aten.scatter.value", "aten.scatter.reduce", "aten.scatter.value_reduce",
    "aten.scatter_add.default", "aten.scatter_reduce.two", "aten.index_put.default", "aten._unsafe_index_put.default",
    "aten.index_add.default", "aten.index_copy.default", "aten.index_fill.int_Scalar", "aten.index_fill.int_Tensor",
    "aten.index_reduce.default", "aten.put.default", "aten.masked_scatter.default",
    "aten.masked_scatter_backward.default",
    "aten.embedding_dense_backward.default", "aten._embedding_bag_dense_backward.default",
    "aten._embedding_bag_per_sample_weights_backward.default", "aten.embedding_renorm.default",
    "aten.histc.default", "aten.bincount.default", "aten._histogramdd_from_bin_cts.default",
    "aten.grid_sampler_2d_backward.default", "aten.grid_sampler_3d_backward.default",
    "aten.segment_reduce.default", "aten._segment_reduce_backward.default",
    "aten.tril_indices.default", "aten.triu_indices.default", "aten.renorm.default",
    "aten.max_unpool2d.default", "aten.max_unpool3d.default",
    "aten.fractional_max_pool2d_backward.default", "aten.fractional_max_pool3d_backward.default",
    "aten.adaptive_max_pool2d_backward.default", "aten.adaptive_max_pool3d_backward.default",
)  # fmt: skip


def _register() -> None:
    for name in _NAMES:
        op = overload(name)
        if op is not None:
            register_library(op, device="cuda")


_register()
