"""Reads the legacy tables of one family through libiptc and prints them as JSON lines, one per chain.

Run as a process of its own (`python -m kproxy.linux.iptables.libiptc_child 4|6`), inside the namespace in question:
python-iptables caches tables for the life of a process. It takes no lock either, so this holds the xtables lock while
it reads. One handle and `easy.decode_iptc_rule` for each rule is linear where `easy.dump_table` is quadratic.
"""

from __future__ import annotations

import json
import os
import sys
import sysconfig

from kproxy.errors import KproxyError
from kproxy.linux.iptables.legacy import legacy_tables
from kproxy.linux.iptables.lock import DEFAULT_WAIT, xtables_lock
from kproxy.linux.lazy_import import load
from kproxy.services.names import IPFamily


def print_tables(family: IPFamily, wait: float) -> None:
    """Prints every chain of every table that exists."""
    # Where python-iptables finds its own extension. Else it has ctypes ask the linker, for each of the names that the
    # file may have: ten starts of gcc or ldconfig, half of an apply's time.
    os.environ.setdefault("IPTABLES_LIBDIR", sysconfig.get_path("platlib"))
    iptc = load("iptc")
    decode = load("iptc.easy").decode_iptc_rule
    kind = iptc.Table6 if family.is_ipv6 else iptc.Table
    with xtables_lock(wait):
        names = legacy_tables(family)
        # At a target whose extension it has to look for (TCPMSS, say), python-iptables opens every table it thinks may
        # exist, to see whether it is a chain there; opening a table makes it.
        kind.existing_table_names = {name: name in names for name in kind.ALL}
        for name in names:
            table = kind(name)
            table.autocommit = False  # the default hides what the kernel refuses
            table.refresh()
            for chain in table.chains:
                policy = chain.get_policy()
                rules = []
                for rule in chain.rules:
                    decoded = decode(rule, ipv6=family.is_ipv6)
                    decoded["counters"] = rule.get_counters()
                    rules.append(list(decoded.items()))
                line = {"table": name, "chain": chain.name, "policy": policy.name if policy else "-", "rules": rules}
                sys.stdout.write(json.dumps(line) + "\n")


def main() -> None:
    try:
        wait = float(sys.argv[2]) if len(sys.argv) > 2 else DEFAULT_WAIT
        print_tables(IPFamily.IPV6 if sys.argv[1] == "6" else IPFamily.IPV4, wait)
    except KproxyError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
