"""Reads and writes the overlay's rules: two iptables chains in either variant, and a native nftables table.

Ours are the chains KPROXY-POSTRTG and KPROXY-FWD with the jumps to them, and the tables named kproxy-overlay. All
places are looked at each time, so that what an earlier start with other options left behind goes. Single chains are
listed, not tables: a nat table may hold a hundred thousand rules of kube-proxy's, of which none matters here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

import msgspec

from kproxy.linux.errors import LinuxError, ToolFailedError, ToolMissingError, UnreadableDumpError
from kproxy.linux.iptables.binaries import Iptables, find_iptables, installed
from kproxy.linux.iptables.executor import IptablesExecutor
from kproxy.linux.iptables.legacy import legacy_tables
from kproxy.linux.iptables.lock import lock_held_error
from kproxy.linux.iptables.variant import choose_variant
from kproxy.linux.namespace import Namespace
from kproxy.linux.pod.refusing import RuleEnd, Rules, iptables_verdict, nft_verdict, refuses
from kproxy.linux.process import run
from kproxy.linux.programs import find_program, not_found
from kproxy.netfilter.hooks import Variant
from kproxy.netfilter.text import target_of
from kproxy.overlay.plan import Change, difference
from kproxy.overlay.rules import (
    FORWARD_CHAIN,
    JUMPS,
    NFT_CHAIN,
    NFT_TABLE,
    POSTROUTING_CHAIN,
    Firewall,
    RuleChain,
    Writer,
)
from kproxy.render.nftables.names import TABLE as KUBE_PROXY
from kproxy.services.names import IPFamily

_PLACES: Final = (("nat", "POSTROUTING", POSTROUTING_CHAIN), ("filter", "FORWARD", FORWARD_CHAIN))
_WRITERS: Final = {Variant.NFT: Writer.IPTABLES_NFT, Variant.LEGACY: Writer.IPTABLES_LEGACY}
_FAMILIES: Final = {4: IPFamily.IPV4, 6: IPFamily.IPV6}
_NFT_FAMILIES: Final = {4: "ip", 6: "ip6"}
_OF_IPTABLES: Final = (("ip", "filter", "FORWARD"), ("ip6", "filter", "FORWARD"))
_SRCNAT: Final = 100
_RANDOM_FULLY: Final = (1, 6, 2)
_TIMEOUT: Final = 60.0
_BUSY: Final = 4
"""iptables' exit code when the lock was not free in time, or the kernel had no resources (iptables(8))."""
_KUBE: Final = "KUBE-"
"""Begins the names of kube-proxy's and the kubelet's chains. None refuses everything, and some are long."""


class CurrentRules(msgspec.Struct, frozen=True):
    """What is there: our chains, what there is to write with, and what the user should know."""

    chains: tuple[RuleChain, ...]
    firewall: Firewall
    notes: tuple[str, ...]


class _Listing(msgspec.Struct, frozen=True):
    """What `nft -j list` prints."""

    nftables: list[dict[str, Any]]


