"""Fails if a package of kproxy has more lines of Python than its budget, which `[tool.kproxy.lines]` in pyproject.toml
sets; prints a row for each. Raising a budget takes a decision in docs/decisions/ that says what was tried."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

TREE = Path(__file__).parent.parent


def main() -> int:
    budgets: dict[str, int] = tomllib.loads((TREE / "pyproject.toml").read_text())["tool"]["kproxy"]["lines"]
    packages = sorted(path.parent for path in TREE.glob("kproxy/*/__init__.py"))
    over = []
    for package in packages:
        lines = sum(len(path.read_bytes().splitlines()) for path in package.rglob("*.py"))
        budget = budgets.get(package.name, 0)
        sys.stdout.write(f"{package.name:12} {lines:7,} of {budget:7,}\n")
        if lines > budget:
            over.append(f"kproxy/{package.name}: {lines - budget} lines more than its budget of {budget:,}\n")
    sys.stderr.writelines(over)
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
