"""What a question decides beside the packet and the host: rates, and whatever else a dump cannot tell.

An *assumption* is a text and its answer. The text is a match as the rules print it (`-m owner --uid-owner 0`,
`meta skuid 0`), or the name of a match or expression (`rpfilter`, `skuid`), which then stands for all of them; the name
of a target that leaves the packet to user space (`NFQUEUE`: yes lets it pass, no drops it); or, where it is not known
whose chains of equal priority come first, `iptables-legacy before nftables`. An assumption decides only what is open.

Each reason for which an outcome is indeterminate has a *hint*: what would settle it, as options of `kproxy trace`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from kproxy.dataplane.model.pipeline import Source


@dataclass(slots=True)
class Assumptions:
    """What is given beside packet and host.

    Attributes:
        limit: decides matches on rates: True for within, False for above, None leaves them open.
        assumed: answers by text.
        told: the options that are given (`--host`), or whose facts are known: a hint names none of them, but the fact
            that is missing.
        hints: what would settle each reason; filled during a trace.
        used: the assumptions that decided something; filled during a trace.
    """

    limit: bool | None = None
    assumed: Mapping[str, bool] = field(default_factory=lambda: MappingProxyType({}))
    told: frozenset[str] = frozenset()
    hints: dict[str, tuple[str, ...]] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    def decide(self, texts: Iterable[str]) -> bool | None:
        """The answer that one of the texts has been given, None if none has."""
        for text in texts if self.assumed else ():
            if text in self.assumed:
                self.used.add(text)
                return self.assumed[text]
        return None

    def explain(self, reason: str, text: str = "") -> None:
        """Note what would settle a reason: an option, or an assumption about the text."""
        if reason and reason not in self.hints:
            options = _options(reason, self.told)
            assumption = (f"--assume '{text}=yes|no'",) if text and set(options) <= _OR_ASSUMED else ()
            self.hints[reason] = (*options, *assumption)

    def explain_unseen(self, reason: str, thing: str) -> None:
        """Note what would settle a reason that is a thing which was not seen: the option that the reason names, or an
        assumption."""
        option = reason.rpartition("(--")[2].partition(")")[0] if "(--" in reason else f"assume '{thing}=empty'"
        self.hints.setdefault(reason, (f"--{option}, or input that shows it",))

    def hint(self, reason: str) -> tuple[str, ...]:
        """What would settle a reason; empty if nothing that can be given does."""
        return self.hints.get(reason) or _options(reason, self.told)


def _options(reason: str, told: Collection[str]) -> tuple[str, ...]:
    """What would settle a reason, if `told` are the options that are given."""
    for part, option, fact in _OPTIONS:
        if part in reason:
            left = [each for each in option.split(", or ") if each.split()[0] not in told]
            return (", or ".join(left),) if left else (fact,) if fact and fact.split()[0] not in told else ()
    return ()


def contradiction(assumed: Mapping[str, bool]) -> tuple[str, ...]:
    """Assumptions that cannot all hold: a match and its negation answered alike, or orders that go in a circle; empty
    if there are none."""
    for text, answer in assumed.items():
        plain = text.replace(" != ", " ", 1)
        if text.startswith("-m ") and text.count("--") == 1:  # with several options, a negation is not the opposite
            plain = text.replace(" ! ", " ", 1)
        if plain != text and assumed.get(plain) is answer:
            return plain, text
    earlier: dict[str, dict[str, str]] = {}
    for text, answer in assumed.items():
        first, before, second = text.partition(" before ")
        if before and {first, second} <= set(Source):
            first, second = (first, second) if answer else (second, first)
            earlier.setdefault(first, {})[second] = text
    return next((found for name in earlier if (found := _circle(earlier, name, (name,)))), ())


def _circle(earlier: Mapping[str, Mapping[str, str]], name: str, way: tuple[str, ...]) -> tuple[str, ...]:
    """The assumptions that lead from the first of `way` back to it by way of `name`, the last."""
    for following, text in earlier.get(name, {}).items():
        if following == way[0]:
            return (text,)
        if following not in way and (rest := _circle(earlier, following, (*way, following))):
            return (text, *rest)
    return ()


_LOCAL: Final = "--local-ip IP, or --host FILE"
_OPTIONS: Final = (
    ("is an address of this host", "--local-ip IP", "interfaces: [{name: NAME, addresses: [IP/LENGTH]}]"),
    ("the input interface is not known", "--in IFACE", ""),
    ("came by a bridge port", "--in IFACE", "interfaces: [{name: PORT, bridge: NAME}]"),
    ("comes by a bridge port", "--in IFACE", "interfaces: [{name: PORT, bridge: NAME}]"),
    ("the rate is within the limit", "--limit within|above", ""),
    ("the packet's mark is not known", "--mark MARK", "--ctmark MARK"),
    ("the connection's mark is not known", "--ctmark MARK", ""),
    ("the connection's state is not known", "--ctstate STATE", ""),
    ("of iptables-nft or of iptables-legacy", "--rules FILE with the comments that iptables-save writes", ""),
    ("the contents of set", "--ipset FILE", "the set in what ipset save prints"),
    ("the source port is not known", "--src IP:PORT", "--sport PORT"),
    ("the source address is not known", "--src IP", ""),
    ("whether the address is local", _LOCAL, "interfaces: [{name: NAME, addresses: [IP/LENGTH]}]"),
    ("for this host is not known", _LOCAL, "interfaces: [{name: NAME, addresses: [IP/LENGTH]}]"),
    ("destination is this host is not known", _LOCAL, "interfaces: [{name: NAME, addresses: [IP/LENGTH]}]"),
    ("route_localnet", "--host FILE", "sysctls: {route_localnet: 1}"),
    ("rp_filter", "--host FILE", "sysctls: {rp_filter: 0}"),
    ("bridge-nf-call-iptables is not known", "--host FILE", "sysctls: {bridge-nf-call-iptables: 1}"),
    ("hairpin mode is not known", "--host FILE", "interfaces: [{name: PORT, hairpin: true}]"),
    ("this host forwards is not known", "--host FILE", "sysctls: {ip_forward: 1}"),
    ("the output interface is not known", "--host FILE", "routes: [{to: NETWORK, dev: NAME}]"),
    ("output bridge port is not known", "--host FILE", "interfaces: [{name: PORT, bridge: NAME}]"),
    ("fib ", "--host FILE", "routes: [{to: NETWORK, dev: NAME}]"),
)
"""What settles reasons, by a part of the reason: an option; and, where that is given, the fact that it lacks."""

_OR_ASSUMED: Final = frozenset({"--ipset FILE", "--limit within|above"})
"""Those beside which the match itself can be assumed, for who has no such file or wants one rate only."""
