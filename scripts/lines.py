"""Fails if a package of kproxy, all of kproxy or the tests have more lines of Python than their budget, which
`[tool.kproxy.lines]` in pyproject.toml sets; prints a row for each. Raising one takes a decision in docs/decisions/
that says what was tried."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

TREE = Path(__file__).parent.parent


def main() -> int:
    budgets: dict[str, int] = tomllib.loads((TREE / "pyproject.toml").read_text())["tool"]["kproxy"]["lines"]
    rooms = {path.parent.name: path.parent for path in sorted(TREE.glob("kproxy/*/__init__.py"))}
    over = []
    for name, folder in {**rooms, "all": TREE / "kproxy", "tests": TREE / "tests"}.items():
        lines = sum(len(path.read_bytes().splitlines()) for path in folder.rglob("*.py"))
        budget = budgets.get(name, 0)
        sys.stdout.write(f"{name:12} {lines:7,} of {budget:7,}\n")
        if lines > budget:
            over.append(f"{folder.relative_to(TREE)}: {lines - budget} lines more than its budget of {budget:,}\n")
    sys.stderr.writelines(over)
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
