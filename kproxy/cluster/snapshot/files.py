"""The files of a snapshot: a directory, an archive, or in memory. Nothing is unpacked to disk.

An archive may come from a stranger. So its members are only ever read, by a name that has been checked; links, devices
and names that lead out of the archive are refused, and so is what is larger than the bounds of `layout`, before it is
read. A directory's files are read when they are asked for; those that a symbolic link takes out of it are refused.
Of an archive the files are kept in memory, those of some size compressed: rules shrink to a twentieth.
"""

from __future__ import annotations

import gzip
import importlib
import os
import sys
import tarfile
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final, Protocol

from kproxy.api.load.manifests import SUFFIXES
from kproxy.cluster.snapshot.layout import ENDPOINT_SLICES, INFO, MAX_FILE, MAX_FILES, MAX_TOTAL, NODES, OBJECTS
from kproxy.errors import InputError
from kproxy.extras import missing_extra

_KEPT_PLAIN: Final = 16 << 10
_PIECE: Final = 1 << 20
_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_TAR_MAGIC: Final = (257, b"ustar")


class Files(Protocol):
    """Files by their path inside the snapshot, with slashes."""

    @property
    def label(self) -> str:
        """What messages call the snapshot."""

    def paths(self) -> tuple[str, ...]:
        """All paths, sorted."""

    def read(self, path: str) -> bytes | None:
        """A file's content, None if it is not there. Raises InputError: it cannot be read, or is too large."""


class MemoryFiles:
    """Files in memory; `put` adds one."""

    def __init__(self, label: str, contents: Mapping[str, bytes] | None = None, *, pack: bool = True) -> None:
        """`pack`: large ones are kept compressed; not worth it for what is read once."""
        self.label = label
        self._pack = pack
        self._contents: dict[str, tuple[bytes, bool]] = {}
        for path, data in (contents or {}).items():
            self.put(path, data)

    def put(self, path: str, data: bytes) -> None:
        """Adds a file, or replaces it."""
        packed = self._pack and len(data) > _KEPT_PLAIN
        self._contents[path] = (zlib.compress(data, 1) if packed else data, packed)

    def paths(self) -> tuple[str, ...]:
        return tuple(sorted(self._contents))

    def read(self, path: str) -> bytes | None:
        found = self._contents.get(path)
        if found is None:
            return None
        data, packed = found
        return zlib.decompress(data) if packed else data


class DirectoryFiles:
    """Files of a directory, at most four levels deep, read when asked for."""

    def __init__(self, path: Path) -> None:
        self.label = str(path)
        self._root = path

    def paths(self) -> tuple[str, ...]:
        found: list[str] = []
        try:
            self._list("", found, 4)
        except OSError as error:
            raise InputError(f"{error.filename or self.label}: {error.strerror or error}") from error
        return tuple(sorted(found))

    def _list(self, prefix: str, found: list[str], depth: int) -> None:
        with os.scandir(self._root / prefix) as entries:
            for entry in entries:
                path = f"{prefix}{entry.name}"
                if entry.is_dir():
                    if depth:
                        self._list(f"{path}/", found, depth - 1)
                elif len(found) == MAX_FILES:
                    raise InputError(f"{self.label}: more than {MAX_FILES} files: not a snapshot")
                else:
                    found.append(path)

    def read(self, path: str) -> bytes | None:
        file = self._root / path
        try:
            real = os.path.realpath(file)
            if not Path(real).is_relative_to(os.path.realpath(self._root)):
                raise InputError(f"{file}: a link that leads out of the snapshot")
            if not os.path.lexists(file):
                return None
            if not os.path.isfile(real):
                raise InputError(f"{file}: not a regular file")
            if os.path.getsize(real) > MAX_FILE:
                raise InputError(f"{file}: larger than {MAX_FILE >> 20} MiB")
            with open(real, "rb") as opened:
                return opened.read()
        except OSError as error:
            raise InputError(f"{file}: {error.strerror or error}") from error
        except ValueError as error:  # a NUL in a name
            raise InputError(f"{file!s}: {error}") from error


def open_files(path: str | os.PathLike[str]) -> Files:
    """Opens a directory or an archive, which is told by its content. Raises InputError: it cannot be read, or is
    neither."""
    found = Path(path)
    try:
        if found.is_dir():
            return DirectoryFiles(found)
        with found.open("rb") as file:
            return read_archive(file, str(path), MAX_TOTAL)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error


def is_whole(slices: Collection[object], snapshots: Iterable[Files]) -> bool:
    """Whether some EndpointSlices are all that there are: those of a snapshot are that has any, or a file of none."""
    return any(slices or each.read(ENDPOINT_SLICES) is not None for each in snapshots)


