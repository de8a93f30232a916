"""What the script prints where there is no directory to write to: a node's files, between lines that begin with a
boundary. It is read piece by piece: rules in nft's JSON may be more than a proxy's memory should hold at once.
"""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from kproxy.cluster.snapshot.layout import HOST_FILES, MAX_FILE, host_file
from kproxy.errors import InputError

_LONGEST: Final = 4096
"""Octets of one of the script's own lines, at most."""
_CHUNK: Final = 1 << 16
_GZIP: Final = 31
"""zlib's window bits for a gzip stream."""
_LEVEL: Final = 6


class Piece(NamedTuple):
    """A piece of a file, or its end: `kept` says then whether it is whole."""

    name: str
    data: bytes = b""
    kept: bool | None = None


def parse_stream(data: bytes, boundary: str) -> dict[str, bytes]:
    """The files of what `stream_script` printed, by their names in a node's directory.

    Raises:
        InputError: it is something else, or ends in the middle.
    """
    found: dict[str, bytes] = {}
    pieces: list[bytes] = []
    chunks = (data[at : at + _CHUNK] for at in range(0, len(data), _CHUNK))
    for piece in split_stream(chunks, boundary):
        if piece.kept is None:
            pieces.append(piece.data)
            continue
        if piece.kept:
            found[piece.name] = b"".join(pieces)
        pieces = []
    return found


def split_stream(chunks: Iterable[bytes], boundary: str) -> Iterator[Piece]:
    """The same piece by piece. A file that its command did not print to the end, or that is too large, is not kept.

    Raises:
        InputError: as `parse_stream`.
    """
    mark = f"{boundary} ".encode()
    ending = b"\n" + mark
    name: str | None = None
    held, size = b"", 0
    source = iter(chunks)
    more = True
    while more:
        chunk = next(source, None)
        more = chunk is not None
        held += chunk or b""
        while held:
            if name is None:
                line, newline, rest = held.partition(b"\n")
                if not newline and more and len(held) < _LONGEST:
                    break
                name, size = _file_name(line, mark), 0
                held = rest
                continue
            end = held.find(ending)
            if end < 0:
                whole = len(held) - len(ending)
                if whole > 0:
                    size += whole
                    yield Piece(name, held[:whole])
                    held = held[whole:]
                break
            last, newline, rest = held[end + len(ending) :].partition(b"\n")
            if not newline and more and len(last) < _LONGEST:
                break
            if end:
                yield Piece(name, held[:end])
            yield Piece(name, kept=last == b"end" and size + end <= MAX_FILE)
            name, held = None, rest
    if name is not None:
        raise InputError(f"its output ends in the middle of {name}")


def _file_name(line: bytes, mark: bytes) -> str:
    if not line.startswith(mark):
        raise InputError(f"the script's own lines expected, not {line[:80].decode(errors='replace')!r}")
    name = line[len(mark) :].decode(errors="replace")
    if name not in HOST_FILES:
        raise InputError(f"the script writes no {name[:80]!r}")
    return name


def pack_stream(chunks: Iterable[bytes], boundary: str, host: str, modified: int) -> bytes:
    """A `.tar.gz` with the node's files, as `nodes/HOST/NAME`. In memory they are compressed only: each is a member of
    the gzip file (RFC 1952, section 2.2), as are the headers between them, which need a file's length.

    Args:
        modified: the time that the files get, in seconds since 1970.

    Raises:
        InputError: as `parse_stream`.
    """
    packed: list[bytes] = []
    body: list[bytes] = []
    size, packer = 0, zlib.compressobj(_LEVEL, wbits=_GZIP)
    for piece in split_stream(chunks, boundary):
        if piece.kept is None:
            size += len(piece.data)
            body.append(packer.compress(piece.data))
            continue
        if piece.kept:
            member = tarfile.TarInfo(host_file(host, piece.name))
            member.size, member.mode, member.mtime = size, 0o600, modified
            packed.append(gzip.compress(member.tobuf(), _LEVEL, mtime=0))
            packed += [*body, packer.flush(), gzip.compress(bytes(-size % tarfile.BLOCKSIZE), _LEVEL, mtime=0)]
        body, size, packer = [], 0, zlib.compressobj(_LEVEL, wbits=_GZIP)
    packed.append(gzip.compress(bytes(2 * tarfile.BLOCKSIZE), _LEVEL, mtime=0))
    return b"".join(packed)
