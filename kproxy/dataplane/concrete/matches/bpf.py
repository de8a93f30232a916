"""`-m bpf --bytecode`: a program of classic BPF, run over what is known of the packet (xt_bpf).

The instructions and their numbers are those of the kernel's Documentation/networking/filter.rst. Registers are words of
which some bits may be unknown. A jump that depends on such bits is taken both ways; the program has an answer if both
give the same one. A load beyond the packet's end, or a division by zero, ends a program with 0.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from kproxy.dataplane.concrete.headers import Bits, Word, packet_header, word_at
from kproxy.dataplane.concrete.state import View
from kproxy.netfilter.iptables.codec import UINT32
from kproxy.netfilter.iptables.matches import OpaqueMatch

_LD, _LDX, _ST, _STX, _ALU, _JMP, _RET, _MISC = range(8)
_SIZES: Final = {0x00: 4, 0x08: 2, 0x10: 1}
_IMM, _ABS, _IND, _MEM, _LEN, _MSH = 0x00, 0x20, 0x40, 0x60, 0x80, 0xA0
_FROM_X: Final = 0x08
_RETURN_A: Final = 0x10
_TXA: Final = 0x80
_NETWORK: Final = -0x100000
"""Offsets from here on are from the network header (SKF_NET_OFF); the others ask the kernel other things."""
_INSTRUCTION: Final = re.compile(r"\s*([0-9]+)\s+([0-9]+)\s+([0-9]+)\s+([0-9]+)\s*")
_MAX_STEPS: Final = 20_000
_UNKNOWN: Final = Word(0, 0)

_ARITHMETIC: Final[dict[int, Callable[[int, int], int]]] = {
    0x00: operator.add, 0x10: operator.sub, 0x20: operator.mul, 0x30: operator.floordiv, 0x40: operator.or_,
    0x50: operator.and_, 0x60: operator.lshift, 0x70: operator.rshift, 0x90: operator.mod, 0xA0: operator.xor,
}  # fmt: skip
_DIVISIONS: Final = (0x30, 0x90)
_AND, _OR, _LSH, _RSH, _NEG = 0x50, 0x40, 0x60, 0x70, 0x80


class _Instruction(NamedTuple):
    code: int
    if_true: int
    if_false: int
    k: int


class _Registers(NamedTuple):
    a: Word
    x: Word
    memory: tuple[Word, ...]


class _OpenError(Exception):
    """The program's answer depends on what is not known."""


def bpf(match: OpaqueMatch, view: View) -> bool | None:
    """Whether the program returns something else than 0; None if that is open, or the program is elsewhere."""
    words = list(match.words)
    if len(words) != 2 or words[0] != "--bytecode":
        return None
    length, *lines = words[1].split(",")
    found = [_INSTRUCTION.fullmatch(line) for line in lines]
    program = [_Instruction(*map(int, line.groups())) for line in found if line is not None]
    if len(program) != len(lines) or not length.strip().isdigit() or int(length) != len(program):
        return None
    packet = view.state.packet
    run = _Run(program, packet_header(packet), packet.length)
    try:
        return run.from_step(0, _Registers(Word(0), Word(0), (_UNKNOWN,) * 16))
    except (_OpenError, IndexError, KeyError, RecursionError):
        return None


