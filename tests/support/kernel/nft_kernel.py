"""The machine's nft, in a namespace."""

from __future__ import annotations

import re
import shutil

from kproxy.netfilter.nftables.style import BOOKWORM, TRIXIE, Style
from tests.support.kernel.namespaces import run


def missing() -> bool:
    """Whether there is no nft."""
    return shutil.which("nft") is None


def style() -> Style:
    """The layout of the machine's nft."""
    found = re.search(r"v(\d+)\.(\d+)", run("nft", "--version"))
    assert found is not None
    return TRIXIE if (int(found[1]), int(found[2])) >= (1, 1) else BOOKWORM


def load(namespace: str, script: str) -> None:
    """Loads a script into an emptied namespace."""
    run("nft", "-f", "-", namespace=namespace, text="flush ruleset\n" + script)


def listing(namespace: str, *options: str) -> str:
    """What nft lists."""
    return run("nft", *options, "list", "ruleset", namespace=namespace)
