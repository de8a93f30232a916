# Calico with VXLAN, rebuilt by hand from its documentation and public dumps: its chains, sets and marks for three pods.
# web takes TCP port 8000 from shop and from one pod of another node; shop is not restricted; dns may not open connections.
# shellcheck shell=bash
. /mnt/scripts/recipes/pods.sh
. /mnt/scripts/recipes/kube-proxy.sh

named() { # each rule with a comment like Calico's: sixteen characters that follow from its text
    local line
    while IFS= read -r line; do
        case $line in
            "-A "*" -j "* | "-A "*" -g "*)
                local key
                key=$(sha256sum <<<"$line" | cut -c 1-32 | xxd_base64)
                sed -E "s|^(-A [^ ]+)|\1 -m comment --comment \"cali:$key\"|" <<<"$line"
                ;;
            *) printf '%s\n' "$line" ;;
        esac
    done
}

xxd_base64() { # hexadecimal digits to sixteen letters
    python3 -c 'import base64, sys; print(base64.urlsafe_b64encode(bytes.fromhex(sys.stdin.read().strip()))[:16].decode())'
}

calico_sets() {
    ipset restore <<END
create cali40all-ipam-pools hash:net family inet maxelem 1048576
add cali40all-ipam-pools 10.244.0.0/16
create cali40masq-ipam-pools hash:net family inet maxelem 1048576
add cali40masq-ipam-pools 10.244.0.0/16
create cali40all-vxlan-net hash:net family inet maxelem 1048576
add cali40all-vxlan-net 192.168.0.3
add cali40all-vxlan-net 192.168.0.4
add cali40all-vxlan-net 192.168.0.5
create cali40this-host hash:ip family inet maxelem 1048576
add cali40this-host 192.168.0.2
add cali40this-host 127.0.0.1
create cali40s:web-clients-Zk3qCl2 hash:net family inet maxelem 1048576
add cali40s:web-clients-Zk3qCl2 10.244.0.245
add cali40s:web-clients-Zk3qCl2 10.244.1.230
END
}

to_pod() { # to_pod LINK POLICY|"": the rules for packets to a pod
    echo "-A cali-tw-$1 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"
    echo "-A cali-tw-$1 -m conntrack --ctstate INVALID -j DROP"
    echo "-A cali-tw-$1 -j MARK --set-xmark 0x0/0x10000"
    policies tw "$1" pi "$2"
    echo "-A cali-tw-$1 -j cali-pri-kns.default"
    echo "-A cali-tw-$1 -m comment --comment \"Return if profile accepted\" -m mark --mark 0x10000/0x10000 -j RETURN"
    echo "-A cali-tw-$1 -m comment --comment \"Drop if no profiles matched\" -j DROP"
}

from_pod() { # from_pod LINK POLICY|"": and for those from it
    echo "-A cali-fw-$1 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"
    echo "-A cali-fw-$1 -m conntrack --ctstate INVALID -j DROP"
    echo "-A cali-fw-$1 -j MARK --set-xmark 0x0/0x10000"
    echo "-A cali-fw-$1 -p udp -m comment --comment \"Drop VXLAN encapped packets originating in workloads\" -m multiport --dports 4789 -j DROP"
    echo "-A cali-fw-$1 -p ipencap -m comment --comment \"Drop IPinIP encapped packets originating in workloads\" -j DROP"
    policies fw "$1" po "$2"
    echo "-A cali-fw-$1 -j cali-pro-kns.default"
    echo "-A cali-fw-$1 -m comment --comment \"Return if profile accepted\" -m mark --mark 0x10000/0x10000 -j RETURN"
    echo "-A cali-fw-$1 -m comment --comment \"Drop if no profiles matched\" -j DROP"
}

policies() { # policies CHAIN LINK DIRECTION POLICY
    [ -n "$4" ] || return 0
    echo "-A cali-$1-$2 -m comment --comment \"Start of tier default\" -j MARK --set-xmark 0x0/0x20000"
    echo "-A cali-$1-$2 -m mark --mark 0x0/0x20000 -j cali-$3-$4"
    echo "-A cali-$1-$2 -m comment --comment \"Return if policy accepted\" -m mark --mark 0x10000/0x10000 -j RETURN"
    echo "-A cali-$1-$2 -m comment --comment \"Drop if no policies passed packet\" -m mark --mark 0x0/0x20000 -j DROP"
}