class _Run:
    """One run. Programs jump forward only, so that it ends; those that fork at many jumps are given up."""

    def __init__(self, program: Sequence[_Instruction], header: Bits, length: int | None) -> None:
        self._program = program
        self._header = header
        self._length = length
        self._steps = 0

    def from_step(self, step: int, registers: _Registers) -> bool:
        """What the program returns from one of its instructions on. Raises _OpenError."""
        while True:
            self._steps += 1
            if self._steps > _MAX_STEPS:
                raise _OpenError
            instruction = self._program[step]
            step += 1
            kind = instruction.code & 0x07
            if kind == _RET:
                return _truth(registers.a if instruction.code & 0x18 == _RETURN_A else Word(instruction.k))
            if kind == _JMP:
                taken = _jumps(instruction, registers)
                if taken is None:
                    ends = {self.from_step(step + each, registers) for each in instruction[1:3]}
                    if len(ends) > 1:
                        raise _OpenError
                    return ends.pop()
                step += taken
                continue
            after = self._done(instruction, registers)
            if after is None:
                return False
            registers = after

    def _done(self, instruction: _Instruction, registers: _Registers) -> _Registers | None:
        """The registers after an instruction that is no jump; None if it ends the program with 0."""
        code, k = instruction.code, instruction.k
        kind = code & 0x07
        if kind in (_LD, _LDX):
            loaded = self._loaded(code, k, registers)
            if loaded is None:
                return None
            return registers._replace(a=loaded) if kind == _LD else registers._replace(x=loaded)
        if kind in (_ST, _STX):
            memory = list(registers.memory)
            memory[k] = registers.a if kind == _ST else registers.x
            return registers._replace(memory=tuple(memory))
        if kind == _ALU:
            result = _computed(code & 0xF0, registers.a, registers.x if code & _FROM_X else Word(k))
            return None if result is None else registers._replace(a=result)
        return registers._replace(a=registers.x) if code & _TXA else registers._replace(x=registers.a)

    def _loaded(self, code: int, k: int, registers: _Registers) -> Word | None:
        mode = code & 0xE0
        if mode == _IMM:
            return Word(k)
        if mode == _MEM:
            return registers.memory[k]
        if mode == _LEN:
            return _UNKNOWN if self._length is None else Word(self._length)
        if mode == _MSH:
            octet = self._octets(k, 1)
            return None if octet is None else octet.masked(15).left(2)
        if mode == _IND:
            if registers.x.known != UINT32:
                raise _OpenError
            return self._octets(registers.x.value + k & UINT32, _SIZES[code & 0x18])
        if mode != _ABS:
            raise _OpenError
        return self._octets(k, _SIZES[code & 0x18])

    def _octets(self, offset: int, size: int) -> Word | None:
        """Octets of the packet as a word; None if it is too short for them."""
        if offset > 0x7FFFFFFF:
            offset -= 1 << 32
            if not _NETWORK <= offset < _NETWORK // 2:
                raise _OpenError
            offset -= _NETWORK
        word = word_at(self._header, self._length, offset, size)
        if word is None:
            raise _OpenError
        return None if word is False else word


def _truth(word: Word) -> bool:
    if word.value:
        return True
    if word.known != UINT32:
        raise _OpenError
    return False


def _computed(action: int, left: Word, right: Word) -> Word | None:
    if action == _NEG:
        return Word(-left.value & UINT32) if left.known == UINT32 else _UNKNOWN
    if action in _DIVISIONS and right == Word(0):
        return None
    if action == _AND:
        known = left.known & right.known | left.known & ~left.value | right.known & ~right.value
        return Word(left.value & right.value, known & UINT32)
    if action == _OR:
        return Word(left.value | right.value, left.known & right.known | left.value | right.value)
    if action in (_LSH, _RSH) and right.known == UINT32:
        if right.value > 31:
            raise _OpenError
        return left.left(right.value) if action == _LSH else left.right(right.value)
    if left.known & right.known != UINT32:
        return _UNKNOWN
    return Word(_ARITHMETIC[action](left.value, right.value) & UINT32)


def _jumps(instruction: _Instruction, registers: _Registers) -> int | None:
    """How many instructions a jump leaves out; None if that is not known."""
    kind = instruction.code & 0xF0
    if kind == 0x00:
        return instruction.k
    left, right = registers.a, registers.x if instruction.code & _FROM_X else Word(instruction.k)
    holds = _COMPARED[kind](left, right)
    return None if holds is None else instruction.if_true if holds else instruction.if_false


def _equal(left: Word, right: Word) -> bool | None:
    if (left.value ^ right.value) & left.known & right.known:
        return False
    return True if left.known & right.known == UINT32 else None


def _greater(left: Word, right: Word) -> bool | None:
    return True if left.value > right.largest else False if left.largest <= right.value else None


def _at_least(left: Word, right: Word) -> bool | None:
    return True if left.value >= right.largest else False if left.largest < right.value else None


def _any_bit(left: Word, right: Word) -> bool | None:
    return True if left.value & right.value else None if left.largest & right.largest else False


_COMPARED: Final = {0x10: _equal, 0x20: _greater, 0x30: _at_least, 0x40: _any_bit}
