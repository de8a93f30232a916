"""Names of sources: what each is, and readers of what is live."""

from __future__ import annotations

from pathlib import Path

import pytest

from kproxy.cluster.sources import Kind, SourceName, read_name
from kproxy.errors import InputError

RULES = "*filter\nCOMMIT\n"


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("a.save", "b.save", "a,b.save", "node@1.save"):
        (tmp_path / name).write_text(RULES)
    for name in ("c.yaml", "d.json", "e@f.yaml"):
        (tmp_path / name).write_text("{}\n")
    (tmp_path / "nft.json").write_text('{ "nftables": []}')
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "c.yaml").write_text("{}\n")
    (tmp_path / "snap@shot" / "nodes").mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "kind", "names", "node"),
    [
        ("-", Kind.RULES, ("-",), ""),
        ("a.save", Kind.RULES, ("a.save",), ""),
        ("a.save,b.save", Kind.RULES, ("a.save", "b.save"), ""),
        ("a,b.save", Kind.RULES, ("a,b.save",), ""),
        ("node@1.save", Kind.RULES, ("node@1.save",), ""),
        ("absent.save", Kind.RULES, ("absent.save",), ""),
        ("nft.json", Kind.RULES, ("nft.json",), ""),
        ("c.yaml", Kind.MANIFESTS, ("c.yaml",), ""),
        ("c.yaml@n1", Kind.MANIFESTS, ("c.yaml",), "n1"),
        ("e@f.yaml", Kind.MANIFESTS, ("e@f.yaml",), ""),
        ("e@f.yaml@n1", Kind.MANIFESTS, ("e@f.yaml",), "n1"),
        ("c.yaml,d.json@n1", Kind.MANIFESTS, ("c.yaml", "d.json"), "n1"),
        ("folder", Kind.MANIFESTS, ("folder",), ""),
        ("folder@n1", Kind.MANIFESTS, ("folder",), "n1"),
        ("absent.yaml@n1", Kind.MANIFESTS, ("absent.yaml",), "n1"),
        ("snap@shot", Kind.SNAPSHOT, ("snap@shot",), ""),
        ("snap@shot@n1", Kind.SNAPSHOT, ("snap@shot",), "n1"),
        ("manifests:snap@shot@n1", Kind.MANIFESTS, ("snap@shot",), "n1"),
        ("manifests:a.save", Kind.MANIFESTS, ("a.save",), ""),
        ("netns:blue", Kind.NETNS, ("blue",), ""),
        ("lab:", Kind.LAB, ("",), ""),
        ("lab:shop@n1", Kind.LAB, ("shop",), "n1"),
        ("lab:@n1", Kind.LAB, ("",), "n1"),
        ("cluster:", Kind.CLUSTER, ("",), ""),
        ("cluster:admin@prod@n1", Kind.CLUSTER, ("admin@prod",), "n1"),
        ("cluster:admin@prod@", Kind.CLUSTER, ("admin@prod",), ""),
    ],
)
def test_what_is_named(there: Path, text: str, kind: Kind, names: tuple[str, ...], node: str) -> None:
    assert read_name(text) == SourceName(text, kind, names, node)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the name of a file expected"),
        ("netns:", "the name of a namespace expected"),
        ("manifests:", "a path expected"),
        ("manifests:@n1", "a path expected"),
        ("a.save,,b.save", "before and after each comma"),
        ("c.yaml,@n1", "before and after each comma"),
    ],
)
def test_what_is_refused(there: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_name(text)
