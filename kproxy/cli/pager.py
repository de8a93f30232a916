"""Long text for a person goes through a pager, as git's does.

The pager is $KPROXY_PAGER, else $PAGER, else less; an empty one or `cat` is none. It is started if standard output is a
terminal and the text is longer than its screen: `less -F` would print what is shorter and end, but other pagers cannot.
Only whole texts come here, so what a command says on stderr stands above the pager, and its exit code is what it would
be without one.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import sys
from typing import Final

import click

_NOT_FOUND: Final = (126, 127)
"""How a shell ends that cannot run the program."""

_MORE_THAN_WORDS: Final = re.compile(r"[|&;<>()=\n]")

_refused = False


def refuse() -> None:
    """There is no pager for the rest of the process: --no-pager."""
    global _refused
    _refused = True


def show(text: str) -> bool:
    """Shows a text in the pager and waits for its end. False if there is to be none, or it cannot be run.

    Whoever leaves the pager before its end has seen enough, which is no error, nor is Ctrl-C, which is the pager's.

    Raises:
        SystemExit: SIGTERM came, and the pager was ended.
    """
    command = _program() if not _refused and _is_our_terminal() and not _fits(text) else ""
    return bool(command) and _run(command, text)


def _program() -> str:
    """What a shell is to run; empty for none."""
    for name in ("KPROXY_PAGER", "PAGER"):
        if name in os.environ:
            found = os.environ[name].strip()
            return "" if found == "cat" else found
    return "less" if shutil.which("less") else ""


def _is_our_terminal() -> bool:
    """Whether stdout is a terminal that a pager can use: one that it may read from, since this is no background job."""
    if not sys.stdout.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        return False
    try:
        return os.tcgetpgrp(sys.stdout.fileno()) == os.getpgrp()
    except OSError:  # it is not the terminal of this session: there are no jobs
        return True


def _fits(text: str) -> bool:
    """Whether the screen holds the text and the shell's prompt after it."""
    columns, rows = shutil.get_terminal_size()
    if text.count("\n") >= rows:
        return False
    return sum(max(1, -(-len(click.unstyle(line)) // columns)) for line in text.splitlines()) < rows


def _run(command: str, text: str) -> bool:
    import subprocess

    # The shell that reads the words is then the pager itself, and what ends it ends the pager.
    command = command if _MORE_THAN_WORDS.search(command) else f"exec {command}"
    environment = {"LESS": "FRX", "LV": "-c", **os.environ}
    # A handler and not SIG_IGN, which the pager would inherit.
    before = signal.signal(signal.SIGINT, lambda _number, _frame: None)
    try:
        sys.stdout.flush()
        process = subprocess.Popen(command, shell=True, stdin=subprocess.PIPE, env=environment)
        try:
            with contextlib.suppress(BrokenPipeError):
                process.communicate(text.encode())
            code = process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
    finally:
        signal.signal(signal.SIGINT, before)
    return code not in _NOT_FOUND
