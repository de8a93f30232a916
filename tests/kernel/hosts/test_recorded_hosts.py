"""Recorded hosts, laid again in namespaces: the kernel still answers the questions about them as they are written down.

The answers were the kernel's own (`python -m tests.support.kernel.record_answers`); this holds them against the kernel
that the tests run on. tests/unit/dataplane/test_recorded_hosts.py asks the model the same questions.
"""

from __future__ import annotations

import pytest

from tests.support import recorded_hosts
from tests.support.examples import spread
from tests.support.kernel.recorded_hosts import laid

pytestmark = pytest.mark.root


@pytest.mark.parametrize("host", spread(recorded_hosts.HOSTS, 0, 7))
def test_the_kernel_gives_the_answers(host: str) -> None:
    questions = recorded_hosts.questions(host)
    assert len(questions) >= 8
    with laid(host) as node:
        done = node.outcomes(questions)
    wrong = [
        f"{question.name}: {item}, not one of {[dict(answer) for answer in question.answers]}"
        for question, items in zip(questions, done, strict=True)
        for item in items
        if item not in [dict(answer) for answer in question.answers]
    ]
    assert not wrong, "\n".join(wrong)
