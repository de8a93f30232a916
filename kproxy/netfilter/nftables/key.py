"""What `meta`, `ct`, `rt`, `socket`, `ipsec` and `fib` can ask for: a row's word is read and printed, its data type is
that of the answer."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kproxy.netfilter.nftables.datatype import DATATYPES, DataType


def _keys(names: Mapping[str, str]) -> Mapping[str, DataType]:
    return MappingProxyType({key: _type(name) for key, name in names.items()})


def _type(name: str) -> DataType:
    base, _, bits = name.partition("/")
    return DATATYPES[base].sized(int(bits)) if bits else DATATYPES[base]


META_KEYS: Final = _keys({
    "length": "integer/32", "protocol": "ether_type", "priority": "classid", "mark": "mark", "iif": "iface_index",
    "iifname": "ifname", "iiftype": "iface_type", "oif": "iface_index", "oifname": "ifname", "oiftype": "iface_type",
    "skuid": "uid", "skgid": "gid", "nftrace": "integer/1", "rtclassid": "realm", "nfproto": "nf_proto",
    "l4proto": "inet_proto", "pkttype": "pkt_type", "cpu": "integer/32", "iifgroup": "devgroup", "oifgroup": "devgroup",
    "cgroup": "integer/32", "random": "integer/32", "ipsec": "boolean", "iifkind": "ifname", "oifkind": "ifname",
    "sdif": "iface_index", "sdifname": "ifname",
    "secpath": "boolean", "ibrname": "ifname", "obrname": "ifname", "ibrpvid": "integer/16",
    "ibrvproto": "ether_type", "broute": "integer/1",
})  # fmt: skip
"""`meta KEY`."""

SHORT_META: Final = frozenset({"iif", "iifname", "iiftype", "oif", "oifname", "oiftype", "iifgroup", "oifgroup"})
"""Keys that nft prints without `meta`."""

BARE_META: Final = SHORT_META | {
    "mark", "skuid", "skgid", "nftrace", "rtclassid", "pkttype", "cpu", "cgroup", "ibrname", "obrname",
}  # fmt: skip
"""Keys that nft takes without `meta`."""

META_ALIASES: Final[Mapping[str, str]] = {
    "ibriport": "ibrname", "obriport": "obrname", "ibriifname": "ibrname", "obrifname": "obrname",
    "ibridgename": "ibrname", "secpath": "ipsec", "iftype": "iiftype",
}  # fmt: skip
"""Other names that nft takes for keys."""

CT_KEYS: Final = _keys({
    "state": "ct_state", "direction": "ct_dir", "status": "ct_status", "mark": "mark", "expiration": "time",
    "helper": "string/128", "l3proto": "nf_proto", "protocol": "inet_proto", "zone": "integer/16", "label": "ct_label",
    "event": "ct_event", "secmark": "integer/32", "id": "ct_id", "count": "integer/32", "saddr": "integer",
    "daddr": "integer", "ip saddr": "ipv4_addr", "ip daddr": "ipv4_addr", "ip6 saddr": "ipv6_addr",
    "ip6 daddr": "ipv6_addr", "proto-src": "inet_service", "proto-dst": "inet_service", "packets": "integer/64",
    "bytes": "integer/64", "avgpkt": "integer/64",
})  # fmt: skip
"""`ct [DIRECTION] KEY`. An address is `ip saddr` or `ip6 saddr`; the older `saddr` says nothing of the family."""

RT_KEYS: Final = _keys({
    "classid": "realm", "nexthop": "integer", "ip nexthop": "ipv4_addr", "ip6 nexthop": "ipv6_addr",
    "mtu": "integer/16", "ipsec": "boolean",
})  # fmt: skip
"""`rt KEY`."""

SOCKET_KEYS: Final = _keys(
    {"transparent": "integer/8", "mark": "mark", "wildcard": "integer/8", "cgroupv2": "cgroupsv2"}
)
"""`socket KEY`; `cgroupv2` has a level."""

IPSEC_KEYS: Final = _keys({
    "reqid": "integer/32", "spi": "integer/32", "ip saddr": "ipv4_addr", "ip daddr": "ipv4_addr",
    "ip6 saddr": "ipv6_addr", "ip6 daddr": "ipv6_addr",
})  # fmt: skip
"""`ipsec DIRECTION [spnum N] KEY`."""

FIB_RESULTS: Final = _keys({"oif": "iface_index", "oifname": "ifname", "type": "fib_addrtype"})
"""What `fib` can ask for; with `exists` or `missing` the answer is a `boolean`."""
