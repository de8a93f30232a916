"""Preflight: whether this host can have kube-proxy's nftables rules, found out before anything is written.

What kube-proxy v1.36 asks for, and why:

- nft 1.0.1 or later: older ones read every table of the host at their start, so a rule of another program's that they
  do not understand would lock them out of kube-proxy's own table;
- Linux 5.13 or later: it stands for the nft that a distribution of that time has. An nft 0.9 on the host crashes on
  rules that a newer nft wrote, so the host's own tools would become useless. As with kube-proxy, the environment
  variable KUBE_PROXY_NFTABLES_SKIP_KERNEL_VERSION_CHECK, if it is not empty, skips this;
- comments on tables, chains and sets: kube-proxy leaves them out where the kernel has none (before 5.10).

The `destroy` command (nft 1.0.7, Linux 6.3) is not needed: what is there is known before it is deleted.

Beyond versions, every kind of rule, set and map that kube-proxy writes is tried with `nft --check`, which has the
kernel look at it in the namespace that is meant, and carries nothing out. That shows when the kernel lacks IPv6 or a
module.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from kproxy.linux.errors import FeatureMissingError, RestoreFailedError
from kproxy.linux.nftables.executor import NftExecutor
from kproxy.render.nftables.names import nft_family
from kproxy.services.names import IPFamily

MIN_NFT: Final = (1, 0, 1)
MIN_KERNEL: Final = (5, 13)
SKIP_KERNEL_CHECK: Final = "KUBE_PROXY_NFTABLES_SKIP_KERNEL_VERSION_CHECK"
_PROBE: Final = "kproxy-preflight"


def needed() -> tuple[str, ...]:
    """What a node must have for nftables mode, in words."""
    return f"Linux {_dotted(MIN_KERNEL)} or later", f"nft {_dotted(MIN_NFT)} or later"


class Probe(msgspec.Struct, frozen=True):
    """Something to try: its name, what kube-proxy needs it for, and lines, with {t} the table and {ip} ip or ip6."""

    name: str
    needed_for: str
    lines: tuple[str, ...]


_FILTER: Final = "add chain {t} f {{ type filter hook input priority 0 ; }}"
_NAT: Final = "add chain {t} n {{ type nat hook prerouting priority -100 ; }}"
_SNAT: Final = "add chain {t} s {{ type nat hook postrouting priority 100 ; }}"
_MAP: Final = "add map {t} m {{ type {a} . inet_proto . inet_service : verdict ; }}"
_DEST: Final = "{ip} daddr . meta l4proto . th dport"

PROBES: Final = (
    Probe("base chains", "everything", (_FILTER, _NAT, _SNAT)),
    Probe("verdict maps", "finding a Service", (_NAT, _MAP, "add rule {t} n " + _DEST + " vmap @m")),
    Probe(
        "numgen, DNAT to a map",
        "choosing an endpoint",
        (
            _NAT,
            "add rule {t} n meta l4proto tcp dnat {ip} addr . port to numgen random mod 2 map "
            "{{ 0 : {e} . 80 , 1 : {e} . 81 }}",
        ),
    ),
    Probe(
        "dynamic sets",
        "session affinity",
        (
            _NAT,
            "add set {t} d {{ type {a} ; flags dynamic,timeout ; timeout 10s ; }}",
            "add rule {t} n update @d {{ {ip} saddr }}",
            "add rule {t} n {ip} saddr @d accept",
        ),
    ),
    Probe(
        "masquerade, marks",
        "source NAT",
        (_SNAT, "add rule {t} s mark and 0x1 != 0 mark set mark xor 0x1 masquerade fully-random"),
    ),
    Probe("conntrack state", "looking at new connections only", (_FILTER, "add rule {t} f ct state new accept")),
    Probe(
        "conntrack status", "masquerading what a pod sends to itself", (_SNAT, "add rule {t} s ct status dnat accept")
    ),
    Probe("fib", "node ports, and traffic of the node", (_FILTER, "add rule {t} f fib saddr type local accept")),
    Probe("reject", "Services without endpoints", (_FILTER, "add rule {t} f reject")),
)

COMMENTS: Final = Probe(
    "comments",
    "comments on the table, its chains and sets",
    ('add chain {t} c {{ comment "x" ; }}', 'add set {t} cs {{ type {a} ; comment "x" ; }}'),
)


class Preflight(msgspec.Struct, frozen=True):
    """What a host lacks.

    Attributes:
        problems: what nothing works without and is missing, a sentence each.
        object_comments: whether tables, chains and sets can have comments.
    """

    problems: tuple[str, ...] = ()
    object_comments: bool = True

    def check(self) -> None:
        """Raises FeatureMissingError if something is missing that nothing works without; the error names it all."""
        if self.problems:
            listed = "".join(f"\n  {problem}" for problem in self.problems)
            raise FeatureMissingError(f"kube-proxy's nftables mode does not work on this host:{listed}")


def run_preflight(
    executor: NftExecutor, kernel: str | None = None, environment: Mapping[str, str] = os.environ
) -> Preflight:
    """Looks at versions, and tries what kube-proxy writes.

    Args:
        kernel: the kernel's release; of this host if None.

    Raises:
        LinuxError: it could not be tried.
    """
    problems = version_problems(executor.nft.version, platform.release() if kernel is None else kernel, environment)
    if problems:
        return Preflight(tuple(problems))
    if not _refusal(executor, (*PROBES, COMMENTS)):
        return Preflight()
    missing = [(probe, _refusal(executor, (probe,))) for probe in PROBES]
    return Preflight(
        tuple(f"{probe.name}, needed for {probe.needed_for}: {why}" for probe, why in missing if why),
        not _refusal(executor, (COMMENTS,)),
    )


def version_problems(nft: tuple[int, ...], kernel: str, environment: Mapping[str, str]) -> list[str]:
    """What is too old, a sentence each."""
    problems = []
    if nft < MIN_NFT:
        problems.append(
            f"nft {_dotted(nft)} is too old: {_dotted(MIN_NFT)} or later is needed, since older ones stumble over "
            "rules of other programs"
        )
    found = re.match(r"(\d+)\.(\d+)", kernel)
    if found and (int(found[1]), int(found[2])) < MIN_KERNEL and not environment.get(SKIP_KERNEL_CHECK):
        problems.append(
            f"Linux {kernel} is too old: {_dotted(MIN_KERNEL)} or later is needed, since the nft of older "
            f"distributions crashes on rules of a newer nft (set {SKIP_KERNEL_CHECK}=1 if yours does not)"
        )
    return problems


def probe_script(probes: tuple[Probe, ...], family: IPFamily) -> str:
    """A script that makes a table with what the probes ask for."""
    table = f"{nft_family(family)} {_PROBE}"
    words = {
        "t": table,
        "ip": nft_family(family),
        "a": f"ipv{family.version}_addr",
        "e": "2001:db8::1" if family.is_ipv6 else "192.0.2.1",
    }
    lines = dict.fromkeys(line.format(**words) for probe in probes for line in probe.lines)
    return "".join(f"{line}\n" for line in (f"add table {table}", *lines))


def _refusal(executor: NftExecutor, probes: tuple[Probe, ...]) -> str:
    """Why what the probes ask for cannot be loaded; "" if it can."""
    try:
        executor.check(probe_script(probes, executor.family))
    except RestoreFailedError as error:
        return error.reason
    return ""


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
