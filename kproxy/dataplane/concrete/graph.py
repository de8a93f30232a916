"""The graph of a packet's paths: where a packet can be, what may come after, and how it may end.

A node is a cursor in the pipeline together with a state. `chains` and `nft` traverse base chains and return either
what the chain let pass (`Accepted`) or the alternatives (`Fork`); `hooks` joins the chains; `explore` follows all
alternatives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, NamedTuple

from kproxy.dataplane.concrete.state import State
from kproxy.dataplane.model.verdict import FinalVerdict
from kproxy.netfilter.hooks import Hook, Variant


class Step(NamedTuple):
    """One thing that happened to the packet.

    `kind` is `rule`, `policy`, `conntrack`, `route`, `translate` or `end`; the table, chain and rule number (from 1)
    are set for rules, table and chain for policies. `text` is the rule as iptables-save prints it, `did` what happened
    in a few words, `note` the rule's provenance. `source` says whose the rule is, among rules of several writers.
    """

    kind: str
    hook: Hook
    did: str
    table: str = ""
    chain: str = ""
    rule: int = 0
    text: str = ""
    note: str = ""
    source: str = ""


ENTRY: Final = -1


class Cursor(NamedTuple):
    """Where the packet is.

    Attributes:
        hook, stage: the stage is an index into the pipeline's stages of the hook; ENTRY: the packet comes to the hook.
        frames: the chains it is in, the outermost first, each with the index of its next rule; none: the next base
            chain of the stage has not begun.
        match: how many matches of that rule hold already.
        order: the base chains of the stage that are still to be called, the present one first; none: the stage has
            not begun.
        before: what the packet was when it came to the chain, for rerouting.
        variant: of iptables, where it is not known and makes a difference.
    """

    hook: Hook
    stage: int = ENTRY
    frames: tuple[tuple[str, int], ...] = ()
    match: int = 0
    order: tuple[int, ...] = ()
    before: tuple[object, ...] = ()
    variant: Variant | None = None


class Node(NamedTuple):
    """A cursor and the state there."""

    cursor: Cursor
    state: State


@dataclass(frozen=True, slots=True)
class End:
    """What finally happens to the packet: ACCEPT, DROP, REJECT or INDETERMINATE.

    `via` is `local` (delivered to this host), `out` (left it) or `bridged` (iptables never saw it), empty if it was not
    accepted. `reject` is REJECT's answer, `reason` says why if no rule does. `marked`: the packet was delivered here,
    and had it left, it would have been masqueraded.
    """

    verdict: FinalVerdict
    hook: Hook | str
    state: State
    via: str = ""
    reject: str = ""
    reason: str = ""
    marked: bool = False


class Edge(NamedTuple):
    """One alternative: its chance (None: unknown), where it leads (or what that depends on), and what happened
    meanwhile."""

    chance: Fraction | None
    to: Node | End | Fork
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class Fork:
    """What comes after a node: common steps, then one of the edges. If the edges have no chances, `why` says what it
    depends on."""

    steps: tuple[Step, ...]
    edges: tuple[Edge, ...]
    why: str = ""


def sure(to: Node | End, steps: tuple[Step, ...] = ()) -> Fork:
    """What surely comes next, after some steps."""
    return Fork(steps, (Edge(Fraction(1), to),))


def entering(hook: Hook, state: State) -> Fork:
    """The packet comes to a hook."""
    return sure(Node(Cursor(hook), state))


def either(edges: Sequence[Edge], why: str) -> Fork:
    """One of some alternatives without chances; a single one is sure."""
    if len(edges) == 1:
        return Fork((), (edges[0]._replace(chance=Fraction(1)),))
    return Fork((), tuple(edges), why)


class Accepted(NamedTuple):
    """A table's answer if it lets the packet pass: the state after it, and what happened in it."""

    state: State
    steps: tuple[Step, ...]


END: Final = 1 << 40
"""The index of a rule after the last one."""
DONE: Final = (("", END),)
"""The frames of a cursor whose base chain has accepted the packet."""
