"""The launcher: compiled, and put where a container runtime looks for plugins.

There are two. `install_launcher` compiles one that knows this installation, and executes its `kproxy-cni` when no
daemon serves it. The other is for nodes that have no kproxy of their own: it knows the daemon's socket only. It is
compiled into the installed package when the image is built (`python -m kproxy.cni.install`), so that no node needs a
compiler; static, so that it runs on any distribution. The network configuration list of such a node is written here as
well.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from kproxy.errors import KproxyError
from kproxy.overlay.request import VERSIONS

NODE_SOCKET: Final = "/run/kproxy/cni.sock"
"""Where the launcher of a node without kproxy looks for the daemon."""
PACKAGED: Final = Path(__file__).with_name("kproxy-cni-launcher")
"""The launcher for such nodes, where it was compiled when the package was installed."""


CONFLIST: Final = "10-kproxy.conflist"
"""The file's name among a runtime's network configurations, of which it takes the first in the alphabet."""


class InstallError(KproxyError):
    """What a node needs for the plugin cannot be made or written."""


def install_launcher(directory: Path, plugin: Path | None = None) -> Path:
    """Compiles `launcher.c` into `directory/kproxy-cni`, which appears whole or not at all, and returns its path.

    Args:
        plugin: what it executes when no server listens on its socket, `directory/kproxy-cni.sock`; default: the
            `kproxy-cni` of this installation.

    Raises:
        InstallError: there is no C compiler, or it failed, or the directory cannot be written.
    """
    fallback = plugin or Path(sys.executable).parent / "kproxy-cni"
    return _install(directory, lambda made: compile_launcher(made, {"PLUGIN": str(fallback)}))


def install_node_launcher(directory: Path, socket: str = NODE_SOCKET) -> Path:
    """Puts the launcher for a node without kproxy into `directory/kproxy-cni`, and returns its path.

    It is the package's own, or compiled here where that is missing or another socket is asked for.

    Raises:
        InstallError: it is missing and cannot be compiled, or the directory cannot be written.
    """
    if socket == NODE_SOCKET and PACKAGED.exists():
        return _install(directory, lambda made: shutil.copyfile(PACKAGED, made))
    return _install(directory, lambda made: compile_launcher(made, {"SOCKET": socket}))


def _install(directory: Path, make: Callable[[Path], object]) -> Path:
    target = directory / "kproxy-cni"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory) as scratch:
            made = Path(scratch, "kproxy-cni")
            make(made)
            made.chmod(0o755)
            os.replace(made, target)
    except OSError as error:
        raise InstallError(f"cannot write {target}: {error.strerror or error}") from error
    return target


def write_conflist(directory: Path, document: Mapping[str, Any]) -> Path:
    """Writes `directory/10-kproxy.conflist`, which appears whole or not at all, and returns its path.

    Raises:
        InstallError: the directory cannot be written.
    """
    target = directory / CONFLIST
    # Runtimes watch the directory, and read what ends in .conf, .conflist or .json.
    scratch = directory / f".{CONFLIST}.tmp"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with scratch.open("w") as file:
            file.write(json.dumps(document, indent=2) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, target)
    except OSError as error:
        raise InstallError(f"cannot write {target}: {error.strerror or error}") from error
    return target


def compile_launcher(target: Path, settings: Mapping[str, str]) -> None:
    """Compiles `launcher.c` into a file.

    Args:
        settings: what `launcher.c` says of PLUGIN, SOCKET and TIMEOUT.

    Raises:
        InstallError: there is no C compiler, or it failed.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise InstallError("the CNI launcher needs a C compiler (Debian: gcc, libc6-dev)")
    texts = {
        "NEWEST": VERSIONS[-1],
        "VERSIONS": ", ".join(f'"{version}"' for version in VERSIONS),
        "PLAIN_VERSIONS": ", ".join(VERSIONS),
        **settings,
    }
    macros = [f"-D{name}={text if name == 'TIMEOUT' else json.dumps(text)}" for name, text in texts.items()]
    source = str(Path(__file__).with_name("launcher.c"))
    # Static, if it can be: no dynamic linking at every start, and no C library of the node's that must fit.
    for extra in (["-static"], []):
        command = [compiler, "-O2", "-s", *extra, *macros, "-o", str(target), source]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
    raise InstallError(f"{compiler} failed: {done.stderr.strip()}")


if __name__ == "__main__":
    compile_launcher(PACKAGED, {"SOCKET": NODE_SOCKET})
