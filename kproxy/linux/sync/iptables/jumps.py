"""Jump rules: making each exist exactly once and in its place among the others, and touching nothing else.

kube-proxy prepends each jump rule that is not there, so in a fresh chain they stand first, the last ensured on top, one
behind the other. Others may have put their rules above since, which kube-proxy lets be, and so do we: moving ours above
would change what theirs are for. What counts is that each of ours exists once, that they follow one another in
kube-proxy's order with no rule of others between them, and that none stands behind a rule that takes every packet. (A
chain with a single jump rule, as in the nat table, cannot show whether that was moved behind rules of others.)

Edits of a chain are computed from a dump and carried out within one restore: deletions by the rule's text, never by its
number, so that a rule that others add meanwhile cannot be hit; insertions by number.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from kproxy.linux.iptables.canonical import ChainRef, same_rule
from kproxy.linux.iptables.ownership import TABLES, is_owned, kubelet_present
from kproxy.linux.sync.report import JumpFault
from kproxy.netfilter.text import ChainText, SaveText, target_of
from kproxy.render.iptables.chains import FIREWALL
from kproxy.services.names import IPFamily

_TERMINAL: Final = frozenset({"ACCEPT", "DROP", "REJECT", "QUEUE", "NFQUEUE", "RETURN"})


class JumpEdit(msgspec.Struct, frozen=True):
    """Edits of one built-in chain.

    Attributes:
        deletions: rules to delete, as often as they are named.
        insertions: (number, counters, rule) to insert, one after the other; numbers count from 1 in the chain as it is
            by then.
    """

    table: str
    chain: str
    deletions: tuple[str, ...] = ()
    insertions: tuple[tuple[int, str, str], ...] = ()

    @property
    def only_removes(self) -> bool:
        """Whether the edit adds no rule."""
        return not self.insertions

    @property
    def text(self) -> str:
        """The edits as lines of restore input."""
        lines = [f"-D {self.chain} {rule}\n" for rule in self.deletions]
        lines += [
            f"{f'{counters} ' if counters else ''}-I {self.chain} {number} {rule}\n"
            for number, counters, rule in self.insertions
        ]
        return "".join(lines)


def is_our_jump(table: str, rule: str) -> bool:
    """Whether a rule of a built-in chain is kube-proxy's."""
    return "KUBE-" in rule and is_owned(table, target_of(rule))


def takes_everything(rule: str) -> bool:
    """Whether a rule ends every packet's way through its chain."""
    words = rule.split()
    return len(words) >= 2 and words[0] in ("-j", "-g") and words[1] in _TERMINAL


def ensure_jumps(
    dump: SaveText, family: IPFamily, desired: Mapping[ChainRef, Sequence[str]]
) -> tuple[list[JumpEdit], list[JumpFault]]:
    """The edits that put every jump rule right, and what was wrong.

    Args:
        desired: the jump rules of each built-in chain, the first one first.
    """
    edits: list[JumpEdit] = []
    faults: list[JumpFault] = []
    shared = kubelet_present(dump)
    refs = dict.fromkeys(desired)
    for table in TABLES:
        refs.update(dict.fromkeys((table, name) for name, c in dump.tables.get(table, {}).items() if c.is_builtin))
    for ref in refs:
        chain = dump.chain(*ref)
        edit = _ensure(ref, chain.rules if chain else (), desired.get(ref, ()), family, shared, faults)
        if edit.deletions or edit.insertions:
            edits.append(edit)
    return edits, faults


