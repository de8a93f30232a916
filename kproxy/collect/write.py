"""Writing snapshots: a directory, or an archive that is there whole or not at all."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from kproxy.cluster.snapshot.files import Files, open_zstd
from kproxy.errors import KproxyError

GZIP: Final = (".tar.gz", ".tgz")
ZSTD: Final = (".tar.zst", ".tzst")
TAR: Final = (".tar",)


class WriteError(KproxyError):
    """A snapshot cannot be written. What was there before is untouched."""


def write_snapshot(files: Files, path: str, modified: int) -> None:
    """Writes a snapshot: an archive if `path` ends like one (.tar.gz, .tgz, .tar.zst, .tar), else a directory, which
    must not be there or be empty. Only the user may read it.

    Args:
        modified: the time that members of an archive get, in seconds since 1970.

    Raises:
        WriteError: it cannot be written.
    """
    final = Path(path)
    try:
        if not path.endswith((*GZIP, *ZSTD, *TAR)):
            _write_directory(files, final)
            return
        descriptor, name = tempfile.mkstemp(dir=final.parent, prefix=f".{final.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file, _packed(file, path) as stream:
                _write_tar(files, stream, modified)
            os.replace(name, final)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
    except OSError as error:
        raise WriteError(f"cannot write {path}: {error.strerror or error}") from error


@contextlib.contextmanager
def _packed(file: IO[bytes], path: str) -> Iterator[IO[bytes]]:
    if path.endswith(GZIP):
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0, compresslevel=6) as stream:
            yield stream  # type: ignore[misc]
    elif path.endswith(ZSTD):
        with open_zstd(file, "wb") as stream:
            yield stream
    else:
        yield file


def _write_tar(files: Files, stream: IO[bytes], modified: int) -> None:
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for path in files.paths():
            data = files.read(path) or b""
            member = tarfile.TarInfo(path)
            member.size, member.mode, member.mtime = len(data), 0o600, modified
            archive.addfile(member, io.BytesIO(data))


def _write_directory(files: Files, final: Path) -> None:
    if final.exists() and (not final.is_dir() or any(final.iterdir())):
        raise WriteError(f"cannot write {final}: it is there already, and not an empty directory")
    final.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in files.paths():
        target = final / path
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        target.touch(mode=0o600)
        target.write_bytes(files.read(path) or b"")
