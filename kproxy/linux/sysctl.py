"""Sysctls of a namespace, by their dotted names."""

from __future__ import annotations

from pathlib import Path

from kproxy.linux.errors import LinuxError, PrivilegeError
from kproxy.linux.namespace import Namespace


class SysctlError(LinuxError):
    """A sysctl is not there, or does not take a value."""


def _path(name: str) -> Path:
    # An interface's name may hold dots; such a name is given with slashes throughout, as sysctl(8) does.
    return Path("/proc/sys", name if "/" in name else name.replace(".", "/"))


def read_sysctl(namespace: Namespace, name: str) -> str:
    """The value of `net.ipv4.ip_forward`, say, without the newline.

    Raises:
        SysctlError: there is no such sysctl.
        PrivilegeError: it may not be read.
    """
    try:
        return namespace.call(_path(name).read_text).strip()
    except PermissionError as error:
        raise PrivilegeError(f"cannot read sysctl {name}: {error.strerror}") from error
    except OSError as error:
        raise SysctlError(f"cannot read sysctl {name} in {namespace.label}: {error.strerror}") from error


def write_sysctl(namespace: Namespace, name: str, value: str | int) -> None:
    """Sets a sysctl.

    Raises:
        SysctlError: there is no such sysctl, or it does not take the value.
        PrivilegeError: it may not be written.
    """
    try:
        namespace.call(_path(name).write_text, f"{value}\n")
    except PermissionError as error:
        raise PrivilegeError(f"cannot set sysctl {name}: {error.strerror}; it needs root") from error
    except OSError as error:
        raise SysctlError(f"cannot set sysctl {name} to {value} in {namespace.label}: {error.strerror}") from error
