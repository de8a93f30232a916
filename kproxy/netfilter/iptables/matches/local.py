"""Matches on what this host knows: `owner` (who sent the packet) and `nfacct` (which only counts)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from kproxy.netfilter.condition import nothing
from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.codec import UINT32, Range, number_range, string
from kproxy.netfilter.iptables.matches.base import Match, join, listed
from kproxy.netfilter.iptables.option import Negatable, Option, require

_IDS: Final = number_range(UINT32 - 1, "-", ordered=True, open_ends=False)


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
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("--socket-exists", "socket_exists", negatable=True),
        Option("--uid-owner", "uid_owner", _IDS, negatable=True),
        Option("--gid-owner", "gid_owner", _IDS, negatable=True),
        Option("--suppl-groups", "suppl_groups"),
    )

    @classmethod
    def complete(cls, values: dict[str, object], family: Family) -> None:
        if "socket_exists" not in values:
            require(values, "uid_owner", "gid_owner")
        if values.get("suppl_groups"):
            require(values, "gid_owner")

    def to_list(self) -> str:
        socket = {True: "owner socket exists", False: "! owner socket exists", None: ""}[self.socket_exists]
        uid = listed(self.uid_owner, f"owner UID match {self.uid_owner.value.text('-')}" if self.uid_owner else "")
        gid = listed(self.gid_owner, f"owner GID match {self.gid_owner.value.text('-')}" if self.gid_owner else "")
        return join(socket, uid, gid, "incl. suppl. groups" if self.suppl_groups else "")


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

    def to_list(self) -> str:
        return f"nfacct-name  {self.nfacct_name}"
