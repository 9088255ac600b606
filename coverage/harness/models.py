# SPDX-License-Identifier: Apache-2.0
"""MODEL on the command line -> Problem: a zoo name, `path/to/file.py:factory` or `package.module:factory`.

A factory takes no arguments and returns (module, inputs) or (module, inputs, loss_fn): inputs are a tensor, a tuple of
positional inputs or a dict of keyword inputs; loss_fn takes the module's output and returns a 0-d tensor. Whatever is
wrong with it becomes one `UserError` line.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.machinery
import importlib.util
import inspect
import linecache
import sys
import sysconfig
import tomllib
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from relaxgrad.bridge.errors import UserError

from ..zoo import ZOO

if TYPE_CHECKING:
    from .problem import Problem

CONTRACT = "(module, inputs) or (module, inputs, loss_fn)"


def load_problem(model: str, seed: int = 0) -> Problem:
    """The training problem that `model` names, in train mode, everything random in it drawn from `seed`.

    Runs the user's code. Raises UserError, in one line, for every way in which the name or the factory is wrong.
    """
    check_name(model)
    if model in ZOO:
        try:
            return ZOO[model].build(seed)
        except ImportError as error:
            raise UserError(
                f"zoo model {model} needs a package that is not there ({error}); install it: pip install relaxgrad[zoo]"
            ) from error
    from .problem import seed_everything

    factory = _find_factory(model)
    seed_everything(seed)
    try:
        made = factory()
    except (Exception, SystemExit) as error:
        raise UserError(f"{model}: the factory raised {describe(error)}") from error
    problem = _checked(model, made)
    problem.module.train()
    return problem


def expand(model: str) -> list[str]:
    """The models that one word of the command line stands for.

    `path/to/file.py` stands for each of its factories: public functions without parameters, in order.
    `path/to/list.toml` has a table `[models]` with lines `name = "file.py:factory"`, paths from the list's own folder.
    Anything else stands for itself. Raises UserError for a file that cannot be read, or holds none.
    """
    path = Path(model)
    if path.suffix == ".py" and ":" not in path.name:
        return [f"{model}:{name}" for name in _factories(path)]
    if path.suffix == ".toml":
        return _listed(path)
    return [model]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; give a path from {Path.cwd()}") from error


def _factories(path: Path) -> list[str]:
    try:
        tree = ast.parse(_read(path))
    except SyntaxError as error:
        raise UserError(f"{path}:{error.lineno} is not Python: {error.msg}") from error
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")]
    found = [f.name for f in functions if not any((f.args.args, f.args.posonlyargs, f.args.kwonlyargs, f.args.vararg))]
    if not found:
        raise UserError(f"{path} has no factory: a function without parameters that returns {CONTRACT}")
    return found


def _listed(path: Path) -> list[str]:
    try:
        table = tomllib.loads(_read(path)).get("models")
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path} is not TOML: {error}") from error
    if not isinstance(table, dict) or not table or not all(isinstance(value, str) for value in table.values()):
        raise UserError(f'{path} has no table [models] with lines as: name = "file.py:factory"')
    return [_from_folder(value, path.parent) for value in table.values()]


def _from_folder(model: str, folder: Path) -> str:
    file, colon, factory = model.partition(":")
    return f"{folder / file}{colon}{factory}" if file.endswith(".py") else model


def check_name(model: str) -> None:
    """Raises UserError for a name that can be told wrong without running the user's code."""
    if model in ZOO:
        return
    place, colon, function = model.rpartition(":")
    if not colon:
        if model.endswith(".py") or "/" in model:
            found = _function_names(Path(model))
            hint = f"{model}:{found[0]}" if found else f"{model}:factory"
            raise UserError(f"{model}: name the factory function in the file, as {hint}")
        found = difflib.get_close_matches(model, ZOO, n=3, cutoff=0.5) or [name for name in ZOO if model in name][:3]
        near = f"did you mean {' or '.join(found)}? " if found else ""
        raise UserError(
            f"unknown model {model!r}; {near}`relaxgrad audit --zoo all --list` prints all names (your own: "
            "path.py:factory)"
        )
    if not place or not function.isidentifier():
        raise UserError(f"{model}: not a model; write path/to/file.py:factory or package.module:factory")
    if place.endswith(".py") or "/" in place:
        path = Path(place)
        if not path.is_file():
            files = sorted(p.name for p in path.parent.glob("*.py")) if path.parent.is_dir() else []
            raise UserError(f"{model}: no file {place}; {_close(path.name, files, 'files there')}")
        try:
            compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:  # ValueError: a null byte, in some releases of Python
            line = f":{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
            told = error.msg if isinstance(error, SyntaxError) else error
            raise UserError(f"{path}{line} is not Python: {told}") from error
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}") from error
        _check_imports(path)
        if not _may_have(path, function):
            raise _no_function(model, function, place, _function_names(path))
        _check_literals(path, function)


