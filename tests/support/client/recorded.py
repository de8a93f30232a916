"""Recorded answers of a real kube-apiserver (tests/reference/kubectl/)."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from tests.support import paths

PATH = paths.TESTS / "reference" / "kubectl" / "answers.jsonl"


@cache
def answers() -> dict[str, dict[str, Any]]:
    """Answers by what was asked."""
    rows = [json.loads(line) for line in PATH.read_text(encoding="utf-8").splitlines()]
    return {row["what"]: row for row in rows}


def body(start: str) -> bytes:
    """The body of the answer whose `what` starts so."""
    return next(str(row["body"]).encode() for what, row in answers().items() if what.startswith(start))
