"""networking.k8s.io/v1 NetworkPolicy: defaults and validation.

Source: kubernetes/kubernetes pkg/apis/networking/v1/defaults.go and pkg/apis/networking/validation.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any, ClassVar, Final

from kproxy.api.addresses import canonical_cidr, check_cidr
from kproxy.api.fielderror import FieldError, forbidden, invalid, not_supported, required
from kproxy.api.validation.names import check_port_name, check_port_number
from kproxy.apiserver.errors import Json
from kproxy.apiserver.kinds.field_rules import selector_errors
from kproxy.apiserver.kinds.strategy import Strategy

_PROTOCOLS: Final = ("TCP", "UDP", "SCTP")
_TYPES: Final = ("Ingress", "Egress")


class NetworkPolicyStrategy(Strategy):
    """networking.k8s.io/v1 NetworkPolicy."""

    has_generation: ClassVar[bool] = True

    def default(self, value: Json) -> None:
        spec = value["spec"]
        if not spec.get("policyTypes"):
            spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
        for kind in ("ingress", "egress"):
            for rule in spec.get(kind) or ():
                for port in rule.get("ports") or ():
                    port.setdefault("protocol", "TCP")

    def validate(self, value: Json) -> list[FieldError]:
        spec = value["spec"]
        errors = list(selector_errors(spec.get("podSelector") or {}, "spec.podSelector"))
        for kind, peers in (("ingress", "from"), ("egress", "to")):
            for number, rule in enumerate(spec.get(kind) or ()):
                path = f"spec.{kind}[{number}]"
                for index, port in enumerate(rule.get("ports") or ()):
                    errors += _port_errors(port, f"{path}.ports[{index}]")
                for index, peer in enumerate(rule.get(peers) or ()):
                    errors += _peer_errors(peer, f"{path}.{peers}[{index}]")
        return errors + _type_errors(spec.get("policyTypes") or [])


def _type_errors(types: list[str]) -> list[FieldError]:
    if len(types) > len(_TYPES):
        return [invalid("spec.policyTypes", types, "may not specify more than two policyTypes")]
    return [
        not_supported(f"spec.policyTypes[{index}]", kind, _TYPES)
        for index, kind in enumerate(types)
        if kind not in _TYPES
    ]


def _port_errors(port: Json, path: str) -> Iterator[FieldError]:
    if port.get("protocol") not in _PROTOCOLS:
        yield not_supported(f"{path}.protocol", port.get("protocol"), _PROTOCOLS)
    number: Any = port.get("port")
    end = port.get("endPort")
    where = f"{path}.endPort"
    if isinstance(number, int):
        yield from (invalid(f"{path}.port", number, text) for text in check_port_number(number))
        if end is not None:
            if end < number:
                yield invalid(where, number, "must be greater than or equal to `port`")
            yield from (invalid(where, end, text) for text in check_port_number(end))
    elif number is not None:
        if end is not None:
            yield invalid(where, end, "may not be specified when `port` is non-numeric")
        yield from (invalid(f"{path}.port", number, text) for text in check_port_name(number))
    elif end is not None:
        yield invalid(where, end, "may not be specified when `port` is not specified")


def _peer_errors(peer: Json, path: str) -> Iterator[FieldError]:
    selectors = [name for name in ("podSelector", "namespaceSelector") if peer.get(name) is not None]
    for name in selectors:
        yield from selector_errors(peer[name], f"{path}.{name}")
    block = peer.get("ipBlock")
    if block is not None:
        yield from _block_errors(block, f"{path}.ipBlock")
        if selectors:
            yield forbidden(path, "may not specify both ipBlock and another peer")
    elif not selectors:
        yield required(path, "must specify a peer")


def _block_errors(block: Json, path: str) -> Iterator[FieldError]:
    cidr = block.get("cidr", "")
    if not cidr:
        yield required(f"{path}.cidr")
        return
    yield from (invalid(f"{path}.cidr", cidr, text) for text in check_cidr(cidr, True))
    whole = _network(cidr)
    for index, text in enumerate(block.get("except") or ()):
        where = f"{path}.except[{index}]"
        yield from (invalid(where, text, message) for message in check_cidr(text, True))
        part = _network(text)
        if whole is not None and part is not None and (part == whole or not _within(part, whole)):
            yield invalid(where, text, "must be a strict subset of `cidr`")


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    canonical = canonical_cidr(text)
    return ipaddress.ip_network(canonical, strict=False) if canonical is not None else None


def _within(
    part: ipaddress.IPv4Network | ipaddress.IPv6Network, whole: ipaddress.IPv4Network | ipaddress.IPv6Network
) -> bool:
    if isinstance(part, ipaddress.IPv4Network) and isinstance(whole, ipaddress.IPv4Network):
        return part.subnet_of(whole)
    if isinstance(part, ipaddress.IPv6Network) and isinstance(whole, ipaddress.IPv6Network):
        return part.subnet_of(whole)
    return False