class OverlayRules:
    """The overlay's rules of a namespace.

    Args:
        variant: the iptables to use; None for the one with the overlay's rules, else that of the kubelet or kube-proxy,
            else nft.
        lock_wait: seconds to wait for the xtables lock.
    """

    def __init__(self, namespace: Namespace, variant: Variant | None = None, *, lock_wait: float = 30.0) -> None:
        self._namespace = namespace
        self._lock_wait = lock_wait
        self._requested = variant
        self._main: Variant | None = None
        self._tools: dict[tuple[Writer, int], Iptables] | None = None

    def read(self, *, choose: bool = True) -> CurrentRules:
        """What is there.

        Args:
            choose: whether something is to be written with iptables, so that one has to be chosen.

        Raises:
            LinuxError: what is in the iptables to use cannot be read.
        """
        tools = self._installed()
        notes: list[str] = []
        chains: list[RuleChain] = []
        blocking = set()
        for (writer, version), each in tools.items():
            try:
                found, blocks = self._read_iptables(writer, version, each)
            except LinuxError:
                # A kernel without nf_tables holds nothing there; legacy tables are only looked at where they are.
                if each.variant is Variant.LEGACY or each.variant in (self._requested, self._main):
                    raise
                continue
            chains += found
            if blocks:
                blocking.add((writer, version))
        if choose:
            # Forwarding may be accepted in both, masquerading is in one.
            holding = [{item.writer for item in chains if item.table == table} for table in ("nat", "filter")]
            self._choose(holding[0] or holding[1], notes)
        native, drops = self._read_native()
        notes += [
            f"nftables chain {name} drops what it does not accept itself, whatever other chains accept: it needs a "
            "rule for the pods' ranges"
            for name in drops
        ]
        firewall = Firewall(
            _WRITERS[self._main] if self._main else None,
            frozenset(key for key, each in tools.items() if each.version >= _RANDOM_FULLY),
            frozenset(blocking),
        )
        return CurrentRules((*chains, *native), firewall, tuple(notes))

    def apply(self, desired: Iterable[RuleChain], seen: CurrentRules) -> tuple[list[Change], list[LinuxError]]:
        """Mends what differs; returns what was different, and what could not be mended."""
        changes = difference(desired, seen.chains)
        problems = []
        for change in changes:
            chain = change.desired or change.found
            assert isinstance(chain, RuleChain)
            try:
                if chain.writer is Writer.NFTABLES:
                    self._write_native(chain, keep=change.desired is not None)
                else:
                    self._write_iptables(chain, keep=change.desired is not None)
            except LinuxError as error:
                problems.append(error)
        return changes, problems

    def _installed(self) -> dict[tuple[Writer, int], Iptables]:
        if self._tools is None:
            self._tools = {
                (_WRITERS[variant], version): tools
                for version, family in _FAMILIES.items()
                for variant, tools in installed(family).items()
            }
        return self._tools

    def _choose(self, holding: Collection[Writer], notes: list[str]) -> None:
        """Chooses the variant: as asked for, as before (`holding` those with our rules), or kube-proxy's.

        Raises:
            LinuxError: what is asked for is not installed, or what the choice depends on cannot be read.
        """
        if self._requested is not None:
            find_iptables(IPFamily.IPV4, self._requested)
            self._main = self._requested
        elif not self._installed():
            notes.append("iptables is not installed, so no rule for forwarding pods' packets is written")
        elif self._main is None and len(holding) == 1:
            self._main = next(variant for variant, writer in _WRITERS.items() if writer in holding)
        elif self._main is None:
            self._main = choose_variant(self._namespace, IPFamily, None, demand_all=False).variant

    def _read_iptables(self, writer: Writer, version: int, tools: Iptables) -> tuple[list[RuleChain], bool]:
        found, blocks = [], False
        for table, base, chain in _PLACES:
            lines = self._list(tools, table, base)
            if lines is None:
                continue
            end = None
            if base == "FORWARD":
                end, refusing = self._end(tools, lines)
                blocks = refusing or "-P FORWARD DROP" in lines
            own = self._list(tools, table, chain, optional=True)
            if own is None and not _jumps(lines, chain):
                continue
            rules = tuple(line.removeprefix(f"-A {chain} ") for line in own or () if line.startswith("-A "))
            found.append(RuleChain(writer, version, table, base, chain, rules, _attached(lines, base, chain, end)))
        return found, blocks

    def _end(self, tools: Iptables, lines: Iterable[str]) -> tuple[int | None, bool]:
        """The number, from 1, of the rule of FORWARD behind which no new connection gets, and whether it refuses them.

        Raises LinuxError.
        """

        def chain(name: str) -> Rules:
            known = not name.startswith((_KUBE, FORWARD_CHAIN))
            listed = self._list(tools, "filter", name, optional=True) if known else None
            return [iptables_verdict(line) for line in listed or () if line.startswith("-A ")]

        rules = [iptables_verdict(line) for line in lines if line.startswith("-A ")]
        for number, rule in enumerate(rules, 1):
            refusing = refuses(rule, chain)
            if refusing or (rule is not None and rule.goes):
                return number, refusing
        return None, False

    def _list(self, tools: Iptables, table: str, chain: str, *, optional: bool = False) -> list[str] | None:
        """What `iptables -S CHAIN` prints; None if the table or an optional chain is not there. Raises LinuxError."""
        legacy = tools.variant is Variant.LEGACY
        if legacy and table not in self._namespace.call(legacy_tables, tools.family):
            return None  # looking at it would make it
        wait = ["-w", str(max(1, round(self._lock_wait)))] if legacy else []
        command = [tools.save.removesuffix("-save"), *wait, "-t", table, "-S", chain]
        done = run(self._namespace, command, timeout=_TIMEOUT)
        if done.code == _BUSY:
            raise lock_held_error(self._lock_wait) if legacy else ToolFailedError(done.reason)
        if done.code and optional:
            return None
        if done.code:
            raise ToolFailedError(f"`{' '.join(command)}` failed: {done.reason}")
        return done.stdout.splitlines()

    def _write_iptables(self, chain: RuleChain, *, keep: bool) -> None:
        tools = self._installed().get((chain.writer, chain.version))
        if tools is None:
            variant = next(variant for variant, writer in _WRITERS.items() if writer is chain.writer)
            tools = find_iptables(_FAMILIES[chain.version], variant)
        lines = self._list(tools, chain.table, chain.base) or []
        text = [f"*{chain.table}", f":{chain.chain} - [0:0]"]
        if keep:
            text += [f"-A {chain.chain} {rule}" for rule in chain.rules]
        forward = chain.base == "FORWARD"
        if not keep or not _attached(lines, chain.base, chain.chain, self._end(tools, lines)[0] if forward else None):
            text += [f"-D{line[2:]}" for line in _jumps(lines, chain.chain)]
            if keep:
                others = [line for line in lines if target_of(line) != chain.chain]
                end = self._end(tools, others)[0] if forward else None
                text.append(f"{f'-I {chain.base} {end}' if end else f'-A {chain.base}'} {JUMPS[chain.chain]}")
        if not keep:
            text.append(f"-X {chain.chain}")
        IptablesExecutor(self._namespace, tools, lock_wait=self._lock_wait).restore("\n".join([*text, "COMMIT", ""]))

    def _read_native(self) -> tuple[list[RuleChain], list[str]]:
        """Our native chains, and the base chains of others that drop what they do not accept, by name."""
        chains = self._nft_list("chains") if find_program("nft") else []
        found = []
        for version, family in _NFT_FAMILIES.items():
            own = [item for item in chains if (item.get("family"), item.get("table")) == (family, NFT_TABLE)]
            if own:
                desired = {"name": NFT_CHAIN, "type": "nat", "hook": "postrouting", "prio": _SRCNAT, "policy": "accept"}
                attached = len(own) == 1 and desired.items() <= own[0].items()
                rules = tuple(_rule_text(item.get("expr", [])) for item in self._nft_list("table", family, NFT_TABLE))
                found.append(RuleChain(Writer.NFTABLES, version, NFT_TABLE, "postrouting", NFT_CHAIN, rules, attached))
        drops = [
            f"{item['family']} {item['table']} {item['name']}"
            for item in chains
            if item.get("hook") == "forward"
            # Those of iptables-nft get our jump.
            and (item["family"], item["table"], item["name"]) not in _OF_IPTABLES
            and (item.get("policy") == "drop" or self._native_refuses(item))
        ]  # fmt: skip
        return found, drops

    def _native_refuses(self, base: dict[str, Any]) -> bool:
        """Whether the rules of a native chain refuse what none before them has accepted, as firewalld's do."""
        if base["table"] == KUBE_PROXY:
            return False

        def chain(name: str) -> Rules:
            listed = self._nft_list("chain", base["family"], base["table"], name)
            return [nft_verdict(item.get("expr", [])) for item in listed]

        return refuses(RuleEnd(base["name"]), chain)

    def _nft_list(self, *words: str) -> list[dict[str, Any]]:
        """The chains, or the rules of a table; nothing if nft cannot say.

        Raises:
            UnreadableDumpError: it says something else.
        """
        done = run(self._namespace, ["nft", "-j", "list", *words], timeout=_TIMEOUT)
        if done.code:
            return []
        kind = "chain" if words[0] == "chains" else "rule"
        try:
            listing = msgspec.json.decode(done.stdout, type=_Listing)
        except msgspec.DecodeError as error:
            raise UnreadableDumpError(
                f"what nft -j list {' '.join(words)} prints is not nft's JSON: {error}"
            ) from error
        return [item[kind] for item in listing.nftables if kind in item]

    def _write_native(self, chain: RuleChain, *, keep: bool) -> None:
        if not find_program("nft"):
            raise ToolMissingError(f"nftables rules need nft: {not_found('nft')}")
        table = f"{_NFT_FAMILIES[chain.version]} {NFT_TABLE}"
        # One transaction; deleting what is not there would fail.
        text = [f"add table {table}", f"delete table {table}"]
        if keep:
            text += [
                f"table {table} {{",
                f"chain {NFT_CHAIN} {{",
                f"type nat hook postrouting priority {_SRCNAT}; policy accept;",
                *chain.rules,
                "}",
                "}",
            ]
        done = run(self._namespace, ["nft", "-f", "-"], text="\n".join([*text, ""]), timeout=_TIMEOUT)
        if done.code:
            raise ToolFailedError(f"nft refused the table {table}: {done.reason}")


