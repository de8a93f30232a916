"""What the kernel should hold: one family's owned chains and jump rules, from rendered rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache

import msgspec

from kproxy.linux.iptables.canonical import ChainRef, canonicalizer
from kproxy.linux.iptables.features import LineRewriter
from kproxy.render import RenderedTarget
from kproxy.render.iptables.base import CANARY_TABLES, JUMP_RULES, JumpRule
from kproxy.render.iptables.chains import CANARY, FILTER, FIREWALL, NAT
from kproxy.render.origin import Origin
from kproxy.services.names import IPFamily, ServicePortName


class DesiredRules(msgspec.Struct, frozen=True):
    """One family's rules as they should be.

    Attributes:
        chains: restore lines of every owned chain, canaries included, in the order in which a restore declares them.
        owners: the ServicePort of each nat chain that belongs to one.
        jumps: the jump rules of each built-in chain as iptables-save prints them, the first one first.
        origins: gives the origin of every rule by chain, jump rules included. Called only when they are asked for.

    The canonical rules of a chain are found once, when they are first asked for.
    """

    family: IPFamily
    chains: Mapping[ChainRef, str]
    owners: Mapping[str, ServicePortName]
    jumps: Mapping[ChainRef, tuple[str, ...]]
    origins: Callable[[], Mapping[ChainRef, list[Origin]]]
    _canonical: dict[ChainRef, list[str]] = msgspec.field(default_factory=dict)

    def rules(self, ref: ChainRef) -> list[str]:
        """The rules of a chain as iptables-save prints them."""
        known = self._canonical.get(ref)
        if known is None:
            known = self._canonical[ref] = canonicalizer(self.family).rules(ref[1], self.chains[ref])
        return known


def desired_rules(
    rendered: RenderedTarget, rewrite: LineRewriter | None = None, canary_tables: Iterable[str] = CANARY_TABLES
) -> DesiredRules:
    """What the kernel should hold for rendered rules.

    Args:
        rewrite: turns lines into what this kernel can do; see `kproxy.linux.iptables.features`.
        canary_tables: the tables that get a canary chain.
    """
    family = rendered.options.family
    chains: dict[ChainRef, str] = {}
    owners: dict[str, ServicePortName] = {}
    for name, own in rendered.plan.service_ports.items():
        for chain, text in own.items():
            chains[(NAT, chain)] = text
            owners[chain] = name
    chains.update(rendered.plan.base)
    # The kubelet shares it, so kube-proxy keeps it, empty where it has no rule for it.
    chains.setdefault((FILTER, FIREWALL), "")
    for table in canary_tables:
        chains[(table, CANARY)] = ""

    def origins() -> Mapping[ChainRef, list[Origin]]:
        found = rendered.rule_origins()
        return found if rewrite is None else _kept_origins(found, chains, rewrite)

    if rewrite is None:
        return DesiredRules(family, chains, owners, _jumps(family), origins)
    texts = {ref: rewrite_text(text, rewrite) for ref, text in chains.items()}
    return DesiredRules(family, texts, owners, jump_lines(family, rewrite), origins)


def rewrite_text(text: str, rewrite: LineRewriter) -> str:
    """The restore lines of a chain as this kernel can load them."""
    lines = map(rewrite, text.splitlines())
    return "".join(f"{line}\n" for line in lines if line is not None)


def _kept_origins(
    origins: Mapping[ChainRef, list[Origin]], chains: Mapping[ChainRef, str], rewrite: LineRewriter
) -> dict[ChainRef, list[Origin]]:
    """The origins without those of lines that were left out."""
    kept = dict(origins)
    for ref, text in chains.items():
        lines = text.splitlines()
        found = origins.get(ref, [])
        if len(found) == len(lines):
            kept[ref] = [each for each, line in zip(found, lines, strict=True) if rewrite(line) is not None]
    return kept


@cache
def _jumps(family: IPFamily) -> Mapping[ChainRef, tuple[str, ...]]:
    return jump_lines(family, lambda line: line)


def jump_lines(
    family: IPFamily, rewrite: LineRewriter, jumps: Sequence[JumpRule] = JUMP_RULES
) -> Mapping[ChainRef, tuple[str, ...]]:
    """The jump rules of each built-in chain as iptables-save prints them, the first one first."""
    found: dict[ChainRef, list[str]] = {}
    for jump in reversed(jumps):  # each is prepended, so the last one comes first
        line = rewrite(jump.text)
        if line is not None:
            rules = canonicalizer(family).rules(jump.source, f"{line}\n")
            found.setdefault((jump.table, jump.source), []).extend(rules)
    return {ref: tuple(rules) for ref, rules in found.items()}
