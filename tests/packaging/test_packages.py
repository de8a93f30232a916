"""The sdist and the wheel: the same bytes each time, with which Pythons they work, and what is there without extras.

Of the Pythons that the package names, all that are found on the machine are tried: on a new Debian that is its own one.
`make packages` prints which they were.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kproxy import __version__
from tests.support import paths

pytestmark = pytest.mark.slow
log = logging.getLogger(__name__)
Wheels = Callable[[str], Path]
ROOT = paths.ROOT
SOURCES = ("CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "pyproject.toml")
FOLDERS = ("deploy", "docs", "kproxy", "rules_golden")
MAX_LIGHT = 8 * 2**20
"""Of all that `pip install kube-kproxy` brings, in bytes."""

GOLDEN = paths.GOLDEN / "minikube"
QUESTION = ("--src", "10.244.0.9", "--dst", "10.96.0.10:53", "--proto", "udp")

BACKEND = "hatchling>=1.26"
BUILD = "import sys; from hatchling import build; getattr(build, f'build_{sys.argv[1]}')(sys.argv[2])"


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


def minors() -> list[int]:
    """The N of each Python 3.N that the package says it is for."""
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    before = "Programming Language :: Python :: 3."
    return [int(each.removeprefix(before)) for each in classifiers if each.startswith(before)]


def pythons() -> Iterator[str]:
    """Those of the package that are here: the running one, in the PATH, or installed by pyenv; one of each 3.N."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for minor in minors():
        version = f"3.{minor}"
        running = [sys.executable] if sys.version_info[:2] == (3, minor) else []
        found = shutil.which(f"python{version}")
        others = sorted(map(str, pyenv.glob(f"{version}.*/bin/python{version}")))
        for candidate in (*running, *([found] if found else ()), *others):
            # What pyenv puts into the PATH is there also for versions that are not chosen, and then fails.
            asked = subprocess.run([candidate, "-c", "import venv"], capture_output=True, check=False)
            if asked.returncode == 0:
                yield candidate
                break


def answers(kproxy: Path, work: Path) -> None:
    """Renders, traces and compares with an installed kproxy."""
    rendered, expected = work / "rendered.save", GOLDEN / "expected" / "minikube.v4.save"
    cluster, config = GOLDEN / "cluster.yaml", GOLDEN / "config.yaml"
    run(kproxy, "render", "-f", cluster, "--config", config, "--output", rendered, cwd=work)
    assert rendered.read_bytes() == expected.read_bytes()
    assert "destination translated" in run(kproxy, "trace", "--rules", rendered, *QUESTION, cwd=work)
    assert "alike" in run(kproxy, "diff", rendered, expected, cwd=work)


def install(venv: Path, *words: str | Path) -> None:
    run(sys.executable, "-m", "pip", "--python", venv / "bin/python", "install", "-q", *words)


def from_folder(wheels: Path) -> tuple[str, ...]:
    """What pip and uv are told, so that nothing but this folder's packages is installed."""
    return ("--no-index", "--find-links", str(wheels))


@pytest.fixture(scope="module")
def dist(clean: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the sdist, made of the tree, and the wheel, made of the sdist."""
    base = tmp_path_factory.mktemp("build")
    tools, made = base / "tools", base / "dist"
    install(clean, "--target", tools, BACKEND)
    build = (clean / "bin/python", "-c", BUILD)
    run(*build, "sdist", made, cwd=copied(base / "one"), PYTHONPATH=str(tools))
    [sdist] = made.iterdir()
    with tarfile.open(sdist) as archive:
        archive.extractall(base / "unpacked", filter="data")
    run(*build, "wheel", made, cwd=base / "unpacked" / f"kube_kproxy-{__version__}", PYTHONPATH=str(tools))
    again, other = base / "again", copied(base / "two")
    old = os.umask(0o077)
    try:
        for what in ("wheel", "sdist"):
            run(*build, what, again, cwd=other, PYTHONPATH=str(tools))
    finally:
        os.umask(old)
    assert digests(again) == digests(made), "the second build has other bytes"
    return made


@pytest.fixture(scope="module")
def wheels(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Wheels:
    """The folder with what kproxy needs under a Python, fetched once for all tests, and what builds the sdist."""

    @functools.cache
    def fetched(python: str) -> Path:
        [wheel] = dist.glob("*.whl")
        folder = tmp_path_factory.mktemp("wheels")
        fetch = ("-m", "pip", "--python", python, "download", "-q", "--only-binary=:all:", "--dest", folder)
        run(sys.executable, *fetch, wheel, BACKEND)
        return folder

    return fetched


def test_documents_and_goldens_are_in_the_sdist_and_the_page_is_in_the_wheel(dist: Path) -> None:
    """That both are the same bytes when they are built again is the fixture's assertion."""
    [sdist], [wheel] = dist.glob("*.tar.gz"), dist.glob("*.whl")
    assert wheel.name == f"kube_kproxy-{__version__}-py3-none-any.whl"
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"docs/trace.md", "rules_golden/minikube/cluster.yaml", "deploy/Dockerfile", "CHANGELOG.md"} <= names
    with zipfile.ZipFile(wheel) as opened:
        names = set(opened.namelist())
    assert {"kproxy/explorer/static/app.js", "kproxy/cni/launcher.c", "kproxy/apiserver/data/schemas.json"} <= names
    assert not [name for name in names if name.startswith(("tests/", "docs/", "bench/"))]
    assert wheel.stat().st_size < 3 * 2**20