def _jumps(lines: Sequence[str], chain: str) -> list[str]:
    return [line for line in lines if line.startswith("-A ") and target_of(line) == chain]


def _attached(lines: Sequence[str], base: str, chain: str, end: int | None) -> bool:
    """Whether the one jump is there, before rule number `end`, behind which nothing new gets."""
    jump = f"-A {base} {JUMPS[chain]}"
    if _jumps(lines, chain) != [jump]:
        return False
    return end is None or [line for line in lines if line.startswith("-A ")].index(jump) < end - 1


def _rule_text(statements: Sequence[dict[str, Any]]) -> str:
    """A rule in the words of `rules`, from nft's JSON, which unlike its text does not change with its version."""
    return " ".join(map(_statement_text, statements))


def _statement_text(statement: dict[str, Any]) -> str:
    match statement:
        case {
            "match": {"op": op, "left": {"payload": {"protocol": str(protocol), "field": str(field)}}, "right": right}
        }:
            value = f"{right['prefix']['addr']}/{right['prefix']['len']}" if isinstance(right, dict) else (
                f"{right}/{32 if protocol == 'ip' else 128}"
            )  # fmt: skip
            return f"{protocol} {field} {'' if op == '==' else f'{op} '}{value}"
        case {"match": {"op": op, "left": {"&": [{"meta": {"key": "mark"}}, int(mask)]}, "right": int(value)}}:
            return f"meta mark & {mask:#x} {op} {value:#x}"
        case {"masquerade": {"flags": flags}}:
            return f"masquerade {flags if isinstance(flags, str) else ','.join(flags)}"
        case {"return": None} | {"accept": None}:
            return next(iter(statement))
    return msgspec.json.encode(statement).decode()
