"""Prints Calico's nftables table, rebuilt by hand, for the pods of pods.sh, with the policies of calico.sh.

What is Calico's: one table `calico` with chains named after layer and chain, verdict maps from links to chains, sets
for address pools, the marks (0x10000 accepted, 0x20000 passed, 0x40000 from a workload), rules' hashes as comments.
"""

import base64
import hashlib

LINKS = ("cali0dns", "cali0shop", "cali0web")
ACCEPTED, PASSED, WORKLOAD = 0x10000, 0x20000, 0x40000


def is_set(bits: int) -> str:
    return f"meta mark & {bits:#x} == {bits:#x}"


def is_clear(bits: int) -> str:
    return f"meta mark & {bits:#x} == 0"


def mark(bits: int) -> str:
    return f"meta mark set mark or {bits:#x}"


def clear(bits: int) -> str:
    return f"meta mark set mark & {bits ^ 0xFFFFFFFF:#x}"


def policies(kind: str, policy: str) -> list[str]:
    return [
        f"{clear(PASSED)} // Start of tier default",
        f"{is_clear(PASSED)} jump filter-cali-{kind}-{policy}",
        f"{is_set(ACCEPTED)} return // Return if policy accepted",
        f"{is_clear(PASSED)} drop // End of tier default. Drop if no policies passed packet",
    ]


def pod(direction: str, policy: str) -> list[str]:
    kind, profile = ("pi", "pri") if direction == "tw" else ("po", "pro")
    return [
        "ct state established,related accept",
        "ct state invalid drop",
        clear(ACCEPTED),
        *(
            ["udp dport 4789 drop // Drop VXLAN encapped packets originating in workloads",
             "meta l4proto ipencap drop // Drop IPinIP encapped packets originating in workloads"]
            if direction == "fw" else []
        ),
        *(policies(kind, policy) if policy else []),
        f"jump filter-cali-{profile}-kns.default",
        f"{is_set(ACCEPTED)} return // Return if profile accepted",
        "drop // Drop if no profiles matched",
    ]  # fmt: skip


BASE = {
    "filter-INPUT": ("filter", "input", "filter", ["jump filter-cali-INPUT"]),
    "filter-FORWARD": ("filter", "forward", "filter", [
        "jump filter-cali-FORWARD",
        f"{is_set(ACCEPTED)} accept // Policy explicitly accepted packet.",
        mark(ACCEPTED),
    ]),
    "filter-OUTPUT": ("filter", "output", "filter", ["jump filter-cali-OUTPUT"]),
    "nat-PREROUTING": ("nat", "prerouting", "dstnat", ["jump nat-cali-PREROUTING"]),
    "nat-OUTPUT": ("nat", "output", "dstnat", ["jump nat-cali-OUTPUT"]),
    "nat-POSTROUTING": ("nat", "postrouting", "srcnat", ["jump nat-cali-POSTROUTING"]),
    "mangle-PREROUTING": ("filter", "prerouting", "mangle", ["jump mangle-cali-PREROUTING"]),
    "mangle-POSTROUTING": ("filter", "postrouting", "mangle", ["jump mangle-cali-POSTROUTING"]),
    "raw-PREROUTING": ("filter", "prerouting", "raw", ["jump raw-cali-PREROUTING"]),
    "raw-OUTPUT": ("filter", "output", "raw", ["jump raw-cali-OUTPUT"]),
}  # fmt: skip