def _check_imports(path: Path) -> None:
    """Raises UserError for a module that the file imports at its top level and nothing provides.

    Only whole packages are looked for, in the file's folder and on sys.path, and no code is run. What stands inside of
    `try`, `if` or a function may be meant to be missing, and a file that changes sys.path may find it elsewhere.
    """
    tree = ast.parse(path.read_bytes())
    if any(isinstance(node, ast.Attribute) and node.attr == "path" for node in ast.walk(tree)):
        return
    for node in tree.body:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names = [node.module]
        else:
            continue
        for name in (full.partition(".")[0] for full in names):
            if name in sys.modules or name in sys.builtin_module_names:
                continue
            beside = [str(path.parent.resolve()), *sys.path]
            if importlib.machinery.PathFinder.find_spec(name, beside) is None and not _has_other_finder(name):
                raise UserError(f"{path}:{node.lineno}: no module {name}; it is neither installed nor in the folder")


def _check_literals(path: Path, name: str) -> None:
    """Raises UserError where the file binds the name, once, to a number or a text, or to a function that returns one.

    What depends on running the file is left to `_checked`.
    """
    bound: list[tuple[ast.stmt, ast.expr | None]] = []
    tree = ast.parse(path.read_bytes())
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            own = [n for n in ast.walk(node) if isinstance(n, ast.Return)]
            bound.append((own[0], own[0].value) if len(own) == 1 and not node.decorator_list else (node, None))
        elif isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store):
            found = [s for s in tree.body if isinstance(s, ast.Assign) and node in s.targets]
            bound += [(s, s.value) for s in found] or [(tree.body[0], None)]
    if len(bound) != 1 or not isinstance(bound[0][1], ast.Constant):
        return
    node, value = bound[0][0], bound[0][1].value
    if isinstance(node, ast.Return):
        raise UserError(f"{path}:{node.lineno}: the factory returns {_kind(value)}; return {CONTRACT}")
    raise UserError(f"{path}:{node.lineno}: {name} is {_kind(value)}, not a function that returns {CONTRACT}")


def _has_other_finder(name: str) -> bool:
    """Whether an editable install, or another finder that a package put into Python, knows the module."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError, AttributeError):
        return True  # found, and strange: importing it will tell


def _no_function(model: str, name: str, place: str, there: list[str]) -> UserError:
    return UserError(f"{model}: no function {name} in {place}; {_close(name, there, 'functions there')}")


def _may_have(path: Path, name: str) -> bool:
    """Whether running a file may bind a name: False where nothing in it does. One that cannot be parsed may."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return True
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name in (
            name,
            "__getattr__",
        ):
            return True
        if isinstance(node, ast.Name) and (
            (node.id == name and isinstance(node.ctx, ast.Store)) or node.id in ("globals", "setattr", "exec", "vars")
        ):
            return True
        if isinstance(node, ast.alias) and (node.asname or node.name) in (name, "*"):
            return True
    return False


def _close(name: str, candidates: list[str], what: str) -> str:
    near = difflib.get_close_matches(name, candidates, n=1, cutoff=0.5)
    if near:
        return f"did you mean {near[0]}?"
    return f"{what}: {', '.join(candidates[:20])}" if candidates else f"no {what}"


def _function_names(path: Path) -> list[str]:
    """The public functions of a file, read without running it."""
    try:
        tree = ast.parse(path.read_text())
    except (OSError, SyntaxError, ValueError):
        return []
    return [n.name for n in tree.body if isinstance(n, ast.FunctionDef) and not n.name.startswith("_")]


# ---------------------------------------------------------------------------------------------------------------------
# The user's function


def _find_factory(model: str) -> Callable[[], Any]:
    place, _, name = model.rpartition(":")
    try:
        module = _import_file(Path(place)) if place.endswith(".py") or "/" in place else _import_module(model, place)
    except (Exception, SystemExit) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{model}: importing it raised {describe(error)}") from error
    factory = getattr(module, name, None)
    if factory is None:
        own = [
            n
            for n, v in vars(module).items()
            if inspect.isfunction(v) and v.__module__ == module.__name__ and not n.startswith("_")
        ]
        raise _no_function(model, name, place, own)
    if not callable(factory):
        raise UserError(f"{model}: {name} is {_kind(factory)}, not a function that returns {CONTRACT}")
    _check_no_arguments(model, name, factory)
    found: Callable[[], Any] = factory
    return found