calico_filter() {
    local link
    cat <<'END'
*filter
:cali-FORWARD - [0:0]
:cali-INPUT - [0:0]
:cali-OUTPUT - [0:0]
:cali-cidr-block - [0:0]
:cali-from-hep-forward - [0:0]
:cali-from-host-endpoint - [0:0]
:cali-from-wl-dispatch - [0:0]
:cali-pi-_web-clients - [0:0]
:cali-po-_dns-silent - [0:0]
:cali-pri-kns.default - [0:0]
:cali-pro-kns.default - [0:0]
:cali-to-hep-forward - [0:0]
:cali-to-host-endpoint - [0:0]
:cali-to-wl-dispatch - [0:0]
:cali-wl-to-host - [0:0]
END
    for link in cali0web cali0shop cali0dns; do
        echo ":cali-fw-$link - [0:0]"
        echo ":cali-tw-$link - [0:0]"
    done
    cat <<'END'
-I INPUT -m comment --comment "cali:Cz_u1IQiXIMmKD4c" -j cali-INPUT
-I FORWARD -m comment --comment "cali:wUHhoiAYhphO9Mso" -j cali-FORWARD
-A FORWARD -m comment --comment "cali:S93hcgKJrXEqnTfs" -m comment --comment "Policy explicitly accepted packet." -m mark --mark 0x10000/0x10000 -j ACCEPT
-A FORWARD -m comment --comment "cali:mp77cMpurHhyjLrM" -j MARK --set-xmark 0x10000/0x10000
-I OUTPUT -m comment --comment "cali:tVnHkvAo15HuiPy0" -j cali-OUTPUT
END
    {
        cat <<'END'
-A cali-FORWARD -j MARK --set-xmark 0x0/0xe0000
-A cali-FORWARD -m mark --mark 0x0/0x10000 -j cali-from-hep-forward
-A cali-FORWARD -i cali+ -j cali-from-wl-dispatch
-A cali-FORWARD -o cali+ -j cali-to-wl-dispatch
-A cali-FORWARD -j cali-to-hep-forward
-A cali-FORWARD -j cali-cidr-block
-A cali-INPUT -p udp -m comment --comment "Allow IPv4 VXLAN packets from allowed hosts" -m multiport --dports 4789 -m set --match-set cali40all-vxlan-net src -m addrtype --dst-type LOCAL -j ACCEPT
-A cali-INPUT -p udp -m comment --comment "Drop IPv4 VXLAN packets from non-allowed hosts" -m multiport --dports 4789 -m addrtype --dst-type LOCAL -j DROP
-A cali-INPUT -i cali+ -g cali-wl-to-host
-A cali-INPUT -m mark --mark 0x10000/0x10000 -j ACCEPT
-A cali-INPUT -j MARK --set-xmark 0x0/0xf0000
-A cali-INPUT -j cali-from-host-endpoint
-A cali-INPUT -m comment --comment "Host endpoint policy accepted packet." -m mark --mark 0x10000/0x10000 -j ACCEPT
-A cali-OUTPUT -m mark --mark 0x10000/0x10000 -j ACCEPT
-A cali-OUTPUT -o cali+ -j RETURN
-A cali-OUTPUT -p udp -m comment --comment "Allow IPv4 VXLAN packets to other allowed hosts" -m multiport --dports 4789 -m addrtype --src-type LOCAL -m set --match-set cali40all-vxlan-net dst -j ACCEPT
-A cali-OUTPUT -j MARK --set-xmark 0x0/0xf0000
-A cali-OUTPUT -m conntrack ! --ctstate DNAT -j cali-to-host-endpoint
-A cali-OUTPUT -m comment --comment "Host endpoint policy accepted packet." -m mark --mark 0x10000/0x10000 -j ACCEPT
-A cali-wl-to-host -j cali-from-wl-dispatch
-A cali-wl-to-host -m comment --comment "Configured DefaultEndpointToHostAction" -j ACCEPT
-A cali-pri-kns.default -m comment --comment "Profile kns.default ingress" -j MARK --set-xmark 0x10000/0x10000
-A cali-pri-kns.default -m mark --mark 0x10000/0x10000 -j RETURN
-A cali-pro-kns.default -m comment --comment "Profile kns.default egress" -j MARK --set-xmark 0x10000/0x10000
-A cali-pro-kns.default -m mark --mark 0x10000/0x10000 -j RETURN
-A cali-pi-_web-clients -p tcp -m comment --comment "Policy default/knp.default.web-clients ingress" -m set --match-set cali40s:web-clients-Zk3qCl2 src -m multiport --dports 8000 -j MARK --set-xmark 0x10000/0x10000
-A cali-pi-_web-clients -m mark --mark 0x10000/0x10000 -j RETURN
END
        # A policy without rules lets nothing out.
        for link in cali0web cali0shop cali0dns; do
            echo "-A cali-from-wl-dispatch -i $link -g cali-fw-$link"
            echo "-A cali-to-wl-dispatch -o $link -g cali-tw-$link"
        done
        echo '-A cali-from-wl-dispatch -m comment --comment "Unknown interface" -j DROP'
        echo '-A cali-to-wl-dispatch -m comment --comment "Unknown interface" -j DROP'
        to_pod cali0web _web-clients
        to_pod cali0shop ""
        to_pod cali0dns ""
        from_pod cali0web ""
        from_pod cali0shop ""
        from_pod cali0dns _dns-silent
    } | named
    echo COMMIT
}

