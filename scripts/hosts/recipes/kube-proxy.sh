# kube-proxy v1.36.2: the rules that it wrote for a recorded cluster.
# shellcheck shell=bash
. /mnt/scripts/recipes/pods.sh

kube_proxy_jumps() { # kube_proxy_jumps FILE: the rules of the built-in chains of a node on which kube-proxy ran
    local table
    for table in filter nat; do
        echo "*$table"
        sed -n "/^\*$table/,/^COMMIT/p" "$1" | sed -n 's/^-A [A-Z]* .*-j \(KUBE-[A-Z-]*\).*/:\1 - [0:0]/p' | sort -u
        sed -n "/^\*$table/,/^COMMIT/p" "$1" | grep -E '^-A (INPUT|FORWARD|OUTPUT|PREROUTING|POSTROUTING) '
        echo COMMIT
    done
}

kube_proxy_iptables() { # kube_proxy_iptables [-legacy]
    local family
    sysctl -q net.ipv4.conf.all.route_localnet=1
    kube_proxy_jumps /mnt/reference/minikube/iptables-nft-save.v4.txt | "iptables${1:-}-restore" --noflush
    kube_proxy_jumps /mnt/reference/minikube/ip6tables-nft-save.v6.txt | "ip6tables${1:-}-restore" --noflush
    "iptables${1:-}-restore" --noflush <"$cluster/kube-proxy.v4.restore"
    "ip6tables${1:-}-restore" --noflush <"$cluster/kube-proxy.v6.restore"
}

kube_proxy_nftables() {
    nft -f "$cluster/kube-proxy.v4.nft"
    nft -f "$cluster/kube-proxy.v6.nft"
}

record() { # record iptables|nftables: the mode
    node_address
    pods_on_bridge
    other_nodes
    "kube_proxy_$1"
}
