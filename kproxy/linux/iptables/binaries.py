"""The iptables binaries: where they are, of which variant, and of which version.

Debian and most others install both variants, as `iptables-nft` and `iptables-legacy`, with `iptables` a link to one of
them; older installations have only `iptables`, which says what it is: `iptables v1.8.9 (nf_tables)`, `(legacy)`, or
nothing before 1.8, which means legacy.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from kproxy.linux.errors import ToolFailedError, ToolMissingError
from kproxy.linux.namespace import Namespace
from kproxy.linux.process import run
from kproxy.linux.programs import find_program, not_found
from kproxy.netfilter.hooks import Variant
from kproxy.services.names import IPFamily

COMMAND: Final = {IPFamily.IPV4: "iptables", IPFamily.IPV6: "ip6tables"}

_VERSION: Final = re.compile(r" v(\d+(?:\.\d+)*)(?: \((\w+)\))?")


class Iptables(msgspec.Struct, frozen=True):
    """The binaries of one family and variant.

    Attributes:
        restore, save: paths of iptables-restore and iptables-save.
        version: as iptables says it, (1, 8, 9) say.
    """

    family: IPFamily
    variant: Variant
    restore: str
    save: str
    version: tuple[int, ...]

    def __str__(self) -> str:
        return f"{COMMAND[self.family]} {'.'.join(map(str, self.version))} ({self.variant.value})"


def parse_version(text: str) -> tuple[tuple[int, ...], Variant]:
    """Reads `iptables v1.8.9 (nf_tables)`.

    Raises:
        ToolFailedError: it is something else.
    """
    found = _VERSION.search(text)
    if found is None:
        raise ToolFailedError(f"iptables --version said {text.strip()!r}, which tells no version")
    variant = Variant.NFT if found[2] == "nf_tables" else Variant.LEGACY
    return tuple(map(int, found[1].split("."))), variant


def find_iptables(family: IPFamily, variant: Variant) -> Iptables:
    """Finds the binaries of a variant, by the names that tell it first, then by the plain names.

    Raises:
        ToolMissingError: there are none of that variant.
    """
    command = COMMAND[family]
    for prefix in (f"{command}-{variant.value}", command):
        restore, save = find_program(f"{prefix}-restore"), find_program(f"{prefix}-save")
        if restore is None or save is None:
            continue
        with Namespace.current() as here:
            version, found = parse_version(run(here, [restore, "--version"], timeout=10).stdout)
        if found is variant:
            return Iptables(family, variant, restore, save, version)
        raise ToolMissingError(
            f"{command} of the {variant.value} variant is not installed: {prefix} is of the {found.value} variant, and "
            f"{not_found(f'{command}-{variant.value}-restore')}"
        )
    raise ToolMissingError(
        f"{command} of the {variant.value} variant is not installed: "
        f"{not_found(f'{command}-{variant.value}-restore')}, nor is {command}-restore there "
        "(Debian: apt-get install iptables)"
    )


def installed(family: IPFamily) -> dict[Variant, Iptables]:
    """The variants that are installed for a family."""
    found = {}
    for variant in Variant:
        try:
            found[variant] = find_iptables(family, variant)
        except ToolMissingError:
            continue
    return found
