# SPDX-License-Identifier: Apache-2.0
"""Parallel loops on the threads of the OpenMP that torch runs on: what compiled libraries have for it.

TVM starts a parallel loop through a pointer that its runtime sets when a library is loaded. Libraries of ours bring a
function of that kind, which has OpenMP call the loop's body once in each thread of a team; openmp.py puts it
into the pointer. It is no part of a kernel, since of LLVM IR that a kernel imports TVM keeps only what can be inlined.

A body that fails (a divisor that is zero) is run once more, in the thread that started the loop: TVM keeps an error in
the thread that raised it.
"""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path

import tvm_ffi

from .openmp import LAUNCH, OPENMP

# The types are TVM's: a body is int(int task, TVMParallelGroupEnv*, void* closure), and the environment a pointer and
# the number of tasks (tvm/runtime/c_backend_api.h). `GOMP_parallel` takes zero threads for as many as are set.
_PARALLEL, _NUMBER, _COUNT, _MOST = OPENMP
_TEXT = f"""
@{_PARALLEL} = global ptr null
@{_NUMBER} = global ptr null
@{_COUNT} = global ptr null
@{_MOST} = global ptr null
@{LAUNCH} = global ptr @relaxgrad.launch

define internal void @relaxgrad.member(ptr %work) nounwind {{
  %number_of = load ptr, ptr @{_NUMBER}
  %number = call i32 %number_of()
  %count_of = load ptr, ptr @{_COUNT}
  %count = call i32 %count_of()
  %environment = alloca {{ ptr, i32 }}
  store ptr null, ptr %environment
  %tasks = getelementptr {{ ptr, i32 }}, ptr %environment, i32 0, i32 1
  store i32 %count, ptr %tasks
  %body = load ptr, ptr %work
  %closure_at = getelementptr {{ ptr, ptr, i32, i32 }}, ptr %work, i32 0, i32 1
  %closure = load ptr, ptr %closure_at
  %code = call i32 %body(i32 %number, ptr %environment, ptr %closure)
  %fine = icmp eq i32 %code, 0
  br i1 %fine, label %done, label %failed
failed:
  %count_at = getelementptr {{ ptr, ptr, i32, i32 }}, ptr %work, i32 0, i32 3
  store atomic i32 %count, ptr %count_at monotonic, align 4
  %failed_at = getelementptr {{ ptr, ptr, i32, i32 }}, ptr %work, i32 0, i32 2
  %task = add i32 %number, 1
  store atomic i32 %task, ptr %failed_at monotonic, align 4
  br label %done
done:
  ret void
}}

define internal i32 @relaxgrad.launch(ptr %body, ptr %closure, i32 %wanted) nounwind {{
  %work = alloca {{ ptr, ptr, i32, i32 }}, align 8
  %environment = alloca {{ ptr, i32 }}
  store ptr null, ptr %environment
  %tasks = getelementptr {{ ptr, i32 }}, ptr %environment, i32 0, i32 1
  %most_of = load ptr, ptr @{_MOST}
  %most = call i32 %most_of()
  %is_alone = icmp eq i32 %most, 1
  br i1 %is_alone, label %alone, label %team
alone:
  store i32 1, ptr %tasks
  %only = call i32 %body(i32 0, ptr %environment, ptr %closure)
  ret i32 %only
team:
  store ptr %body, ptr %work
  %closure_at = getelementptr {{ ptr, ptr, i32, i32 }}, ptr %work, i32 0, i32 1
  store ptr %closure, ptr %closure_at
  %failed_at = getelementptr {{ ptr, ptr, i32, i32 }}, ptr %work, i32 0, i32 2
  store i32 0, ptr %failed_at
  %parallel = load ptr, ptr @{_PARALLEL}
  call void %parallel(ptr @relaxgrad.member, ptr %work, i32 0, i32 0)
  %failed = load atomic i32, ptr %failed_at monotonic, align 4
  %fine = icmp eq i32 %failed, 0
  br i1 %fine, label %done, label %again
again:
  %count_at = getelementptr {{ ptr, ptr, i32, i32 }}, ptr %work, i32 0, i32 3
  %count = load atomic i32, ptr %count_at monotonic, align 4
  store i32 %count, ptr %tasks
  %task = sub i32 %failed, 1
  %code = call i32 %body(i32 %task, ptr %environment, ptr %closure)
  ret i32 -1
done:
  ret i32 0
}}
"""


@functools.cache
def object_file() -> bytes:
    """Machine code of the functions above for this machine's kind of CPU, to be linked into a library.

    Raises what TVM raises.
    """
    from tvm.target import codegen

    target = json.dumps({"kind": "llvm", "mtriple": codegen.llvm_get_system_triple()}).replace('"', "\\22")
    flags = f'!llvm.module.flags = !{{!0}}\n!0 = !{{i32 2, !"tvm_target", !"{target}"}}\n'  # by which TVM compiles it
    with tempfile.TemporaryDirectory(prefix="relaxgrad-") as folder:
        source, compiled = Path(folder, "team.ll"), Path(folder, "team.o")
        source.write_text(_TEXT + flags)
        tvm_ffi.load_module(str(source)).write_to_file(str(compiled), "o")
        return compiled.read_bytes()
