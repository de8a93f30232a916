#!/bin/sh
# Makes this machine a node of a small cluster: the first node serves the API, with a Node object for each; every node
# keeps its overlay with `kproxy overlay run`, as a systemd unit, and gets one pod, a namespace, from kproxy-cni. Then the
# overlay is compared with the kernel, and the pods of all nodes that are up are pinged in both families.
# Running it again is fine.
#
# usage: overlay.sh TREE NODE NAME=ADDRESS...
#   NODE            the name of this one
#   NAME=ADDRESS    every node with its IPv4 address on the private network, the API server's first; the Nth gets
#                   fd00:10:56::N beside it, and its pods have 10.244.N.0/24 and fd00:10:244:N::/64
#   KPROXY_TOKEN    a secret that the nodes share
#   KPROXY_NETNS    the path of the network namespace that this is started in, if it is one
# exit: 0 joined and reachable, 1 not, 2 bad usage
set -eu

usage='usage: KPROXY_TOKEN=SECRET overlay.sh TREE NODE NAME=ADDRESS...'
tree=${1:?$usage}
node=${2:?$usage}
shift 2
[ "$#" -gt 0 ] || { echo "$usage" >&2; exit 2; }
: "${KPROXY_TOKEN:?$usage}"
[ "$(id -u)" -eq 0 ] || { echo "overlay.sh: must run as root" >&2; exit 2; }
export PATH="/usr/local/bin:$PATH:/usr/sbin:/sbin"
kubeconfig=/etc/kproxy/kubeconfig
server=${1#*=}
pod=kp-pod-$node

number=0 own=0
for pair in "$@"; do
    number=$((number + 1))
    [ "${pair%%=*}" != "$node" ] || own=$number
done
own_v6=fd00:10:56::$own
[ "$own" -gt 0 ] || { echo "overlay.sh: $node is none of: $*" >&2; exit 2; }

own_v4=""
for pair in "$@"; do
    [ "${pair%%=*}" != "$node" ] || own_v4=${pair#*=}
done
device=$(ip -o -4 addr show to "$own_v4/32" | awk '{ print $2; exit }')
[ -n "$device" ] || { echo "overlay.sh: no interface of this machine has $node's address $own_v4" >&2; exit 1; }

wait_for() { # wait_for SECONDS WHAT COMMAND...
    limit=$(($(date +%s) + $1)) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        if [ "$(date +%s)" -ge "$limit" ]; then
            echo "overlay.sh: still waiting for $what; it says:" >&2
            "$@" >&2 || true
            ip neigh show >&2
            ip netns exec "$pod" ip addr show >&2 || true
            return 1
        fi
        sleep 1
    done
}

unit() { # unit NAME COMMAND...: a unit that runs a command, in this network namespace, from now on
    name=$1
    shift
    {
        echo "[Unit]"
        echo "Description=$name"
        echo "After=network-online.target"
        echo "[Service]"
        # IPv6 pods travel between IPv6 addresses, and Vagrant gives a machine one address of one family.
        echo "ExecStartPre=/bin/ip -6 addr replace $own_v6/64 dev $device nodad"
        echo "ExecStart=$*"
        echo "Restart=on-failure"
        [ -z "${KPROXY_NETNS:-}" ] || echo "NetworkNamespacePath=$KPROXY_NETNS"
        echo "[Install]"
        echo "WantedBy=multi-user.target"
    } >"/etc/systemd/system/$name.service"
    # Each by itself would have systemd read all units again, seconds on an emulated processor.
    systemctl enable --quiet --no-reload "$name.service" || true
    systemctl daemon-reload
    # Not waited for: while the machine boots, a job might wait for the one that runs this.
    systemctl restart --no-block "$name.service"
}

umask 077
mkdir -p /etc/kproxy /var/lib/kproxy
cat >"$kubeconfig" <<CONFIG
apiVersion: v1
kind: Config
current-context: kproxy
clusters:
# The authority is made anew on the first node, and nobody carries it to the others: what protects is the private network.
- {name: kproxy, cluster: {server: "https://$server:6443", insecure-skip-tls-verify: true}}
users:
- {name: kproxy, user: {token: "$KPROXY_TOKEN"}}
contexts:
- {name: kproxy, context: {cluster: kproxy, user: kproxy}}
CONFIG

if [ "$own" -eq 1 ]; then
    echo "$KPROXY_TOKEN,kproxy,kproxy,\"system:masters\"" >/etc/kproxy/tokens.csv
    unit kproxy-apiserver /usr/local/bin/kproxy apiserver --data /var/lib/kproxy/apiserver --listen "$server:6443" \
        --token-file /etc/kproxy/tokens.csv
fi
# At once, because it follows the API server from whenever that answers: without its Node it only has a problem to tell,
# and without a server for half a minute it ends, and systemd starts it again.
daemon=kproxy-overlay-$node
# Without rules of its own: the checks compare the node's rules with the golden ones, to the last line.
unit "$daemon" /usr/local/bin/kproxy overlay run --node "$node" --kubeconfig "$kubeconfig" --no-iptables-forward-rules
if [ "$own" -eq 1 ]; then
    /opt/kproxy/bin/python "$tree/vagrant/provision/nodes.py" "$kubeconfig" 120 "$@"
fi
# The journal is cheaper to ask than kproxy.
says_ready() {
    run=$(systemctl show --property InvocationID --value "$daemon")
    journalctl --quiet --output cat "_SYSTEMD_INVOCATION_ID=${run:-none}" >"$said"
    grep -qx ready "$said" || { tail -n 5 "$said" && return 1; }
}
said=$(mktemp)
trap 'rm -f "$said"' EXIT
# The first node may still be installing.
wait_for 300 "the first round of $daemon" says_ready
wait_for 120 "the overlay of $node" kproxy overlay check --node "$node" --kubeconfig "$kubeconfig" \
    --no-iptables-forward-rules

# A pod, as a container runtime makes it: a namespace, and the plugin's ADD.
cni() { # cni COMMAND
    env CNI_COMMAND="$1" CNI_CONTAINERID="$pod" CNI_NETNS="/run/netns/$pod" CNI_IFNAME=eth0 CNI_PATH=/usr/local/bin \
        kproxy-cni <<CONFIG
{"cniVersion": "1.1.0", "name": "kproxy", "type": "kproxy-cni", "bridge": "cni0", "mtu": 1430,
 "dataDir": "/run/kproxy/cni-$node", "capabilities": {"ips": true},
 "ipam": {"type": "host-local",
          "ranges": [[{"subnet": "10.244.$own.0/24"}], [{"subnet": "fd00:10:244:$own::/64"}]],
          "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]},
 "runtimeConfig": {"ips": ["10.244.$own.10/24", "fd00:10:244:$own::10/64"]}}
CONFIG
}
if [ -e "/run/netns/$pod" ]; then
    cni DEL >/dev/null
    ip netns del "$pod"
fi
ip netns add "$pod"
cni ADD >/dev/null

reaches() { # reaches ADDRESS: from this node's pod
    ip netns exec "$pod" ping -c 1 -W 2 "$1"
}
number=0 reached=""
for pair in "$@"; do
    number=$((number + 1))
    # A node that is not up yet will ping this one when it is.
    [ "$number" -eq "$own" ] || ping -c 1 -W 2 "10.244.$number.0" >/dev/null 2>&1 || continue
    for address in "10.244.$number.10" "fd00:10:244:$number::10"; do
        wait_for 120 "an answer of ${pair%%=*}'s pod $address" reaches "$address"
    done
    reached="$reached ${pair%%=*}"
done
echo "$node has joined the overlay; its pod reaches those of:$reached"
