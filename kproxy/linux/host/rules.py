"""The rules of a namespace, all that its packets meet: of iptables, as each variant's own program prints them, and of
nftables, as nft does."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from kproxy.cluster.evidence.unseen import NOTHING, Assumed, Unseen
from kproxy.cluster.rules import HostRules, RuleFile, read_rule_file
from kproxy.dataplane.model.pipeline import OWN_TABLES, IptablesRules
from kproxy.linux.errors import ToolFailedError, ToolMissingError
from kproxy.linux.host.ipvs import read_ipvs
from kproxy.linux.iptables.executor import IptablesExecutor, installed
from kproxy.linux.namespace import Namespace
from kproxy.linux.process import run
from kproxy.linux.programs import find_program
from kproxy.netfilter import Family, parse_save
from kproxy.netfilter.hooks import Variant
from kproxy.netfilter.ipvs.read import read_connections
from kproxy.netfilter.nftables.ruleset import NftRuleset

_TIMEOUT: Final = 300.0


def read_host_rules(
    namespace: Namespace,
    where: str,
    variant: Variant | None = None,
    *,
    nft: bool = True,
    families: Collection[Family] = tuple(Family),
    assumed: Assumed = NOTHING,
    more: Sequence[Unseen] = (),
) -> HostRules:
    """What iptables-save and ip6tables-save print, of both variants, and nft; and the virtual servers of IPVS.

    Args:
        where: the namespace in messages: `namespace blue`, say.
        variant: the only variant of iptables to read.
        nft: whether to read native nftables.
        families: those to read; of nftables, tables of both families are kept.
        assumed, more: see `HostRules`.

    Raises:
        InputError: packets cannot be traced through them.
        LinuxError: they cannot be read, or neither iptables nor nft is installed.
    """
    files = []
    there = False
    for family in families:
        for each, binaries in installed(family).items():
            if variant is not None and each is not variant:
                continue
            there = True
            text = IptablesExecutor(namespace, binaries).save(counters=False)
            label = f"{'ip6tables' if family is Family.IPV6 else 'iptables'}-{each.value}-save in {where}"
            ruleset = parse_save(text, label, family=family)
            if ruleset.has_effect:
                files.append(RuleFile(label, text, IptablesRules(ruleset, each)))
    program = find_program("nft") if nft else None
    if not there and program is None:
        raise ToolMissingError(
            f"no iptables{f' of the {variant.value} variant' if variant is not None else ''} is installed"
        )
    if program is not None:
        text = output_of(namespace, [program, "list", "ruleset"])
        if text.strip():
            label = f"nft list ruleset in {where}"
            native = _of_families(read_rule_file(text, label), families)
            if native.nftables is not None and native.nftables.has_effect:
                files.append(native)
    servers = read_ipvs(namespace)
    if servers is not None and (files or servers.servers):
        lines = (
            line for each, real in servers.servers.items() for line in (each.line, *(one.line(each) for one in real))
        )
        known = read_connections(namespace.call(Path("/proc/thread-self/net/ip_vs_conn").read_text), f"IPVS in {where}")
        files.append(RuleFile(f"IPVS in {where}", "\n".join(lines), ipvs=servers, connections=known))
    return HostRules(files, live=True, assumed=assumed, more=more, host=where)


def _of_families(file: RuleFile, families: Collection[Family]) -> RuleFile:
    """The rules without the tables of other families: of these iptables was not asked what its own tables hold."""
    others = {each for family, each in OWN_TABLES.items() if family not in families}
    tables = () if file.nftables is None else file.nftables.tables
    return dataclasses.replace(file, nftables=NftRuleset(tuple(each for each in tables if each.family not in others)))


def output_of(namespace: Namespace, command: list[str]) -> str:
    """What a program prints. Raises LinuxError if it fails."""
    done = run(namespace, command, timeout=_TIMEOUT)
    if done.code:
        raise ToolFailedError(f"{' '.join(command)}: {done.reason}")
    return done.stdout
