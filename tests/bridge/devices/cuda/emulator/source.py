# SPDX-License-Identifier: Apache-2.0
"""TVM's CUDA source as C++ for the emulator: pointers and shared arrays become the checked ones of emulator.h, and each
kernel gets a function of TVM's calling convention that launches it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_KERNEL = re.compile(
    r'extern "C" __global__ void (?:__launch_bounds__\((?P<bounds>\d+)\) )?'
    r"(?P<name>\w+)\((?P<params>[^)]*)\)(?P<end>;| \{)"
)
_SHARED = re.compile(r"__shared__ (?:alignas\(\d+\) )?(?:volatile )?(?P<type>[\w ]+?) (?P<name>\w+)\[(?P<size>\d+)\];")
_LOCAL = re.compile(r"^(?P<lead>\s+)(?P<type>\w+) (?P<name>\w+)\[(?P<size>\d+)\];", re.MULTILINE)
_WIDE = re.compile(r"\*\((?P<type>\w+)\*\)\(")
_AS = re.compile(r"\(\((?:volatile )?(?P<type>\w+)\*\)(?P<name>\w+)\)(?=\[)")
_WAITS = re.compile(r"__syncthreads|__shfl|__activemask|__syncwarp")
#: In this order a launch has its sizes: emulator_launch.
_DIMS = ("blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z")


def rewrite(source: str, launch_params: Mapping[str, Sequence[str]]) -> str:
    """The C++. `launch_params`: kernel -> what it is launched with behind its arguments, as TVM has it.

    Raises ValueError for a construct that the emulator does not know.
    """
    start = min((m.start() for m in _KERNEL.finditer(source)), default=len(source))
    head, body = source[:start], source[start:]
    if "extern __shared__" in body or "asm" in re.findall(r"\w+", body):
        raise ValueError("the emulator knows neither shared memory of a dynamic size nor assembly")
    bodies: dict[str, str] = {}
    found = [m for m in _KERNEL.finditer(body) if m["end"] == " {"]
    for number, match in enumerate(found):
        end = found[number + 1].start() if number + 1 < len(found) else len(body)
        bodies[match["name"]] = body[match.start() : end]
    parts = [_kernel(match, bodies[match["name"]], launch_params[match["name"]]) for match in found]
    return '#include "emulator.h"\n' + head + "\n".join(parts)


def _kernel(match: re.Match[str], text: str, launch: Sequence[str]) -> str:
    name = match["name"]
    params = [_param(p) for p in match["params"].split(",") if p.strip()]
    body = text[match.end() - match.start() :]
    # a later declaration of the next kernel may follow the closing brace
    body = body[: body.rindex("}") + 1]
    body = _SHARED.sub(r'static emulator::Shared<\g<type>, \g<size>> \g<name>("\g<name>");', body)
    body = _LOCAL.sub(r"\g<lead>emulator::Local<\g<type>, \g<size>> \g<name>;", body)
    body = _WIDE.sub(r"emulator::at<\g<type>>(", body)
    body = _AS.sub(r"emulator::as<\g<type>>(\g<name>)", body)
    types = [f"emulator::Ptr<{kind}>" if is_pointer else kind for kind, _, is_pointer in params]
    signature = ", ".join(f"{kind} {arg}" for kind, (_, arg, _) in zip(types, params, strict=True))
    prepared, given = [], []
    for i, (kind, arg, is_pointer) in enumerate(params):
        if is_pointer:
            prepared.append(f'{arg} = emulator::pointer<{kind}>(args[{i}], "{arg}");')
        given.append(arg)
    declared = " ".join(
        f"{kind} {arg}{{}};" if is_pointer else f"const {kind} {arg} = emulator::number<{kind}>(args[{i}]);"
        for i, (kind, (_, arg, is_pointer)) in enumerate(zip(types, params, strict=True))
    )
    at = {dim: f"args[{len(params) + k}].number" for k, dim in enumerate(launch)}
    unknown = set(at) - set(_DIMS)
    if unknown:
        raise ValueError(f"kernel {name} is launched with {sorted(unknown)}, which the emulator does not know")
    dims = ", ".join(at.get(dim, "1") for dim in _DIMS)
    waits = "true" if _WAITS.search(body) else "false"
    return f"""
static void {name}_thread({signature}) {{{body}
extern "C" int __tvm_ffi_{name}(void*, const emulator::Any* args, int32_t, emulator::Any*) {{
  const int64_t dims[6] = {{{dims}}};
  {declared}
  return emulator::launch("{name}", {match["bounds"] or 0}, {waits}, dims,
                          [&] {{ {" ".join(prepared)} }}, [&] {{ {name}_thread({", ".join(given)}); }});
}}
"""


def _param(text: str) -> tuple[str, str, bool]:
    """(type of the element or number, name, whether it is a pointer)."""
    words = text.replace("__restrict__", " ").replace("const ", " ")
    is_pointer = "*" in words
    *kind, name = words.replace("*", " ").split()
    return " ".join(kind), name, is_pointer


def entry(name: str, inner: str) -> str:
    """The function that TVM's machine calls: it tells the emulator of its tensors, and goes on to `inner`."""
    return f"""
extern "C" int {inner}(void*, const emulator::Any*, int32_t, emulator::Any*);
extern "C" int {name}(void* self, const emulator::Any* args, int32_t count, emulator::Any* result) {{
  emulator::register_tensors(args, count);
  return {inner}(self, args, count, result);
}}
"""
