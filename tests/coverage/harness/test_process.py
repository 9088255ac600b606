# SPDX-License-Identifier: Apache-2.0
"""The process runner: what happens in a worker costs that worker's task alone."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from relaxgrad.coverage.harness import process
from relaxgrad.coverage.harness.process import State, Worker, run_task, run_tasks

TASKS = """\
import os, subprocess, sys, time
from relaxgrad.bridge.errors import UserError

def double(arguments, emit):
    emit({"event": "seen", "x": arguments["x"]})
    print("said by the user's code")
    return {"x": 2 * arguments["x"], "threads": os.environ["TVM_NUM_THREADS"], "nan": float("nan")}

def user_error(arguments, emit):
    raise UserError("bad input")

def error(arguments, emit):
    raise KeyError("k")

def abort(arguments, emit):
    os.abort()

def leave(arguments, emit):
    print("last words", file=sys.stderr, flush=True)
    os._exit(3)

def hang(arguments, emit):
    child = subprocess.Popen(["sleep", "1000"])
    emit({"event": "child", "pid": child.pid})
    time.sleep(1000)

def fork(arguments, emit):
    if os.fork() == 0:
        time.sleep(1000)
    return {"done": True}

def linger(arguments, emit):
    import atexit
    atexit.register(time.sleep, 1000)
    return {"done": True}

def pick(arguments, emit):
    return globals()[arguments["do"]](arguments, emit)

def counter(arguments, emit):
    count = arguments["start"]
    def answer(command):
        nonlocal count
        if command.get("do") == "error":
            raise UserError("not this")
        if command.get("do") == "abort":
            os.abort()
        if command.get("do") == "hang":
            time.sleep(1000)
        if command.get("do") == "pid":
            return {"pid": os.getpid()}
        if command.get("do") == "read":
            child = subprocess.run([sys.executable, "-c", "print(input())"], capture_output=True, text=True)
            return {"read": sys.stdin.read(), "child": child.stdout}
        emit({"event": "adding", "number": command["add"]})
        count += command["add"]
        return {"count": count, "said": os.environ.get("SAID_TO_IT")}
    return answer

def no_session(arguments, emit):
    raise UserError("no session")
