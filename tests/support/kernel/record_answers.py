"""Asks the kernel the questions about recorded hosts and writes its answers into their questions.yaml.

    python -m tests.support.kernel.record_answers NAME...

A line `answer: {}` or `answer: []` (several outcomes are possible) takes the place of an answer that is not known yet.
"""

from __future__ import annotations

import sys
from typing import Any

from tests.support.kernel.recorded_hosts import laid
from tests.support.recorded_hosts import FOLDER, questions

TRIES = 96
"""Enough to see each of six endpoints."""


def _flow(answer: dict[str, Any]) -> str:
    words = {True: "true", False: "false"}
    return "{" + ", ".join(f"{key}: {words.get(value, value) if isinstance(value, bool) else _quoted(value)}"
                           for key, value in answer.items()) + "}"  # fmt: skip


def _quoted(value: str) -> str:
    return f'"{value}"' if ":" in value or value[:1].isdigit() else value


def main(names: list[str]) -> None:
    for name in names:
        path = FOLDER / name / "questions.yaml"
        with laid(name) as node:
            answers = iter(node.outcomes(questions(name), TRIES))
        lines: list[str] = []
        for line in path.read_text().splitlines():
            if line.startswith("  answer: "):
                found = sorted(next(answers), key=str)
                several = line.endswith(("]", ":")) or len(found) > 1
                if several:
                    lines += ["  answer:", *(f"  - {_flow(item)}" for item in found)]
                else:
                    lines.append(f"  answer: {_flow(found[0])}")
            elif not line.startswith("  - {"):
                lines.append(line)
        path.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
