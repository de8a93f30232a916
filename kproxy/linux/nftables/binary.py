"""The nft binary: where it is, and of which version."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from kproxy.linux.errors import ToolFailedError, ToolMissingError
from kproxy.linux.namespace import Namespace
from kproxy.linux.process import run
from kproxy.linux.programs import find_program, not_found

_VERSION: Final = re.compile(r"\bv(\d+(?:\.\d+)*)")


class Nft(msgspec.Struct, frozen=True):
    """The binary. `version` is as nft says it, (1, 0, 6) say."""

    path: str
    version: tuple[int, ...]

    def __str__(self) -> str:
        return f"nft {'.'.join(map(str, self.version))}"


def parse_version(text: str) -> tuple[int, ...]:
    """Reads `nftables v1.0.6 (Lester Gooch #5)`.

    Raises:
        ToolFailedError: it is something else.
    """
    found = _VERSION.search(text)
    if found is None:
        raise ToolFailedError(f"nft --version said {text.strip()!r}, which tells no version")
    return tuple(map(int, found[1].split(".")))


def find_nft() -> Nft:
    """Finds the binary.

    Raises:
        ToolMissingError: it is not there.
    """
    path = find_program("nft")
    if path is None:
        raise ToolMissingError(
            f"nftables mode needs nft, which is not installed: {not_found('nft')} (Debian: apt-get install nftables)"
        )
    with Namespace.current() as here:
        return Nft(path, parse_version(run(here, [path, "--version"], timeout=10).stdout))
