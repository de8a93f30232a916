"""The rules and the host of a live namespace: the one place where `kproxy trace` meets `kproxy.linux`."""

from __future__ import annotations

from typing import Final

from kproxy.cli.output import working
from kproxy.cluster.rules import HostRules, RuleFile, read_ipsets, read_rule_file
from kproxy.dataplane import Host, IpSet
from kproxy.dataplane.model.pipeline import IptablesRules
from kproxy.errors import InputError
from kproxy.linux.errors import ToolFailedError, ToolMissingError
from kproxy.linux.host.facts import read_host
from kproxy.linux.iptables.binaries import installed
from kproxy.linux.iptables.executor import IptablesExecutor
from kproxy.linux.namespace import Namespace
from kproxy.linux.process import run
from kproxy.linux.programs import find_program
from kproxy.netfilter import Family, parse_save

_TIMEOUT: Final = 300.0


def read_host_rules(netns: str, variant: str | None) -> HostRules:
    """All rules inside the namespace: what iptables-save and ip6tables-save print, of both variants, and nft.

    With `variant` only the rules of that variant of iptables.

    Raises:
        InputError: there are none.
        LinuxError: they cannot be read.
    """
    files = []
    with Namespace.named(netns) as namespace, working(f"reading namespace {netns}"):
        there = False
        for family in Family:
            for each, binaries in installed(family).items():
                if variant is not None and each.value != variant:
                    continue
                there = True
                text = IptablesExecutor(namespace, binaries).save(counters=False)
                label = f"{'ip6tables' if family is Family.IPV6 else 'iptables'}-{each.value}-save in namespace {netns}"
                ruleset = parse_save(text, label, family=family)
                if ruleset.has_effect:
                    files.append(RuleFile(label, text, IptablesRules(ruleset, each)))
        nft = find_program("nft") if variant is None else None
        if not there and nft is None:
            raise ToolMissingError(f"no iptables{f' of the {variant} variant' if variant else ''} is installed")
        if nft is not None:
            text = _output(namespace, [nft, "list", "ruleset"])
            if text.strip():
                files.append(read_rule_file(text, f"nft list ruleset in namespace {netns}"))
    rules = HostRules(files)
    if not any(each.iptables for each in files) and (rules.nftables is None or not rules.nftables.has_effect):
        raise InputError(f"namespace {netns}: no rules")
    return rules


def read_live_sets(netns: str) -> dict[str, IpSet]:
    """The ipsets of the namespace; none if ipset is not installed."""
    ipset = find_program("ipset")
    if ipset is None:
        return {}
    with Namespace.named(netns) as namespace:
        return read_ipsets(_output(namespace, [ipset, "save"]), f"ipset save in namespace {netns}")


def _output(namespace: Namespace, command: list[str]) -> str:
    done = run(namespace, command, timeout=_TIMEOUT)
    if done.code:
        raise ToolFailedError(f"{' '.join(command)}: {done.reason}")
    return done.stdout


def read_host_facts(netns: str) -> Host:
    """Interfaces, addresses, routes, policy rules and sysctls of the namespace.

    Raises:
        LinuxError: they cannot be read.
    """
    with Namespace.named(netns) as namespace:
        return read_host(namespace)
