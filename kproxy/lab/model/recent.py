"""Reading the lists of `-m recent` of a namespace; `kproxy.cluster.facts.recent` understands them."""

from __future__ import annotations

import os
from pathlib import Path

from kproxy.cluster.facts.recent import Lists, parse_clock, parse_list
from kproxy.linux.namespace import Namespace


def read_recent(netns: str) -> Lists | None:
    """All lists, None if they cannot be understood."""
    with Namespace.named(netns) as inside:
        return inside.call(_read)


def _read() -> Lists | None:
    directory = Path("/proc/thread-self/net/xt_recent")
    try:
        texts = {name: (directory / name).read_text() for name in os.listdir(directory)}
    except FileNotFoundError:
        return {}
    except OSError:
        return None
    if not any(texts.values()):
        return {name: {} for name in texts}
    clock = _clock()
    if clock is None:
        return None
    now, rate = clock
    return {name: parse_list(text, now, rate) for name, text in texts.items()}


def _clock() -> tuple[int, int] | None:
    try:
        return parse_clock(Path("/proc/timer_list").read_text())
    except OSError:
        return None
