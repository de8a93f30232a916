"""What pyproject.toml cannot say of the build: archives of the same bytes each time, and the image's CNI launcher.

A wheel is pure Python. With KPROXY_LAUNCHER=1 in the environment it has the compiled CNI launcher too, and is for this
machine's processor: deploy/Dockerfile builds such a one, since a node of a cluster has neither kproxy nor a compiler.

Files in archives are dated SOURCE_DATE_EPOCH, or, without that, one constant moment.
"""

from __future__ import annotations

import gzip
import os
import sys
import tarfile
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

EPOCH = int(os.environ.setdefault("SOURCE_DATE_EPOCH", "1577836800"))  # setuptools' wheels read it as well
os.umask(0o022)  # modes of files are in archives
WITH_LAUNCHER = os.environ.get("KPROXY_LAUNCHER", "") not in ("", "0")


class Build(build_py):
    """The packages, with the launcher if it is wanted; whatever the umask was that the files were made with."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        if WITH_LAUNCHER:
            sys.path.insert(0, str(Path(__file__).parent))
            from kproxy.cni.install import NODE_SOCKET, PACKAGED, compile_launcher

            compile_launcher(Path(self.build_lib, "kproxy", "cni", PACKAGED.name), {"SOCKET": NODE_SOCKET})
        for path in Path(self.build_lib).rglob("*"):
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)


class Wheel(bdist_wheel):
    """With the launcher: for any Python 3, and this machine's processor."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.root_is_pure = not WITH_LAUNCHER

    def get_tag(self) -> tuple[str, str, str]:
        return ("py3", "none", super().get_tag()[2]) if WITH_LAUNCHER else super().get_tag()


class SourceArchive(sdist):
    """A .tar.gz without owners, in one order, with one date."""

    def make_archive(self, base_name: str, format: str, root_dir=None, base_dir=None, owner=None, group=None) -> str:
        assert format == "gztar"
        name = f"{base_name}.tar.gz"
        with (
            open(name, "wb") as file,
            gzip.GzipFile("", "wb", fileobj=file, mtime=EPOCH) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            for path in sorted((Path(base_dir), *Path(base_dir).rglob("*"))):
                info = archive.gettarinfo(path)
                info.mtime, info.uid, info.gid, info.uname, info.gname = EPOCH, 0, 0, "", ""
                info.mode = 0o755 if path.is_dir() or info.mode & 0o100 else 0o644
                if path.is_file():
                    # Hard links to the tree, which setuptools makes, are files of their own here.
                    info.type, info.linkname, info.size = tarfile.REGTYPE, "", path.stat().st_size
                    with path.open("rb") as content:
                        archive.addfile(info, content)
                else:
                    archive.addfile(info)
        return name


setup(cmdclass={"build_py": Build, "bdist_wheel": Wheel, "sdist": SourceArchive})
