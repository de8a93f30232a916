"""The types of nftables' values: their width, their kind, and the names that stand for numbers.

A value in a rule, a set or a map is a plain number, string or tuple (`value.py`); what it means is the data type of the
expression beside it, or of the set that holds it. `DATATYPES` has them by nft's name. Names and numbers are those of
nft 1.0.6 and 1.1.3 (`nft describe TYPE`).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from kproxy.netfilter.family import ICMP_TYPES, PROTOCOL_NAMES, Family


class Form(enum.Enum):
    """How the values of a type are written."""

    NUMBER = "number"
    """A decimal number, or a name."""
    HEX = "hex"
    """A hexadecimal number of the type's full width, as marks are written, or a name."""
    FLAGS = "flags"
    """Names of bits, joined by commas or `|`."""
    IPV4 = "ipv4"
    IPV6 = "ipv6"
    ETHER = "ether"
    STRING = "string"
    """A string in quotes: an interface name, a helper's name."""
    TIME = "time"
    """A duration; the value counts milliseconds."""
    CLASSID = "classid"
    """A traffic class, `major:minor`, or `none`, `root`."""
    VERDICT = "verdict"


@dataclass(frozen=True, slots=True)
class DataType:
    """A data type.

    `bits` is the width of a value: 32 for `ipv4_addr`, 16 for `inet_service`, 0 where the name alone does not say it
    (`integer`, `string`). `names` are the symbols by number. Types are equal when name and width are.
    """

    name: str
    bits: int = 0
    form: Form = field(default=Form.NUMBER, compare=False)
    names: Mapping[int, str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def mask(self) -> int:
        """The largest value: all bits set."""
        return (1 << self.bits) - 1

    def sized(self, bits: int) -> DataType:
        """The same type with another width, for `integer` and `string`."""
        return self if bits == self.bits else DataType(self.name, bits, self.form, self.names)

    def __str__(self) -> str:
        return self.name


_CT_STATE: Final = {1: "invalid", 2: "established", 4: "related", 8: "new", 64: "untracked"}
_CT_STATUS: Final = {
    1: "expected", 2: "seen-reply", 4: "assured", 8: "confirmed", 16: "snat", 32: "dnat", 512: "dying",
}  # fmt: skip
_CT_EVENT: Final = {
    1 << 0: "new", 1 << 1: "related", 1 << 2: "destroy", 1 << 3: "reply", 1 << 4: "assured", 1 << 5: "protoinfo",
    1 << 6: "helper", 1 << 7: "mark", 1 << 8: "seqadj", 1 << 9: "secmark", 1 << 10: "label",
}  # fmt: skip
_TCP_FLAGS: Final = {1: "fin", 2: "syn", 4: "rst", 8: "psh", 16: "ack", 32: "urg", 64: "ecn", 128: "cwr"}
_ICMP_CODE: Final = {
    0: "net-unreachable", 1: "host-unreachable", 2: "prot-unreachable", 3: "port-unreachable", 9: "net-prohibited",
    10: "host-prohibited", 13: "admin-prohibited", 4: "frag-needed",
}  # fmt: skip
_ICMPV6_CODE: Final = {
    0: "no-route", 1: "admin-prohibited", 3: "addr-unreachable", 4: "port-unreachable", 5: "policy-fail",
    6: "reject-route",
}  # fmt: skip
_ICMPX_CODE: Final = {0: "no-route", 1: "port-unreachable", 2: "host-unreachable", 3: "admin-prohibited"}
_ADDRTYPE: Final = {
    0: "unspec", 1: "unicast", 2: "local", 3: "broadcast", 4: "anycast", 5: "multicast", 6: "blackhole",
    7: "unreachable", 8: "prohibit",
}  # fmt: skip
_DSCP: Final = {
    0x00: "cs0", 0x08: "cs1", 0x10: "cs2", 0x18: "cs3", 0x20: "cs4", 0x28: "cs5", 0x30: "cs6", 0x38: "cs7",
    0x01: "lephb", 0x0A: "af11", 0x0C: "af12", 0x0E: "af13", 0x12: "af21", 0x14: "af22", 0x16: "af23", 0x1A: "af31",
    0x1C: "af32", 0x1E: "af33", 0x22: "af41", 0x24: "af42", 0x26: "af43", 0x2C: "va", 0x2E: "ef",
}  # fmt: skip
_ETHERTYPE: Final = {
    0x0800: "ip", 0x0806: "arp", 0x86DD: "ip6", 0x8100: "8021q", 0x88A8: "8021ad", 0x8847: "mpls",
}  # fmt: skip

_TYPES: Final = (
    DataType("verdict", 32, Form.VERDICT),
    DataType("nf_proto", 8, Form.NUMBER, {2: "ipv4", 10: "ipv6"}),
    DataType("bitmask", 0, Form.HEX),
    DataType("integer", 0, Form.NUMBER),
    DataType("string", 0, Form.STRING),
    DataType("boolean", 8, Form.NUMBER, {0: "missing", 1: "exists"}),
    DataType("ll_addr", 48, Form.ETHER),
    DataType("ipv4_addr", 32, Form.IPV4),
    DataType("ipv6_addr", 128, Form.IPV6),
    DataType("ether_addr", 48, Form.ETHER),
    DataType("ether_type", 16, Form.HEX, _ETHERTYPE),
    DataType("arp_op", 16, Form.NUMBER, {
        1: "request", 2: "reply", 3: "rrequest", 4: "rreply", 8: "inrequest", 9: "inreply", 10: "nak",
    }),
    DataType("inet_proto", 8, Form.NUMBER, PROTOCOL_NAMES),
    DataType("inet_service", 16, Form.NUMBER),
    DataType("icmp_type", 8, Form.NUMBER, ICMP_TYPES[Family.IPV4]),
    DataType("icmp_code", 8, Form.NUMBER, _ICMP_CODE),
    DataType("icmpv6_type", 8, Form.NUMBER, ICMP_TYPES[Family.IPV6]),
    DataType("icmpv6_code", 8, Form.NUMBER, _ICMPV6_CODE),
    DataType("icmpx_code", 8, Form.NUMBER, _ICMPX_CODE),
    DataType("igmp_type", 8, Form.NUMBER, {
        17: "membership-query", 18: "membership-report-v1", 22: "membership-report-v2", 23: "leave-group",
        34: "membership-report-v3",
    }),
    DataType("tcp_flag", 8, Form.FLAGS, _TCP_FLAGS),
    DataType("time", 32, Form.TIME),
    DataType("mark", 32, Form.HEX),
    DataType("iface_index", 32, Form.STRING),
    DataType("iface_type", 16, Form.NUMBER, {
        1: "ether", 512: "ppp", 768: "ipip", 769: "ipip6", 772: "loopback", 776: "sit", 778: "ipgre",
    }),
    DataType("ifname", 128, Form.STRING),
    DataType("realm", 32, Form.NUMBER, {0: "default"}),
    DataType("classid", 32, Form.CLASSID),
    DataType("uid", 32, Form.NUMBER),
    DataType("gid", 32, Form.NUMBER),
    DataType("pkt_type", 8, Form.NUMBER, {0: "host", 1: "broadcast", 2: "multicast", 3: "other"}),
    DataType("devgroup", 32, Form.NUMBER, {0: "default"}),
    DataType("cgroupsv2", 64, Form.STRING),
    DataType("ct_state", 32, Form.FLAGS, _CT_STATE),
    DataType("ct_dir", 8, Form.NUMBER, {0: "original", 1: "reply"}),
    DataType("ct_status", 32, Form.FLAGS, _CT_STATUS),
    DataType("ct_label", 128, Form.FLAGS, {1 << bit: str(bit) for bit in range(128)}),
    DataType("ct_event", 32, Form.FLAGS, _CT_EVENT),
    DataType("ct_id", 32, Form.NUMBER),
    DataType("fib_addrtype", 32, Form.NUMBER, _ADDRTYPE),
    DataType("dscp", 6, Form.HEX, _DSCP),
    DataType("ecn", 2, Form.NUMBER, {0: "not-ect", 1: "ect1", 2: "ect0", 3: "ce"}),
    DataType("osf_name", 128, Form.STRING),
)  # fmt: skip

DATATYPES: Final[Mapping[str, DataType]] = MappingProxyType({item.name: item for item in _TYPES})
"""Every data type by nft's name."""

INTEGER: Final = DATATYPES["integer"]
STRING: Final = DATATYPES["string"]
VERDICT: Final = DATATYPES["verdict"]
BOOLEAN: Final = DATATYPES["boolean"]
MARK: Final = DATATYPES["mark"]
IPV4_ADDR: Final = DATATYPES["ipv4_addr"]
IPV6_ADDR: Final = DATATYPES["ipv6_addr"]
INET_SERVICE: Final = DATATYPES["inet_service"]