"""


@pytest.fixture(autouse=True)
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tasks_of_the_test.py").write_text(TASKS)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))


def run(name: str, timeout: float = 60.0, on_event: Any = None) -> Any:
    return run_task(f"tasks_of_the_test:{name}", {"x": 21}, timeout, on_event)


def test_value_events_and_output() -> None:
    events: list[dict[str, Any]] = []
    outcome = run("double", on_event=events.append)
    assert outcome.state is State.OK
    assert outcome.value["x"] == 42
    assert outcome.value["threads"] == "1"
    assert outcome.value["nan"] != outcome.value["nan"]
    assert events == [{"event": "seen", "x": 21}]
    assert "said by the user's code" in outcome.output


def test_errors_come_back_as_values() -> None:
    outcome = run("user_error")
    assert (outcome.state, outcome.message) == (State.USER_ERROR, "bad input")
    assert "Traceback" in outcome.traceback
    outcome = run("error")
    assert outcome.state is State.ERROR
    assert outcome.message.startswith("KeyError: 'k' at ")
    assert "tasks_of_the_test.py:13" in outcome.message


def test_a_crash_is_named_with_its_line() -> None:
    outcome = run("abort")
    assert outcome.state is State.CRASHED
    assert "SIGABRT in abort at" in outcome.message
    assert "tasks_of_the_test.py:16" in outcome.message
    outcome = run("leave")
    assert outcome.message == "the worker process exited with code 3: last words"


def gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"  # killed, and not yet collected by its new parent


def test_a_hanging_worker_is_killed_with_its_children() -> None:
    children: list[int] = []
    start = time.monotonic()
    outcome = run("hang", timeout=6.0, on_event=lambda event: children.append(event["pid"]))
    assert outcome.state is State.TIMEOUT
    assert outcome.message == "no result within 6 s"
    assert time.monotonic() - start < 30
    assert len(children) == 1
    deadline = time.monotonic() + 5
    while not gone(children[0]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert gone(children[0])


def test_a_worker_ends_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    code = "import sys; from relaxgrad.coverage.harness.process import run_task\n"
    code += "run_task('tasks_of_the_test:hang', {}, 600, lambda event: print(event['pid'], flush=True))"
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    with parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        worker = int(Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[1])
        assert not gone(worker)
        parent.kill()
    deadline = time.monotonic() + 5
    while not (gone(worker) and gone(child)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert gone(worker)
    assert gone(child)


def test_a_forked_child_does_not_hold_the_result_back() -> None:
    start = time.monotonic()
    assert run("fork").state is State.OK
    assert time.monotonic() - start < 30


def test_a_worker_that_has_answered_and_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "LAST_SECONDS", 1.0)
    start = time.monotonic()
    outcome = run("linger", timeout=200.0)
    assert (outcome.state, outcome.value) == (State.OK, {"done": True})
    assert time.monotonic() - start < 60


def test_memory_of_a_process_that_has_ended_is_none() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    watched = psutil.Process(child.pid)
    assert process._memory_of(psutil.Process()) > 2**20
    child.wait()
    assert process._memory_of(watched) == 0


@pytest.mark.parametrize("jobs", [1, 3])
def test_several_tasks_keep_their_order(jobs: int) -> None:
    done: list[int] = []
    arguments = [{"do": "double", "x": 1}, {"do": "abort"}, {"do": "double", "x": 3}]
    outcomes = run_tasks("tasks_of_the_test:pick", arguments, 60.0, jobs, on_done=lambda i, outcome: done.append(i))
    assert [o.state for o in outcomes] == [State.OK, State.CRASHED, State.OK]
    assert [o.value["x"] for o in outcomes if o.value] == [2, 6]
    assert sorted(done) == [0, 1, 2]


# ---------------------------------------------------------------------------------------------------------------------
# Workers that wait for commands


def session(name: str = "counter", timeout: float = 60.0, **options: Any) -> Worker:
    return Worker(f"tasks_of_the_test:{name}", {"start": 10}, timeout, **options)


def test_a_worker_keeps_its_state_between_commands() -> None:
    events: list[dict[str, Any]] = []
    with session(environment={"SAID_TO_IT": "yes"}) as worker:
        assert worker.opened.state is State.OK
        assert worker.call({"add": 1}, 60.0).value == {"count": 11, "said": "yes"}
        outcome = worker.call({"add": 5}, 60.0, events.append)
        assert outcome.value == {"count": 16, "said": "yes"}
        assert events == [{"event": "adding", "number": 5}]
        pid = worker.call({"do": "pid"}, 60.0).value["pid"]  # type: ignore[index]
    assert gone(pid)


def test_a_worker_outlives_an_error_in_an_answer() -> None:
    with session() as worker:
        failed = worker.call({"do": "error"}, 60.0)
        assert (failed.state, failed.message) == (State.USER_ERROR, "not this")
        assert worker.call({"add": 1}, 60.0).value == {"count": 11, "said": None}


def test_a_waiting_worker_uses_no_cpu_and_sleeps_on_its_pipe() -> None:
    with session() as worker:
        pid = worker.call({"do": "pid"}, 60.0).value["pid"]  # type: ignore[index]
        before = cpu_ticks(pid)
        time.sleep(0.5)
        assert cpu_ticks(pid) - before <= 1
        assert Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_the_users_code_in_a_session_reads_none_of_the_commands() -> None:
    with session() as worker:
        assert worker.call({"do": "read"}, 60.0).value == {"read": "", "child": ""}
        assert worker.call({"add": 1}, 60.0).state is State.OK


def test_a_dead_worker_says_so_at_every_call() -> None:
    with session() as worker:
        first = worker.call({"do": "abort"}, 60.0)
        assert first.state is State.CRASHED
        assert "SIGABRT in answer at" in first.message
        assert worker.call({"add": 1}, 60.0) is first


def test_a_worker_that_does_not_answer_is_killed() -> None:
    with session() as worker:
        pid = worker.call({"do": "pid"}, 60.0).value["pid"]  # type: ignore[index]
        outcome = worker.call({"do": "hang"}, 1.0)
        assert (outcome.state, outcome.message) == (State.TIMEOUT, "no result within 1 s")
        assert gone(pid)
        assert worker.call({"add": 1}, 60.0).state is State.TIMEOUT


def test_a_session_that_does_not_open() -> None:
    with session("no_session") as worker:
        assert (worker.opened.state, worker.opened.message) == (State.USER_ERROR, "no session")
        assert worker.call({"add": 1}, 60.0) is worker.opened


def test_an_interrupt_while_a_worker_answers_kills_it() -> None:
    def interrupt(event: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    with session() as worker:
        pid = worker.call({"do": "pid"}, 60.0).value["pid"]  # type: ignore[index]
        with pytest.raises(KeyboardInterrupt):
            worker.call({"add": 1}, 60.0, interrupt)
        assert gone(pid)
