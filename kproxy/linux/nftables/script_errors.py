"""What nft says when it refuses a script, turned into the lines of the script that it speaks of.

Observed with 1.0.6 and 1.1.3: a place, what is wrong, then the line with the place marked:

    /dev/stdin:4:24-24: Error: Could not process rule: No such file or directory
    add rule ip kube-proxy c drop
                           ^

`In file included from`, `Warning:` and complaints without a place exist too. A script is one transaction, so nothing of
a script that was refused is in the kernel.
"""

from __future__ import annotations

import re
from typing import Final

from kproxy.linux.errors import FailedLine, RestoreFailedError

_PLACED: Final = re.compile(r"^\S*?:(\d+):\d+(?:-\d+)?: Error: (.*)$", re.MULTILINE)
_UNPLACED: Final = re.compile(r"^Error: (.*)$", re.MULTILINE)


def script_error(complaint: str, script: str, table: str) -> RestoreFailedError:
    """Makes an error of nft's stderr.

    Args:
        script: the input it was given.
        table: the table that the script is about.
    """
    lines = script.split("\n")
    placed = [(int(number), reason) for number, reason in _PLACED.findall(complaint)]
    failed = [FailedLine(n, lines[n - 1]) for n in sorted({n for n, _ in placed}) if 0 < n <= len(lines)]
    reasons = dict.fromkeys(reason.strip() for reason in [*(r for _, r in placed), *_UNPLACED.findall(complaint)])
    told = "; ".join(list(reasons)[:3]) or one_line(complaint)
    return RestoreFailedError("nft -f", told, failed, table, 0)


def one_line(complaint: str) -> str:
    """What a program said, on one line."""
    return "; ".join(line.strip() for line in complaint.splitlines() if line.strip()) or "it did not say why"
