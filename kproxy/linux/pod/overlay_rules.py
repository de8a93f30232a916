"""Reads and writes the overlay's rules: two iptables chains in either variant.

Ours are the chains KPROXY-POSTRTG and KPROXY-FWD with the jumps to them. All places are looked at each time, so that
what an earlier start with other options left behind goes. Single chains are listed, not tables: a nat table may hold a
hundred thousand rules of kube-proxy's, of which none matters here.

The jump stands before what refuses every new connection, whatever its packets look like (`refuses`). A rule counts
there if it has no condition, or only that the connection is new. Such rules are followed into the chains that they lead
to: ufw's FORWARD ends with a jump to ufw-reject-forward, which rejects.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from kproxy.linux.errors import LinuxError, ToolFailedError, UnreadableDumpError
from kproxy.linux.iptables.executor import Iptables, IptablesExecutor, find_iptables, installed
from kproxy.linux.iptables.legacy import legacy_tables, lock_held_error
from kproxy.linux.iptables.variant import choose_variant
from kproxy.linux.namespace import Namespace
from kproxy.linux.process import run
from kproxy.linux.programs import find_program
from kproxy.netfilter.hooks import Variant
from kproxy.netfilter.text import target_of
from kproxy.overlay.plan import Change, difference
from kproxy.overlay.rules import FORWARD_CHAIN, JUMPS, POSTROUTING_CHAIN, Firewall, RuleChain
from kproxy.render.nftables.names import TABLE as KUBE_PROXY
from kproxy.services.names import IPFamily

_NEW: Final = "NEW"


class RuleEnd(NamedTuple):
    """What a rule does with every new connection: DROP, REJECT, ACCEPT, RETURN, or a chain's name."""

    target: str
    goes: bool = False
    """Whether it does not come back from the chain (goto)."""


Rules = Iterable[RuleEnd | None]
"""A chain's; None for a rule that does not concern every new connection."""


def refuses(verdict: RuleEnd | None, chain: Callable[[str], Rules], seen: frozenset[str] = frozenset()) -> bool:
    """Whether a rule ends in DROP or REJECT for every new connection that no earlier rule has let through.

    Args:
        chain: the rules of a chain, none for one that is not there.
    """
    if verdict is None or verdict.target in ("ACCEPT", "RETURN") or verdict.target in seen:
        return False
    if verdict.target in ("DROP", "REJECT"):
        return True
    for rule in chain(verdict.target):
        if refuses(rule, chain, seen | {verdict.target}):
            return True
        if rule is not None and (rule.goes or rule.target in ("ACCEPT", "RETURN")):
            return False
    return False


def iptables_verdict(line: str) -> RuleEnd | None:
    """Of a line `-A CHAIN ...`, as `iptables -S` prints it."""
    words = shlex.split(line)[2:]
    while words:
        match words:
            case ["-m", "comment", "--comment", _, *rest]:
                pass
            case ["-m", "conntrack", "--ctstate", states, *rest] | ["-m", "state", "--state", states, *rest]:
                if _NEW not in states.split(","):
                    return None
            case ["-m", "conntrack", "!", "--ctstate", states, *rest] | ["-m", "state", "!", "--state", states, *rest]:
                if _NEW in states.split(","):
                    return None
            case ["-j" | "-g" as how, target, *_]:
                return RuleEnd(target, how == "-g")
            case _:
                return None
        words = rest
    return None


def nft_verdict(statements: Sequence[dict[str, Any]]) -> RuleEnd | None:
    """Of a rule's `expr` in nft's JSON."""
    for statement in statements:
        match statement:
            case {"counter": _} | {"log": _}:
                continue
            case {"match": {"op": op, "left": {"ct": {"key": "state"}}, "right": right}}:
                if ("new" in _states(right)) is (op == "!="):
                    return None
            case {"drop": _}:
                return RuleEnd("DROP")
            case {"reject": _}:
                return RuleEnd("REJECT")
            case {"accept": _}:
                return RuleEnd("ACCEPT")
            case {"return": _}:
                return RuleEnd("RETURN")
            case {"jump": {"target": str(target)}}:
                return RuleEnd(target)
            case {"goto": {"target": str(target)}}:
                return RuleEnd(target, goes=True)
            case _:
                return None
    return None


def _states(right: Any) -> list[str]:
    values = right.get("set", ()) if isinstance(right, dict) else right
    return [values] if isinstance(values, str) else list(values)


