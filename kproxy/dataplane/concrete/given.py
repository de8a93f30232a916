"""What a question decides beside the packet and the host: rates, and whatever else a dump cannot tell.

An *assumption* is a text and its answer. The text is a match as the rules print it (`-m owner --uid-owner 0`,
`meta skuid 0`), or the name of a match or expression (`rpfilter`, `skuid`), which then stands for all of them; the name
of a target that leaves the packet to user space (`NFQUEUE`: yes lets it pass, no drops it); or, where it is not known
whose chains of equal priority come first, `iptables-legacy before nftables`. An assumption decides only what is open.

Each reason for which an outcome is indeterminate has a *hint*: what would settle it, as options of `kproxy trace`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from kproxy.dataplane.model.pipeline import Source


@dataclass(slots=True)
class Given:
    """What is given beside packet and host.

    Attributes:
        limit: decides matches on rates: True for within, False for above, None leaves them open.
        assumed: answers by text.
        hints: what would settle each reason; filled during a trace.
        used: the assumptions that decided something; filled during a trace.
    """

    limit: bool | None = None
    assumed: Mapping[str, bool] = field(default_factory=lambda: MappingProxyType({}))
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
            options = _options(reason)
            assumption = (f"--assume '{text}=yes|no'",) if text and set(options) <= _OR_ASSUMED else ()
            self.hints[reason] = (*options, *assumption)

    def hint(self, reason: str) -> tuple[str, ...]:
        """What would settle a reason; empty if nothing that can be given does."""
        return self.hints.get(reason) or _options(reason)


def _options(reason: str) -> tuple[str, ...]:
    return next(((option,) for part, option in _OPTIONS if part in reason), ())


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


_OPTIONS: Final = (
    ("is an address of this host", "--local-ip IP"),
    ("the input interface is not known", "--in IFACE"),
    ("came by a bridge port", "--in IFACE"),
    ("comes by a bridge port", "--in IFACE"),
    ("the rate is within the limit", "--limit within|above"),
    ("the packet's mark is not known", "--mark MARK"),
    ("the connection's state is not known", "--ctstate STATE"),
    ("of iptables-nft or of iptables-legacy", "--rules FILE with the comments that iptables-save writes"),
    ("the contents of set", "--ipset FILE"),
    ("the source port is not known", "--src IP:PORT"),
    ("the source address is not known", "--src IP"),
    ("whether the address is local", "--local-ip IP, or --host FILE"),
    ("for this host is not known", "--local-ip IP, or --host FILE"),
    ("destination is this host is not known", "--local-ip IP, or --host FILE"),
    ("route_localnet", "--host FILE"),
    ("rp_filter", "--host FILE"),
    ("bridge-nf-call-iptables is not known", "--host FILE"),
    ("hairpin mode is not known", "--host FILE"),
    ("this host forwards is not known", "--host FILE"),
    ("the output interface is not known", "--host FILE"),
    ("output bridge port is not known", "--host FILE"),
    ("fib ", "--host FILE"),
)
"""What settles reasons, by a part of the reason."""

_OR_ASSUMED: Final = frozenset({"--ipset FILE", "--limit within|above"})
"""Those beside which the match itself can be assumed, for who has no such file or wants one rate only."""
