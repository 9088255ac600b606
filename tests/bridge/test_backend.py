# SPDX-License-Identifier: Apache-2.0
"""The backend's own promises: options, typed reasons, one exception with all of them, records of what was compiled."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn

from relaxgrad.bridge import backend
from relaxgrad.bridge.backend import record_graphs, relaxgrad
from relaxgrad.bridge.compile import bisect
from relaxgrad.bridge.errors import UnsupportedOps, UserError
from relaxgrad.bridge.importer import registry
from relaxgrad.bridge.kinds import Kind, ReasonKind
from relaxgrad.bridge.schemas import GraphKind

aten = torch.ops.aten


@torch.library.custom_op("relaxgrad_backend_tests::half_known", mutates_args=())
def half_known(x: torch.Tensor) -> torch.Tensor:
    return x * 3


@half_known.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


half_known.register_autograd(lambda ctx, grad: half_known(grad))


def model(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    y = half_known(y)  # no lowering, forward and backward
    return half_known(y * 2)


def test_a_name_is_enough() -> None:
    """`backend="relaxgrad"` works with no import, through the entry point; in a process of its own."""
    code = "import torch; f = torch.compile(lambda x: x * 2, backend='relaxgrad'); assert f(torch.ones(2)).sum() == 4"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_ops_without_a_lowering_run_in_aten_with_a_reason() -> None:
    x = torch.randn(3, requires_grad=True)
    with record_graphs() as records:
        torch.compile(model, backend=relaxgrad)(x).sum().backward()
    assert [r.kind for r in records] == [GraphKind.FORWARD, GraphKind.BACKWARD]
    for record in records:
        assert record.calls[Kind.FALLBACK] == 2
        assert record.calls[Kind.NATIVE] > 0
        assert {r.kind for r in record.reasons} == {ReasonKind.NO_CONVERTER}
        assert {r.dtypes for r in record.reasons} == {("float32",)}
        assert {r.shapes for r in record.reasons} == {(("3",),)}
        assert all(r.source is not None and r.source.file == __file__ for r in record.reasons)
    assert x.grad is not None
    torch.testing.assert_close(x.grad, x.detach().cos() * 18)


def test_fallback_error_lists_every_reason_of_both_graphs() -> None:
    x = torch.randn(3, requires_grad=True)
    compiled = torch.compile(model, backend="relaxgrad", options={"fallback": "error"})
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as caught:
        compiled(x)
    inner = caught.value.inner_exception
    assert isinstance(inner, UnsupportedOps)
    assert len(inner.reasons) == 4
    assert [r.op for r in inner.reasons] == ["relaxgrad_backend_tests.half_known.default"] * 4
    assert str(caught.value).count("half_known.default(float32[3])") == 4
    assert "test_backend.py:" in str(caught.value)
    assert "half_known(y)  # no lowering" in str(caught.value)


def test_fallback_error_without_gradients() -> None:
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as caught:
        torch.compile(model, backend="relaxgrad", options={"fallback": "error"})(torch.randn(3))
    assert len(caught.value.inner_exception.reasons) == 2


def test_fallback_error_lets_what_is_covered_through() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.LayerNorm(4))
    x = torch.randn(2, 3)
    y = torch.compile(net, backend="relaxgrad", options={"fallback": "error"})(x)
    y.sum().backward()
    torch.testing.assert_close(y, net(x))


@pytest.mark.parametrize(
    ("options", "said"),
    [({"fallbak": "error"}, r"unknown option 'fallbak'.*known: fallback, target"),
     ({"fallback": "no"}, r"fallback='no' is unknown; use one of aten, error"),
     ({"target": "no-such-target"}, "no-such-target")],
)  # fmt: skip
def test_wrong_options_are_said_in_one_line(options: dict[str, Any], said: str) -> None:
    compiled = torch.compile(lambda x: x * 2, backend="relaxgrad", options=options)
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=said) as caught:
        compiled(torch.ones(2))
    assert isinstance(caught.value.inner_exception, UserError)
    assert "\n" not in str(caught.value.inner_exception)


def test_a_mode_is_refused() -> None:
    compiled = torch.compile(lambda x: x * 2, backend="relaxgrad", mode="max-autotune")
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=r"takes no mode; what it takes is options"):
        compiled(torch.ones(2))


# ---- faults of converters and of TVM ----


def broken(monkeypatch: pytest.MonkeyPatch, op: Any, function: Any) -> None:
    monkeypatch.setitem(registry.registry(), op, [registry.Implementation(op, Kind.NATIVE, function)])


def run_sin_cos() -> tuple[list[Any], torch.Tensor, torch.Tensor]:
    x = torch.randn(5)
    with record_graphs() as records:
        y = torch.compile(lambda x: (x.sin() + 1).cos() * 2, backend=relaxgrad)(x)
    return records, y, (x.sin() + 1).cos() * 2


def test_a_fault_of_a_converter_sends_its_node_to_aten(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(ctx: Any, x: Any) -> Any:
        raise ZeroDivisionError("planted")

    broken(monkeypatch, aten.cos.default, fails)
    (record,), found, expected = run_sin_cos()
    torch.testing.assert_close(found, expected)
    (reason,) = record.reasons
    assert reason.kind is ReasonKind.COMPILE
    assert reason.op == "aten.cos.default"
    assert reason.detail == "ZeroDivisionError: planted"
    assert record.calls[Kind.NATIVE] == 3


def test_a_result_of_another_type_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch, aten.cos.default, lambda ctx, x: ctx.wrap(ctx.emit(_to_float64, [x.var])))
    (record,), found, expected = run_sin_cos()
    torch.testing.assert_close(found, expected)
    (reason,) = record.reasons
    assert reason.kind is ReasonKind.TYPE_CHECK
    assert "float64 instead of float32" in reason.detail


def _to_float64(x: Any) -> Any:
    from tvm import te

    return te.compute(x.shape, lambda *i: x(*i).astype("float64"), name="wrong")


def test_a_kernel_that_tvm_cannot_compile_sends_its_nodes_to_aten(monkeypatch: pytest.MonkeyPatch) -> None:
    from tvm import te, tirx

    def uncompilable(x: Any) -> Any:
        unbound = tirx.Cast("float32", tirx.Var("unbound", "int32"))
        return te.compute(x.shape, lambda *i: x(*i) + unbound, name="broken")

    broken(monkeypatch, aten.cos.default, lambda ctx, x: ctx.compute(uncompilable, [x]))
    (record,), found, expected = run_sin_cos()
    torch.testing.assert_close(found, expected)
    assert {r.op for r in record.reasons} == {"aten.cos.default"}
    assert record.calls[Kind.NATIVE] == 3


def test_a_fault_of_fusion_costs_the_fusion_only(monkeypatch: pytest.MonkeyPatch) -> None:
    from relaxgrad.bridge.compile import pipeline

    compile_module = pipeline.compile_module

    def fails_on_fused(module: Any, *where: Any) -> Any:
        names = {str(v.name_hint) for v in module.functions}
        patterns = [f.attrs.get("op_pattern") for f in module.functions.values() if f.attrs]
        if len(names) > 2 and not any(p is not None and int(p) == bisect.OPAQUE for p in patterns):
            raise RuntimeError("planted")
        return compile_module(module, *where)

    monkeypatch.setattr(pipeline, "compile_module", fails_on_fused)
    (record,), found, expected = run_sin_cos()
    torch.testing.assert_close(found, expected)
    assert record.reasons == ()
    assert record.kernels == 4


def test_on_compile_error_raise_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(ctx: Any, x: Any) -> Any:
        raise ZeroDivisionError("planted")

    broken(monkeypatch, aten.cos.default, fails)
    compiled = torch.compile(lambda x: x.cos(), backend="relaxgrad", options={"on_compile_error": "raise"})
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="ZeroDivisionError: planted"):
        compiled(torch.ones(2))


def test_a_graph_with_sizes_that_depend_on_data_runs_in_aten_as_a_whole() -> None:
    x = torch.tensor([1.0, 0.0, 2.0], requires_grad=True)

    def f(x: torch.Tensor) -> torch.Tensor:
        return x[x.nonzero().squeeze(1)] * 3

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True), record_graphs() as records:
        compiled = torch.compile(f, backend=relaxgrad, fullgraph=True)
        y = compiled(x)
        y.sum().backward()
        z = compiled(torch.tensor([0.0, 4.0, 0.0], requires_grad=True))
    torch.testing.assert_close(y, torch.tensor([3.0, 6.0]), check_stride=False)
    torch.testing.assert_close(z, torch.tensor([12.0]))
    torch.testing.assert_close(x.grad, torch.tensor([3.0, 0.0, 3.0]))
    forward = records[0]
    assert forward.kernels == 0
    assert len(forward.reasons) == forward.calls[Kind.FALLBACK] == sum(sum(k.values()) for k in forward.ops.values())
    assert {r.kind for r in forward.reasons} == {ReasonKind.DATA_DEPENDENT}
    assert all(r.detail for r in forward.reasons)


# ---- records ----


def test_records_count_calls_and_copies() -> None:
    f = torch.compile(lambda x, y: (x * 2).sum() + y, backend=relaxgrad)
    with record_graphs() as records:
        for _ in range(3):
            f(torch.randn(4, 6)[:, ::2], torch.zeros(()))
        f(torch.randn(4, 3), torch.zeros(()))
    assert [r.runs for r in records] == [3, 1]
    assert [r.copies for r in records] == [3, 0]
    assert all(r.seconds.keys() == {"translate", "compile"} for r in records)


def test_records_of_nested_contexts_and_none_outside() -> None:
    with record_graphs() as outer, record_graphs() as inner:
        backend.compile(lambda x: x + 1)(torch.ones(2))
    backend.compile(lambda x: x + 2)(torch.ones(2))
    assert len(outer) == len(inner) == 1
