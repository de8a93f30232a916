"""What `lab probe` makes of answers: values only."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kproxy.cluster.journey.path import ANSWERED, LOST, REFUSED, UNREACHABLE
from kproxy.lab.inspect import probe
from kproxy.lab.inspect.probe import Client, Possible, evaluate, question
from kproxy.lab.inspect.request import Response
from kproxy.lab.inspect.targets import Target

TARGET = Target("clusterIP", "10.96.0.9", 80, "TCP", "default/web")
HALF = (
    Possible(ANSWERED, "pod/default/a", "default/a", "10.244.0.1", "", "1/2"),
    Possible(LOST, "node-1", "", "", "the link of node-3 is down", "1/2"),
)
A = Response(ANSWERED, "default/a", "node-1", "10.244.0.1:4000")


@pytest.mark.parametrize(
    ("answers", "agrees"),
    [
        ([A] * 15 + [Response(LOST)] * 15, True),
        ([A] * 20 + [Response(UNREACHABLE)] * 10, True),
        ([Response(LOST)] * 6, True),
        ([Response(LOST)] * 40, False),
        ([A] * 40, False),
        ([A] * 15 + [Response(REFUSED)] * 15, False),
    ],
)
def test_shares_are_compared_with_chances(answers: Sequence[Response], agrees: bool) -> None:
    assert evaluate(Client("outside", "client"), TARGET, HALF, answers).agrees is agrees


def test_with_affinity_one_outcome_brings_the_next() -> None:
    assert evaluate(Client("outside", "client"), TARGET, HALF, [A] * 1000, independent=False).agrees
    assert not evaluate(Client("outside", "client"), TARGET, HALF, [Response(REFUSED)], independent=False).agrees


def test_one_lost_question_where_all_are_answered_differs() -> None:
    sure = (Possible(ANSWERED, "pod/default/a", "default/a", "10.244.0.1", "", "1"),)
    assert evaluate(Client("outside", "client"), TARGET, sure, [A] * 1000).agrees
    assert not evaluate(Client("outside", "client"), TARGET, sure, [*([A] * 999), Response(LOST)]).agrees


@pytest.mark.parametrize("first", [Response(LOST), Response(REFUSED), A])
def test_every_question_is_asked(first: Response, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def send_request(*arguments: object, timeout: float) -> Response:
        asked.append((arguments, timeout))
        return first

    monkeypatch.setattr(probe, "send_request", send_request)
    assert question("ns", TARGET, count=30, timeout=1.0) == [first] * 30
    assert len(asked) == 30
