"""The lists of `-m recent` of a namespace: who was seen how many seconds ago.

/proc/net/xt_recent/LIST has times in jiffies. /proc/timer_list says how many there are now and how long the machine has
been up, from which follows how many make a second: the kernel starts to count 300 seconds before zero
(INITIAL_JIFFIES). Where that cannot be read the lists are not known, and the model then leaves open what depends on
them.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kproxy.linux.namespace import Namespace

_RATES: Final = (100, 250, 300, 1000)
_WRAP: Final = 1 << 32
_EARLY: Final = 300
_ENTRY: Final = re.compile(r"src=(\S+) ttl: \d+ last_seen: (\d+) oldest_pkt: \d+(.*)")

Lists = Mapping[str, Mapping[int, tuple[int, ...]]]


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


def parse_list(text: str, now: int, rate: int) -> dict[int, tuple[int, ...]]:
    """Seconds ago by address, of one list. `now` is in jiffies, `rate` is jiffies a second."""
    found = {}
    for line in text.splitlines():
        match = _ENTRY.match(line)
        if match is not None:
            times = [int(item) for item in re.findall(r"\d+", match[3])] or [int(match[2])]
            ages = sorted(max(0, (now - moment) % _WRAP // rate) for moment in times)
            found[int(ipaddress.ip_address(match[1]))] = tuple(ages)
    return found


def _clock() -> tuple[int, int] | None:
    """Jiffies now (32 bits), and how many there are in a second."""
    try:
        text = Path("/proc/timer_list").read_text()
    except OSError:
        return None
    up, jiffies = re.search(r"^now at (\d+) nsecs", text, re.M), re.search(r"^jiffies: (\d+)", text, re.M)
    if up is None or jiffies is None:
        return None
    seconds, count = int(up[1]) / 1e9, int(jiffies[1])
    for rate in _RATES:
        expected = (seconds - _EARLY) * rate
        difference = (count - expected) % _WRAP
        if min(difference, _WRAP - difference) < 2 * rate:
            return count % _WRAP, rate
    return None
