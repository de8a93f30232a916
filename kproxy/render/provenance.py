"""Provenance as data for programs."""

from __future__ import annotations

import msgspec

from kproxy.render.origin import RenderedRule


class RuleProvenance(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Where a rule comes from, with the API's names; what does not apply is absent.

    Attributes:
        reason: what the rule is for, in a few words.
        base: whether it is a base rule, which is there whatever the cluster holds.
        service: `namespace/name`.
        port: the name of the Service's port; "" for an unnamed one.
        endpoint_slice: `namespace/name`.
        endpoint: `ip:port`, or `[ip]:port` for IPv6.
    """

    reason: str
    base: bool = False
    service: str | None = None
    port: str | None = None
    protocol: str | None = None
    endpoint_slice: str | None = None
    endpoint: str | None = None


class RuleRecord(msgspec.Struct, frozen=True):
    """One rule as `kproxy render --format json` lists it; `rule` is its number in the chain, from 1."""

    table: str
    chain: str
    rule: int
    text: str
    provenance: RuleProvenance


def rule_record(rule: RenderedRule) -> RuleRecord:
    """Turns a rule into what programs read."""
    origin = rule.origin
    if origin.service_port is None:
        provenance = RuleProvenance(reason=origin.reason, base=True)
    else:
        name, endpoint = origin.service_port, origin.endpoint
        provenance = RuleProvenance(
            reason=origin.reason,
            service=name.service,
            port=name.port,
            protocol=name.protocol,
            endpoint_slice=endpoint.slice if endpoint is not None else None,
            endpoint=endpoint.address if endpoint is not None else None,
        )
    return RuleRecord(rule.table, rule.chain, rule.number, rule.text, provenance)
