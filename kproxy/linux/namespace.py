"""Network namespaces: naming one, and working inside it without ever stepping into it by accident.

A thread that enters a namespace never leaves it, except from `inside`. So a `Namespace` owns one thread, which enters
at the start, does whatever is asked of it with `call`, and ends when the namespace is closed; no other thread changes
its namespace. Child processes inherit the namespace of the thread that starts them, so nothing has to be executed in
between (`ip netns exec` costs a process start), and no code runs between fork and exec.

    >>> with Namespace.current() as here:
    ...     here.call(len, "abc")
    3

Facts: setns(2) and namespaces(7): the network namespace belongs to a thread; /proc/thread-self/net shows that of the
calling thread, /proc/self/net that of the main thread, and /proc/sys/net that of the thread that opens the file.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Final, ParamSpec, TypeVar

from kproxy.linux.errors import NamespaceError, PrivilegeError

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

NETNS_DIRECTORY: Final = "/run/netns"
INITIAL_INODE: Final = 0xEFFFFFF9
"""The initial network namespace's since Linux 6.18 (NET_NS_INIT_INO, <linux/nsfs.h>); no other ever has it."""
CLONE_NEWNET: Final = 0x40000000  # <linux/sched.h>

_libc = ctypes.CDLL(None, use_errno=True)


class Namespace:
    """A network namespace to work in. Use it as a context manager; `close` ends its thread.

    Attributes:
        label: its name in messages.
        netns: what pyroute2 calls it: a name or a path; None for the one the process is in or a nameless one.
    """

    def __init__(self, label: str, netns: str | None, enter: Callable[[], None] | None) -> None:
        self.label = label
        self.netns = netns
        self._thread: ThreadPoolExecutor | None = None
        if enter is not None:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"netns {label}")
            try:
                self._thread.submit(enter).result()
            except BaseException:
                self._thread.shutdown()
                raise

    @classmethod
    def current(cls) -> Namespace:
        """The namespace that the process is in: the machine's own, unless it was started in another."""
        own = in_initial_namespace()
        return cls("the machine's own network namespace" if own else "this process's network namespace", None, None)

    @classmethod
    def named(cls, name: str) -> Namespace:
        """A namespace by its name under /run/netns, or by a path that holds a slash (/proc/PID/ns/net, say).

        Raises:
            NamespaceError: there is none.
            PrivilegeError: it may not be entered.
        """
        path = name if "/" in name else os.path.join(NETNS_DIRECTORY, name)
        if not name or name in (".", ".."):
            raise NamespaceError(f"{name!r} is no name of a network namespace")
        if not os.path.exists(path):
            raise NamespaceError(
                f"network namespace {name!r} is not there ({path}); `ip netns list` shows those that are"
            )
        return cls(f"namespace {name}", path if "/" in name else name, lambda: _enter(path))

    @classmethod
    def scratch(cls) -> Namespace:
        """A new, empty, nameless namespace that vanishes when it is closed.

        Raises:
            PrivilegeError: the process may not make one.
        """
        return cls("a scratch namespace", None, _unshare)

    def call(
        self, function: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        """Calls a function inside the namespace and returns what it returns, or raises what it raises."""
        if self._thread is None:
            return function(*args, **kwargs)
        return self._thread.submit(function, *args, **kwargs).result()

    def close(self) -> None:
        """Ends the thread; the namespace itself lives on if it has a name or a process in it."""
        if self._thread is not None:
            self._thread.shutdown()

    def __enter__(self) -> Namespace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def in_initial_namespace(proc: str = "/proc") -> bool:
    """Whether the calling thread is in the kernel's first network namespace: the machine's own. True if in doubt.

    It is known by the sysctls under net.core that the kernel makes for the first namespace alone (net_core_table in
    net/core/sysctl_net_core.c), such as netdev_max_backlog: /proc/sys/net shows those of the namespace that asks.
    Comparing with process 1 would not do: in a container that is the container's own first process, and looking at
    another process's namespace takes rights that a container lacks. A container with the host's network is in the
    first namespace too; `ip netns exec`, `unshare --net` and other containers are not.
    """
    try:
        if os.stat(f"{proc}/thread-self/ns/net").st_ino == INITIAL_INODE:
            return True
    except OSError:
        pass
    try:
        return "netdev_max_backlog" in os.listdir(f"{proc}/sys/net/core")
    except OSError:
        return True


@contextlib.contextmanager
def inside(descriptor: int) -> Iterator[None]:
    """The calling thread is in the network namespace of an open file, and back in its own afterwards.

    Raises:
        OSError: it is not a network namespace, or may not be entered.
    """
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _setns(descriptor)
        try:
            yield
        finally:
            _setns(home)
    finally:
        os.close(home)


def _setns(descriptor: int) -> None:
    if _libc.setns(descriptor, CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _enter(path: str) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError as error:
        raise PrivilegeError(
            f"cannot open {path}: {error.strerror}; entering a network namespace needs root"
        ) from error
    except OSError as error:
        raise NamespaceError(f"cannot open network namespace {path}: {error.strerror}") from error
    try:
        what = f"cannot enter network namespace {path}"
        check_result(_libc.setns(descriptor, CLONE_NEWNET), what, "it is no network namespace")
    finally:
        os.close(descriptor)


def _unshare() -> None:
    check_result(_libc.unshare(CLONE_NEWNET), "cannot make a scratch network namespace")


def check_result(result: int, what: str, invalid: str = "") -> None:
    """Raises PrivilegeError or NamespaceError if a call of libc's failed.

    Args:
        what: what cannot be done.
        invalid: what EINVAL means.
    """
    if result == 0:
        return
    code = ctypes.get_errno()
    if code == errno.EPERM:
        raise PrivilegeError(f"{what}: {os.strerror(code)}; it needs root with the capability CAP_SYS_ADMIN")
    raise NamespaceError(f"{what}: {invalid if invalid and code == errno.EINVAL else os.strerror(code)}")
