"""Identifiers of the reasons for which the modes differ: stable, part of the JSON (docs/migrate.md lists them)."""

from __future__ import annotations

from typing import Final

NODE_PORT_ADDRESSES: Final = "node-port-addresses"
LOCALHOST_NODE_PORTS: Final = "localhost-node-ports"
LOCALNET_GUARD: Final = "localnet-guard"
HOST_FIREWALL: Final = "host-firewall"
CLUSTER_IP_PORTS: Final = "cluster-ip-ports"
UNALLOCATED_CLUSTER_IPS: Final = "unallocated-cluster-ips"
REFUSED_HOOKS: Final = "refused-hooks"
SOURCE_RANGES: Final = "source-ranges"
INVALID_PACKETS: Final = "invalid-packets"
MASQUERADE_MARK: Final = "masquerade-mark"
MASQUERADE_ALL: Final = "masquerade-all"
RANDOM_FULLY: Final = "random-fully"
SESSION_AFFINITY: Final = "session-affinity"
REMOTE_HAIRPIN: Final = "remote-hairpin"
SHARED_ADDRESS: Final = "shared-address"
FOREIGN_CHAINS: Final = "foreign-kube-chains"
FOREIGN_MARK: Final = "foreign-mark"
FOREIGN_ORDER: Final = "foreign-hook-order"
OTHER: Final = "other"
