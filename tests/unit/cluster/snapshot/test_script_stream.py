"""What the script prints, read file by file however it is cut, and packed."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.cluster.snapshot import script
from kproxy.cluster.snapshot.files import read_archive
from kproxy.cluster.snapshot.layout import HOST_FILES
from kproxy.cluster.snapshot.script import pack_stream, read_stream
from kproxy.errors import InputError

MARK = "@@b"
FILES = st.dictionaries(
    st.sampled_from(HOST_FILES),
    st.tuples(st.text("ab@ \n", max_size=30).map(str.encode), st.booleans()),
    max_size=4,
)


def printed(files: dict[str, tuple[bytes, bool]]) -> bytes:
    return b"".join(
        f"{MARK} {name}\n".encode() + data + f"\n{MARK} {'end' if kept else 'drop'}\n".encode()
        for name, (data, kept) in files.items()
    )


@given(FILES, st.integers(1, 9))
@settings(deadline=None, max_examples=40)
def test_it_does_not_matter_how_it_is_cut(files: dict[str, tuple[bytes, bool]], size: int) -> None:
    data = printed(files)
    kept = {name: content for name, (content, whole) in files.items() if whole}
    chunks = [data[at : at + size] for at in range(0, len(data), size)]
    assert dict(read_stream([data], MARK)) == dict(read_stream(chunks, MARK)) == kept
    packed = pack_stream(chunks, MARK, "n1", 7)
    archive = read_archive(io.BytesIO(packed), "n1.tar.gz", 1 << 20)
    assert {path: archive.read(path) for path in archive.paths()} == {
        f"nodes/n1/{name}": content for name, content in kept.items()
    }
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as opened:
        assert {(member.mode, member.mtime) for member in opened} <= {(0o600, 7)}


def test_tar_itself_unpacks_it(tmp_path: Path) -> None:
    big = bytes(range(256)) * 5000
    packed = pack_stream([printed({"sysctl": (b"a = 1\n", True), "nft": (big, True)})], MARK, "n1", 7)
    assert len(packed) < len(big) / 20
    subprocess.run(["tar", "xzf", "-", "-C", str(tmp_path)], input=packed, check=True)
    assert (tmp_path / "nodes/n1/nft").read_bytes() == big
    assert (tmp_path / "nodes/n1/sysctl").read_bytes() == b"a = 1\n"


def test_a_file_that_is_too_large_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "MAX_FILE", 5)
    data = printed({"sysctl": (b"123456", True), "errors": (b"12345", True)})
    assert list(read_stream([data], MARK)) == [("errors", b"12345")]
    with pytest.raises(InputError, match="ends in the middle of sysctl"):
        list(read_stream([data[:20]], MARK))
