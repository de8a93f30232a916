"""The rules and the host of a live namespace: the one place where `kproxy trace` meets `kproxy.linux`."""

from __future__ import annotations

from kproxy.cli.output import working
from kproxy.dataplane import Host
from kproxy.errors import InputError
from kproxy.linux.errors import ToolMissingError
from kproxy.linux.host.facts import read_host
from kproxy.linux.iptables.binaries import Variant, installed
from kproxy.linux.iptables.executor import IptablesExecutor
from kproxy.linux.namespace import Namespace
from kproxy.netfilter import Family, Ruleset, parse_save


def read_rules(netns: str, family: Family, variant: str | None) -> Ruleset:
    """What iptables-save prints inside the namespace; of the variant that has rules, if none is asked for.

    Raises:
        InputError: both variants have rules, and which is meant was not said; or there are none.
        LinuxError: it cannot be read.
    """
    with Namespace.named(netns) as namespace, working(f"reading namespace {netns}"):
        tools = installed(family)
        if variant is not None:
            tools = {each: found for each, found in tools.items() if each.value == variant}
        if not tools:
            raise ToolMissingError(f"no iptables{f' of the {variant} variant' if variant else ''} is installed")
        found: dict[Variant, Ruleset] = {}
        for each, binaries in tools.items():
            text = IptablesExecutor(namespace, binaries).save(counters=False)
            ruleset = parse_save(text, f"iptables-save in namespace {netns}", family=family)
            if ruleset.rule_count:
                found[each] = ruleset
    if len(found) > 1:
        raise InputError(f"namespace {netns} has rules of both variants, nft and legacy: say which with --variant")
    if not found:
        raise InputError(f"namespace {netns}: no rules")
    return next(iter(found.values()))


def read_host_facts(netns: str) -> Host:
    """Interfaces, addresses, routes, policy rules and sysctls of the namespace.

    Raises:
        LinuxError: they cannot be read.
    """
    with Namespace.named(netns) as namespace:
        return read_host(namespace)
