"""What goes wrong while nftables' text is read, and while commands are applied."""

from __future__ import annotations

from kproxy.netfilter.iptables.errors import RuleTextError


class NftSyntaxError(RuleTextError):
    """The text is not what nft prints or takes."""


class NftApplyError(NftSyntaxError):
    """A command that the kernel would refuse, such as deleting a chain that is not there."""
