# flannel with VXLAN, rebuilt by hand from its documentation: the chains and rules that it makes for a pod network.
# shellcheck shell=bash
. /mnt/scripts/recipes/pods.sh
. /mnt/scripts/recipes/kube-proxy.sh

flannel_iptables() {
    local mine=10.244.0.0/24 all=10.244.0.0/16
    iptables-restore --noflush <<END
*filter
:FLANNEL-FWD - [0:0]
-A FORWARD -m comment --comment "flanneld forward" -j FLANNEL-FWD
-A FLANNEL-FWD -s $all -m comment --comment "flanneld forward" -j ACCEPT
-A FLANNEL-FWD -d $all -m comment --comment "flanneld forward" -j ACCEPT
COMMIT
*nat
:FLANNEL-POSTRTG - [0:0]
-A POSTROUTING -m comment --comment "flanneld masq" -j FLANNEL-POSTRTG
-A FLANNEL-POSTRTG -m mark --mark 0x4000/0x4000 -m comment --comment "flanneld masq" -j RETURN
-A FLANNEL-POSTRTG -s $mine -d $all -m comment --comment "flanneld masq" -j RETURN
-A FLANNEL-POSTRTG -s $all -d $mine -m comment --comment "flanneld masq" -j RETURN
-A FLANNEL-POSTRTG ! -s $all -d $mine -m comment --comment "flanneld masq" -j RETURN
-A FLANNEL-POSTRTG -s $all ! -d 224.0.0.0/4 -m comment --comment "flanneld masq" -j MASQUERADE --random-fully
-A FLANNEL-POSTRTG ! -s $all -d $all -m comment --comment "flanneld masq" -j MASQUERADE --random-fully
COMMIT
END
}

flannel_nftables() {
    local mine=10.244.0.0/24 all=10.244.0.0/16
    nft -f - <<END
table ip flannel-ipv4 {
    comment "rules for flannel-ipv4";
    chain postrtg {
        type nat hook postrouting priority srcnat;
        comment "chain to manage traffic masquerading by flannel";
        meta mark 0x4000 return
        ip saddr $mine ip daddr $all return
        ip saddr $all ip daddr $mine return
        ip saddr != $mine ip daddr $all return
        ip saddr $all ip daddr != 224.0.0.0/4 masquerade fully-random
        ip saddr != $all ip daddr $all masquerade fully-random
    }
    chain forward {
        type filter hook forward priority filter;
        comment "chain to accept flannel traffic";
        ip saddr $all accept
        ip daddr $all accept
    }
}
table ip6 flannel-ipv6 {
    comment "rules for flannel-ipv6";
    chain postrtg { type nat hook postrouting priority srcnat; comment "chain to manage traffic masquerading by flannel"; }
    chain forward { type filter hook forward priority filter; comment "chain to accept flannel traffic"; }
}
END
}

record() { # record iptables|nftables: flannel's and kube-proxy's mode
    node_address
    pods_on_bridge
    tunnel flannel.1 1 8472 10.244.0.0
    other_nodes flannel.1
    "kube_proxy_$1"
    "flannel_$1"
}
