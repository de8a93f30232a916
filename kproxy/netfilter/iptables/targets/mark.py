"""`-j MARK` and `-j CONNMARK`: set the mark of the packet, or of its connection, or copy one to the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from kproxy.netfilter import effect
from kproxy.netfilter.effect import Effect, Term
from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.codec import UINT32, Masked, masked, number, parse_uint
from kproxy.netfilter.iptables.option import Codec, Option
from kproxy.netfilter.iptables.targets.base import Target

_XMARK: Final = masked()


def _set(words: Sequence[str], family: Family) -> Masked:
    # set-mark first clears the bits of the mask and then ors the value, so the value's bits join the mask.
    value = _XMARK.parse(words, family)
    return Masked(value.value, value.mask | value.value)


def _input(word: str, parse: Callable[[Sequence[str], Family], Masked]) -> Option:
    """An option that the kernel keeps as `--set-xmark`."""
    return Option(f"--{word}-mark", "xmark", Codec(parse, _XMARK.text), printed=False, listed=f"{word} {{}}")


_XMARK_OPTIONS: Final = (
    Option("--set-xmark", "xmark", _XMARK, listed="xset {}"),
    _input("set", _set),
    _input("or", lambda words, _: Masked(parse_uint(words[0]), parse_uint(words[0]))),
    _input("and", lambda words, _: Masked(0, parse_uint(words[0]) ^ UINT32)),
    _input("xor", lambda words, _: Masked(parse_uint(words[0]), 0)),
)


@dataclass(frozen=True, slots=True)
class MarkTarget(Target):
    """`--set-mark`, `--or-mark`, `--and-mark` and `--xor-mark` all become the `--set-xmark` that the kernel keeps: it
    clears the bits of the mask, then xors the value."""

    xmark: Masked

    NAME: ClassVar[str] = "MARK"
    LISTED: ClassVar[str] = "MARK"
    OPTIONS: ClassVar[tuple[Option, ...]] = _XMARK_OPTIONS

    def effect(self) -> Effect:
        return effect.marked("mark", self.xmark.value, self.xmark.mask)


_MASK: Final = number(form="0x{:x}")
_SHIFT: Final = number(32)


@dataclass(frozen=True, slots=True)
class ConnmarkTarget(Target):
    """One of `xmark` (as in `MarkTarget`, on the connection's mark), `save` (packet to connection) and `restore`
    (connection to packet), the latter two under `nfmask` and `ctmask`. A shift in bits is applied on the way."""

    xmark: Masked | None = None
    copy: str | None = None
    nfmask: int | None = None
    ctmask: int | None = None
    left_shift: int | None = None
    right_shift: int | None = None

    NAME: ClassVar[str] = "CONNMARK"
    SOME: ClassVar[tuple[str, ...]] = ("xmark", "copy")
    EXCLUSIVE: ClassVar[tuple[tuple[str, ...], ...]] = (SOME, ("left_shift", "right_shift"))
    LISTED: ClassVar[str] = "CONNMARK"
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        *_XMARK_OPTIONS,
        Option("--save-mark", "copy", constant="save", listed="save"),
        Option("--restore-mark", "copy", constant="restore", listed="restore"),
        Option("--nfmask", "nfmask", _MASK),
        Option("--ctmask", "ctmask", _MASK),
        Option("--mask", "both", _MASK, printed=False, listed="mask {}"),
        Option("--left-shift-mark", "left_shift", _SHIFT, omit=0),
        Option("--right-shift-mark", "right_shift", _SHIFT, omit=0),
    )

    @classmethod
    def complete(cls, values: dict[str, Any], family: Family) -> None:
        both = values.pop("both", None)
        if "copy" in values:
            for mask in ("nfmask", "ctmask"):
                values.setdefault(mask, UINT32 if both is None else both)
        elif both is not None or "nfmask" in values or "ctmask" in values:
            raise ValueError("--save-mark or --restore-mark expected beside a mask")

    def effect(self) -> Effect:
        shift = (self.left_shift or 0) - (self.right_shift or 0)
        if self.xmark is not None:
            return effect.marked("connmark", self.xmark.value, self.xmark.mask, shift)
        masks = {"mark": UINT32 if self.nfmask is None else self.nfmask}
        masks["connmark"] = UINT32 if self.ctmask is None else self.ctmask
        to, of = ("connmark", "mark") if self.copy == "save" else ("mark", "connmark")
        terms = (Term(to, ~masks[to] & UINT32), Term(of, masks[of], shift))
        return effect.SetBits(to, 0, tuple(term for term in terms if term.bits))