def _ensure(
    ref: ChainRef,
    rules: Sequence[str],
    desired: Sequence[str],
    family: IPFamily,
    shared: bool,
    faults: list[JumpFault],
) -> JumpEdit:
    """The edit of one chain; `shared` says that a kubelet places the jumps to KUBE-FIREWALL."""
    table, name = ref
    # Which desired jump each rule is; None for those of others, -1 for ours that are not needed (any more).
    ranks = [_rank(table, rule, desired, family) for rule in rules]
    count = Counter(rank for rank in ranks if rank is not None and rank >= 0)
    limit = next((i for i, rule in enumerate(rules) if ranks[i] is None and takes_everything(rule)), len(rules))
    anywhere = {rank for rank, rule in enumerate(desired) if shared and target_of(rule) == FIREWALL}
    candidates = [
        (index, rank)
        for index, rank in enumerate(ranks)
        if rank is not None and rank >= 0 and count[rank] == 1 and index < limit and rank not in anywhere
    ]
    stay = set(_longest_increasing([rank for _, rank in candidates]))
    kept = _largest_block([(index, rank) for index, rank in candidates if rank in stay], ranks)
    kept |= {rank for rank in anywhere if count[rank] == 1}
    deletions = []
    for rule, rank in zip(rules, ranks, strict=True):
        if rank is not None and rank not in kept:
            deletions.append(rule)
            if rank < 0:
                faults.append(JumpFault(table, name, "extra", rule))
    for rank, rule in enumerate(desired):
        if rank not in kept:
            kind = {0: "missing", 1: "misplaced"}.get(count[rank], "duplicated")
            faults.append(JumpFault(table, name, kind, rule))
    left: list[int | None] = [rank for rank in ranks if rank is None or rank in kept]
    insertions = []
    for rank in range(len(desired)):
        if rank in kept:
            continue
        number = _place_for(rank, left, anywhere)
        left.insert(number, rank)
        insertions.append((number + 1, "", desired[rank]))
    return JumpEdit(table, name, tuple(deletions), tuple(insertions))


def _rank(table: str, rule: str, desired: Sequence[str], family: IPFamily) -> int | None:
    if not is_our_jump(table, rule):
        return None
    for rank, other in enumerate(desired):
        if rule == other:
            return rank
    return next((rank for rank, other in enumerate(desired) if same_rule(rule, other, family)), -1)


def _place_for(rank: int, left: Sequence[int | None], anywhere: set[int]) -> int:
    """Where to insert a jump, from 0: right before the next one of ours, else right behind the one before it."""
    for index, other in enumerate(left):
        if other is not None and other > rank and other not in anywhere:
            return index
    for index in range(len(left) - 1, -1, -1):
        if left[index] is not None and left[index] not in anywhere:
            return index + 1
    return 0


def _largest_block(standing: Sequence[tuple[int, int]], ranks: Sequence[int | None]) -> set[int]:
    """The largest set of jumps that no rule of others parts, the first of equals."""
    blocks: list[list[int]] = []
    last = -1
    for index, rank in standing:
        if not blocks or None in ranks[last + 1 : index]:
            blocks.append([])
        blocks[-1].append(rank)
        last = index
    sizes = [len(block) for block in blocks]
    return set(blocks[sizes.index(max(sizes))]) if blocks else set()


def _longest_increasing(ranks: Sequence[int]) -> list[int]:
    """A longest strictly increasing subsequence: the jumps that can stay where they are."""
    tails: list[int] = []
    best: list[list[int]] = []
    for rank in ranks:
        at = bisect_left(tails, rank)
        sequence = [*(best[at - 1] if at else []), rank]
        tails[at : at + 1] = [rank]
        best[at : at + 1] = [sequence]
    return best[-1] if best else []


def remove_jumps(dump: SaveText, keep: Mapping[ChainRef, object] | None = None) -> list[JumpEdit]:
    """The edits that remove every jump of kube-proxy's from built-in chains.

    Args:
        keep: jumps to these chains stay.
    """
    edits = []
    for table, chains in dump.tables.items():
        for name, chain in chains.items():
            if not chain.is_builtin:
                continue
            ours = tuple(
                rule
                for rule in chain.rules
                if is_our_jump(table, rule) and (keep is None or (table, target_of(rule)) not in keep)
            )
            if ours:
                edits.append(JumpEdit(table, name, ours))
    return edits


def return_jumps(before: SaveText, now: SaveText) -> list[JumpEdit]:
    """The edits that bring the jump rules back to where, and as often as, they stood before."""
    edits = []
    for table in TABLES:
        for name, chain in now.tables.get(table, {}).items():
            if not chain.is_builtin:
                continue
            old = before.chain(table, name) or ChainText(chain.policy, [], [])
            ours = [rule for rule in chain.rules if is_our_jump(table, rule)]
            if _standing(table, old) == _standing(table, chain):
                continue
            insertions = tuple(
                (number, old.counters[number - 1], rule)
                for number, rule in enumerate(old.rules, 1)
                if is_our_jump(table, rule)
            )
            edits.append(JumpEdit(table, name, tuple(ours), insertions))
    return edits


def _standing(table: str, chain: ChainText) -> list[tuple[int, str]]:
    return [(number, rule) for number, rule in enumerate(chain.rules) if is_our_jump(table, rule)]
