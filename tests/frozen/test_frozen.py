"""The answers of the commands are those that were frozen: `python -m tests.frozen.answers` writes them anew."""

from __future__ import annotations

import json

import pytest

from tests.frozen.answers import ask, recorded
from tests.frozen.questions import groups
from tests.support.examples import spread

GROUPS = groups()


@pytest.mark.parametrize("name", spread(list(GROUPS), 14, 12))
def test_answers_are_the_frozen_ones(name: str) -> None:
    wanted = recorded(name)
    found = {title: ask(question) for title, question in GROUPS[name]}
    assert list(found) == list(wanted)
    for title, answer in found.items():
        assert json.loads(json.dumps(answer)) == wanted[title], title
