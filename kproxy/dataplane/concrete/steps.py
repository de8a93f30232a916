"""Rules of either language as traversal meets them: steps that ask or do something, one after the other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from kproxy.dataplane.concrete.effects import Way
from kproxy.dataplane.concrete.state import Answer, RuleRef, View
from kproxy.dataplane.model.errors import DataplaneError
from kproxy.dataplane.model.packet import Packet
from kproxy.dataplane.model.unseen import unseen_reason
from kproxy.netfilter.effect import Told


class RuleStep(NamedTuple):
    """One thing that a rule asks, or does (`acts`): a value that the engine knows, and what it stands for in the rule,
    a match, target or statement. `pure`: it changes nothing."""

    what: Any
    source: Any
    acts: bool
    pure: bool


def acting(what: object, source: object) -> RuleStep:
    """A step that does something."""
    return RuleStep(what, source, acts=True, pure=isinstance(what, Told) and not what.text)


class IndexedRule:
    """A rule ready to be traversed; `describe` gives its text and its provenance when somebody asks."""

    __slots__ = ("_describe", "_described", "ref", "steps", "unseen")

    def __init__(self, ref: RuleRef, steps: Iterable[RuleStep], describe: Callable[[], tuple[str, str]]) -> None:
        self.ref = ref
        self.steps = tuple(steps)
        self.unseen = any(unseen_reason(step.source) for step in self.steps)
        self._describe = describe
        self._described: tuple[str, str] | None = None

    def described(self) -> tuple[str, str]:
        """The rule as iptables-save or nft prints it, and where it comes from, or else its comment; "" for neither."""
        if self._described is None:  # kept, since each way of a choice among thousands of endpoints has it
            self._described = self._describe()
        return self._described


class RuleChain(Protocol):
    """A chain."""

    @property
    def chain(self) -> Any:
        """As its language has it, with `rules`."""

    @property
    def policy(self) -> str:
        """What becomes of packets at the end of a base chain: ACCEPT, DROP."""

    def candidates(self, packet: Packet) -> Sequence[int]:
        """The indexes, from 0 and in order, of the rules that may match the packet."""

    def rule(self, index: int) -> IndexedRule:
        """The rule at an index, counted from 0."""


class RuleTable(ABC):
    """A table: its chains, and how one asks and does what its rules say. A chain is made ready when a packet comes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._chains: dict[str, RuleChain] = {}

    def chain(self, name: str) -> RuleChain:
        """A chain. Raises DataplaneError if it is not there."""
        found = self._chains.get(name) or self.indexed(name)
        if found is None:
            raise DataplaneError(f"table {self.name}: a jump to chain {name}, which is not there")
        self._chains[name] = found
        return found

    @abstractmethod
    def indexed(self, name: str) -> RuleChain | None:
        """A chain made ready for packets; None if the table has no such chain."""

    @abstractmethod
    def has_chain(self, name: str) -> bool:
        """Whether the table has it."""

    @abstractmethod
    def ask(self, step: RuleStep, view: View) -> Answer:
        """What the answer to a question is."""

    @abstractmethod
    def act(self, step: RuleStep, view: View) -> list[Way]:
        """What a step may do."""

    @abstractmethod
    def texts(self, step: RuleStep) -> tuple[str, ...]:
        """By which texts an assumption may mean a step, the best one first."""
