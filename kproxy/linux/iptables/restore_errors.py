"""What iptables-restore says when it fails, turned into the input lines that it names.

Observed with 1.8.9 (the texts of older versions differ only in the program's name):

    iptables-restore: line 4 failed                                            legacy; often the COMMIT line
    iptables-nft-restore: line 2 failed: Bad rule (...)                        nft
    line 3: RULE_APPEND failed (No such file or directory): rule in chain X    nft, at COMMIT, one line per refusal
    Error occurred at line: 3                                                  both, for what cannot be parsed
    iptables-restore: COMMIT expected at line 3                                both
"""

from __future__ import annotations

import re
from typing import Final

from kproxy.linux.errors import FailedLine, RestoreFailedError

_NUMBERED: Final = re.compile(
    r"(?:^|: )line (\d+)(?: failed|: )|Error occurred at line: (\d+)|COMMIT expected at line (\d+)", re.MULTILINE
)
_NOISE: Final = re.compile(
    r"^(?:Try `.*|Error occurred at line: \d+|(?:.*: )?line \d+ failed|line \d+: )", re.MULTILINE
)
_PROGRAM: Final = re.compile(r"^ip6?tables\S*(?: v[\d.]+ \(\w+\))?: *", re.MULTILINE)


def restore_error(program: str, stderr: str, text: str) -> RestoreFailedError:
    """Makes an error of iptables-restore's stderr.

    Args:
        text: the input it was given.
    """
    lines = text.split("\n")
    numbers = sorted({int(next(filter(None, groups))) for groups in _NUMBERED.findall(stderr)})
    numbers = [number for number in numbers if 0 < number <= len(lines)]
    # Without a line it is unknown how far it came: it crashed, say.
    first = numbers[0] if numbers else 0
    table = next((line[1:] for line in reversed(lines[:first]) if line.startswith("*")), "")
    failed = [FailedLine(number, _shown(lines, number, table)) for number in numbers]
    return RestoreFailedError(program, _reason(stderr), failed, table, lines[: max(0, first - 1)].count("COMMIT"))


def _shown(lines: list[str], number: int, table: str) -> str:
    text = lines[number - 1]
    if text == "COMMIT":
        return f"COMMIT (the kernel refused table {table} as a whole)"
    return text


def _reason(stderr: str) -> str:
    text = _NOISE.sub("", _PROGRAM.sub("", stderr))
    reasons = list(dict.fromkeys(line.strip(" :") for line in text.splitlines() if line.strip(" :")))
    return "; ".join(reasons[:3]) if reasons else "the kernel refused it without saying why"
