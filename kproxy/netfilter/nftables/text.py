"""The ways in and out: text to a rule set, and scripts applied to one."""

from __future__ import annotations

from typing import Final

from kproxy.netfilter.nftables.apply import apply_commands
from kproxy.netfilter.nftables.reader.script import read_script
from kproxy.netfilter.nftables.ruleset import NftRuleset

EMPTY: Final = NftRuleset()
"""No tables."""


def parse_nft(text: str, source: str = "", base: NftRuleset = EMPTY) -> NftRuleset:
    """Read what `nft list ruleset` printed (with or without `-a`, `-s`, `-n`) or a script of `nft -f`.

    `source` is what messages call the text. A script is applied to `base`; a listing is a script that adds everything.

    Raises:
        NftSyntaxError: it is not nft's language, or it is cut off.
        NftApplyError: the kernel would refuse one of its commands.
    """
    return apply_commands(base, read_script(text, source, base), source)