CHAINS = {
    "filter-cali-FORWARD": [
        clear(0xE0000),
        f"{is_clear(ACCEPTED)} jump filter-cali-from-hep-forward",
        "iifname cali* jump filter-cali-from-wl-dispatch",
        "oifname cali* jump filter-cali-to-wl-dispatch",
        "jump filter-cali-to-hep-forward",
        "jump filter-cali-cidr-block",
    ],
    "filter-cali-INPUT": [
        "udp dport 4789 ip saddr @cali40all-vxlan-net fib daddr type local accept "
        "// Allow IPv4 VXLAN packets from allowed hosts",
        "udp dport 4789 fib daddr type local drop // Drop IPv4 VXLAN packets from non-allowed hosts",
        "iifname cali* goto filter-cali-wl-to-host",
        f"{is_set(ACCEPTED)} accept",
        clear(0xF0000),
        "jump filter-cali-from-host-endpoint",
        f"{is_set(ACCEPTED)} accept // Host endpoint policy accepted packet.",
    ],
    "filter-cali-OUTPUT": [
        f"{is_set(ACCEPTED)} accept",
        "oifname cali* return",
        "udp dport 4789 fib saddr type local ip daddr @cali40all-vxlan-net accept "
        "// Allow IPv4 VXLAN packets to other allowed hosts",
        clear(0xF0000),
        "ct status != dnat jump filter-cali-to-host-endpoint",
        f"{is_set(ACCEPTED)} accept // Host endpoint policy accepted packet.",
    ],
    "filter-cali-wl-to-host": [
        "jump filter-cali-from-wl-dispatch",
        "accept // Configured DefaultEndpointToHostAction",
    ],
    "filter-cali-from-wl-dispatch": ["iifname vmap @filter-cali-fw-dispatch", "drop // Unknown interface"],
    "filter-cali-to-wl-dispatch": ["oifname vmap @filter-cali-tw-dispatch", "drop // Unknown interface"],
    "filter-cali-pri-kns.default": [f"{mark(ACCEPTED)} // Profile kns.default ingress", f"{is_set(ACCEPTED)} return"],
    "filter-cali-pro-kns.default": [f"{mark(ACCEPTED)} // Profile kns.default egress", f"{is_set(ACCEPTED)} return"],
    "filter-cali-pi-_web-clients": [
        f"meta l4proto tcp ip saddr @cali40s-web-clients-Zk3qCl2 tcp dport 8000 {mark(ACCEPTED)} "
        "// Policy default/knp.default.web-clients ingress",
        f"{is_set(ACCEPTED)} return",
    ],
    # A policy without rules lets nothing out.
    "filter-cali-po-_dns-silent": [],
    "nat-cali-PREROUTING": ["jump nat-cali-fip-dnat"],
    "nat-cali-OUTPUT": ["jump nat-cali-fip-dnat"],
    "nat-cali-POSTROUTING": [
        "jump nat-cali-fip-snat",
        "jump nat-cali-nat-outgoing",
        "oifname vxlan.calico fib saddr . oif type != local fib saddr type local masquerade fully-random",
    ],
    "nat-cali-nat-outgoing": [
        "ip saddr @cali40masq-ipam-pools ip daddr != @cali40all-ipam-pools masquerade fully-random",
    ],
    "mangle-cali-PREROUTING": [
        "ct state established,related accept",
        f"{is_set(ACCEPTED)} accept",
        "jump mangle-cali-from-host-endpoint",
        f"{is_set(ACCEPTED)} accept // Host endpoint policy accepted packet.",
    ],
    "mangle-cali-POSTROUTING": [
        f"{is_set(ACCEPTED)} return",
        clear(0xF0000),
        "ct status dnat jump mangle-cali-to-host-endpoint",
        f"{is_set(ACCEPTED)} return // Host endpoint policy accepted packet.",
    ],
    "raw-cali-OUTPUT": [clear(0xF0000), "jump raw-cali-to-host-endpoint", f"{is_set(ACCEPTED)} accept"],
    "raw-cali-PREROUTING": [
        clear(0xF0000),
        f"iifname cali* {mark(WORKLOAD)}",
        f"{is_set(WORKLOAD)} jump raw-cali-rpf-skip",
        f"{is_set(WORKLOAD)} fib saddr . mark . iif oif 0 drop",
        f"{is_clear(WORKLOAD)} jump raw-cali-from-host-endpoint",
        f"{is_set(ACCEPTED)} accept",
    ],
    **{f"filter-cali-fw-{link}": pod("fw", "_dns-silent" if link == "cali0dns" else "") for link in LINKS},
    **{f"filter-cali-tw-{link}": pod("tw", "_web-clients" if link == "cali0web" else "") for link in LINKS},
}

EMPTY = [
    "filter-cali-from-hep-forward", "filter-cali-to-hep-forward", "filter-cali-cidr-block",
    "filter-cali-from-host-endpoint",
    "filter-cali-to-host-endpoint", "nat-cali-fip-dnat", "nat-cali-fip-snat", "mangle-cali-from-host-endpoint",
    "mangle-cali-to-host-endpoint", "raw-cali-from-host-endpoint", "raw-cali-to-host-endpoint", "raw-cali-rpf-skip",
]  # fmt: skip

SETS = {
    "cali40all-ipam-pools": "10.244.0.0/16",
    "cali40masq-ipam-pools": "10.244.0.0/16",
    "cali40all-vxlan-net": "192.168.0.3, 192.168.0.4, 192.168.0.5",
    "cali40this-host": "127.0.0.1, 192.168.0.2",
    "cali40s-web-clients-Zk3qCl2": "10.244.0.245, 10.244.1.230",
}


def rule(chain: str, text: str) -> str:
    body, _, said = text.partition(" // ")
    key = base64.urlsafe_b64encode(hashlib.sha256(f"{chain} {text}".encode()).digest())[:16].decode()
    return f'    {body} comment "cali:{key};{" " + said if said else ""}"'


def counted(text: str) -> str:
    """The rule with its counter, which stands before what it does."""
    words = text.split(" ")
    for place, word in enumerate(words):
        if word in ("accept", "drop", "return", "jump", "goto", "masquerade") or words[place : place + 3] == [
            "meta",
            "mark",
            "set",
        ]:
            return " ".join([*words[:place], "counter", *words[place:]])
    return text


print("table ip calico {")
for name, elements in SETS.items():
    print(f"  set {name} {{\n    type ipv4_addr\n    flags interval\n    elements = {{ {elements} }}\n  }}")
for name in [*EMPTY, *CHAINS]:
    print(f"  chain {name} {{ }}")
for kind in ("fw", "tw"):
    pairs = ", ".join(f"{link} : goto filter-cali-{kind}-{link}" for link in LINKS)
    print(f"  map filter-cali-{kind}-dispatch {{\n    type ifname : verdict\n    elements = {{ {pairs} }}\n  }}")
for name, rules in CHAINS.items():
    print(f"  chain {name} {{")
    print("".join(f"{rule(name, counted(text))}\n" for text in rules) + "  }")
for name, (kind, hook, priority, rules) in BASE.items():
    print(f"  chain {name} {{\n    type {kind} hook {hook} priority {priority}; policy accept;")
    print("".join(f"{rule(name, counted(text))}\n" for text in rules) + "  }")
print("}")
