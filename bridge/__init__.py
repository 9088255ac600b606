# SPDX-License-Identifier: Apache-2.0
"""PyTorch training graphs in, running TVM code out.

The folders are the pipeline, in order: `capture` (live module -> CapturedGraph), `importer` (CapturedGraph ->
Translation, a Relax module with its plan of outputs and extern calls), `compile` (Translation -> Executable), `runtime`
(the calling convention around a running executable); `backend.py` strings them together for `torch.compile`.
Imports here stay lazy: importing `relaxgrad.bridge` loads neither torch nor TVM.
"""

#: The one place that holds it: pyproject.toml, the command and every record read it here.
__version__ = "0.1.0"
