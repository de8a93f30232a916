"""Archives and directories: what is read, what is refused."""

from __future__ import annotations

import gzip
import io
import os
import random
import tarfile
from pathlib import Path

import pytest

from kproxy.cluster.snapshot import files as module
from kproxy.cluster.snapshot.files import MemoryFiles, open_files, open_zstd
from kproxy.errors import InputError

BIG = random.Random(7).randbytes(300_000) + b"x" * 1_000_000
CONTENTS = {"snapshot.json": b"{}", "objects/Node.json": b"[]" * 256, "nodes/n/iptables-save": BIG, "nodes/n/nft": b""}


def packed(members: dict[str, bytes], kind: int = tarfile.PAX_FORMAT, prefix: str = "") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=kind) as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(prefix + name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


@pytest.mark.parametrize("prefix", ["", "./", "shop/", "./shop/", "s" * 150 + "/"])
@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_archives_of_all_sorts_hold_the_same_files(tmp_path: Path, kind: int, prefix: str) -> None:
    data = packed(CONTENTS, kind, prefix)
    (tmp_path / "a.tar").write_bytes(data)
    with gzip.open(tmp_path / "a.tar.gz", "wb") as file:
        file.write(data)
    with (tmp_path / "a.tar.zst").open("wb") as under, open_zstd(under, "wb") as file:
        file.write(data)
    for name in ("a.tar", "a.tar.gz", "a.tar.zst"):
        found = open_files(tmp_path / name)
        assert {path: found.read(path) for path in found.paths()} == CONTENTS
        assert found.read("nodes/none") is None


def test_a_directory_holds_the_same_files(tmp_path: Path) -> None:
    for path, data in CONTENTS.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    found = open_files(tmp_path)
    assert {path: found.read(path) for path in found.paths()} == CONTENTS
    os.symlink("/etc/hostname", tmp_path / "nodes/n/sysctl")
    with pytest.raises(InputError, match=r"nodes/n/sysctl: a link that leads out of the snapshot"):
        found.read("nodes/n/sysctl")
    os.mkfifo(tmp_path / "nodes/n/conntrack")
    with pytest.raises(InputError, match=r"nodes/n/conntrack: not a regular file"):
        found.read("nodes/n/conntrack")


def member(name: str, **fields: object) -> bytes:
    info = tarfile.TarInfo(name)
    for field, value in fields.items():
        setattr(info, field, value)
    return info.tobuf(tarfile.GNU_FORMAT)


END = b"\0" * 1024


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (packed({"../../etc/passwd": b"x"}), "a path that leads out"),
        (packed({"/etc/passwd": b"x"}), "a path that leads out"),
        (packed({"nodes/a/../../../x": b"x"}), "a path that leads out"),
        (member("nodes/n/sysctl", type=tarfile.SYMTYPE, linkname="/etc/shadow") + END, "a link or a device"),
        (member("nodes/n/sysctl", type=tarfile.LNKTYPE, linkname="/etc/shadow") + END, "a link or a device"),
        (member("nodes/n/sysctl", type=tarfile.CHRTYPE) + END, "a link or a device"),
        (member("nodes/n/sysctl", size=1 << 40) + END, "larger than 256 MiB"),
        (member("x", type=tarfile.GNUTYPE_LONGNAME, size=1 << 40) + END, "damaged archive"),
        (member("x", type=tarfile.XHDTYPE, size=1 << 40) + END, "damaged archive"),
        (member("nodes/n/sysctl", size=5000) + b"short", "unexpected end of data"),
        (b"hello", "a snapshot expected"),
        (gzip.compress(packed(CONTENTS), mtime=0)[:1000], "damaged archive"),
        (gzip.compress(b"no tar at all", mtime=0), "damaged archive"),
        (b"\x28\xb5\x2f\xfd" + b"nonsense", "damaged archive"),
        (b"\x1f\x8bnonsense", "damaged archive"),
    ],
)
def test_a_hostile_or_damaged_archive_is_refused(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(data)
    with pytest.raises(InputError, match=message) as caught:
        open_files(path)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE])
def test_a_header_is_read_as_far_as_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: bytes) -> None:
    monkeypatch.setattr(module, "MAX_FILE", 1 << 20)
    path = tmp_path / "a.tar.gz"
    path.write_bytes(gzip.compress(member("x", type=kind, size=1 << 40) + b"0" * (5 << 20), 1))
    with pytest.raises(InputError, match="asks for too much"):
        open_files(path)


def test_bounds_hold_before_much_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.tar.gz"
    path.write_bytes(gzip.compress(packed({"nodes/n/a": b"0" * 600_000, "nodes/n/b": b"0" * 600_000})))
    monkeypatch.setattr(module, "MAX_TOTAL", 1_000_000)
    with pytest.raises(InputError, match="'nodes/n/b': over"):
        open_files(path)
    monkeypatch.setattr(module, "MAX_FILES", 1)
    with pytest.raises(InputError, match="more than 1 files"):
        open_files(path)
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "x").write_bytes(b"0" * 100)
    monkeypatch.setattr(module, "MAX_FILE", 10)
    with pytest.raises(InputError, match="d/x: larger than"):
        open_files(tmp_path / "d").read("x")
    with pytest.raises(InputError, match=r"none: No such file"):
        open_files(tmp_path / "none")


def test_large_files_are_kept_compressed() -> None:
    found = MemoryFiles("S", {"a": b"rule\n" * 100_000})
    assert found.read("a") == b"rule\n" * 100_000
    assert len(found._contents["a"][0]) < 20_000
