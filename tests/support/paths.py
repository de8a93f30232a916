"""Where the checkout and its test data are."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
REFERENCE = TESTS / "reference"
GOLDEN = ROOT / "rules_golden"
