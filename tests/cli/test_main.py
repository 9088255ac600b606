# SPDX-License-Identifier: Apache-2.0
"""Errors of a command become one line on stderr and an exit code; `--debug` brings the traceback back."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable

import pytest
import typer

from relaxgrad.bridge import __version__
from relaxgrad.bridge.errors import UnsupportedOps, UserError
from relaxgrad.bridge.kinds import Reason, ReasonKind
from relaxgrad.cli import main as module


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Runs `relaxgrad work ARGUMENTS`, where the command `work` does what the test says."""

    def run(work: Callable[[], object], *arguments: str) -> int:
        app = typer.Typer(pretty_exceptions_enable=False)
        app.callback()(module._options)

        @app.command("work")
        def command(steps: int = 1) -> object:
            return work()

        monkeypatch.setattr(module, "app", app)
        return module.main(["work", *arguments])

    return run


def raises(error: BaseException) -> Callable[[], object]:
    def work() -> object:
        raise error

    return work


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    return line


def test_a_command_that_ends_well_is_exit_code_0(run: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(lambda: print("done")) == 0
    assert capsys.readouterr() == ("done\n", "")


def test_a_command_chooses_its_exit_code(run: Callable[..., int]) -> None:
    assert run(raises(typer.Exit(1))) == 1
    assert run(raises(typer.Exit(0))) == 0


def test_a_user_error_is_one_line_and_exit_code_2(run: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(raises(UserError("no model 'gtp2';\n  take gpt2"))) == 2
    assert one_line(capsys) == "relaxgrad: no model 'gtp2'; take gpt2"


@pytest.mark.parametrize("arguments", [("--debug",), ("--steps", "2", "--debug")])
def test_debug_shows_the_traceback(
    run: Callable[..., int], capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    assert run(raises(UserError("no such model")), *arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("Traceback")
    assert error.endswith("relaxgrad: no such model\n")


def test_debug_may_stand_before_the_command_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert module.main(["--debug", "no-such-command"]) == 2
    assert capsys.readouterr().err.startswith("Traceback")


def test_debug_after_a_bare_double_dash_is_an_ordinary_argument() -> None:
    assert module._take_debug(["a", "--", "--debug"]) == (["a", "--", "--debug"], False)
    assert module._take_debug(["--debug", "a", "--", "b"]) == (["a", "--", "b"], True)
    assert module._take_debug(["--"]) == (["--"], False)


def test_an_unexpected_error_names_its_type_and_how_to_see_more(
    run: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(raises(ZeroDivisionError("by zero\nsecond line"))) == 1
    assert one_line(capsys) == "relaxgrad: ZeroDivisionError: by zero; run with --debug for the traceback"
    assert run(raises(RuntimeError())) == 1
    assert one_line(capsys) == "relaxgrad: RuntimeError: no message; run with --debug for the traceback"


def test_unsupported_ops_are_all_listed(run: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    reasons = [Reason(ReasonKind.NO_CONVERTER, f"aten.op{i}.default", f"op{i}") for i in range(2)]
    assert run(raises(UnsupportedOps(reasons))) == 1
    error = capsys.readouterr().err
    assert "aten.op0.default" in error
    assert "aten.op1.default" in error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), typer.Abort()])
def test_an_interrupt_is_exit_code_130(run: Callable[..., int], error: BaseException) -> None:
    assert run(raises(error)) == 130


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["frobnicate"], "frobnicate"),
        (["doctor", "--frobnicate"], "--frobnicate"),
        (["doctor", "one-too-many"], "one-too-many"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_code_2(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert module.main(arguments) == 2
    line = one_line(capsys)
    assert said in line
    assert "--help`)" in line


def test_a_value_of_the_wrong_type_is_named(run: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(raises(AssertionError("must not run")), "--steps", "many") == 2
    assert "--steps" in one_line(capsys)


def test_no_arguments_show_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert module.main([]) == 0
    assert "Usage: relaxgrad" in capsys.readouterr().out


def test_the_command_and_the_records_tell_one_version(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from relaxgrad.cli import doctor
    from relaxgrad.coverage.harness import records

    for reader in (module, doctor, records):
        assert reader.__dict__["__version__"] == __version__
        monkeypatch.setattr(reader, "__version__", "1.2.3")
    assert module.main(["--version"]) == 0
    assert capsys.readouterr().out == "relaxgrad 1.2.3\n"
    assert records.versions()["relaxgrad"] == doctor.versions()["relaxgrad"] == "1.2.3"


@pytest.mark.parametrize("package", ["typer", "pydantic"])
def test_without_the_extra_the_command_is_one_line(package: str) -> None:
    code = (
        f"import sys; sys.modules[{package!r}] = None; sys.argv[1:] = ['doctor'];"
        "from relaxgrad.cli.__main__ import main; raise SystemExit(main())"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert process.returncode == 2
    assert process.stdout == ""
    assert process.stderr == f"relaxgrad: the command needs {package}: pip install 'relaxgrad[cli]'\n"


def test_a_reader_that_goes_away_leaves_no_traceback() -> None:
    """As `relaxgrad --help | true`: the pipe is closed before anything is written."""
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "relaxgrad.cli", "--help"]
    process = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert process.returncode == 1
    assert process.stderr == ""


def test_control_c_ends_the_process_without_a_traceback() -> None:
    code = """
        import sys, time, typer
        from relaxgrad.cli import main as module
        @module.app.command("wait")
        def wait() -> None:
            print("waiting", flush=True)
            time.sleep(60)
        sys.exit(module.main(["wait"]))
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "Traceback" not in error


@pytest.mark.parametrize("command", ["", "train", "capture", "explain", "replay", "doctor", "audit", "bench", "report"])
def test_help_at_80_columns(command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """No type beside a flag, and no line of a paragraph ends where the next line's first word would have fitted."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    assert module.main([*command.split(), "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert not [line for line in lines if "<bool>" in line]
    end = next(number for number, line in enumerate(lines) if "Options" in line or "Arguments" in line)
    for line, after in itertools.pairwise([line.strip() for line in lines[:end]]):
        assert not line or not after or len(line) + len(after.split()[0]) + 1 > 77, line


def test_the_help_of_report_has_the_options_of_the_command_that_it_stands_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERMINAL_WIDTH", "100")
    assert module.main(["report", "--help"]) == 0
    text = capsys.readouterr().out
    for what in ("--against", "--rounds", "--no-bench", "MODEL...", "merge", "diff"):
        assert what in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["audit", "mlp", "--target", "cuda"],
            "no such option: --target; `relaxgrad train` and `relaxgrad compile` have it (see",
        ),
        (["audit", "mlp", "--dryrun"], "no such option: --dryrun; did you mean --dry-run? (see"),
        (["audit", "mlp", "--nothing-like-it"], "no such option: --nothing-like-it (see"),
    ],
)
def test_an_option_is_suggested_where_it_is_near_and_not_else(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert module.main(arguments) == 2
    assert says in one_line(capsys)
