"""Puts the launcher where a container runtime looks for plugins: compiled here, so that it knows this installation."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from kproxy.errors import KproxyError


class InstallError(KproxyError):
    """The launcher cannot be made."""


def install_launcher(directory: Path, plugin: Path | None = None) -> Path:
    """Compiles `launcher.c` into `directory/kproxy-cni`, which appears whole or not at all, and returns its path.

    Args:
        plugin: what it executes when nobody serves its socket, `directory/kproxy-cni.sock`; default: the
            `kproxy-cni` of this installation.

    Raises:
        InstallError: there is no C compiler, or it failed, or the directory cannot be written.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise InstallError("the CNI launcher needs a C compiler (Debian: gcc, libc6-dev); kproxy-cni works without it")
    fallback = plugin or Path(sys.executable).parent / "kproxy-cni"
    target = directory / "kproxy-cni"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory) as scratch:
            made = Path(scratch, "kproxy-cni")
            source = Path(__file__).with_name("launcher.c")
            # Static, if it can be: no dynamic linking at every start.
            for extra in (["-static"], []):
                command = [compiler, "-O2", *extra, f'-DPLUGIN="{fallback}"', "-o", str(made), str(source)]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode == 0:
                    break
            else:
                raise InstallError(f"{compiler} failed: {done.stderr.strip()}")
            os.replace(made, target)
    except OSError as error:
        raise InstallError(f"cannot write {target}: {error.strerror or error}") from error
    return target
