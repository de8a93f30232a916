"""The parts of a large audit, in several processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from kproxy.cluster.audit.audit import Part
from kproxy.errors import KproxyError

_inherited: Callable[[range], Part] | None = None
"""What forked processes do: handed over by memory, since a cluster is slow to pickle."""


class ProcessError(KproxyError):
    """A process ended before its work did."""


def in_processes(function: Callable[[range], Part], ranges: Sequence[range], processes: int = 0) -> list[Part]:
    """As `map`, in as many processes as there are processors, or as given.

    Raises:
        ProcessError: one was killed. Whatever `function` raises.
    """
    global _inherited
    count = min(processes or len(os.sched_getaffinity(0)), len(ranges))
    if count < 2:
        return list(map(function, ranges))
    _inherited = function
    fork = multiprocessing.get_context("fork")
    workers = ProcessPoolExecutor(count, mp_context=fork, initializer=_begin)
    try:
        return list(workers.map(_call, ranges))
    except BrokenProcessPool as error:
        raise ProcessError("a process of the audit was killed: is there too little memory?") from error
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


def _call(some: range) -> Part:
    assert _inherited is not None
    return _inherited(some)
