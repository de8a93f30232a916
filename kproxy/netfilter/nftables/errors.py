"""What goes wrong while nftables' text is read, and while commands are applied."""

from __future__ import annotations

from kproxy.errors import InputError


class NftSyntaxError(InputError):
    """The text is not what nft prints or takes.

    `expected` says what is wrong; `source` and `line` (counted from 1; 0: unknown) say where.
    """

    def __init__(self, expected: str, *, text: str = "", source: str = "", line: int = 0) -> None:
        where = ": ".join(filter(None, (source, f"line {line}" if line else "")))
        shown = text if len(text) <= 300 else f"{text[:300]}..."
        super().__init__((f"{where}: " if where else "") + expected + (f": {shown!r}" if shown else ""))
        self.expected = expected
        self.text = text
        self.source = source
        self.line = line


class NftApplyError(NftSyntaxError):
    """A command that the kernel would refuse, such as deleting a chain that is not there."""
