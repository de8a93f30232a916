"""SIGINT and SIGTERM.

Both become exceptions in the main thread (KeyboardInterrupt, SystemExit), so that what is half done is undone on the
way out. Such an exception may come between any two instructions, also inside of the locks of threading and of
concurrent.futures, and what comes out then is sometimes another one: "cannot release un-acquired lock". So it is
remembered that a signal came, and whatever exception ends the command afterwards is the signal's doing.

A command that may not be torn in the middle, since it must be able to undo what it did, uses `held`: signals are then
only noted, and become exceptions where the command asks.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_came: list[int] = []
"""The signals that came."""


def install() -> None:
    """Makes exceptions of the signals from now on."""
    _came.clear()
    for number in SIGNALS:
        signal.signal(number, _raise)


def exit_code() -> int | None:
    """The exit code after a signal, as shells have it; None if none came."""
    return 128 + _came[0] if _came else None


def let_go() -> None:
    """The command has ended: a signal that comes while the interpreter goes down ends it at once.

    CPython remembers a KeyboardInterrupt that left an `exec` of text (a dataclass being made, say), though it was
    caught later, and `python -m` then ends by SIGINT whatever the exit code is. The next such call forgets it.
    """
    exec("")
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def at_once() -> Iterator[None]:
    """Signals end the process meanwhile. For imports, which leave nothing to undo: an exception there may come inside
    of a callback of the import system, which prints and forgets it. Outside of the main thread nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _exit) for number in SIGNALS if signal.getsignal(number) is _raise}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _exit(number: int, _frame: FrameType | None) -> None:
    if number == signal.SIGINT:
        os.write(2, b"kproxy: interrupted\n")
    os._exit(128 + number)


@contextlib.contextmanager
def held() -> Iterator[Callable[[], None]]:
    """Signals are noted meanwhile; the function that is given raises the exception if one has come.

    Whatever error the block ends with after that is replaced by the signal's exception.

    Raises:
        KeyboardInterrupt, SystemExit: a signal came.
    """
    before = {number: signal.signal(number, lambda number, _frame: _came.append(number)) for number in SIGNALS}
    try:
        yield _check
        _check()
    except Exception:
        _check()
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _check() -> None:
    if _came:
        _end(_came[0])


def _raise(number: int, _frame: FrameType | None) -> None:
    _came.append(number)
    _end(number)


def _end(number: int) -> None:
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(128 + number)
