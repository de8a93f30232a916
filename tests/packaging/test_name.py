"""The distribution's name: the one that is ours on PyPI."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from tests.support.paths import ROOT

OTHER = re.compile(r"(?:pip3? install|pipx install|uv tool install|uvx)(?: -{1,2}[\w-]+)* ['\"]?kproxy\b(?!-)")
"""`pip install` of the name that somebody else has had since 2021."""
SKIPPED = {".git", ".venv", "node_modules", "build", "dist", "__pycache__", ".mypy_cache", ".ruff_cache", ".hypothesis"}


def texts() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    if listed:
        return [ROOT / name for name in listed.split("\0") if name]
    return [path for path in ROOT.rglob("*") if path.is_file() and not SKIPPED & set(path.parts)]


def test_nobody_is_told_to_install_what_is_not_ours() -> None:
    found = []
    for path in texts():
        if path.is_file() and path != Path(__file__) and path.suffix not in (".png", ".gz"):
            lines = enumerate(path.read_text(errors="replace").splitlines(), 1)
            found += [f"{path.relative_to(ROOT)}:{number}" for number, line in lines if OTHER.search(line)]
    assert not found
    assert OTHER.search("pip install 'kproxy[linux]'")
    assert not OTHER.search("pip install 'kube-kproxy[linux]'")


def test_a_release_is_a_tag_a_heading_and_archives(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "scripts").mkdir(parents=True)
    (tree / "kproxy").mkdir()
    shutil.copy(ROOT / "scripts/release.sh", tree / "scripts")
    (tree / "kproxy/__init__.py").write_text('__version__ = "0.1.0"\n')
    (tree / "deploy").mkdir()
    (tree / "deploy/README.md").write_text("kproxy:0.1.0 on 10.1.0.0\nappVersion: 0.1.0\n")
    (tree / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n\n- More.\n")
    (tree / "Makefile").write_text("dist:\n\t@echo made >made\n")

    def git(*words: str) -> str:
        who = ("-c", "user.name=n", "-c", "user.email=e@example.org")
        return subprocess.run(["git", *who, *words], cwd=tree, capture_output=True, text=True, check=True).stdout

    def release(version: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": "/usr/bin:/bin:/usr/local/bin", "HOME": str(tmp_path)} | {
            f"GIT_{who}_{what}": "n" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
        }
        script = ["sh", "scripts/release.sh", version]
        return subprocess.run(script, cwd=tree, env=environment, capture_output=True, text=True, check=False)

    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "all")
    for wrong in ("", "v1", "1.2"):
        assert release(wrong).returncode == 2
    done = release("0.2.0")
    assert done.returncode == 0, done.stderr
    assert git("tag").split() == ["v0.2.0"]
    assert '"0.2.0"' in (tree / "kproxy/__init__.py").read_text()
    assert (tree / "deploy/README.md").read_text() == ("kproxy:0.2.0 on 10.1.0.0\nappVersion: 0.2.0\n")
    assert "## Unreleased\n\n## 0.2.0 (" in (tree / "CHANGELOG.md").read_text()
    assert (tree / "made").exists()
    (tree / "made").unlink()
    assert release("0.2.0").returncode == 2, "the tag is there"
    (tree / "CHANGELOG.md").write_text("other")
    assert release("0.3.0").returncode == 2, "what is not committed is in no release"
