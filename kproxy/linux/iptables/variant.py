"""Which variant to program, and whether the other one holds kube-proxy's rules too.

Both variants work at once in a kernel, each with tables of its own, and a packet meets the rules of both; so
kube-proxy's rules in both are a fault (kubernetes/kubernetes issues 109811, 112477, 136786). `auto` chooses as the
wrapper scripts of Kubernetes' images do: the variant in which the kubelet has left its hint, else the one with the
most of kube-proxy's chains, else nft.

A process that holds the xtables lock may be making legacy tables, so it is waited for, but not for ever: nft needs no
lock, and a lock that is held for good would leave a node without rules that it could have. Then what is there counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from kproxy.linux.errors import LinuxError, LockHeldError, PrivilegeError, ToolMissingError, UnreadableDumpError
from kproxy.linux.iptables.canonical import ChainRef
from kproxy.linux.iptables.executor import COMMAND, Iptables, IptablesExecutor, find_iptables, installed, parse_dump
from kproxy.linux.iptables.legacy import DEFAULT_WAIT
from kproxy.linux.iptables.ownership import KUBELET_CANARY, KUBELET_HINT, owned_chains, removable_chains
from kproxy.linux.namespace import Namespace
from kproxy.netfilter.hooks import Variant
from kproxy.netfilter.text import SaveText
from kproxy.render.iptables.chains import MANGLE
from kproxy.services.names import IPFamily


class Choice(msgspec.Struct, frozen=True):
    """The variant to program.

    Attributes:
        reason: why it was chosen, for people.
        tools: the binaries of each family that can be programmed.
        others: for each family, what the other variant holds of kube-proxy's chains and `cleanup` would remove from it,
            if any.
        notes: what the user should know.
    """

    variant: Variant
    reason: str
    tools: Mapping[IPFamily, Iptables]
    others: Mapping[IPFamily, tuple[ChainRef, ...]]
    notes: tuple[str, ...] = ()


def choose_variant(
    namespace: Namespace,
    families: Iterable[IPFamily],
    requested: Variant | None,
    *,
    demand_all: bool,
    lock_wait: float = DEFAULT_WAIT,
) -> Choice:
    """Chooses the variant for all families alike.

    Args:
        requested: None for `auto`.
        demand_all: whether a family without binaries is an error; otherwise it is left out with a note.
        lock_wait: seconds to wait for the xtables lock.

    Raises:
        ToolMissingError: what is needed is not installed.
        LinuxError: what is there cannot be read, and what is chosen depends on it.
    """
    families = list(families)
    notes: list[str] = []
    locked: list[str] = []
    dumps: dict[tuple[IPFamily, Variant], SaveText] = {}
    for family in families:
        for variant, found in installed(family).items():
            # What is asked for is read later anyway, and may be long.
            if variant is not requested:
                # What decides nothing is not waited for, and waiting once is enough.
                wait = lock_wait if requested is None and not locked else 0.0
                dump = _read(namespace, found, requested, wait, notes, locked)
                if dump is not None:
                    dumps[(family, variant)] = dump
    counts = {variant: _weight(dumps, variant) for variant in Variant}
    if requested is not None:
        variant, reason = requested, "asked for"
    elif any(key[1] is Variant.NFT for key in dumps) and any(key[1] is Variant.LEGACY for key in dumps):
        variant, reason = _automatic(counts)
    elif dumps:
        variant = next(key[1] for key in dumps)
        reason = "the only variant that can be used" if notes else "the only variant that is installed"
    else:
        find_iptables(families[0], Variant.NFT)
        raise ToolMissingError("".join(["no variant of iptables can be used", *(f"\n  {note}" for note in notes)]))
    notes += locked
    tools = {}
    errors = []
    for family in families:
        try:
            tools[family] = find_iptables(family, variant)
        except ToolMissingError as error:
            errors.append(error)
            notes.append(f"{family.value} is left alone: {error}")
    if errors and (demand_all or not tools):
        raise errors[0]
    if counts[variant.other][0] > counts[variant][0]:
        notes.append(
            f"the kubelet of this host keeps its rules in {variant.other.value} iptables, and {variant.value} is "
            "programmed"
        )
    others = _held_by_other(dumps, variant, notes)
    return Choice(variant, reason, tools, others, tuple(notes))


def _read(
    namespace: Namespace,
    tools: Iptables,
    requested: Variant | None,
    lock_wait: float,
    notes: list[str],
    locked: list[str],
) -> SaveText | None:
    """What a variant holds; None, with a note, if its iptables does not work here.

    Args:
        locked: gets a note if another process held the xtables lock meanwhile.

    Raises:
        LinuxError: it may hold something, and which variant is chosen depends on what.
    """
    try:
        executor = IptablesExecutor(namespace, tools, lock_wait=lock_wait)
        try:
            text = executor.save(counters=False)
        except LockHeldError as error:
            locked.append(f"{tools} was looked at without waiting any longer: {error}")
            text = executor.save_unlocked()
        return parse_dump(text, f"iptables-{tools.variant.value}-save")
    except LinuxError as error:
        undecided = isinstance(error, (PrivilegeError, UnreadableDumpError))
        if requested is None and undecided:
            raise
        notes.append(f"{tools} was not looked at: {error}")
        return None


def _held_by_other(
    dumps: Mapping[tuple[IPFamily, Variant], SaveText], variant: Variant, notes: list[str]
) -> dict[IPFamily, tuple[ChainRef, ...]]:
    """For each family, kube-proxy's chains in the variant that is not programmed, if any; each gives a note."""
    others = {
        family: tuple(chains)
        for (family, each), dump in dumps.items()
        if each is variant.other and (chains := removable_chains(dump)[0])
    }
    for family, held in others.items():
        notes.append(
            f"{COMMAND[family]} of the {variant.other.value} variant holds {len(held)} chains of kube-proxy's too, and "
            "packets meet both: `kproxy cleanup` removes kube-proxy's rules from both variants, then apply again"
        )
    return others


def _weight(dumps: Mapping[tuple[IPFamily, Variant], SaveText], variant: Variant) -> tuple[int, int]:
    hints = chains = 0
    for (_, each), dump in dumps.items():
        if each is variant:
            hints += sum(name in dump.tables.get(MANGLE, {}) for name in (KUBELET_HINT, KUBELET_CANARY))
            chains += len(owned_chains(dump))
    return hints, chains


def _automatic(counts: Mapping[Variant, tuple[int, int]]) -> tuple[Variant, str]:
    for index, reason in enumerate(("the kubelet keeps its rules there", "kube-proxy's chains are there already")):
        nft, legacy = counts[Variant.NFT][index], counts[Variant.LEGACY][index]
        if nft != legacy:
            return (Variant.NFT if nft > legacy else Variant.LEGACY), reason
    if counts[Variant.NFT][1]:
        return Variant.NFT, "both variants hold kube-proxy's chains"
    return Variant.NFT, "neither variant holds anything of Kubernetes'"
