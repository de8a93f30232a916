"""The sdist and the wheel: the same bytes each time, and what an installation without extras can do."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from kproxy import __version__
from tests.support import paths

pytestmark = pytest.mark.slow
ROOT = paths.ROOT
SOURCES = ("CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.py")
FOLDERS = ("deploy", "docs", "kproxy", "rules_golden")
MAX_LIGHT = 30 * 2**20
"""Of all that `pip install kproxy` brings, in bytes."""

BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, f'build_{sys.argv[1]}')(sys.argv[2])"


def run(*words: str | Path, cwd: Path | None = None, **environment: str) -> str:
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{words}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def copied(to: Path) -> Path:
    """The tree as a checkout has it, with files that are dated now."""
    for name in SOURCES:
        to.mkdir(exist_ok=True)
        shutil.copyfile(ROOT / name, to / name)
    for name in FOLDERS:
        ignored = shutil.ignore_patterns("__pycache__", "kproxy-cni-launcher")
        shutil.copytree(ROOT / name, to / name, ignore=ignored, copy_function=shutil.copyfile)
    return to


def digests(directory: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.iterdir()}


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with nothing in it."""
    venv = tmp_path_factory.mktemp("clean") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", venv)
    return venv


def install(venv: Path, *words: str | Path) -> None:
    run(sys.executable, "-m", "pip", "--python", venv / "bin/python", "install", "-q", *words)


@pytest.fixture(scope="module")
def dist(clean: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the sdist, made of the tree, and the wheel, made of the sdist."""
    base = tmp_path_factory.mktemp("build")
    tools, made = base / "tools", base / "dist"
    install(clean, "--target", tools, "setuptools>=70.1")
    build = (clean / "bin/python", "-c", BUILD)
    run(*build, "sdist", made, cwd=copied(base / "one"), PYTHONPATH=str(tools))
    [sdist] = made.iterdir()
    with tarfile.open(sdist) as archive:
        archive.extractall(base / "unpacked", filter="data")
    run(*build, "wheel", made, cwd=base / "unpacked" / f"kproxy-{__version__}", PYTHONPATH=str(tools))
    again, other = base / "again", copied(base / "two")
    old = os.umask(0o077)
    try:
        for what in ("wheel", "sdist"):
            run(*build, what, again, cwd=other, PYTHONPATH=str(tools))
    finally:
        os.umask(old)
    assert digests(again) == digests(made), "the second build has other bytes"
    return made


def test_documents_and_goldens_are_in_the_sdist_and_the_page_is_in_the_wheel(dist: Path) -> None:
    """That both are the same bytes when they are built again is the fixture's assertion."""
    [sdist], [wheel] = dist.glob("*.tar.gz"), dist.glob("*.whl")
    assert wheel.name == f"kproxy-{__version__}-py3-none-any.whl"
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"docs/trace.md", "rules_golden/minikube/cluster.yaml", "deploy/Dockerfile", "CHANGELOG.md"} <= names
    with zipfile.ZipFile(wheel) as opened:
        names = set(opened.namelist())
    assert {"kproxy/explorer/static/app.js", "kproxy/cni/launcher.c", "kproxy/apiserver/data/schemas.json"} <= names
    assert not [name for name in names if name.startswith(("tests/", "docs/", "bench/"))]
    assert wheel.stat().st_size < 3 * 2**20


def test_the_wheel_alone_renders_traces_and_compares(clean: Path, dist: Path, tmp_path: Path) -> None:
    [wheel] = dist.glob("*.whl")
    install(clean, wheel)
    [packages] = (clean / "lib").glob("python*/site-packages")
    ours = [path for path in packages.iterdir() if not path.name.startswith("kproxy")]
    size = sum(file.stat().st_size for top in ours for file in ([top] if top.is_file() else top.rglob("*")))
    assert size < MAX_LIGHT, f"{size / 2**20:.1f} MB: {sorted(path.name for path in ours)}"
    kproxy, golden = clean / "bin/kproxy", paths.GOLDEN / "minikube"
    expected = golden / "expected" / "minikube.v4.save"
    rendered = tmp_path / "rendered.save"
    run(kproxy, "render", "-f", golden / "cluster.yaml", "--config", golden / "config.yaml", "--output", rendered)
    assert rendered.read_bytes() == expected.read_bytes()
    question = ("--src", "10.244.0.9", "--dst", "10.96.0.10:53", "--proto", "udp")
    assert "destination translated" in run(kproxy, "trace", "--rules", rendered, *question)
    assert "alike" in run(kproxy, "diff", rendered, expected)
    for command, extra in {"run": "agent", "apply": "linux", "apiserver": "apiserver", "explore": "explore"}.items():
        words = ["--data", "state"] if command == "apiserver" else ["-f", str(golden / "cluster.yaml")]
        done = subprocess.run([kproxy, command, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
        assert f"pip install 'kproxy[{extra}]'" in done.stderr
