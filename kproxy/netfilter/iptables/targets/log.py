"""`LOG`, `NFLOG`, `TRACE` and `TEE`, which report a packet and let it go on; `NFQUEUE`, which hands it over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from kproxy.netfilter import effect
from kproxy.netfilter.address import Address
from kproxy.netfilter.effect import Effect
from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.codec import ADDRESS, INTERFACE, UINT16, Range, choice, number, number_range, string
from kproxy.netfilter.iptables.option import Option
from kproxy.netfilter.iptables.targets.base import Target

_LEVELS: Final = {
    "emerg": "0", "alert": "1", "crit": "2", "error": "3", "warning": "4", "notice": "5", "info": "6", "debug": "7",
    "panic": "0", "err": "3", "warn": "4",
}  # fmt: skip
_LEVEL: Final = choice(tuple("01234567"), "a syslog level", _LEVELS)


@dataclass(frozen=True, slots=True)
class LogTarget(Target):
    """A line in the kernel log. `log_prefix` is cut to 29 bytes; `log_level` is a syslog level as a digit, "4" if not
    given."""

    log_prefix: str | None = None
    log_level: str = "4"
    log_tcp_sequence: bool = False
    log_tcp_options: bool = False
    log_ip_options: bool = False
    log_uid: bool = False
    log_macdecode: bool = False

    NAME: ClassVar[str] = "LOG"
    LISTED: ClassVar[str] = "LOG"
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("--log-prefix", "log_prefix", string(29, least=1, cut=True), listed='prefix "{}"'),
        Option("--log-level", "log_level", _LEVEL, omit="4", listed="level {}"),
        Option("--log-tcp-sequence", "log_tcp_sequence", listed="flags 1"),
        Option("--log-tcp-options", "log_tcp_options", listed="flags 2"),
        Option("--log-ip-options", "log_ip_options", listed="flags 4"),
        Option("--log-uid", "log_uid", listed="flags 8"),
        Option("--log-macdecode", "log_macdecode", listed="flags 32"),
    )
    DOES: ClassVar[Effect | None] = effect.Told("log")


@dataclass(frozen=True, slots=True)
class NflogTarget(Target):
    """A message to the netlink log group `nflog_group`. `nflog_size` limits the bytes copied; `nflog_threshold` is how
    many packets are queued first. The old `nflog_range` never worked; iptables-nft drops it."""

    nflog_prefix: str | None = None
    nflog_group: int = 0
    nflog_range: int | None = None
    nflog_size: int | None = None
    nflog_threshold: int | None = None

    NAME: ClassVar[str] = "NFLOG"
    EXCLUSIVE: ClassVar[tuple[tuple[str, ...], ...]] = (("nflog_range", "nflog_size"),)
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("--nflog-prefix", "nflog_prefix", string(63, least=1)),
        Option("--nflog-group", "nflog_group", number(UINT16), omit=0),
        Option("--nflog-range", "nflog_range", number(), omit=0),
        Option("--nflog-size", "nflog_size", number()),
        Option("--nflog-threshold", "nflog_threshold", number(UINT16), omit=0),
    )
    DOES: ClassVar[Effect | None] = effect.Told("log")


_QUEUES: Final = number_range(UINT16, ordered=True, open_ends=False)


@dataclass(frozen=True, slots=True)
class NfqueueTarget(Target):
    """Hand the packet to user space: to queue `queue_num`, or to one of the queues of `queue_balance`. `queue_bypass`
    accepts it if no process listens; `queue_cpu_fanout` chooses the queue by CPU."""

    queue_num: int | None = None
    queue_balance: Range | None = None
    queue_bypass: bool = False
    queue_cpu_fanout: bool = False

    NAME: ClassVar[str] = "NFQUEUE"
    EXCLUSIVE: ClassVar[tuple[tuple[str, ...], ...]] = (("queue_num", "queue_balance"),)
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("--queue-balance", "queue_balance", _QUEUES, listed="NFQUEUE balance {}"),
        Option("--queue-num", "queue_num", number(UINT16), listed="NFQUEUE num {}"),
        Option("--queue-bypass", "queue_bypass", listed="bypass"),
        Option("--queue-cpu-fanout", "queue_cpu_fanout", listed="cpu-fanout"),
    )

    @classmethod
    def complete(cls, values: dict[str, Any], family: Family) -> None:
        balance = values.get("queue_balance")
        if balance is not None and balance.first == balance.last:
            raise ValueError("two different queues expected after --queue-balance")
        if values.get("queue_cpu_fanout") and balance is None:
            raise ValueError("--queue-balance expected beside --queue-cpu-fanout")
        if balance is None:
            values.setdefault("queue_num", 0)

    def effect(self) -> Effect:
        return effect.Queue("NFQUEUE", self.to_save())


@dataclass(frozen=True, slots=True)
class TraceTarget(Target):
    """Report every rule that the packet meets from here on."""

    NAME: ClassVar[str] = "TRACE"
    DOES: ClassVar[Effect | None] = effect.Told("trace")


@dataclass(frozen=True, slots=True)
class TeeTarget(Target):
    """Send a copy to another host of the local network."""

    gateway: Address
    oif: str | None = None

    NAME: ClassVar[str] = "TEE"
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("--gateway", "gateway", ADDRESS, listed="TEE gw:{}"),
        Option("--oif", "oif", INTERFACE, listed="oif={}"),
    )

    def effect(self) -> Effect:
        return self.told("sends a copy elsewhere", stays=True)