_PLACES: Final = (("nat", "POSTROUTING", POSTROUTING_CHAIN), ("filter", "FORWARD", FORWARD_CHAIN))
_FAMILIES: Final = {4: IPFamily.IPV4, 6: IPFamily.IPV6}
_OF_IPTABLES: Final = (("ip", "filter", "FORWARD"), ("ip6", "filter", "FORWARD"))
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
        self._tools: dict[tuple[Variant, int], Iptables] | None = None

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
        for (variant, version), each in tools.items():
            try:
                found, blocks = self._read_iptables(version, each)
            except LinuxError:
                # A kernel without nf_tables holds nothing there; legacy tables are only looked at where they are.
                if variant is Variant.LEGACY or variant in (self._requested, self._main):
                    raise
                continue
            chains += found
            if blocks:
                blocking.add((variant, version))
        if choose:
            # Forwarding may be accepted in both, masquerading is in one.
            holding = [{item.variant for item in chains if item.table == table} for table in ("nat", "filter")]
            self._choose(holding[0] or holding[1], notes)
        notes += [
            f"nftables chain {name} drops what it does not accept itself, whatever other chains accept: it needs a "
            "rule for the pods' ranges"
            for name in self._native_drops()
        ]
        firewall = Firewall(
            self._main,
            frozenset(key for key, each in tools.items() if each.version >= _RANDOM_FULLY),
            frozenset(blocking),
        )
        return CurrentRules(tuple(chains), firewall, tuple(notes))

    def apply(self, desired: Iterable[RuleChain], seen: CurrentRules) -> tuple[list[Change], list[LinuxError]]:
        """Mends what differs; returns what was different, and what could not be mended."""
        changes = difference(desired, seen.chains)
        problems = []
        for change in changes:
            chain = change.desired or change.found
            assert isinstance(chain, RuleChain)
            try:
                self._write(chain, keep=change.desired is not None)
            except LinuxError as error:
                problems.append(error)
        return changes, problems

    def _installed(self) -> dict[tuple[Variant, int], Iptables]:
        if self._tools is None:
            self._tools = {
                (variant, version): tools
                for version, family in _FAMILIES.items()
                for variant, tools in installed(family).items()
            }
        return self._tools

    def _choose(self, holding: Collection[Variant], notes: list[str]) -> None:
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
            self._main = next(iter(holding))
        elif self._main is None:
            self._main = choose_variant(self._namespace, IPFamily, None, demand_all=False).variant

    def _read_iptables(self, version: int, tools: Iptables) -> tuple[list[RuleChain], bool]:
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
            attached = _attached(lines, base, chain, end)
            found.append(RuleChain(tools.variant, version, table, base, chain, rules, attached))
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

    def _write(self, chain: RuleChain, *, keep: bool) -> None:
        tools = self._installed().get((chain.variant, chain.version))
        if tools is None:
            tools = find_iptables(_FAMILIES[chain.version], chain.variant)
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

    def _native_drops(self) -> list[str]:
        """The native base chains that drop what they do not accept, by name."""
        return [
            f"{item['family']} {item['table']} {item['name']}"
            for item in (self._nft_list("chains") if find_program("nft") else ())
            if item.get("hook") == "forward"
            # Those of iptables-nft get our jump.
            and (item["family"], item["table"], item["name"]) not in _OF_IPTABLES
            and (item.get("policy") == "drop" or self._native_refuses(item))
        ]  # fmt: skip

    def _native_refuses(self, base: dict[str, Any]) -> bool:
        """Whether the rules of a native chain refuse what none before them has accepted, as firewalld's do."""
        if base["table"] == KUBE_PROXY:
            return False

        def chain(name: str) -> Rules:
            listed = self._nft_list("chain", base["family"], base["table"], name)
            return [nft_verdict(item.get("expr", [])) for item in listed]

        return refuses(RuleEnd(base["name"]), chain)

    def _nft_list(self, *words: str) -> list[dict[str, Any]]:
        """The chains, or the rules of one; nothing if nft cannot say.

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


def _jumps(lines: Sequence[str], chain: str) -> list[str]:
    return [line for line in lines if line.startswith("-A ") and target_of(line) == chain]


def _attached(lines: Sequence[str], base: str, chain: str, end: int | None) -> bool:
    """Whether the one jump is there, before rule number `end`, behind which nothing new gets."""
    jump = f"-A {base} {JUMPS[chain]}"
    if _jumps(lines, chain) != [jump]:
        return False
    return end is None or [line for line in lines if line.startswith("-A ")].index(jump) < end - 1
