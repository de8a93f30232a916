"""What nft says when it refuses a script, turned into the lines of the script that it names.

Observed with 1.0.6 and 1.1.3: a place, what is wrong, then the line with the place marked:

    /dev/stdin:4:24-24: Error: Could not process rule: No such file or directory
    add rule ip kube-proxy c drop
                           ^

`In file included from`, `Warning:` and messages without a place exist too. A script is one transaction, so nothing of
a script that was refused is in the kernel.
"""

from __future__ import annotations

import re
from typing import Final

from kproxy.linux.errors import FailedLine, RestoreFailedError
from kproxy.linux.process import one_line

_PLACED: Final = re.compile(r"^\S*?:(\d+):\d+(?:-\d+)?: Error: (.*)$", re.MULTILINE)
_UNPLACED: Final = re.compile(r"^Error: (.*)$", re.MULTILINE)


def script_error(stderr: str, script: str, table: str) -> RestoreFailedError:
    """Makes an error of nft's stderr.

    Args:
        script: the input it was given.
        table: the table that the script is about.
    """
    lines = script.split("\n")
    placed = [(int(number), reason) for number, reason in _PLACED.findall(stderr)]
    failed = [FailedLine(n, lines[n - 1]) for n in sorted({n for n, _ in placed}) if 0 < n <= len(lines)]
    reasons = dict.fromkeys(reason.strip() for reason in [*(r for _, r in placed), *_UNPLACED.findall(stderr)])
    message = "; ".join(list(reasons)[:3]) or one_line(stderr) or "no reason given"
    return RestoreFailedError("nft -f", message, failed, table, 0)
