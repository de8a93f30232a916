"""The script that reads a node, `collect.sh`, and what it prints where there is no directory to write to: the node's
files, between lines that begin with a boundary. One file at a time is held whole. And the page of `kproxy run` that
gives them, as who answers and who asks know it."""

from __future__ import annotations

import io
import shlex
import tarfile
from collections.abc import Iterable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Final

from kproxy.cluster.snapshot.layout import HOST_FILES, MAX_FILE, host_file
from kproxy.errors import InputError

SECONDS: Final = 120.0
"""How long a node may take: longer than the script lets itself take."""
MAX_OCTETS: Final = 256 << 20
"""Of what it prints there."""
COLLECT: Final = "/debug/collect"
"""On the metrics port: a `.tar.gz` of `nodes/NAME/`."""
TOKEN_HEADER: Final = "x-kproxy-token"
"""Not Authorization: API servers keep that to themselves when they hand a request on to a node."""


def script() -> str:
    """The POSIX shell script: `sh collect.sh [NODE [DIRECTORY]]`."""
    return files("kproxy.cluster.snapshot").joinpath("collect.sh").read_text(encoding="utf-8")


def stream_script(boundary: str) -> str:
    """The same to be given to `sh -c`: it prints all files, between lines that begin with `boundary`."""
    return f"KPROXY_BOUNDARY={shlex.quote(boundary)}\n{script()}"


def read_stream(chunks: Iterable[bytes], boundary: str) -> Iterator[tuple[str, bytes]]:
    """The files of what `stream_script` printed, by their names in a node's directory; those that a command did not
    print to the end, or that are too large, are left out. Raises InputError: it is something else, or ends in the
    middle."""
    parts = _split(chunks, f"\n{boundary} ".encode())
    if odd := next(parts).strip():
        raise InputError(f"the script's own lines expected, not {odd[:80].decode(errors='replace')!r}")
    for part in parts:
        line, _, content = part.partition(b"\n")
        name, ending = line.decode(errors="replace"), next(parts, None)
        if name not in HOST_FILES:
            raise InputError(f"the script writes no {name[:80]!r}")
        if ending is None:
            raise InputError(f"its output ends in the middle of {name}")
        if ending.rstrip() == b"end" and len(content) <= MAX_FILE:
            yield name, content


def _split(chunks: Iterable[bytes], mark: bytes) -> Iterator[bytes]:
    """What is between the marks, the first of which may lack its line end."""
    held, seen = bytearray(b"\n"), 0
    for chunk in chunks:
        held += chunk
        while (end := held.find(mark, seen)) >= 0:
            yield bytes(held[:end])
            del held[: end + len(mark)]
            seen = 0
        seen = max(0, len(held) - len(mark))
    yield bytes(held)


def pack_stream(chunks: Iterable[bytes], boundary: str, host: str, modified: int) -> bytes:
    """A `.tar.gz` of the files of `read_stream`, as `nodes/HOST/NAME`; `modified` is their time, in seconds since 1970.
    Raises InputError as that does."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=6) as archive:
        for name, data in read_stream(chunks, boundary):
            member = tarfile.TarInfo(host_file(host, name))
            member.size, member.mode, member.mtime = len(data), 0o600, modified
            archive.addfile(member, io.BytesIO(data))
    return packed.getvalue()


def read_token(path: str) -> str:
    """The token of a file, without white space around it. Raises InputError: there is none."""
    try:
        token = Path(path).read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "a token is ASCII"
        raise InputError(f"{path}: {reason}") from error
    if not token or not token.isprintable():
        raise InputError(f"{path}: {'a token on one line expected' if token else 'empty, where a token is expected'}")
    return token
