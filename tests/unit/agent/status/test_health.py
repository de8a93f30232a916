"""The health state machine: kube-proxy's rules, and that failing syncs are red."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kproxy.agent.status.health import ProxyHealth, go_time, node_eligible
from kproxy.api import load_manifests
from kproxy.api.types.core import Node
from kproxy.services import IPFamily
from tests.support.agent.recorded_http import recorded_reply

START = 1_795_220_923_611_109_877  # 2026-11-21T00:28:43.611109877Z
V4, V6 = IPFamily.IPV4, IPFamily.IPV6


class Clock:
    """A clock that is set; the time shown may jump apart from the time that passes."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.jump = 0

    def now(self) -> float:
        return self.seconds

    def wall(self) -> int:
        return START + int(self.seconds * 1e9) + self.jump


def machine(timeout: float = 60.0) -> tuple[ProxyHealth, Clock, list[bool]]:
    clock, eligible = Clock(), [True]
    return ProxyHealth(timeout, clock=clock.now, wall=clock.wall, eligible=lambda: eligible[0]), clock, eligible


def asked(answer: tuple[int, str]) -> tuple[int, Any]:
    return answer[0], json.loads(answer[1])


def test_answers_have_the_recorded_form() -> None:
    health, clock, _ = machine()
    health.updated(V6)
    clock.seconds = 5.25
    health.updated(V4)
    for request, (status, body) in (
        ("GET :10256/healthz", health.healthz()),
        ("GET :10256/livez", health.livez()),
    ):
        recorded = recorded_reply(request)
        assert status == recorded.status
        mine, theirs = json.loads(body), json.loads(recorded.body)
        assert _shape(mine) == _shape(theirs)
        assert body == json.dumps(mine, separators=(",", ":"))
    _, found = asked(health.healthz())
    assert found["status"]["IPv6"]["lastUpdated"] == "2026-11-21T00:28:43.611109877Z"
    assert found["status"]["IPv4"]["lastUpdated"] == found["lastUpdated"] == "2026-11-21T00:28:48.861109877Z"


def _shape(value: object) -> object:
    """Keys in order and types, times in their format."""
    if isinstance(value, dict):
        return [(key, _shape(child)) for key, child in value.items()]
    return (type(value), value[-1:] if isinstance(value, str) else value)


def test_healthy_while_starting_up() -> None:
    health, _, _ = machine()
    status, body = asked(health.healthz())
    assert (status, body["healthy"]) == (200, True)
    assert body["lastUpdated"] == body["currentTime"]
    assert "status" not in body


def test_late_when_a_change_has_waited_for_the_timeout() -> None:
    health, clock, _ = machine(60)
    health.updated(V4)
    health.updated(V6)
    clock.seconds = 10
    health.queued(V4)
    clock.seconds = 40
    health.queued(V4)  # the oldest one counts
    clock.seconds = 69.9
    assert health.healthz()[0] == health.livez()[0] == 200
    clock.seconds = 70
    status, body = asked(health.livez())
    assert status == 503
    assert body["healthy"] is False
    assert body["lastUpdated"] == go_time(START)  # no longer now
    assert body["status"]["IPv4"]["healthy"] is False
    assert body["status"]["IPv6"] == {"lastUpdated": go_time(START), "healthy": True}
    health.updated(V4)
    assert health.healthz()[0] == 200


def test_a_first_sync_may_be_late_too() -> None:
    health, clock, _ = machine(60)
    health.queued(V4)
    clock.seconds = 59
    assert health.healthz()[0] == 200
    clock.seconds = 61
    status, body = asked(health.healthz())
    assert status == 503
    assert body["lastUpdated"] == body["status"]["IPv4"]["lastUpdated"] == "0001-01-01T00:00:00Z"


def test_red_as_soon_as_a_sync_fails_and_until_one_succeeds() -> None:
    health, clock, _ = machine()
    health.updated(V4)
    health.updated(V6)
    health.failed(V4, "iptables-restore: line 3 failed\n-A KUBE-SVC-... (the whole of it is in the log)")
    status, body = asked(health.healthz())
    assert status == health.livez()[0] == 503
    assert not health.is_healthy()
    assert body["status"]["IPv4"]["reason"] == "the last sync failed: iptables-restore: line 3 failed"
    health.updated(V6)
    assert health.healthz()[0] == 503
    clock.seconds = 1000
    health.updated(V4)
    assert health.healthz()[0] == 200


def test_a_clock_that_jumps_makes_nothing_late() -> None:
    health, clock, _ = machine(60)
    health.updated(V4)
    health.queued(V4)
    clock.jump = 3600 * 10**9
    assert health.healthz()[0] == 200
    clock.jump = -3600 * 10**9
    clock.seconds = 61
    assert health.healthz()[0] == 503


def test_a_node_that_goes_is_red_but_alive() -> None:
    health, _, eligible = machine()
    health.updated(V4)
    eligible[0] = False
    status, body = asked(health.healthz())
    assert (status, body["nodeEligible"], body["healthy"]) == (503, False, True)
    status, body = asked(health.livez())
    assert status == 200
    assert "nodeEligible" not in body
    assert health.is_healthy()


def node(metadata: str = "", spec: str = "{}") -> Node:
    text = f"apiVersion: v1\nkind: Node\nmetadata: {{name: node-0{metadata}}}\nspec: {spec}\n"
    return load_manifests(("-",), text.encode()).nodes[0]


def test_node_eligibility() -> None:
    assert node_eligible(None)
    assert node_eligible(node())
    assert node_eligible(node(spec="{unschedulable: true, taints: [{key: other, effect: NoSchedule}]}"))
    taint = "{key: ToBeDeletedByClusterAutoscaler, value: '1', effect: NoSchedule}"
    assert not node_eligible(node(spec=f"{{taints: [{taint}]}}"))
    assert not node_eligible(node(metadata=", deletionTimestamp: '2026-11-21T00:00:00Z'"))


Event = tuple[str, IPFamily, float]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["queued", "updated", "failed"]),
            st.sampled_from(list(IPFamily)),
            st.floats(0, 100, allow_nan=False),
        )
    )
)
def test_health_is_what_the_rules_say(events: list[Event]) -> None:
    """Against the rules written down again, from the whole history."""
    health, clock, _ = machine(60)
    history: list[Event] = []
    for kind, family, wait in events:
        clock.seconds += wait
        history.append((kind, family, clock.seconds))
        {
            "queued": lambda family=family: health.queued(family),
            "updated": lambda family=family: health.updated(family),
            "failed": lambda family=family: health.failed(family, "it did"),
        }[kind]()
        assert health.is_healthy() == all(_expected(history, each, clock.seconds) for each in IPFamily)


def _expected(history: list[Event], family: IPFamily, now: float) -> bool:
    mine = [(kind, when) for kind, who, when in history if who is family]
    since_success = mine[max((place for place, (kind, _) in enumerate(mine) if kind == "updated"), default=-1) + 1 :]
    if any(kind == "failed" for kind, _ in since_success):
        return False
    return not since_success or now - since_success[0][1] < 60


def test_what_keeps_every_family_from_being_programmed_is_red() -> None:
    unready = ["the host cannot be programmed yet: the xtables lock was not free\nmore"]
    health = ProxyHealth(60.0, unready=lambda: unready[0])
    for status, body in (asked(health.healthz()), asked(health.livez())):
        assert (status, body["healthy"]) == (503, False)
        assert body["reason"] == "the host cannot be programmed yet: the xtables lock was not free"
    unready[0] = ""
    health.updated(V4)
    status, body = asked(health.healthz())
    assert status == 200
    assert "reason" not in body
