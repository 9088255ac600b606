# SPDX-License-Identifier: Apache-2.0
"""The rules of the layers: where code may live, what may import what, and that the package that is built is whole."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import torch

from relaxgrad.bridge import __version__
from relaxgrad.cli.__main__ import PACKAGES
from relaxgrad.reports.architecture_page import FOLDERS, Import, imports, imports_of, module_name

ROOT = Path(__file__).resolve().parent.parent
MAX_LINES = 600
COMPATIBILITY_MODULE = "relaxgrad.bridge.torch_api"  # the one module that names private parts of torch

# Inside bridge, lower may not import higher. What is not listed here (kinds, errors, schemas) is below all of them.
BRIDGE_LEVELS = {
    "torch_api": 1,
    "pytree": 1,
    "device": 1,  # what is asked of a device, and the list of them
    "targets": 1,
    "schemas": 1,
    "options": 1,
    "capture": 2,
    "importer": 3,
    "runtime": 3,
    "compile": 4,
    "devices": 5,  # each in a folder: nothing imports one by name, `device.devices()` finds it
    "logs": 6,
    "records": 6,
    "graph": 6,
    "backend": 6,
}


def sources() -> list[Path]:
    return sorted(p for folder in FOLDERS for p in (ROOT / folder).rglob("*.py"))


def wrong_arrows(module: str, found: list[Import]) -> list[str]:
    """Imports that point from a lower folder (or level of bridge) to a higher one."""
    own = module.split(".")
    wrong = []
    for entry in found:
        target = entry.target.split(".")
        if target[0] in (*FOLDERS[:1], *FOLDERS[2:]):
            wrong.append(f"{module}:{entry.line} imports {entry.target}, installed as relaxgrad.{entry.target}")
        if target[0] != "relaxgrad" or len(target) < 2 or len(own) < 2:
            continue
        folder_above = FOLDERS.index(target[1]) > FOLDERS.index(own[1])
        level_above = own[1] == target[1] == "bridge" and bridge_level(target) > bridge_level(own)
        if folder_above or level_above:
            wrong.append(f"{module}:{entry.line} imports {entry.target}")
    return wrong


def bridge_level(parts: list[str]) -> int:
    """The level of `["relaxgrad", "bridge", NAME, ...]`."""
    return BRIDGE_LEVELS.get("".join(parts[2:3]), 0)


def private_torch_names(tree: ast.Module, found: list[Import]) -> list[str]:
    """Uses of private torch names: imports, attribute paths from `torch`, and paths written as whole strings.

    `torch.ops` is left out: below it stand names of operators, some of which begin with an underscore.
    """

    def is_private(path: str) -> bool:
        parts = path.replace(":", ".").split(".")
        if parts[0] not in ("torch", "functorch") or parts[1:2] == ["ops"]:
            return False
        return any(p.startswith("_") and not p.startswith("__") for p in parts)

    names = [f"line {entry.line}: {entry.target}" for entry in found if is_private(entry.target)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            path = ast.unparse(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            path = node.value
        else:
            continue
        if re.fullmatch(r"(torch|functorch)(\.\w+)+(:\w+)?", path) and is_private(path):
            names.append(f"line {node.lineno}: {path}")
    return names


def test_there_is_code_in_the_folders() -> None:
    assert len(sources()) > 10  # the rules below would hold for an empty tree


def test_arrows_point_one_way() -> None:
    assert [
        w for path in sources() for w in wrong_arrows(module_name(path.relative_to(ROOT)), imports_of(path, ROOT))
    ] == []


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("relaxgrad.bridge.backend", "from relaxgrad.coverage import zoo"),
        ("relaxgrad.coverage.auditor", "def f():\n    from ..cli import main"),
        ("relaxgrad.bridge.capture.joint", "from .. import backend"),
        ("relaxgrad.bridge.torch_api", "from .capture.joint import capture"),
        ("relaxgrad.bridge.kinds", "import relaxgrad.bridge.torch_api"),
        ("relaxgrad.bridge.compile.pipeline", "from ..devices.cpu import schedule"),
        ("relaxgrad.cli.train", "from bridge.errors import UserError"),
    ],
)
def test_an_arrow_back_is_found(module: str, line: str) -> None:
    assert len(wrong_arrows(module, list(imports(ast.parse(line), module, False)))) == 1


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("relaxgrad.cli.train", "from relaxgrad.bridge.errors import UserError"),
        ("relaxgrad.bridge.backend", "from .runtime import executable"),
        ("relaxgrad.bridge.capture.joint", "from ..torch_api import FakeTensor"),
        ("relaxgrad.cli.train", "import coverage, torch"),
    ],
)
def test_an_arrow_forward_is_allowed(module: str, line: str) -> None:
    assert wrong_arrows(module, list(imports(ast.parse(line), module, False))) == []


def test_importer_and_runtime_know_nothing_of_each_other() -> None:
    """What they share is the plan: a graph from the cache runs in a process that never loads the importer."""
    for own, other in (("importer", "runtime"), ("runtime", "importer")):
        files = list((ROOT / "bridge" / own).rglob("*.py"))
        assert files
        named = [entry.target for path in files for entry in imports_of(path, ROOT)]
        assert [name for name in named if name.startswith(f"relaxgrad.bridge.{other}")] == []


#: What only one device may be asked of, as whole words or parts of a name.
DEVICE_WORDS = re.compile(r"(?<![a-z])(llvm|cpu|sgemm|omp|openmp|cuda|nvcc)(?![a-z])")
#: File of bridge/ -> lines with such a word that are about this process or torch, and not about a device of graphs.
ABOUT_THE_HOST = {
    "torch_probes.py": ["value.device.type"],  # probes try what torch itself does
    "forked.py": ["psutil.Process(pid).cpu_times()", "os.cpu_count()"],
    "compile/worker.py": ["torch.cuda.is_initialized()"],  # a process with a driver's context cannot fork
}


def device_lines(text: str, allowed: list[str]) -> list[int]:
    return [
        number
        for number, line in enumerate(text.splitlines(), 1)
        if DEVICE_WORDS.search(line) and not any(part in line for part in allowed)
    ]


def test_what_a_device_decides_stands_in_its_folder() -> None:
    bridge = ROOT / "bridge"
    found = [
        f"{path.relative_to(bridge)}:{line}"
        for path in sorted(bridge.rglob("*.py"))
        if bridge / "devices" not in path.parents
        for line in device_lines(path.read_text(), ABOUT_THE_HOST.get(str(path.relative_to(bridge)), []))
    ]
    assert found == []
    for name, parts in ABOUT_THE_HOST.items():  # an exception that nothing needs any more
        assert all(part in (bridge / name).read_text() for part in parts)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ('if x.device.type == "cpu":', True),
        ("aten._scaled_dot_product_flash_attention_for_cpu", True),
        ('symbol = "sgemm_"', True),
        ("kOMP = omp_get_max_threads()", True),
        ("def decompose(component): return compile(component)", False),
    ],
)
def test_a_devices_name_is_found(line: str, named: bool) -> None:
    assert device_lines(line, []) == ([1] if named else [])


def test_private_torch_names_stand_in_one_module() -> None:
    wrong = [
        f"{path.relative_to(ROOT)} {name}"
        for path in sources()
        if module_name(path.relative_to(ROOT)) != COMPATIBILITY_MODULE
        for name in private_torch_names(ast.parse(path.read_text()), imports_of(path, ROOT))
    ]
    assert wrong == [], f"import these in bridge/torch_api.py, with a probe: {wrong}"


@pytest.mark.parametrize(
    ("code", "private"),
    [
        ("from torch._dynamo import config", True),
        ("import torch._functorch.aot_autograd", True),
        ("from torch.utils._pytree import tree_map", True),
        ("from torch import _guards", True),
        ("import torch\ntorch._dynamo.reset()", True),
        ("importlib.import_module('torch._inductor.config')", True),
        ("import torch\ntorch.ops.aten._softmax.default, torch.__version__, torch.compiler.reset()", False),
        ("from torch.fx import GraphModule\nx._version", False),
    ],
)
def test_a_private_torch_name_is_found(code: str, private: bool) -> None:
    tree = ast.parse(code)
    found = private_torch_names(tree, list(imports(tree, "relaxgrad.bridge.x", False)))
    assert bool(found) == private


def test_no_file_is_too_long() -> None:
    lengths = {str(p.relative_to(ROOT)): len(p.read_text().splitlines()) for p in sources()}
    assert {name: n for name, n in lengths.items() if n > MAX_LINES} == {}


def test_every_module_says_what_it_is() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in sources()
        if path.read_text().strip() and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert silent == []


LICENCE = "# SPDX-License-Identifier: Apache-2.0"


def without_licence(root: Path) -> list[str]:
    """The Python files whose first line, or whose second after a shebang, is not the identifier of the licence."""
    files = sorted(p for folder in (*FOLDERS, "tests", "examples") for p in (root / folder).rglob("*.py"))
    heads = {path: path.read_text(encoding="utf-8").splitlines()[:2] for path in files}
    own = {path: head[1:] if head and head[0].startswith("#!") else head for path, head in heads.items()}
    return [str(path.relative_to(root)) for path, head in own.items() if head[:1] != [LICENCE]]


def test_every_file_names_its_licence() -> None:
    assert without_licence(ROOT) == [], f"put this before the docstring: {LICENCE}"


def test_a_file_without_its_licence_is_found(tmp_path: Path) -> None:
    texts = {
        "right": f'{LICENCE}\n"""a"""\n', "run": f"#!/usr/bin/env python\n{LICENCE}\n", "late": f'"""a"""\n{LICENCE}\n',
        "other": "# SPDX-License-Identifier: MIT\n", "bare": "#!/usr/bin/env python\n", "empty": "",
    }  # fmt: skip
    (tmp_path / "cli").mkdir()
    for name, text in texts.items():
        (tmp_path / "cli" / f"{name}.py").write_text(text)
    assert without_licence(tmp_path) == [f"cli/{name}.py" for name in ("bare", "empty", "late", "other")]


# -- packaging --------------------------------------------------------------------------------------------------------


def listed_packages() -> set[str]:
    with open(ROOT / "pyproject.toml", "rb") as file:
        return set(tomllib.load(file)["tool"]["setuptools"]["packages"])


def test_the_list_of_packages_is_complete() -> None:
    present = {module_name((path.parent / "__init__.py").relative_to(ROOT)) for path in sources()}
    listed = listed_packages()
    assert present - listed == set(), "folders with modules that pyproject.toml does not list"
    without_folder = {n for n in listed if not (ROOT / Path(*n.split(".")[1:])).is_dir()}
    assert without_folder == set(), "packages that have no folder"


def packages_of(requirements: list[str]) -> set[str]:
    """The modules that they bring, which have the names of the packages but for TVM's."""
    names = {re.split(r"[^\w-]", requirement)[0] for requirement in requirements}
    return {"tvm" if name == "apache-tvm" else name for name in names}


