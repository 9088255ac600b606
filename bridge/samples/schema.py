"""sample.json: its versioned schema, and the arguments of nodes as JSON."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.fx
from pydantic import BaseModel, ConfigDict, Field

from ..errors import UserError

FORMAT = 1
JSON_FILE, TENSOR_FILE, TEXT_FILE = "sample.json", "tensors.bin", "graph.txt"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Tensor(_Strict):
    """A tensor: its layout, and where its elements come from."""

    dtype: str  # as "float32"
    size: list[int] = Field(max_length=64)
    stride: list[int] = Field(max_length=64)  # elements
    start: int | None = Field(default=None, ge=0)  # in tensors.bin, of the bytes from its first to its last element
    seed: int | None = Field(default=None, ge=0)  # or drawn from this: normal numbers, or integers in [0, 2)


class Input(_Strict):
    """A placeholder."""

    name: str
    role: str  # InputRole
    target: str = ""  # what it is of, in the model
    tensor: Tensor | None = None
    number: int | float | bool | None = None


class Output(_Strict):
    """What the graph returned when the sample was made. A number or None has no layout."""

    role: str  # OutputRole
    target: str = ""
    dtype: str = ""
    size: list[int] = []
    stride: list[int] = []
    sha256: str  # of dtype, size and the elements in row-major order; of the JSON of a number or None


class Node(_Strict):
    """A call of an op, the item of a result, or a constant of the graph."""

    name: str
    op: Literal["call", "item", "constant"]
    target: str  # overload as "aten.mm.default"; name of a constant
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    source: str = ""  # line of the model


class Sample(_Strict):
    """The whole of sample.json but for its hash."""

    format: Literal[1] = 1
    kind: str  # GraphKind
    decompose: str
    part: str = ""  # of which graph this is one fused kernel
    torch: str  # that made it
    seed: int  # of the generator, set before the graph runs
    inputs: list[Input]
    constants: dict[str, Tensor]
    nodes: list[Node]
    returned: list[Any]  # arguments of the output
    outputs: list[Output]
    written: dict[str, Output] = {}  # inputs that the graph writes to, by name: their new values
    tensor_bytes: int = Field(ge=0)  # of tensors.bin

    def text(self, tensors: bytes) -> str:
        """As JSON, with a hash over everything and over the bytes of the tensors."""
        body = {"format": FORMAT} | self.model_dump(mode="json", exclude_defaults=True)
        return json.dumps(body | {"hash": self.hash(tensors)}, indent=1, allow_nan=False) + "\n"

    def hash(self, tensors: bytes) -> str:
        """SHA-256 of the canonical JSON and of `tensors`."""
        body = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(body.encode() + b"\0" + tensors).hexdigest()


# ---- values as JSON ----

_TORCH = {
    "dtype": (torch.dtype, lambda v: str(v).removeprefix("torch.")),
    "layout": (torch.layout, lambda v: str(v).removeprefix("torch.")),
    "memory_format": (torch.memory_format, lambda v: str(v).removeprefix("torch.")),
}


def written(value: Any) -> Any:
    """An argument as JSON. Raises UserError for what a sample cannot carry."""
    if isinstance(value, torch.fx.Node):
        return {"node": value.name}
    if value is None or isinstance(value, bool | str):
        return value
    if type(value) is int:
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"float": value.hex()}
    if isinstance(value, list):
        return [written(v) for v in value]
    if isinstance(value, tuple):
        return {"tuple": [written(v) for v in value]}
    for tag, (kind, name) in _TORCH.items():
        if isinstance(value, kind):
            return {tag: name(value)}
    if isinstance(value, torch.device) and value.type == "cpu":
        return {"device": "cpu"}
    what = "symbolic size" if isinstance(value, torch.SymInt | torch.SymFloat) else type(value).__name__
    raise UserError(f"a sample cannot hold a {what}; capture without --dynamic, and without what runs outside of ATen")


def read(value: Any, nodes: Callable[[str], Any]) -> Any:
    """The argument that `written` made JSON of; `nodes` gives a node by its name. Raises ValueError for others."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [read(v, nodes) for v in value]
    if isinstance(value, dict) and len(value) == 1:
        (tag, held), *_ = value.items()
        if tag == "node":
            return nodes(held)
        if tag == "tuple" and isinstance(held, list):
            return tuple([read(v, nodes) for v in held])
        if tag == "float" and isinstance(held, str):
            return float.fromhex(held)
        if tag == "device" and held == "cpu":
            return torch.device("cpu")
        if tag in _TORCH:
            found = getattr(torch, str(held), None)
            if isinstance(found, _TORCH[tag][0]):
                return found
    raise ValueError(f"no argument is written as {str(value)[:80]}")


def digest(value: Any) -> str:
    """SHA-256 of a tensor's dtype, size and elements in row-major order, or of a number or None."""
    if not isinstance(value, torch.Tensor):
        return hashlib.sha256(json.dumps(value).encode()).hexdigest()
    head = f"{value.dtype} {list(value.shape)}\0".encode()
    return hashlib.sha256(head + raw_bytes(value.contiguous())).hexdigest()


def raw_bytes(tensor: torch.Tensor) -> bytes:
    """The bytes of a contiguous tensor."""
    flat = tensor.detach().resolve_neg().resolve_conj().reshape(-1)
    if flat.numel() == 0:
        return b""
    return bytes(flat.view(torch.uint8).numpy().tobytes())


def span(size: list[int], stride: list[int]) -> int:
    """Elements from the first to the last of a tensor."""
    if 0 in size:
        return 0
    return 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
