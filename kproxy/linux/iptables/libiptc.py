"""An independent read-back of legacy tables: through libiptc (python-iptables) instead of iptables-save.

`read_back` has a child process read the tables inside the namespace; `compare_read_back` holds them against what
iptables-save printed, rule for rule and counter for counter. It sees what iptables-save sees by another way: other code
walks the tables and spells the matches.

The child (`python -m kproxy.linux.iptables.libiptc 4|6`) is a process of its own since python-iptables caches tables
for the life of a process. It takes no lock either, so the child holds the xtables lock while it reads. One handle and
`easy.decode_iptc_rule` for each rule is linear where `easy.dump_table` is quadratic.
"""

from __future__ import annotations

import json
import os
import re
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from kproxy.errors import KproxyError
from kproxy.linux.errors import LinuxError
from kproxy.linux.iptables.canonical import same_rule
from kproxy.linux.iptables.executor import TIMEOUT
from kproxy.linux.iptables.legacy import DEFAULT_WAIT, legacy_tables, xtables_lock
from kproxy.linux.lazy_import import load
from kproxy.linux.namespace import Namespace
from kproxy.linux.process import run
from kproxy.netfilter.text import ChainText, SaveText
from kproxy.services.names import IPFamily

MAX_RULES: Final = 2000
"""Above this, `apply` does not read back by libiptc: a rule takes 0.2 ms."""

_FIXED: Final = {
    "src": "-s",
    "dst": "-d",
    "in-interface": "-i",
    "out-interface": "-o",
    "protocol": "-p",
}
_PLAIN: Final = re.compile(r"[\w./:,+@%=-]+")


class ReadBackError(LinuxError):
    """The tables cannot be read through libiptc."""


class _ChainLine(msgspec.Struct):
    table: str
    chain: str
    policy: str
    rules: list[list[tuple[str, Any]]]


def read_back(namespace: Namespace, family: IPFamily, *, lock_wait: float = DEFAULT_WAIT) -> SaveText:
    """The legacy tables of a namespace as libiptc tells them, with counters.

    Rules are spelled as restore input; `compare_read_back` knows what is the same.

    Raises:
        ReadBackError: they cannot be read.
    """
    number = "6" if family.is_ipv6 else "4"
    command = [sys.executable, "-m", "kproxy.linux.iptables.libiptc", number, str(lock_wait)]
    done = run(namespace, command, timeout=TIMEOUT)
    if done.code:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        raise ReadBackError(f"legacy tables cannot be read through libiptc: {lines[-1]}")
    tables: dict[str, dict[str, ChainText]] = {}
    for text in done.stdout.splitlines():
        line = msgspec.convert(json.loads(text), _ChainLine)
        rules, counters = [], []
        for decoded in line.rules:
            rule = dict(decoded)
            packets, size = rule.pop("counters")
            counters.append(f"[{packets}:{size}]")
            rules.append(rule_text(rule))
        tables.setdefault(line.table, {})[line.chain] = ChainText(line.policy, rules, counters)
    return SaveText(tables)


def rule_text(rule: Mapping[str, object]) -> str:
    """A rule that python-iptables decoded, as iptables arguments.

    Keys are the fixed part, then matches in order, then `target`; a leading or separate `!` negates.
    """
    parts: list[str] = []
    for key, value in rule.items():
        if key in _FIXED:
            text = str(value)
            parts += ["!"] * text.startswith("!") + [_FIXED[key], text.removeprefix("!")]
        elif key == "fragment":
            parts.append("-f")
        elif key == "target":
            parts += _target(value)
        else:
            parts += ["-m", key, *_options(value)]
    return " ".join(parts)


def _target(value: object) -> list[str]:
    if isinstance(value, dict):
        if "goto" in value:
            return ["-g", str(value["goto"])]
        ((name, options),) = value.items()
        return ["-j", name, *_options(options)]
    return ["-j", str(value)]


def _options(options: object) -> Iterator[str]:
    for name, value in options.items() if isinstance(options, dict) else ():
        values: Sequence[object] = value if isinstance(value, list) else [value]
        words = [str(each) for each in values]
        if words and words[0] == "!":
            yield "!"
            words = words[1:]
        yield f"--{name}"
        yield from (_quoted(word) for word in words if word)


def _quoted(word: str) -> str:
    if _PLAIN.fullmatch(word):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def compare_read_back(saved: SaveText, read: SaveText, family: IPFamily) -> list[str]:
    """Where two readings of the same tables differ, a sentence each; counters are compared if both have them."""
    differences = []
    refs = {(table, chain) for dump in (saved, read) for table, chains in dump.tables.items() for chain in chains}
    for table, name in sorted(refs):
        one, other = saved.chain(table, name), read.chain(table, name)
        if one is None or other is None:
            differences.append(f"{table} {name}: only {'libiptc' if one is None else 'iptables-save'} shows it")
            continue
        if len(one.rules) != len(other.rules):
            differences.append(
                f"{table} {name}: iptables-save shows {len(one.rules)} rules, libiptc {len(other.rules)}"
            )
            continue
        for number, (rule, again) in enumerate(zip(one.rules, other.rules, strict=True), 1):
            if not same_rule(rule, again, family):
                differences.append(f"{table} {name} rule {number}: iptables-save shows {rule!r}, libiptc {again!r}")
        for number, (count, again) in enumerate(zip(one.counters, other.counters, strict=True), 1):
            if count and again and count != again:
                differences.append(f"{table} {name} rule {number}: iptables-save counts {count}, libiptc {again}")
    return differences


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
