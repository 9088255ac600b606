# SPDX-License-Identifier: Apache-2.0
"""sample.json: its versioned schema, and the arguments of nodes as JSON."""

from __future__ import annotations

import hashlib
import json
import math
import unicodedata
from collections.abc import Callable
from typing import Annotated, Any, Literal

import torch
import torch.fx
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from relaxgrad.bridge.device import host
from relaxgrad.bridge.errors import UserError
from relaxgrad.bridge.schemas import GraphKind, InputRole, OutputRole

FORMAT = 1
JSON_FILE, TENSOR_FILE, TEXT_FILE = "sample.json", "tensors.bin", "graph.txt"
MOST = 100_000  # entries of a list: a graph of more nodes takes minutes to read

_INTEGERS = ("bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))
_KINDS = {"dtype": torch.dtype, "layout": torch.layout, "memory_format": torch.memory_format}
_NAMED: dict[str, dict[str, Any]] = {
    tag: {str(v).removeprefix("torch."): v for v in vars(torch).values() if isinstance(v, kind)}
    for tag, kind in _KINDS.items()
}
#: The dtypes that tensors of a sample may have: whole bytes an element, and no scales beside them.
DTYPES: dict[str, torch.dtype] = {
    n: d for n, d in _NAMED["dtype"].items() if d.is_floating_point or d.is_complex or n in _INTEGERS
}


def plain(text: str) -> str:
    """`text` without what a terminal takes for a command: controls, surrogates, changes of direction, line ends."""
    return "".join("?" if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp") else c for c in text)


def _is_plain(text: str) -> str:
    if plain(text) != text:
        raise ValueError("it holds characters that are not printed")
    return text


def _is_dtype(name: str) -> str:
    if name not in DTYPES:
        raise ValueError(f"{plain(name)[:80]!r} is no dtype of a sample")
    return name


Text = Annotated[str, Field(max_length=1 << 14), AfterValidator(_is_plain)]
#: It becomes a name in Python source.
Identifier = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=256)]
Seed = Annotated[int, Field(ge=0, lt=1 << 63)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Tensor(_Strict):
    """A tensor: its layout, and where its elements come from."""

    dtype: Annotated[str, AfterValidator(_is_dtype)]  # as "float32"
    size: list[int] = Field(max_length=64)
    stride: list[int] = Field(max_length=64)  # elements
    start: int | None = Field(default=None, ge=0)  # in tensors.bin, of the bytes from its first to its last element
    seed: Seed | None = None  # or drawn from this: normal numbers, or integers in [0, 2)


class Input(_Strict):
    """A placeholder."""

    name: Identifier
    role: InputRole
    target: Text = ""  # what it is of, in the model
    tensor: Tensor | None = None
    number: int | float | bool | None = None


class Output(_Strict):
    """What the graph returned when the sample was made. A number or None has no layout."""

    role: OutputRole
    target: Text = ""
    dtype: Text = ""
    size: list[int] = []
    stride: list[int] = []
    sha256: Text  # of dtype, size and the elements in row-major order; of the JSON of a number or None


class Node(_Strict):
    """A call of an op, the item of a result, or a constant of the graph."""

    name: Identifier
    op: Literal["call", "item", "constant"]
    target: Text  # overload as "aten.mm.default"; name of a constant
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    source: Text = ""  # line of the model


class Sample(_Strict):
    """The whole of sample.json but for its hash."""

    format: Literal[1] = 1
    kind: GraphKind
    decompose: Text
    part: Text = ""  # of which graph this is one fused kernel
    torch: Text  # that made it
    seed: Seed  # of the generator, set before the graph runs
    inputs: list[Input] = Field(max_length=MOST)
    constants: dict[Identifier, Tensor]
    nodes: list[Node] = Field(max_length=MOST)
    returned: list[Any] = Field(max_length=MOST)  # arguments of the output
    outputs: list[Output] = Field(max_length=MOST)
    written: dict[Identifier, Output] = {}  # inputs that the graph writes to, by name: their new values
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
    if isinstance(value, tuple(_KINDS.values())):
        return {type(value).__name__: str(value).removeprefix("torch.")}
    if isinstance(value, torch.device) and value.type == host().name:
        return {"device": value.type}
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
        if tag == "device" and held == host().name:
            return torch.device(held)
        if tag in _NAMED and isinstance(held, str) and held in _NAMED[tag]:
            return _NAMED[tag][held]
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