def is_snapshot(path: str | os.PathLike[str]) -> bool:
    """Whether a snapshot is there, as far as can be told without reading it: an archive, or a directory with its files
    and no manifests beside them."""
    found = Path(path)
    try:
        if found.is_dir():
            if (found / INFO).exists():
                return True
            has_parts = any((found / name).is_dir() for name in (OBJECTS, NODES))
            return has_parts and not any(each.suffix in SUFFIXES for each in found.iterdir())
        with found.open("rb") as file:
            begin = file.read(512)
    except OSError:
        return False
    at, magic = _TAR_MAGIC
    return begin.startswith((_GZIP, _ZSTD)) or begin[at : at + len(magic)] == magic


def read_archive(file: IO[bytes], label: str, max_total: int) -> MemoryFiles:
    """Reads an archive, which is told by its content.

    Args:
        label: what messages call it.
        max_total: octets, unpacked.

    Raises:
        InputError: it is damaged, none, or too large.
    """
    begin = file.read(512)
    file.seek(0)
    at, magic = _TAR_MAGIC
    if begin.startswith(_GZIP):
        stream: _Stream = gzip.GzipFile(fileobj=file, mode="rb")
    elif begin.startswith(_ZSTD):
        stream = open_zstd(file, "rb")
    elif begin[at : at + len(magic)] == magic:
        stream = file
    else:
        raise InputError(f"{label}: a snapshot expected: a directory, .tar.gz, .tar.zst or .tar")
    files, bounded = MemoryFiles(label), _Bounded(stream, label, max_total)
    try:
        with tarfile.open(fileobj=bounded, mode="r|", bufsize=_PIECE) as archive:  # type: ignore[call-overload]
            for path, data in _members(archive, label, max_total):
                files.put(path, data)
                bounded.of_member = 0
    except InputError:
        raise
    except (tarfile.TarError, OSError, EOFError, zlib.error, UnicodeError, OverflowError, ValueError) as error:
        raise InputError(f"{label}: a damaged archive: {error}") from error
    except Exception as error:
        if type(error).__name__ != "ZstdError":
            raise
        raise InputError(f"{label}: a damaged archive: {error}") from error
    return _without_top(files)


def _members(archive: tarfile.TarFile, label: str, max_total: int) -> Iterator[tuple[str, bytes]]:
    """The regular files of an archive, each once it is known to be harmless."""
    total = 0
    for number, member in enumerate(archive):
        where = f"{label}: {member.name[:200]!r}"
        if number == MAX_FILES:
            raise InputError(f"{label}: more than {MAX_FILES} files: not a snapshot")
        if member.isdir():
            continue
        if not member.isreg():
            raise InputError(f"{where}: a link or a device: a snapshot holds regular files only")
        path = PurePosixPath(member.name)
        if path.is_absolute() or ".." in path.parts or "\0" in member.name:
            raise InputError(f"{where}: a path that leads out of the archive")
        total += member.size
        if member.size > MAX_FILE or total > max_total:
            limit = f"larger than {MAX_FILE >> 20} MiB" if member.size > MAX_FILE else f"over {max_total >> 20} MiB"
            raise InputError(f"{where}: {limit}")
        opened = archive.extractfile(member)
        yield str(path), opened.read() if opened is not None else b""


class _Stream(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _Bounded:
    """A stream of which tarfile may not read too much for one member: a header can ask for gigabytes."""

    def __init__(self, stream: _Stream, label: str, max_total: int) -> None:
        self._stream = stream
        self._label = label
        self._max_total = max_total
        self._total = 0
        self.of_member = 0

    def read(self, size: int) -> bytes:
        found = self._stream.read(size)
        self._total += len(found)
        self.of_member += len(found)
        if self.of_member > MAX_FILE + 2 * _PIECE:
            raise InputError(f"{self._label}: a member's header asks for too much")
        if self._total > self._max_total + MAX_FILES * tarfile.BLOCKSIZE + _PIECE:
            raise InputError(f"{self._label}: over {self._max_total >> 20} MiB")
        return found


def open_zstd(file: IO[bytes], mode: str) -> IO[bytes]:
    """Reads (`rb`) or writes (`wb`) a zstd stream: by the standard library since Python 3.14, by zstandard before.
    Raises InputError: there is neither."""
    try:
        if sys.version_info >= (3, 14):
            return importlib.import_module("compression.zstd").open(file, mode)  # type: ignore[no-any-return]
        library: Any = importlib.import_module("zstandard")
    except ImportError as error:
        raise missing_extra(error, ".tar.zst") or InputError(
            f".tar.zst: zstandard cannot be imported: {error}"
        ) from error
    return library.open(file, mode)  # type: ignore[no-any-return]


def _without_top(files: MemoryFiles) -> MemoryFiles:
    """The files without the one directory that they are all in, as `tar czf shop.tar.gz shop` has it."""
    paths = files.paths()
    tops = {path.partition("/")[0] for path in paths}
    if len(tops) != 1 or tops & {INFO, OBJECTS, NODES}:
        return files
    top = f"{tops.pop()}/"
    if not all(path.startswith(top) for path in paths):
        return files
    found = MemoryFiles(files.label)
    for path in paths:
        found.put(path.removeprefix(top), files.read(path) or b"")
    return found
