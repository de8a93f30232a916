"""Reading back kube-proxy's table, spelled as the desired table where both mean the same.

A sync only compares text object by object, of the few kinds of rules that kube-proxy writes; of nft's JSON that takes a
fifth of the processor time of `netfilter.nftables`, which makes values of every expression, and the table is read at
each start and check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from kproxy.linux.errors import UnreadableDumpError
from kproxy.linux.nftables.executor import NftExecutor
from kproxy.linux.nftables.ownership import is_our_chain, is_our_set
from kproxy.linux.nftables.spelling import (
    canonical,
    chain_definition,
    chain_signature,
    element,
    listed_set_signature,
    protocol_part,
    rule_text,
    set_definition,
    set_signature,
)
from kproxy.linux.nftables.table import SetText, TableText
from kproxy.render.nftables.serviceport import ElementRef, ElementValue


class Listing(msgspec.Struct, frozen=True):
    """What the kernel holds.

    Attributes:
        table: kube-proxy's own objects, spelled as the desired ones where both mean the same; None without a table.
        foreign: chains, sets and other objects in the table that kube-proxy does not make: `chain NAME`, say; sorted.
        foreign_rules: the rules of foreign chains, which may lead to ours.
        dormant: whether the kernel calls none of the table's chains; then `table` may be None, as nft cannot list it.
    """

    table: TableText | None
    foreign: tuple[str, ...] = ()
    foreign_rules: tuple[str, ...] = ()
    dormant: bool = False


def read_table(executor: NftExecutor, desired: TableText | None = None) -> Listing:
    """Reads the table.

    Args:
        desired: the table whose spelling is used.

    Raises:
        LinuxError: it cannot be read.
    """
    text = executor.list_table()
    if text is None:
        return Listing(None)
    try:
        listing = parse_listing(text, desired or TableText(executor.table))
    except UnreadableDumpError:
        # nft 1.0.6 writes what happens to be in memory for the flags of a table, which may end its JSON.
        if executor.is_dormant():
            return Listing(None, dormant=True)
        raise
    return msgspec.structs.replace(listing, dormant=executor.is_dormant()) if listing.dormant else listing


def read_awake(executor: NftExecutor, desired: TableText | None = None) -> tuple[Listing, bool]:
    """Reads the table, woken if it was dormant, which it says, too. Raises as `read_table`."""
    listing = read_table(executor, desired)
    if not listing.dormant:
        return listing, False
    executor.wake("" if desired is None else desired.definition)
    return read_table(executor, desired), True


def parse_listing(text: str, desired: TableText, each: Callable[[], None] = lambda: None) -> Listing:
    """Reads what `nft -j list table` prints; of a table with any flags, `dormant` is true.

    Args:
        each: called before each object; what it raises ends the work.

    Raises:
        UnreadableDumpError: it is something else.
    """
    try:
        return _Reader(desired).read(msgspec.json.decode(text, type=_Printed).nftables, each)
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnreadableDumpError(
            f"what nft -j list table {desired.name} prints cannot be understood: {error}"
        ) from error


class _Printed(msgspec.Struct):
    """What nft prints: objects that are not taken apart yet, which takes long if there are many."""

    nftables: list[msgspec.Raw]


class _Reader:
    def __init__(self, desired: TableText) -> None:
        self._desired = desired
        self._chains: dict[str, str] = {}
        self._rules: dict[str, list[str]] = {}
        self._sets: dict[str, SetText] = {}
        self._elements: dict[ElementRef, ElementValue] = {}
        self._foreign: list[str] = []
        self._foreign_rules: list[str] = []
        self._spellings: dict[str, dict[str, str]] = {}

    def read(self, objects: Iterable[msgspec.Raw], each: Callable[[], None]) -> Listing:
        flagged = False
        for printed in objects:
            each()
            ((kind, item),) = msgspec.json.decode(printed).items()
            if kind == "chain":
                self._chain(item)
            elif kind in ("set", "map"):
                self._set(kind, item)
            elif kind == "rule":
                self._rule(item)
            elif kind == "table":
                flagged = "flags" in item
            elif kind != "metainfo":
                self._foreign.append(f"{kind} {item.get('name', '')}".strip())
        rules = {chain: tuple(own) for chain, own in self._rules.items()}
        name, definition = self._desired.name, self._desired.definition
        table = TableText(name, definition, self._chains, rules, self._sets, self._elements)
        # nft 1.0 lists counters before chains, 1.1 after them.
        return Listing(table, tuple(sorted(self._foreign)), tuple(self._foreign_rules), flagged)

    def _chain(self, item: dict[str, Any]) -> None:
        name = item["name"]
        desired = self._desired.chains.get(name)
        if desired is None and not is_our_chain(name):
            self._foreign.append(f"chain {name}")
            return
        found = chain_definition(item)
        # nft 1.0 does not list the comments of chains.
        alike = desired is not None and chain_signature(desired) == chain_signature(found)
        self._chains[name] = desired if alike and desired is not None else found

    def _set(self, kind: str, item: dict[str, Any]) -> None:
        name = item["name"]
        desired = self._desired.sets.get(name)
        if desired is None and not is_our_set(name):
            self._foreign.append(f"{kind} {name}")
            return
        found = listed_set_signature(kind, item)
        if desired is not None and set_signature(desired.kind, desired.definition) == found:
            self._sets[name] = desired
        else:
            self._sets[name] = SetText(kind, set_definition(item))
        if "timeout" not in item.get("flags", ()):  # those with one are filled by packets
            protocol = protocol_part(item.get("type"))
            for each in item.get("elem", ()):
                key, value = element(each, protocol)
                self._elements[name, key] = value

    def _rule(self, item: dict[str, Any]) -> None:
        chain, text = item["chain"], rule_text(item)
        if chain in self._chains:
            if chain not in self._spellings:
                self._spellings[chain] = {canonical(rule): rule for rule in self._desired.rules.get(chain, ())}
            self._rules.setdefault(chain, []).append(self._spellings[chain].get(text, text))
        else:
            self._foreign_rules.append(text)