calico_others() { # calico_others DEVICE: nat, mangle and raw
    {
        cat <<'END'
*nat
:cali-OUTPUT - [0:0]
:cali-POSTROUTING - [0:0]
:cali-PREROUTING - [0:0]
:cali-fip-dnat - [0:0]
:cali-fip-snat - [0:0]
:cali-nat-outgoing - [0:0]
-I PREROUTING -m comment --comment "cali:6gwbT8clXdHdC1b1" -j cali-PREROUTING
-I OUTPUT -m comment --comment "cali:tVnHkvAo15HuiPy0" -j cali-OUTPUT
-I POSTROUTING -m comment --comment "cali:O3lYWMrLQYEMJtB5" -j cali-POSTROUTING
-A cali-OUTPUT -j cali-fip-dnat
-A cali-POSTROUTING -j cali-fip-snat
-A cali-POSTROUTING -j cali-nat-outgoing
END
        echo "-A cali-POSTROUTING -o $1 -m addrtype ! --src-type LOCAL --limit-iface-out -m addrtype --src-type LOCAL -j MASQUERADE --random-fully"
        cat <<'END'
-A cali-PREROUTING -j cali-fip-dnat
-A cali-nat-outgoing -m set --match-set cali40masq-ipam-pools src -m set ! --match-set cali40all-ipam-pools dst -j MASQUERADE --random-fully
COMMIT
*mangle
:cali-PREROUTING - [0:0]
:cali-POSTROUTING - [0:0]
:cali-from-host-endpoint - [0:0]
:cali-to-host-endpoint - [0:0]
-I PREROUTING -m comment --comment "cali:6gwbT8clXdHdC1b1" -j cali-PREROUTING
-I POSTROUTING -m comment --comment "cali:O3lYWMrLQYEMJtB5" -j cali-POSTROUTING
-A cali-PREROUTING -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A cali-PREROUTING -m mark --mark 0x10000/0x10000 -j ACCEPT
-A cali-PREROUTING -j cali-from-host-endpoint
-A cali-PREROUTING -m comment --comment "Host endpoint policy accepted packet." -m mark --mark 0x10000/0x10000 -j ACCEPT
-A cali-POSTROUTING -m mark --mark 0x10000/0x10000 -j RETURN
-A cali-POSTROUTING -j MARK --set-xmark 0x0/0xf0000
-A cali-POSTROUTING -m conntrack --ctstate DNAT -j cali-to-host-endpoint
-A cali-POSTROUTING -m comment --comment "Host endpoint policy accepted packet." -m mark --mark 0x10000/0x10000 -j RETURN
COMMIT
*raw
:cali-OUTPUT - [0:0]
:cali-PREROUTING - [0:0]
:cali-from-host-endpoint - [0:0]
:cali-rpf-skip - [0:0]
:cali-to-host-endpoint - [0:0]
-I PREROUTING -m comment --comment "cali:6gwbT8clXdHdC1b1" -j cali-PREROUTING
-I OUTPUT -m comment --comment "cali:tVnHkvAo15HuiPy0" -j cali-OUTPUT
-A cali-OUTPUT -j MARK --set-xmark 0x0/0xf0000
-A cali-OUTPUT -j cali-to-host-endpoint
-A cali-OUTPUT -m mark --mark 0x10000/0x10000 -j ACCEPT
-A cali-PREROUTING -j MARK --set-xmark 0x0/0xf0000
-A cali-PREROUTING -i cali+ -j MARK --set-xmark 0x40000/0x40000
-A cali-PREROUTING -m mark --mark 0x40000/0x40000 -j cali-rpf-skip
-A cali-PREROUTING -m mark --mark 0x40000/0x40000 -m rpfilter --validmark --invert -j DROP
-A cali-PREROUTING -m mark --mark 0x0/0x40000 -j cali-from-host-endpoint
-A cali-PREROUTING -m mark --mark 0x10000/0x10000 -j ACCEPT
COMMIT
END
    } | sed 's/^-I \([A-Z]*\) -m comment --comment "\(cali:[^"]*\)"/-I \1 -m comment --comment "\2"/' | named
}

calico_iptables() {
    calico_sets
    { calico_filter; calico_others vxlan.calico; } >/tmp/calico.rules
    iptables-restore --noflush </tmp/calico.rules
}

calico_nftables() {
    python3 /mnt/scripts/recipes/calico_nft.py >/tmp/calico.nft
    nft -f /tmp/calico.nft
}

record() { # record iptables|nftables: Calico's and kube-proxy's mode
    node_address
    pods_on_routes
    tunnel vxlan.calico 4096 4789 10.244.0.1
    other_nodes vxlan.calico
    "kube_proxy_$1"
    "calico_$1"
}
