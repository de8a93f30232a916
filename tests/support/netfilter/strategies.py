"""Random values of every match and target, and of rules and rule sets made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from kproxy.netfilter import (
    Address,
    AddressRange,
    Chain,
    Counters,
    Family,
    Jump,
    Masked,
    Negatable,
    Network,
    Range,
    Rule,
    Ruleset,
    Table,
    Verdict,
)
from kproxy.netfilter.family import BUILTIN_CHAINS, VERDICTS
from kproxy.netfilter.iptables import targets as t
from kproxy.netfilter.iptables.matches import MATCH_CLASSES
from kproxy.netfilter.iptables.matches.addrtype import ADDRESS_TYPES, AddrtypeMatch
from kproxy.netfilter.iptables.matches.comment import CommentMatch
from kproxy.netfilter.iptables.matches.conntrack import STATES, STATUSES, ConntrackMatch, StateMatch
from kproxy.netfilter.iptables.matches.header import (
    DscpMatch,
    EcnMatch,
    HlMatch,
    IprangeMatch,
    LengthMatch,
    TosMatch,
    TtlMatch,
)
from kproxy.netfilter.iptables.matches.icmp import Icmp6Match, IcmpMatch, IcmpType
from kproxy.netfilter.iptables.matches.ipset import SetMatch, SetReference
from kproxy.netfilter.iptables.matches.ipvs import IpvsMatch
from kproxy.netfilter.iptables.matches.limit import HashlimitMatch, LimitMatch
from kproxy.netfilter.iptables.matches.link import MacMatch, PhysdevMatch, PkttypeMatch, RpfilterMatch
from kproxy.netfilter.iptables.matches.local import NfacctMatch, OwnerMatch
from kproxy.netfilter.iptables.matches.mark import ConnmarkMatch, MarkMatch
from kproxy.netfilter.iptables.matches.multiport import MultiportMatch
from kproxy.netfilter.iptables.matches.recent import RecentMatch
from kproxy.netfilter.iptables.matches.statistic import StatisticMatch
from kproxy.netfilter.iptables.matches.transport import SctpMatch, TcpFlags, TcpMatch, UdpMatch
from kproxy.netfilter.iptables.option import Extension, UnsupportedError
from kproxy.netfilter.iptables.targets.track import EVENTS

UINT32 = (1 << 32) - 1

families = st.sampled_from(Family)
names = st.text("abcXYZ019-_.", min_size=1, max_size=15).filter(lambda text: text[0] not in "-!.")
interfaces = st.builds(str.__add__, names.map(lambda name: name[:14]), st.sampled_from(["", "+"]))
strings = st.text(st.characters(exclude_characters="\n\x00", exclude_categories=["Cs"]), min_size=1, max_size=20)


def negatable(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(Negatable, values, st.booleans())


def numbers(most: int = UINT32, least: int = 0) -> st.SearchStrategy[int]:
    return st.integers(least, most)


def ranges(most: int) -> st.SearchStrategy[Range]:
    pairs = st.tuples(numbers(most), numbers(most)).map(sorted)
    return pairs.map(lambda pair: Range(*pair))


def subsets(values: Any) -> st.SearchStrategy[frozenset[str]]:
    return st.frozensets(st.sampled_from(list(values)), min_size=1)


def masked(most: int = UINT32) -> st.SearchStrategy[Masked]:
    return st.builds(Masked, numbers(most), st.one_of(st.just(most), numbers(most)))


def addresses(family: Family) -> st.SearchStrategy[Address]:
    # Few bits set, so that IPv6 addresses have runs of zeros.
    sparse = st.lists(st.integers(0, family.bits - 1), max_size=6).map(lambda bits: sum(1 << bit for bit in set(bits)))
    return st.one_of(numbers(family.full_mask), sparse).map(lambda value: Address(family, value))


def networks(family: Family, *, holes: bool = True) -> st.SearchStrategy[Network]:
    prefixes = st.integers(0, family.bits).map(lambda length: family.full_mask & ~((1 << (family.bits - length)) - 1))
    masks = st.one_of(prefixes, numbers(family.full_mask)) if holes else prefixes
    return st.builds(lambda address, mask: Network(family, address.value & mask, mask), addresses(family), masks)


def address_ranges(family: Family) -> st.SearchStrategy[AddressRange]:
    return st.builds(AddressRange, addresses(family), addresses(family))


def nat_ranges(family: Family, *, base: bool = False) -> st.SearchStrategy[t.NatRange]:
    hosts = st.tuples(addresses(family), addresses(family)).map(lambda pair: (pair[0].value, pair[1].value))
    ports = ranges(65535)
    with_ports = st.builds(t.NatRange, st.just(family), st.one_of(st.none(), hosts), ports)
    shifted = st.builds(
        t.NatRange, st.just(family), hosts, ports.filter(lambda port: port.first < port.last), numbers(65535)
    )
    plain = st.builds(t.NatRange, st.just(family), hosts)
    return st.one_of(plain, with_ports, shifted) if base else st.one_of(plain, with_ports)


references = st.builds(
    SetReference, names, st.lists(st.sampled_from(["src", "dst"]), min_size=1, max_size=6).map(tuple)
)
_icmp_types = st.one_of(
    numbers(254).map(IcmpType),
    st.builds(lambda kind, code: IcmpType(kind, Range(code, code)), numbers(254), numbers(255)),
)
_ports = negatable(ranges(65535)).filter(lambda port: port != Negatable(Range(0, 65535)))
_port_lists = negatable(st.lists(ranges(65535), min_size=1, max_size=7).map(tuple))
_flags = st.builds(TcpFlags, numbers(63), numbers(63)).filter(lambda flags: flags != TcpFlags(0, 0))
_ids = negatable(ranges(UINT32 - 1))

Fields = dict[str, st.SearchStrategy[Any]]

FIELDS: dict[type[Extension], Callable[[Family], Fields]] = {
    AddrtypeMatch: lambda family: {
        "src_type": negatable(subsets(ADDRESS_TYPES)), "dst_type": negatable(subsets(ADDRESS_TYPES)),
        "limit_iface_in": st.booleans(), "limit_iface_out": st.just(False),
    },
    CommentMatch: lambda family: {"comment": st.one_of(st.just(""), strings)},
    ConnmarkMatch: lambda family: {"mark": negatable(masked())},
    ConntrackMatch: lambda family: {
        "ctstate": negatable(subsets((*STATES, "SNAT", "DNAT"))), "ctproto": negatable(numbers(255)),
        **dict.fromkeys(("ctorigsrc", "ctorigdst", "ctreplsrc", "ctrepldst"), negatable(networks(family, holes=False))),
        **dict.fromkeys(("ctorigsrcport", "ctorigdstport", "ctreplsrcport", "ctrepldstport"), negatable(ranges(65535))),
        "ctstatus": negatable(st.frozensets(st.sampled_from(STATUSES))), "ctexpire": negatable(ranges(UINT32)),
        "ctdir": st.sampled_from(["ORIGINAL", "REPLY"]),
    },
    DscpMatch: lambda family: {"dscp": negatable(numbers(63))},
    EcnMatch: lambda family: {
        "tcp_ece": st.booleans(), "tcp_cwr": st.booleans(), "ip_ect": negatable(numbers(3)),
    },
    HashlimitMatch: lambda family: {
        "name": names, "upto": st.sampled_from(["5/sec", "1/min"]),
        "burst": numbers(1000, 1), "mode": subsets(["srcip", "srcport", "dstip", "dstport"]),
        "htable_size": numbers(UINT32, 1), "htable_max": numbers(UINT32, 1), "htable_gcinterval": numbers(),
        "htable_expire": numbers(), "srcmask": numbers(family.bits - 1), "dstmask": numbers(family.bits - 1),
    },
    HlMatch: lambda family: {"equal": negatable(numbers(255))},
    Icmp6Match: lambda family: {"icmp_type": negatable(_icmp_types)},
    IpvsMatch: lambda family: {
        "vproto": negatable(numbers(255)), "vaddr": negatable(networks(family, holes=False)),
        "vport": negatable(numbers(65535)), "vdir": st.sampled_from(["ORIGINAL", "REPLY"]),
    },
    IcmpMatch: lambda family: {"icmp_type": negatable(st.one_of(_icmp_types, st.just(IcmpType(255))))},
    IprangeMatch: lambda family: {
        "src_range": negatable(address_ranges(family)), "dst_range": negatable(address_ranges(family)),
    },
    LengthMatch: lambda family: {"length": negatable(ranges(65535))},
    LimitMatch: lambda family: {
        "limit": st.sampled_from(["5/sec", "3/hour", "1/day"]), "burst": numbers(10_000, 1),
    },
    MacMatch: lambda family: {
        "mac_source": negatable(st.binary(min_size=6, max_size=6).map(lambda octets: octets.hex(":")))
    },
    MarkMatch: lambda family: {"mark": negatable(masked())},
    MultiportMatch: lambda family: {"dports": _port_lists},
    NfacctMatch: lambda family: {"nfacct_name": names},
    OwnerMatch: lambda family: {
        "socket_exists": st.booleans(), "uid_owner": _ids, "gid_owner": _ids, "suppl_groups": st.just(False),
    },
    PhysdevMatch: lambda family: {
        "is_in": st.booleans(), "physdev_in": negatable(interfaces), "is_out": st.booleans(),
        "physdev_out": negatable(interfaces), "is_bridged": st.booleans(),
    },
    PkttypeMatch: lambda family: {
        "pkt_type": negatable(st.sampled_from(["unicast", "broadcast", "multicast", "otherhost"]))
    },
    RecentMatch: lambda family: {
        "action": negatable(st.sampled_from(["rcheck", "update"])), "name": names, "mask": addresses(family),
        "side": st.sampled_from(["source", "dest"]), "seconds": numbers(UINT32, 1), "reap": st.just(False),
        "hitcount": numbers(), "rttl": st.booleans(),
    },
    RpfilterMatch: lambda family: dict.fromkeys(("loose", "validmark", "accept_local", "invert"), st.booleans()),
    SctpMatch: lambda family: {
        "sport": negatable(ranges(65535)), "dport": negatable(ranges(65535)),
    },
    SetMatch: lambda family: {
        "match_set": negatable(references), "return_nomatch": st.booleans(), "update_counters": st.just(False),
        "update_subcounters": st.just(False),
    },
    StateMatch: lambda family: {"state": negatable(subsets(STATES))},
    StatisticMatch: lambda family: {"mode": st.just("random"), "probability": negatable(numbers(1 << 31))},
    TcpMatch: lambda family: {
        "sport": _ports, "dport": _ports, "option": negatable(numbers(255, 1)), "flags": negatable(_flags),
    },
    TosMatch: lambda family: {"tos": negatable(masked(255))},
    TtlMatch: lambda family: {"greater": numbers(255)},
    UdpMatch: lambda family: {"sport": _ports, "dport": _ports},
    t.ConnmarkTarget: lambda family: {
        "copy": st.sampled_from(["save", "restore"]), "nfmask": numbers(), "ctmask": numbers(),
        "left_shift": numbers(32, 1),
    },
    t.CtTarget: lambda family: {
        "notrack": st.booleans(), "helper": names, "timeout": names, "ctevents": subsets(EVENTS),
        "expevents": subsets(["new"]), "zone": st.one_of(st.just("mark"), numbers(65535)),
    },
    t.DnatTarget: lambda family: {
        "to_destination": nat_ranges(family, base=True), "random": st.booleans(), "persistent": st.booleans(),
    },
    t.DscpTarget: lambda family: {"dscp": numbers(63)},
    t.HlTarget: lambda family: {"less": numbers(255, 1)},
    t.LogTarget: lambda family: {
        "log_prefix": strings.map(lambda text: text.encode()[:29].decode(errors="ignore")).filter(bool),
        "log_level": st.sampled_from("01234567"),
        **dict.fromkeys(("log_tcp_sequence", "log_tcp_options", "log_ip_options", "log_uid", "log_macdecode"),
                        st.booleans()),
    },
    t.MarkTarget: lambda family: {"xmark": masked()},
    t.MasqueradeTarget: lambda family: {
        "to_ports": ranges(65535), "random": st.booleans(), "random_fully": st.booleans(),
    },
    t.NetmapTarget: lambda family: {"to": networks(family)},
    t.NflogTarget: lambda family: {
        "nflog_prefix": strings.filter(lambda text: len(text.encode()) < 64), "nflog_group": numbers(65535),
        "nflog_size": numbers(), "nflog_threshold": numbers(65535, 1),
    },
    t.NfqueueTarget: lambda family: {"queue_num": numbers(65535), "queue_bypass": st.booleans()},
    t.NotrackTarget: lambda family: {},
    t.RedirectTarget: lambda family: {"to_ports": ranges(65535), "random": st.booleans()},
    t.RejectTarget: lambda family: {
        "reject_with": st.sampled_from(
            ["tcp-reset", "icmp-port-unreachable", "icmp-net-prohibited"]
            if family is Family.IPV4
            else ["tcp-reset", "icmp6-port-unreachable", "icmp6-reject-route"]
        )
    },
    t.SetTarget: lambda family: {
        "add_set": references, "exist": st.booleans(), "timeout": numbers(1000), "del_set": references,
    },
    t.SnatTarget: lambda family: {
        "to_source": nat_ranges(family),
        **dict.fromkeys(("random", "random_fully", "persistent"), st.booleans()),
    },
    t.TcpmssTarget: lambda family: {"set_mss": numbers(65495)},
    t.TeeTarget: lambda family: {"gateway": addresses(family), "oif": names},
    t.TosTarget: lambda family: {"tos": masked(255)},
    t.TproxyTarget: lambda family: {"on_port": numbers(65535), "on_ip": addresses(family), "tproxy_mark": masked()},
    t.TraceTarget: lambda family: {},
    t.TtlTarget: lambda family: {"new": numbers(255)},
}  # fmt: skip
"""For each class, a strategy for each field that an option sets."""

V4_ONLY = frozenset({IcmpMatch, TtlMatch, t.TtlTarget})
V6_ONLY = frozenset({Icmp6Match, HlMatch, t.HlTarget})


@st.composite
def extensions(draw: st.DrawFn, cls: type[Extension], family: Family) -> Any:
    """A value of the class, with any choice of its optional fields, built as the reader builds it."""
    fields = FIELDS[cls](family)
    required = cls.required() | {"upto", "mode"}  # hashlimit's rate and statistic's mode are required in `complete`
    some = {"ctorigdst", "vaddr", "dports", "uid_owner", "equal", "greater", "src_range", "dst_type", "is_out", "copy",
            "dscp", "less", "new", "set_mss", "add_set", "probability", "ip_ect"}  # fmt: skip
    chosen = {name: draw(values) for name, values in fields.items() if name in required | some or draw(st.booleans())}
    absent = {name for name, value in chosen.items() if value is False and name in _plain_flags(cls)}
    return cls.build({name: value for name, value in chosen.items() if name not in absent}, family)


def _plain_flags(cls: type[Extension]) -> set[str]:
    return {row.field for row in cls.OPTIONS if row.codec is None and not row.negatable}


def any_match(family: Family) -> st.SearchStrategy[Any]:
    unfit = V6_ONLY if family is Family.IPV4 else V4_ONLY
    return st.sampled_from([cls for cls in MATCH_CLASSES if cls not in unfit]).flatmap(
        lambda cls: extensions(cls, family)
    )


def any_target(family: Family, chains: list[str]) -> st.SearchStrategy[Any]:
    unfit = V6_ONLY if family is Family.IPV4 else V4_ONLY
    typed = st.sampled_from([cls for cls in t.TARGET_CLASSES if cls not in unfit]).flatmap(
        lambda cls: extensions(cls, family)
    )
    jumps = st.builds(Jump, st.sampled_from(chains), st.booleans())
    return st.one_of(st.none(), st.sampled_from(sorted(VERDICTS)).map(Verdict), jumps, typed)


@st.composite
def rules(draw: st.DrawFn, family: Family, chains: list[str] | None = None) -> Rule:
    """A rule with up to three matches."""
    optional = st.booleans()
    network = negatable(networks(family)).filter(lambda value: value.value.mask != 0)
    return Rule(
        source=draw(network) if draw(optional) else None,
        destination=draw(network) if draw(optional) else None,
        in_interface=draw(negatable(interfaces)) if draw(optional) else None,
        out_interface=draw(negatable(interfaces)) if draw(optional) else None,
        protocol=draw(negatable(numbers(255, 1))) if draw(optional) else None,
        fragment=draw(optional) if family is Family.IPV4 and draw(optional) else None,
        matches=tuple(draw(st.lists(any_match(family), max_size=3))),
        target=draw(any_target(family, chains or ["KUBE-A", "b.c"])),
    )


@st.composite
def rulesets(draw: st.DrawFn, family: Family) -> Ruleset:
    """A rule set with one or two tables in any order."""
    tables = []
    for name in draw(st.lists(st.sampled_from(list(BUILTIN_CHAINS)), unique=True, max_size=2)):
        user = draw(st.lists(names, unique=True, min_size=1, max_size=3))
        chains = []
        for chain in [*BUILTIN_CHAINS[name], *(each for each in user if each not in BUILTIN_CHAINS[name])]:
            policy = draw(st.sampled_from(["ACCEPT", "DROP"])) if chain in BUILTIN_CHAINS[name] else None
            counters = Counters(draw(numbers()), draw(numbers()))
            some = draw(st.lists(rules(family, user), max_size=2))
            chains.append(Chain(chain, policy, counters, tuple(some)))
        tables.append(Table(name, tuple(chains), ("# a comment",) * draw(st.integers(0, 1))))
    return Ruleset(family, tuple(tables))


__all__ = ["FIELDS", "UnsupportedError", "any_match", "any_target", "extensions", "rules", "rulesets"]
