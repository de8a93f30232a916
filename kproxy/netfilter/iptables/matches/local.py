"""Matches on what this host knows: `owner` (who sent the packet) and `nfacct` (which only counts)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Final

from kproxy.netfilter.condition import Condition, In, Not, all_of, nothing, within
from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.codec import UINT32, Range, number_range, string
from kproxy.netfilter.iptables.matches.base import Match
from kproxy.netfilter.iptables.option import Negatable, Option

_IDS: Final = number_range(UINT32 - 1, "-", ordered=True, open_ends=False)


def _socket(_exists: bool) -> Condition:
    return In("has_socket", ((1, 1),))


@dataclass(frozen=True, slots=True)
class OwnerMatch(Match):
    """The user and group of the local socket that sent the packet, as ranges of numeric ids.

    `suppl_groups` lets supplementary groups count. `socket_exists` is True, False (negated with `!`) or None. User
    and group names are not looked up.
    """

    socket_exists: bool | None = None
    uid_owner: Negatable[Range] | None = None
    gid_owner: Negatable[Range] | None = None
    suppl_groups: bool = False

    NAME: ClassVar[str] = "owner"
    SOME: ClassVar[tuple[str, ...]] = ("socket_exists", "uid_owner", "gid_owner")
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("--socket-exists", "socket_exists", None, True, listed="! owner socket exists", asks=_socket),
        Option("--uid-owner", "uid_owner", _IDS, True, listed="! owner UID match {}", asks=within("uid")),
        Option("--gid-owner", "gid_owner", _IDS, True, listed="! owner GID match {}", asks=within("gid")),
        Option("--suppl-groups", "suppl_groups", listed="incl. suppl. groups"),
    )

    @classmethod
    def complete(cls, values: dict[str, object], family: Family) -> None:
        if values.get("suppl_groups") and "gid_owner" not in values:
            raise ValueError("--gid-owner expected beside --suppl-groups")

    def condition(self) -> Condition | None:
        """A packet without a socket has no uid and no gid, so that only what is negated holds of it (owner_mt)."""
        if not self.suppl_groups or self.gid_owner is None:
            return Match.condition(replace(self, suppl_groups=False))
        group = within("gid", "groups")(self.gid_owner.value)
        rest = Match.condition(replace(self, gid_owner=None, suppl_groups=False))
        return rest and all_of((rest, Not(group) if self.gid_owner.negated else group))


@dataclass(frozen=True, slots=True)
class NfacctMatch(Match):
    """Always applies, and counts the packet in a named accounting object.

    iptables-save prints two blanks before the name.
    """

    nfacct_name: str

    NAME: ClassVar[str] = "nfacct"
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("--nfacct-name", "nfacct_name", string(31, least=1, text=" {}".format), loose=True, asks=nothing),
    )
