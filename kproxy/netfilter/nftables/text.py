"""The ways in and out: text to a rule set, and scripts applied to one."""

from __future__ import annotations

from typing import Final

from kproxy.netfilter.nftables.apply import apply_commands
from kproxy.netfilter.nftables.errors import NftApplyError
from kproxy.netfilter.nftables.reader.script import read_json, read_script
from kproxy.netfilter.nftables.ruleset import NftRuleset

EMPTY: Final = NftRuleset()
"""No tables."""


def parse_nft(text: str, source: str = "", base: NftRuleset = EMPTY) -> NftRuleset:
    """Read what `nft list ruleset` printed (with or without `-a`, `-s`, `-n`, `-j`) or a script of `nft -f`.

    `source` is what messages call the text. A script is applied to `base`; a listing is a script that adds everything.

    Raises:
        NftSyntaxError: it is not nft's language, or it is cut off.
        NftApplyError: the kernel would refuse one of its commands.
    """
    if not is_json(text):
        return apply_commands(base, read_script(text, source, base), source)
    try:
        return apply_commands(base, read_json(text, source, base), source)
    except NftApplyError as error:
        from kproxy.netfilter.nftables.json.document import json_commands, path_of_line  # few dumps are JSON

        commands, paths, _ = json_commands(text, source)
        path = path_of_line(commands, paths, error.line)
        raise NftApplyError(error.expected, source=source, path=path) from None


def is_json(text: str) -> bool:
    """Whether the text is a JSON object, which no listing and no script starts like."""
    return text.lstrip()[:1] == "{"
