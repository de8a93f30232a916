"""The save form: what `nft list table` prints once the table is in a fresh namespace.

As in iptables mode there is one source of truth, the restore text; `netfilter` reads it, keeps it as the kernel would
and prints it as nft does.
"""

from __future__ import annotations

from typing import Final

from kproxy.netfilter.nftables.apply import apply_commands
from kproxy.netfilter.nftables.ruleset import NftRuleset
from kproxy.netfilter.nftables.script import read_script
from kproxy.netfilter.nftables.style import Style
from kproxy.netfilter.nftables.text import print_nft

RELEASES: Final = {"1.0.6": Style((1, 0, 6)), "1.1.3": Style((1, 1, 3))}
"""The releases of nft whose listing is known: Debian 12's and Debian 13's."""


def nft_ruleset(restore_text: str) -> NftRuleset:
    """The rule set of a fresh namespace once the table that `restore_text` makes is in."""
    return apply_commands(NftRuleset(), read_script(restore_text))


def save_text(restore_text: str, release: str = "1.0.6") -> str:
    """The listing of the table that `restore_text` makes, by a release of `RELEASES`."""
    return print_nft(nft_ruleset(restore_text), RELEASES[release])
