"""Ctrl-C and SIGTERM: an exit code and at most a line, never a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kproxy.cli import interrupts
from tests.support.cli import KPROXY

# A command in whose middle the signal comes, and what that makes of it.
TORN = """
import os, signal, sys, click
from kproxy.cli import main
def command():
    try:
        os.kill(os.getpid(), signal.{name})
        while True: pass
    except BaseException:
        raise RuntimeError("cannot release un-acquired lock")
main.COMMANDS["torn"] = ""
main.LazyGroup.get_command = lambda *_: click.Command("torn", callback=command)
sys.argv = ["kproxy", "torn"]
main.main()
"""


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_whatever_comes_out_after_a_signal_is_its_doing(name: str, code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TORN.format(name=name)], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (code, "kproxy: interrupted\n")


def test_a_signal_inside_of_exec_gives_the_same_code(tmp_path: Path) -> None:
    """As when dataclasses are made: `python -m` would end by SIGINT."""
    text = TORN.format(name="SIGINT")
    text = text.replace(
        "        os.kill(os.getpid(), signal.SIGINT)", "        exec('os.kill(os.getpid(), signal.SIGINT); print()')"
    )
    (tmp_path / "torn_in_exec.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "torn_in_exec"], capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (130, "kproxy: interrupted\n")


def test_a_bug_without_a_signal_is_still_a_traceback() -> None:
    code = TORN.format(name="SIGINT").replace("os.kill(os.getpid(), signal.SIGINT)", "1 / 0")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "RuntimeError" in done.stderr


def work(reached: list[str]) -> None:
    with interrupts.held() as check:
        os.kill(os.getpid(), signal.SIGINT)
        reached.append("after the signal")
        check()
        reached.append("after the check")


def test_held_signals_come_where_they_are_asked_for() -> None:
    before = [signal.getsignal(number) for number in interrupts.SIGNALS]
    reached: list[str] = []
    try:
        with pytest.raises(KeyboardInterrupt):
            work(reached)
        assert reached == ["after the signal"]
        with pytest.raises(KeyboardInterrupt), interrupts.held():
            raise ValueError("what a child said that had the signal too")
    finally:
        interrupts._came.clear()
    assert [signal.getsignal(number) for number in interrupts.SIGNALS] == before


def said(number: int) -> str:
    """A person who interrupts is told; a service manager that ends a process is not."""
    return "kproxy: interrupted\n" if number == signal.SIGINT else ""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_entry_point_ends_without_a_traceback_while_it_imports(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    """The import is made long here; Python would print a traceback of it."""
    (tmp_path / "click.py").write_text("import time\nprint('importing', flush=True)\ntime.sleep(600)\n")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    with subprocess.Popen(
        KPROXY,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    ) as begun:  # fmt: skip
        assert begun.stdout is not None
        assert begun.stdout.readline() == "importing\n"
        begun.send_signal(number)
        _, text = begun.communicate(timeout=60)
    assert (begun.returncode, text) == (code, said(number))


SWALLOWED = """
import importlib, os, signal, sys, weakref
from kproxy.cli import interrupts, loading
class Lock: pass
def module(name):
    lock = Lock()
    weakref.finalize(lock, lambda: 0)
    known = weakref.ref(lock, lambda _: (os.kill(os.getpid(), signal.{name}), [0 for _ in range(10)]))
    del lock
    raise SystemExit("the signal was forgotten")
importlib.import_module = module
interrupts.install()
loading.load_command("render", "kproxy render")
"""


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_inside_of_the_import_system_is_not_forgotten(name: str, code: int) -> None:
    """Exceptions in callbacks of weak references, as importlib's locks have them, are printed and dropped."""
    done = subprocess.run(
        [sys.executable, "-c", SWALLOWED.format(name=name)], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (code, said(signal.Signals[name]))
