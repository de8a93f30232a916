"""Compiles the CNI launcher into the package; everything else of the build is in pyproject.toml.

A node of a cluster has neither kproxy nor a compiler, so `kproxy overlay install-cni` must find the launcher in the
package. Without a C compiler the package is built all the same, without the launcher, and says so.
"""

from __future__ import annotations

import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

sys.path.insert(0, str(Path(__file__).parent))

from kproxy.cni.install import NODE_SOCKET, PACKAGED, InstallError, compile_launcher


class BuildWithLauncher(build_py):
    """Adds the launcher to the packages; an editable installation has it compiled where it is needed."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib, "kproxy", "cni", PACKAGED.name)
        try:
            compile_launcher(target, {"SOCKET": NODE_SOCKET})
        except InstallError as error:
            self.warn(f"{error}; this package has no launcher, and `kproxy overlay install-cni` will need a compiler")


class PlatformWheel(bdist_wheel):
    """A wheel for any Python 3 and this machine's processor, as the launcher is."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


setup(cmdclass={"build_py": BuildWithLauncher, "bdist_wheel": PlatformWheel})
