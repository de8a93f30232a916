"""What each endpoint of a Service gets, and what is wrong with it where a node's rules and the objects differ: in the
same words on the map, in its panel and on the Service's page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Final

import msgspec

from kproxy.api.kubeproxyconfig.types import MODE_NFTABLES
from kproxy.cluster.node import NodeFacts
from kproxy.explorer.model.owners import Owners
from kproxy.explorer.model.rule_chances import Asked
from kproxy.family import host_of
from kproxy.render.iptables.serviceport import probability
from kproxy.services.endpoints import Endpoint
from kproxy.services.serviceport import ServicePort
from kproxy.services.topology import SelectedEndpoints, why_unused
from kproxy.words import exact

MISSING: Final = "missing"
"""The node's rules do not know the Service's address."""
REFUSED: Final = "refused"
"""They drop or reject what is sent to it."""
LOST: Final = "lost"
"""They choose the endpoint, and what is sent there is dropped or rejected."""
UNUSED: Final = "unused"
"""They never choose it, though the objects ask for it."""
WRONG: Final = "wrong"
"""They choose it, though the objects do not."""

_NOT_THERE: Final = "not among the endpoints that the objects have"
_NOBODY: Final = "no Pod has this address"
_NONE: Final = Fraction(0)
_BITS_31: Final = 1 << 31
_BITS_32: Final = 1 << 32


@lru_cache(maxsize=4096)
def chances(count: int, mode: str) -> tuple[Fraction, ...]:
    """The exact chances with which kube-proxy's rules choose each of `count` endpoints, in their order; they add up
    to 1.

    In iptables mode the kernel compares 31 random bits with the probability that kube-proxy writes with ten digits, as
    iptables rounds it (libxt_statistic); in nftables mode it scales 32 random bits (nft_numgen).
    """
    if not count:
        return ()
    if mode == MODE_NFTABLES:
        bounds = [-(-number * _BITS_32 // count) for number in range(count + 1)]
        return tuple(Fraction(bounds[number + 1] - bounds[number], _BITS_32) for number in range(count))
    found, left = [], Fraction(1)
    for number in range(count, 1, -1):
        taken = Fraction(round(float(probability(number)) * _BITS_31), _BITS_31)
        found.append(left * taken)
        left *= 1 - taken  # a difference would take a time that is quadratic in its digits
    return (*found, left)


def percent(chance: Fraction) -> float:
    """For people: rounded to hundredths."""
    return round(float(chance) * 100, 2)


_exact = lru_cache(maxsize=4096)(exact)
"""The same chances come again and again, and long ones take their time."""


class FanEndpoint(msgspec.Struct, frozen=True):
    """What an endpoint, `ADDRESS:PORT`, gets of what is sent to an address of a Service.

    Attributes:
        target, node: what has its address, and where, as ids of the map.
        objects: the chance that the objects ask for, where the rules give another one; else "".
        fault: what is wrong with it; "" if nothing is. why: that, or why it is not decided, in words.
        lost: the chance of packets that the rules send there and that are lost; "" if none are.
    """

    address: str
    chance: str
    percent: float
    target: str
    node: str
    objects: str = ""
    fault: str = ""
    why: str = ""
    lost: str = ""

    @property
    def used(self) -> bool:
        """Whether it gets anything."""
        return self.chance != _exact(_NONE)


def ends_of(
    facts: NodeFacts, port: ServicePort, wanted: Mapping[str, Fraction], asked: Asked | None, owners: Owners
) -> Iterator[FanEndpoint]:
    """What the endpoints of an address get: as its rules say that were asked, if these decide, also those that only the
    rules choose; else as the objects say.

    Args:
        wanted: the endpoints that are to be told in any case, each with the chance that the objects ask for.
    """
    rules = None if asked is None or asked.open else asked
    known = {each.address: each for each in facts.state.endpoints.get(port.name, ())}
    for address in wanted if rules is None else dict.fromkeys((*wanted, *rules.chances, *rules.lost)):
        target, node, what = whose(owners, address)
        chance = due = wanted.get(address, _NONE)
        lost, fault, why = _NONE, "", asked.why_open if asked is not None and asked.open else ""
        if rules is not None:
            each = known.get(address)
            left_out = what if each is None else why_not(each, port, facts.selected[port.name])
            if each is not None and left_out:
                left_out = f"should get none: {left_out}"
            chance, lost = rules.chances.get(address, _NONE), rules.lost.get(address, _NONE)
            fault, why = _fault(address, rules, due, facts.target.node_name, left_out)
        yield FanEndpoint(
            address, _exact(chance), percent(chance), target, node, _exact(due) if due != chance else "", fault, why,
            _exact(lost) if lost else "",
        )  # fmt: skip


def _fault(address: str, asked: Asked, wanted: Fraction, node: str, left_out: str) -> tuple[str, str]:
    """What is wrong with an endpoint where rules were asked and could decide, and that in words.

    Args:
        wanted: the chance that the objects ask for.
        left_out: why the objects leave it out, if they do.
    """
    if asked.lost.get(address):
        return LOST, asked.why_lost[address]
    if asked.chances.get(address):
        return ("", "") if wanted else (WRONG, left_out)
    if not wanted:
        return "", ""
    if asked.chances or asked.lost:
        return UNUSED, f"the rules of {node} do not lead there"
    if asked.untranslated or not asked.refused:
        return MISSING, f"rules missing on {node}"
    return REFUSED, asked.refused


def whose(owners: Owners, endpoint: str) -> tuple[str, str, str]:
    """What has the address of an endpoint, the node that it is on, and what it is if only rules know it."""
    address = host_of(endpoint)
    target, node = owners.target(address)
    nobody = owners.pod_network_of(address)
    return target, nobody or node, _NOBODY if nobody else _NOT_THERE


def state_of(endpoint: Endpoint) -> str:
    """An endpoint's conditions in words."""
    if endpoint.ready and not endpoint.terminating:
        return "ready"
    conditions = (("ready", endpoint.ready), ("serving", endpoint.serving and not endpoint.ready))
    names = [name for name, holds in (*conditions, ("terminating", endpoint.terminating)) if holds]
    return ", ".join(names) or "not ready"


def why_not(endpoint: Endpoint, port: ServicePort, selected: SelectedEndpoints) -> str:
    """Why an endpoint gets nothing that is sent to the ClusterIP from the node."""
    return why_unused(endpoint, port, selected) or "on another node, and the internal traffic policy is Local"
