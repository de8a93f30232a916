"""A network namespace of its own, and the iptables tools in it: what the kernel tests of `kproxy.netfilter` share."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from kproxy.linux.iptables.executor import parse_version
from kproxy.netfilter import Family

VARIANTS = ("nft", "legacy")
_TOOLS = [f"{base}-{variant}" for base in ("iptables", "ip6tables") for variant in VARIANTS]
ACCOUNTS = ("ct_state_invalid_dropped_pkts", "acct1")

# nfacct objects without the nfacct tool: NFNL_SUBSYS_ACCT (7), NFNL_MSG_ACCT_NEW (0), attribute NFACCT_NAME (1).
_MAKE_ACCOUNTS = """
import socket, struct, sys
link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)
link.bind((0, 0))
for name in sys.argv[1:]:
    data = name.encode() + b"\\0"
    attribute = struct.pack("HH", 4 + len(data), 1) + data + b"\\0" * (-len(data) % 4)
    body = struct.pack("BBH", 0, 0, 0) + attribute
    link.send(struct.pack("IHHII", 16 + len(body), 7 << 8, 0x405, 1, 0) + body)
    error = struct.unpack("i", link.recv(4096)[16:20])[0]
    if error:
        sys.exit(f"nfacct {name}: {error}")
"""


def iptables_release() -> tuple[int, ...]:
    """The release of the iptables installed here, such as (1, 8, 9)."""
    told = subprocess.run(["iptables-nft", "--version"], capture_output=True, text=True, check=True, timeout=120).stdout
    return parse_version(told)[0]


def missing() -> str | None:
    """Why the kernel tests cannot run here, or None."""
    if os.geteuid() != 0:
        return "needs root: network namespaces, iptables"
    absent = [tool for tool in [*_TOOLS, "ip", "ipset"] if shutil.which(tool) is None]
    return f"not installed: {', '.join(absent)}" if absent else None


def lists_protocol_names(release: tuple[int, ...]) -> bool:
    """Whether `iptables -L -n` of this release shows the usual protocols by name."""
    return not (1, 8, 9) <= release < (1, 8, 11)


class RefusedByKernelError(Exception):
    """iptables-restore failed; the message is its stderr."""


class Kernel:
    """iptables of one family in one namespace. `variant` is nft or legacy."""

    def __init__(self, namespace: str, family: Family) -> None:
        self._namespace = namespace
        self.family = family

    def run(self, arguments: Sequence[str], text: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command in the namespace."""
        return subprocess.run(
            ["ip", "netns", "exec", self._namespace, *arguments],
            input=text, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip

    def must(self, arguments: Sequence[str], text: str | None = None) -> str:
        """Run a command that has to succeed; return its stdout."""
        done = self.run(arguments, text)
        assert done.returncode == 0, f"{arguments}: {done.stderr}"
        return done.stdout

    def tool(self, variant: str) -> str:
        """The name of the command, such as `ip6tables-legacy`."""
        return f"{'ip6tables' if self.family is Family.IPV6 else 'iptables'}-{variant}"

    def restore(self, text: str, variant: str, *options: str) -> None:
        """Load restore input. Raises RefusedByKernelError."""
        arguments = [f"{self.tool(variant)}-restore", "--wait=60", *options]  # other tests may hold the lock
        done = self.run(arguments, text)
        if done.returncode:
            raise RefusedByKernelError(done.stderr)

    def save(self, variant: str, *options: str) -> str:
        """The dump, comment lines included."""
        return self.must([f"{self.tool(variant)}-save", *options])

    def listing(self, variant: str, table: str, chain: str | None = None) -> str:
        """`-L -v -n --line-numbers`."""
        command = [self.tool(variant), "--wait", "60", "-t", table, "-L", *([chain] if chain else [])]
        return self.must([*command, "-v", "-n", "--line-numbers"])

    def clear(self, variant: str) -> None:
        """Empty all tables that are there."""
        tables = re.findall(r"^\*(\S+)", self.save(variant), re.MULTILINE)
        self.restore("".join(f"*{table}\nCOMMIT\n" for table in tables), variant)


def without_comments(dump: str) -> str:
    """A dump without its `#` lines, whose times differ."""
    return "".join(f"{line}\n" for line in dump.splitlines() if not line.startswith("#"))


@contextmanager
def kernel(family: Family) -> Iterator[Kernel]:
    """Make a namespace with a set `myset` of the family and nfacct objects in it, and delete it always."""
    namespace = f"kp-nf{family.version}-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", namespace], check=True, timeout=120)
    try:
        found = Kernel(namespace, family)
        found.must(
            ["ipset", "create", "myset", "hash:ip", "family", f"inet{'6' if family is Family.IPV6 else ''}", "counters"]
        )
        found.must([sys.executable, "-c", _MAKE_ACCOUNTS, *ACCOUNTS])
        yield found
    finally:
        subprocess.run(["ip", "netns", "del", namespace], check=True, timeout=120)


def tables_of(dump: str) -> dict[str, str]:
    """A dump without its `#` lines, table by table: legacy lists tables in the order of their first use."""
    blocks = [block + "COMMIT\n" for block in without_comments(dump).split("COMMIT\n") if block]
    return {block[1 : block.index("\n")]: block for block in blocks}


def in_use(dump: str) -> dict[str, str]:
    """`tables_of` without the tables that say nothing: naming a table makes it appear in legacy dumps, and flushing it
    makes it disappear from those of nft."""
    return {
        name: block
        for name, block in tables_of(dump).items()
        if "-A " in block or " - [" in block or " DROP [" in block
    }