def _check_no_arguments(model: str, name: str, factory: Callable[..., Any]) -> None:
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # some builtins have none; calling it will tell
        return
    empty, variable = inspect.Parameter.empty, (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    required = [p.name for p in signature.parameters.values() if p.default is empty and p.kind not in variable]
    if required:
        raise UserError(f"{model}: {name} needs arguments ({', '.join(required)}); a factory is called with none")


def _import_file(path: Path) -> ModuleType:
    """The module of a file, imported once; its folder goes on sys.path as it does for `python file.py`."""
    path = path.resolve()
    name = f"relaxgrad_user_{path.stem}_{abs(hash(str(path))):x}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path}: not a Python file; write path/to/file.py:factory")
    _on_path(path.parent)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before running it: dataclasses and pickle look their module up by name
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _import_module(model: str, name: str) -> ModuleType:
    _on_path(Path.cwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise UserError(f"{model}: no module {error.name}; looked in the current folder and on sys.path") from error
        raise


def _on_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


# ---------------------------------------------------------------------------------------------------------------------
# What the function returned


def _checked(model: str, made: Any) -> Problem:
    from torch import nn

    from .problem import Problem, tensors_in

    if isinstance(made, Problem):
        return made
    if isinstance(made, nn.Module):
        raise UserError(f"{model}: the factory returned a module without inputs; return {CONTRACT}")
    if not isinstance(made, (tuple, list)):
        raise UserError(f"{model}: the factory returned {_kind(made)}; return {CONTRACT}")
    if len(made) not in (2, 3):
        raise UserError(f"{model}: the factory returned {len(made)} values; return {CONTRACT}")
    module, inputs, loss_fn = (*made, None) if len(made) == 2 else made
    if isinstance(module, type) and issubclass(module, nn.Module):
        raise UserError(
            f"{model}: the first value is the class {module.__name__}; return an instance, as {module.__name__}()"
        )
    if not isinstance(module, nn.Module):
        raise UserError(f"{model}: the first value is {_kind(module)}, not a torch.nn.Module; return {CONTRACT}")
    if loss_fn is not None and not callable(loss_fn):
        raise UserError(f"{model}: the loss is {_kind(loss_fn)}, not a function of the module's output")
    if not any(p.requires_grad for p in module.parameters()):
        raise UserError(f"{model}: the module has no trainable parameter, so there is nothing to train")
    args, kwargs = _inputs(model, inputs)
    for where, value in [
        *((f"input {i}", a) for i, a in enumerate(args)),
        *((f"input {k!r}", v) for k, v in kwargs.items()),
    ]:
        _check_input(model, where, value)
    tensors = tensors_in([list(args), kwargs])
    if not tensors:
        raise UserError(f"{model}: no tensor among the inputs; return a tensor, a tuple or a dict of tensors")
    for tensor in [*tensors, *module.parameters()]:
        if tensor.device.type != "cpu":
            raise UserError(f"{model}: a tensor is on {tensor.device}; return module and inputs on the CPU")
    return Problem(module, args, kwargs, loss_fn)


def _inputs(model: str, inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    from torch import Tensor

    if isinstance(inputs, Tensor):
        return (inputs,), {}
    if isinstance(inputs, (tuple, list)):
        return tuple(inputs), {}
    if hasattr(inputs, "keys"):  # a dict, or a tokenizer's BatchEncoding
        inputs = {key: inputs[key] for key in inputs.keys()}  # noqa: SIM118 - only `keys` is promised
        wrong = [key for key in inputs if not isinstance(key, str)]
        if wrong:
            raise UserError(f"{model}: input names must be text, and {wrong[0]!r} is {_kind(wrong[0])}")
        return (), inputs
    raise UserError(f"{model}: the inputs are {_kind(inputs)}; return a tensor, a tuple or a dict of tensors")


def _check_input(model: str, where: str, value: Any) -> None:
    from torch import Tensor

    if value is None or isinstance(value, (Tensor, bool, int, float, str)):
        return
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        for item in value:
            _check_input(model, where, item)
        return
    hint = "; use torch.from_numpy" if type(value).__module__ == "numpy" else "; use a tensor"
    raise UserError(f"{model}: {where} is {_kind(value)}, not a tensor{hint}")


def _kind(value: Any) -> str:
    return "None" if value is None else f"a value of type {type(value).__qualname__}"


# ---------------------------------------------------------------------------------------------------------------------
# Errors in the user's code


def describe(error: BaseException) -> str:
    """One line for an exception in a user's code: type, first line of the message, file and line in their code."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    message = f": {lines[0]}" if lines else ""
    where = _user_line(error)
    return f"{type(error).__name__}{message}{f' at {where}' if where else ''}"


def _user_line(error: BaseException) -> str:
    """`file:line (code)` of the innermost frame of the user's own code; of any code but ours when there is none."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    own = str(Path(__file__).resolve().parent.parent)
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<")]
    frames = [f for f in frames if not str(Path(f.filename).resolve()).startswith(own)]
    libraries = tuple({sysconfig.get_path(key) for key in ("stdlib", "platstdlib", "purelib", "platlib")})
    theirs = [f for f in frames if not f.filename.startswith(libraries)]
    if not theirs and not frames:
        return ""
    frame = theirs[-1] if theirs else frames[-1]
    code = linecache.getline(frame.filename, frame.lineno or 0).strip()
    return f"{frame.filename}:{frame.lineno}" + (f" ({code})" if code else "")