def test_the_wheel_alone_renders_traces_and_compares(clean: Path, dist: Path, wheels: Wheels, tmp_path: Path) -> None:
    [wheel] = dist.glob("*.whl")
    install(clean, *from_folder(wheels(sys.executable)), wheel)
    [packages] = (clean / "lib").glob("python*/site-packages")
    ours = [path for path in packages.iterdir() if not path.name.startswith(("kproxy", "kube_kproxy"))]
    size = sum(file.stat().st_size for top in ours for file in ([top] if top.is_file() else top.rglob("*")))
    assert size < MAX_LIGHT, f"{size / 2**20:.1f} MB: {sorted(path.name for path in ours)}"
    log.info("the wheel: %.1f MB; what it needs, installed: %.1f MB", wheel.stat().st_size / 2**20, size / 2**20)
    kproxy = clean / "bin/kproxy"
    answers(kproxy, tmp_path)
    asked = {"run": "agent", "apply": "linux", "apiserver": "apiserver", "explore": "explore"}
    for command, extra in asked.items():
        words = ["--data", "state"] if command == "apiserver" else ["-f", str(GOLDEN / "cluster.yaml")]
        done = subprocess.run([kproxy, command, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
        assert f"pip install 'kube-kproxy[{extra}]'" in done.stderr


@pytest.mark.soak
def test_both_work_with_every_python_that_is_here(dist: Path, wheels: Wheels, tmp_path: Path) -> None:
    """The sdist is built and the wheel installed in environments with nothing in them."""
    tried = []
    for python in pythons():
        version = run(python, "-c", "import platform; print(platform.python_version())").strip()
        for package in sorted(dist.iterdir()):
            venv = tmp_path / f"{version}-{package.suffix[1:]}"
            run(python, "-m", "venv", "--without-pip", venv)
            install(venv, *from_folder(wheels(python)), package)
            answers(venv / "bin/kproxy", tmp_path)
            log.info("Python %s: %s", version, package.name)
        tried.append(version)
    assert platform.python_version() in tried


def test_pipx_and_uv_install_the_command(dist: Path, wheels: Wheels, tmp_path: Path) -> None:
    """Each into a home of its own, from a folder: uv does not read pip's configuration."""
    [wheel] = dist.glob("*.whl")
    tools, folder = tmp_path / "tools", from_folder(wheels(sys.executable))
    run(sys.executable, "-m", "pip", "install", "-q", "--target", tools, "uv", "pipx")
    commands: dict[str, tuple[str | Path, ...]] = {
        "uv": (tools / "bin/uv", "tool", "install", "--offline", "--no-config", *folder),
        "pipx": (sys.executable, "-m", "pipx", "install", "--pip-args", " ".join(folder)),
    }
    for name, words in commands.items():
        home = tmp_path / name
        places = {"PIPX_HOME": "pipx", "PIPX_BIN_DIR": "bin", "PIPX_MAN_DIR": "man"}
        places |= {"UV_TOOL_DIR": "uv", "UV_TOOL_BIN_DIR": "bin", "UV_CACHE_DIR": "cache"}
        where = {"PATH": f"{home / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(tools)}
        where |= {variable: str(home / folder) for variable, folder in places.items()}
        run(*words, "--python", sys.executable, wheel, cwd=tmp_path, **where)
        answers(home / "bin" / "kproxy", tmp_path)
        log.info("%s: %s", name, wheel.name)
