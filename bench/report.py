"""What benches share: measurements in processes of their own, clusters in files, and tables."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

KPROXY = Path(sys.executable).parent / "kproxy"
Struct = TypeVar("Struct", bound=msgspec.Struct)


def in_own_process(kind: type[Struct], bench: str, *arguments: object) -> Struct:
    """What `python -m bench.BENCH ARGUMENTS...` measures and prints (`answer`), so that its memory is its own, and no
    measurement profits from or pays for another."""
    command = [sys.executable, "-m", f"bench.{bench}", *map(str, arguments)]
    return msgspec.json.decode(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout, type=kind)


def answer(measured: msgspec.Struct) -> None:
    """Prints what `in_own_process` reads."""
    sys.stdout.write(msgspec.json.encode(measured).decode())


def timed(*command: object, **options: object) -> float:
    """Seconds that a command takes; its output is not shown.

    Raises:
        CalledProcessError: it failed.
    """
    begin = time.perf_counter()
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL, **options)  # type: ignore[call-overload]
    return time.perf_counter() - begin


@contextmanager
def fresh_namespace() -> Iterator[str]:
    """A network namespace of our own; its name."""
    name = f"kp-bench-{os.getpid()}-{time.monotonic_ns()}"
    timed("ip", "netns", "add", name)
    try:
        yield name
    finally:
        timed("ip", "netns", "del", name)


def peak() -> int:
    """The most memory that this process has had, in KiB. (ru_maxrss would count its parent's, at the fork.)"""
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])


def s(seconds: float, digits: int = 2) -> str:
    """Seconds in words."""
    return f"{seconds:.{digits}f} s"


def ms(seconds: float, digits: int = 1) -> str:
    """Seconds in words, as milliseconds."""
    return f"{seconds * 1000:.{digits}f} ms"


def mib(kib: int) -> str:
    """KiB in words, as MiB."""
    return f"{kib / 1024:.0f} MiB"


def ratio(ours: float | None, other: float | None) -> str:
    """How many times the other ours is; empty where one was not measured."""
    return f"{ours / other:.2f}" if ours is not None and other else ""


def show(title: str, rows: Iterable[Mapping[str, str]], width: int = 160) -> None:
    """Prints a table; a row has its cells by heading."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title)
    for row in rows:
        if not table.columns:
            for place, heading in enumerate(row):
                table.add_column(heading, justify="right" if place else "left")
        table.add_row(*row.values())
    Console(width=None if sys.stdout.isatty() else width).print(table)
