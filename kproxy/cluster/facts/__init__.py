"""What the ordinary tools print of one host, as values: pure functions of decoded JSON or of text.

| module | of |
|---|---|
| `ip` | `ip -json -details address show`, `ip -json route show table all`, `ip -json rule show` |
| `links` | the same `address show`, `ip -json neigh show`, `bridge -json fdb show` |
| `recent` | /proc/net/xt_recent |
| `conntrack` | `conntrack -L` |
| `kubeproxy` | kube-proxy's /configz, /healthz, /metrics and `kube-proxy --version` |

They take entries as netlink's fields are named by iproute2, and raise what Python raises of an entry that lacks a
field or has a wrong one (KeyError, ValueError, TypeError, DataplaneError): `snapshot.host` names file and entry.
"""