def test_the_bridge_imports_what_comes_with_it() -> None:
    with open(ROOT / "pyproject.toml", "rb") as file:
        project = tomllib.load(file)["project"]
    core, extra = (packages_of(p) for p in (project["dependencies"], project["optional-dependencies"]["cli"]))
    assert extra == set(PACKAGES)
    brought = {"sympy": "torch", "tvm_ffi": "tvm"}
    files = list((ROOT / "bridge").rglob("*.py"))
    named = {entry.target.split(".")[0] for path in files for entry in imports_of(path, ROOT)}
    foreign = {brought.get(name, name) for name in named - sys.stdlib_module_names - {"relaxgrad"}}
    assert "psutil" in foreign
    assert foreign - core == set(), "pyproject.toml does not bring these with `pip install relaxgrad`"


def test_the_backend_trains_without_the_extra() -> None:
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({PACKAGES!r}));"
        "import torch; x = torch.ones(3, requires_grad=True);"
        "torch.compile(lambda x: x.sin().sum(), backend='relaxgrad')(x).backward();"
        "assert torch.allclose(x.grad, x.cos()); print('trained')"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.stdout == "trained\n", run.stderr[-2000:]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy, since setuptools would leave its build folder in the working tree."""
    copy, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", str(out), str(copy)]
    run = subprocess.run(build, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    (built,) = out.glob("*.whl")
    return built


def test_the_wheel_holds_every_file_under_one_name(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {n.split("/")[0] for n in names if ".dist-info" not in n} == {"relaxgrad"}
    expected = {f"relaxgrad/{p.relative_to(ROOT).as_posix()}" for p in sources()}
    expected |= {f"relaxgrad/{folder}/py.typed" for folder in FOLDERS}
    assert expected - names == set()


def test_the_wheel_has_the_version_that_the_bridge_tells(wheel: Path) -> None:
    assert wheel.name.split("-")[:2] == ["relaxgrad", __version__]


def test_the_wheel_is_imported_without_the_working_tree(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = (
        "import relaxgrad.bridge.kinds as k, relaxgrad.bridge.schemas as s, relaxgrad.cli.main as m;"
        "print(k.__file__, s.__file__, m.__file__); raise SystemExit(m.main(['--help']))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert run.returncode == 0, run.stderr
    assert all(name.startswith(str(tmp_path)) for name in run.stdout.splitlines()[0].split())


def test_coverage_py_is_not_hidden_by_our_folder() -> None:
    assert not (ROOT / "coverage" / "__init__.py").exists()
    code = "import coverage; print(coverage.__file__, coverage.Coverage.__name__)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    assert not run.stdout.startswith(str(ROOT / "coverage")), run.stdout
    assert run.stdout.split()[-1] == "Coverage"


def test_torch_finds_the_backend_by_its_entry_point() -> None:
    (entry,) = importlib.metadata.entry_points(group="torch_dynamo_backends", name="relaxgrad")
    assert callable(entry.load())
    assert "relaxgrad" in torch.compiler.list_backends()


# -- commands ---------------------------------------------------------------------------------------------------------


def test_the_commands_of_the_readme_exist() -> None:
    named = set(re.findall(r"^\s*make ([\w-]+)", (ROOT / "README.md").read_text(), flags=re.MULTILINE))
    assert {"test", "train"} <= named
    targets = set(re.findall(r"^([\w-]+):(?!=)", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert named - targets == set()


def test_help_loads_neither_torch_nor_tvm() -> None:
    code = (
        "import sys; from relaxgrad.cli.main import main; code = main(['--help']);"
        "loaded = {'torch', 'tvm', 'numpy', 'transformers'} & sys.modules.keys();"
        "raise SystemExit(f'loaded {loaded}' if loaded else code)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    for command in ("train", "capture", "doctor"):
        assert command in run.stdout
