"""What a container sees: its volumes at paths that the machine has not, and the machine's files, which stay."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest

from kproxy.linux.errors import NamespaceError
from kproxy.linux.isolation import Mount, isolate

pytestmark = pytest.mark.root


@pytest.fixture
def missing() -> str:
    """A name that nothing on this machine has."""
    return f"kp-{uuid4().hex}"


def inside(script: str, *volumes: Mount, read_only: bool = True) -> list[str]:
    """What a shell prints, in a thread of its own."""

    def run() -> list[str]:
        isolate("kp-inside", {}, read_only=read_only, volumes=volumes)
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
        return [*done.stdout.splitlines(), *done.stderr.splitlines()]

    with ThreadPoolExecutor(1) as threads:
        return threads.submit(run).result()


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("above", ["", "/etc", "/tmp", "/usr/share"])
def test_a_volume_is_where_nothing_was(tmp_path: Path, missing: str, above: str, read_only: bool) -> None:
    config, data = tmp_path / "config", tmp_path / "data"
    config.mkdir()
    data.mkdir()
    (config / "x").write_text("value\n")
    base = f"{above}/{missing}"
    said = inside(
        f"uname -n; cat {base}/a/config/x {base}/one; touch {base}/a/config/y 2>/dev/null || echo cannot; "
        f"echo new > {base}/data/made; cat {base}/data/in/x; test -x /bin/sh && test -d /proc/self && echo all there",
        Mount(str(data), f"{base}/data"), Mount(str(config), f"{base}/data/in", read_only=True),
        Mount(str(config), f"{base}/a/config", read_only=True), Mount(str(config / "x"), f"{base}/one", read_only=True),
        read_only=read_only,
    )  # fmt: skip
    assert said == ["kp-inside", "value", "value", "cannot", "value", "all there"]
    assert (data / "made").read_text() == "new\n"
    assert not Path(base).exists()


def test_the_machine_stays_as_it_is(tmp_path: Path, missing: str) -> None:
    """Also where a directory had to be shown once more for a volume in it."""
    said = inside(
        f"touch /etc/{missing}x || touch /{missing}x || echo nowhere; touch /tmp/{missing} && ls /tmp",
        Mount(str(tmp_path), f"/etc/{missing}"), Mount(str(tmp_path), f"/{missing}"),
    )  # fmt: skip
    assert said[:2] == ["nowhere", missing]
    assert not [path for path in ("/etc", "/", "/tmp") if Path(path, f"{missing}x").exists()]
    assert not Path("/tmp", missing).exists()


def test_what_cannot_be_mounted_is_told(tmp_path: Path, missing: str) -> None:
    (tmp_path / "file").write_text("")
    for mount, said in (
        (Mount(f"/{missing}", "/x"), f"/{missing}: No such file or directory"),
        (Mount(str(tmp_path), "/etc/passwd"), "/etc/passwd: a directory cannot be mounted there"),
        (Mount(str(tmp_path / "file"), "/etc"), "/etc: a file cannot be mounted there"),
        (Mount(str(tmp_path), f"/etc/passwd/{missing}"), "/etc/passwd: not a directory"),
    ):
        with pytest.raises(NamespaceError, match=said):
            inside("true", mount)
