"""Leaves out of what `ip -j` printed what says nothing about where packets go; one entry a line.

usage: tidy_ip.py < {"link": [...], "address": [...], ...}
"""

import json
import sys

LINK = {
    "ifname", "link", "master", "linkinfo", "info_kind", "info_slave_data", "hairpin", "isolated", "info_data", "id",
}  # fmt: skip
ADDRESS = {"ifname", "addr_info", "family", "local", "prefixlen", "scope", "peer"}
ROUTE = {
    "type", "dst", "gateway", "via", "dev", "scope", "prefsrc", "metric", "table", "nexthops", "weight",
    "family", "host",
}  # fmt: skip
RULE = {"priority", "src", "srclen", "dst", "dstlen", "table", "fwmark", "fwmask", "iif", "oif", "not"}
KEPT = {"link": LINK, "address": ADDRESS, "route": ROUTE, "route6": ROUTE, "rule": RULE, "rule6": RULE}


def tidy(value, kept):
    if isinstance(value, dict):
        found = {key: tidy(item, kept) for key, item in value.items() if key in kept}
        return {key: item for key, item in found.items() if item != {}}
    return [tidy(item, kept) for item in value if item] if isinstance(value, list) else value


def derived(entry):
    """Whether the kernel makes this route of an address by itself."""
    return (entry.get("table") == "local" and entry.get("protocol") == "kernel") or entry.get("type") == "multicast"


sections = []
for name, entries in json.load(sys.stdin).items():
    body = ",\n  ".join(json.dumps(tidy(entry, KEPT[name])) for entry in entries if entry and not derived(entry))
    sections.append(f'"{name}": [\n  {body}\n]')
print("{" + ",\n".join(sections) + "}")
