"""The lists of `-m recent`: who was seen how many seconds ago.

/proc/net/xt_recent/LIST has times in jiffies. /proc/timer_list says how many there are now and how long the machine has
been up, from which follows how many make a second: the kernel starts to count 300 seconds before zero
(INITIAL_JIFFIES). Where that cannot be read the lists are not known, and the model then leaves open what depends on
them.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Final

_RATES: Final = (100, 250, 300, 1000)
_WRAP: Final = 1 << 32
_EARLY: Final = 300
_ENTRY: Final = re.compile(r"src=(\S+) ttl: \d+ last_seen: (\d+) oldest_pkt: \d+(.*)")

Lists = Mapping[str, Mapping[int, tuple[int, ...]]]


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


def parse_lists(text: str) -> Lists | None:
    """All lists, None if they cannot be understood: the two lines of /proc/timer_list, then each list below a line
    `== NAME`."""
    head, *parts = re.split(r"^== (\S+)\n", text, flags=re.M)
    texts = dict(zip(parts[::2], parts[1::2], strict=True))
    if not any(map(str.strip, texts.values())):
        return {name: {} for name in texts}
    clock = parse_clock(head)
    return None if clock is None else {name: parse_list(each, *clock) for name, each in texts.items()}


def parse_clock(text: str) -> tuple[int, int] | None:
    """Jiffies now (32 bits), and how many there are in a second, of /proc/timer_list; None if it does not tell."""
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
