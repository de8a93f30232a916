"""What the concrete evaluator makes of a witness, in the terms in which rule sets are compared."""

from __future__ import annotations

from fractions import Fraction

from kproxy.dataplane.compare.assume import assume, assume_native
from kproxy.dataplane.compare.witness import Situation, Watch
from kproxy.dataplane.concrete.explore import Exploration
from kproxy.dataplane.concrete.hooks import PacketPath
from kproxy.dataplane.concrete.index import Index, index_ruleset
from kproxy.dataplane.concrete.state import State
from kproxy.dataplane.model.pipeline import IptablesRules
from kproxy.dataplane.model.verdict import ACCEPT, INDETERMINATE
from kproxy.dataplane.symbolic.build import Setup
from kproxy.dataplane.symbolic.host_rules import HostSide, SideRules
from kproxy.netfilter.family import Family
from kproxy.netfilter.hooks import Variant
from kproxy.netfilter.iptables.ruleset import Ruleset

Observation = tuple[object, ...]
"""What becomes of a packet as far as rule sets are compared by it."""
Observed = dict[Observation, Fraction]


def watch_of(setup: Setup, side: HostSide) -> Watch:
    """What to watch on a side."""
    variables, read = setup.variables, setup.effects.read_lists
    mark, connmark = (
        sum(1 << bit for bit, level in enumerate(reversed(variables.levels[name])) if level in setup.outcomes.watched)
        for name in ("mark", "connmark")
    )
    sets = {
        key: (alias, None if time is None else time // 1000)
        for key, (alias, time) in side.state_sets.items()
        if alias in read
    }
    return Watch(mark, connmark, {name: alias for name, alias in side.lists.items() if alias in read}, sets)


def index_rules(rules: SideRules, family: Family) -> Index:
    """A side's rules ready for traces."""
    return index_ruleset(rules.iptables, nftables=rules.nftables if rules.nftables.tables else None, family=family)


def assumed_index(rules: Ruleset | Index, situation: Situation) -> Index:
    """The rules ready for a trace, with what the situation assumes put in."""
    index = rules if isinstance(rules, Index) else index_ruleset(rules)
    if not situation.assumed and (index.variant or not situation.variant):
        return index
    variant = None if situation.variant is None else Variant(situation.variant)
    iptables = [
        IptablesRules(assume(item.ruleset, situation.assumed), item.variant or variant) for item in index.iptables
    ]
    native = None if index.nftables is None else assume_native(index.nftables, situation.assumed)
    return index_ruleset(iptables, index.note, nftables=native, family=index.family)


def observe(rules: Ruleset | Index, situation: Situation, watch: Watch) -> Observed:
    """What becomes of the packet, with chances.

    Raises:
        DataplaneError: as `trace`.
    """
    index = assumed_index(rules, situation)
    exploration = Exploration(PacketPath(index, situation.host), State(situation.packet, situation.connection))
    held = situation.host.recent or {}
    result: Observed = {}
    for arrival in exploration.paths():
        state, end = arrival.end.state, arrival.end
        packet = state.packet
        goes = end.verdict == ACCEPT
        effects = {
            f"{watch.sets[table, name][0]} {key} {bool(data)}"
            for table, name, key, data in state.sets
            if (table, name) in watch.sets
        }
        effects |= {
            f"{watch.lists[name]} {address} {bool(ages)}"
            for (name, address), ages in state.recent
            if name in watch.lists and ages != held.get(name, {}).get(address, ())
        }
        effects |= {text for text, stays in state.told if goes or stays}
        tracked = state.has_connection
        seen: Observation = (end.verdict, end.reject, end.reason if end.verdict == INDETERMINATE else "")
        if goes:
            source = (state.masqueraded, packet.src, packet.sport)
            seen += (packet.dst, packet.dport, source, packet.mark & watch.mark, packet.ttl, packet.tos)
            seen += (packet.tcp_flags, packet.icmp_type, packet.icmp_code)
            seen += (state.tracking,)
        if (tracked and goes) or state.connection.state == "ESTABLISHED":
            seen += (state.connection.mark & watch.connmark,)
        seen += (tuple(sorted(effects)),)
        result[seen] = result.get(seen, Fraction(0)) + arrival.chance
    return result
