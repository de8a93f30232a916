"""What `lab probe` makes of answers: values only."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kproxy.lab.inspect import probe
from kproxy.lab.inspect.ask import Answer
from kproxy.lab.inspect.probe import Client, Possible, evaluate, question
from kproxy.lab.inspect.targets import Target
from kproxy.lab.model.path import ANSWERED, LOST, REFUSED, UNREACHABLE

TARGET = Target("clusterIP", "10.96.0.9", 80, "TCP", "default/web")
HALF = (
    Possible(ANSWERED, "pod/default/a", "default/a", "10.244.0.1", "", "1/2"),
    Possible(LOST, "node-1", "", "", "the link of node-3 is down", "1/2"),
)
A = Answer(ANSWERED, "default/a", "node-1", "10.244.0.1:4000")


@pytest.mark.parametrize(
    ("answers", "agrees"),
    [
        ([A] * 15 + [Answer(LOST)] * 15, True),
        ([A] * 20 + [Answer(UNREACHABLE)] * 10, True),
        ([Answer(LOST)] * 6, True),
        ([Answer(LOST)] * 40, False),
        ([A] * 40, False),
        ([A] * 15 + [Answer(REFUSED)] * 15, False),
    ],
)
def test_shares_are_compared_with_chances(answers: Sequence[Answer], agrees: bool) -> None:
    assert evaluate(Client("outside", "client"), TARGET, HALF, answers).agrees is agrees


def test_with_affinity_one_outcome_brings_the_next() -> None:
    assert evaluate(Client("outside", "client"), TARGET, HALF, [A] * 1000, independent=False).agrees
    assert not evaluate(Client("outside", "client"), TARGET, HALF, [Answer(REFUSED)], independent=False).agrees


def test_one_lost_question_where_all_are_answered_differs() -> None:
    sure = (Possible(ANSWERED, "pod/default/a", "default/a", "10.244.0.1", "", "1"),)
    assert evaluate(Client("outside", "client"), TARGET, sure, [A] * 1000).agrees
    assert not evaluate(Client("outside", "client"), TARGET, sure, [*([A] * 999), Answer(LOST)]).agrees


@pytest.mark.parametrize("first", [Answer(LOST), Answer(REFUSED), A])
def test_every_question_is_asked(first: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def ask(*arguments: object, timeout: float) -> Answer:
        asked.append((arguments, timeout))
        return first

    monkeypatch.setattr(probe, "ask", ask)
    assert question("ns", TARGET, count=30, timeout=1.0) == [first] * 30
    assert len(asked) == 30
