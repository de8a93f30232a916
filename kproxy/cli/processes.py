"""Parts of large work in several processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from kproxy.errors import KproxyError

Item = TypeVar("Item")
Found = TypeVar("Found")
_inherited: Callable[[Any], Any] | None = None
"""What forked processes do: handed over by memory, since a cluster is slow to pickle."""


class ProcessError(KproxyError):
    """A process ended before its work did."""


def in_processes(
    function: Callable[[Item], Found], items: Sequence[Item], processes: int = 0, name: str = "the audit"
) -> list[Found]:
    """As `map`, in as many processes as there are processors, or as given. `name` is what messages call the work.

    Raises:
        ProcessError: one was killed. Whatever `function` raises.
    """
    global _inherited
    count = min(processes or len(os.sched_getaffinity(0)), len(items))
    if count < 2:
        return list(map(function, items))
    _inherited = function
    fork = multiprocessing.get_context("fork")
    workers = ProcessPoolExecutor(count, mp_context=fork, initializer=_begin)
    try:
        return list(workers.map(_call, items))
    except BrokenProcessPool as error:
        raise ProcessError(f"a process of {name} was killed: is there too little memory?") from error
    except BaseException:
        for child in multiprocessing.active_children():
            child.terminate()
        raise
    finally:
        workers.shutdown(cancel_futures=True)
        _inherited = None


def _begin() -> None:
    """A process takes no signals of the terminal: who started it ends it."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _call(some: Any) -> Any:
    assert _inherited is not None
    return _inherited(some)
