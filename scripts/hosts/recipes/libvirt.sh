# libvirt: its default network, which is masqueraded, and a routed and an isolated one.
# shellcheck shell=bash

network() { # network NAME BRIDGE FORWARD ADDRESS
    local first=${4%.*}
    printf '<network><name>%s</name>%s<bridge name="%s" stp="off"/><ip address="%s" netmask="255.255.255.0">' "$1" "$3" "$2" "$4"
    printf '<dhcp><range start="%s.100" end="%s.200"/></dhcp></ip></network>' "$first" "$first"
}

machine() { # machine NAME BRIDGE: a link where a virtual machine's would be
    ip link add "$1" type veth peer name "$1p"
    ip link set "$1" master "$2" up
    ip link set "$1p" up
}

record() { # record iptables|nftables: the backend, of versions that have the choice
    use_iptables nft
    [ ! -e /etc/libvirt/network.conf ] || echo "firewall_backend = \"$1\"" >>/etc/libvirt/network.conf
    # It has tc mend the checksums of DHCP answers, which not every kernel can, and which is no filtering.
    printf '#!/bin/sh\n' >/usr/sbin/tc
    dbus-uuidgen --ensure
    dbus-daemon --system --fork --nopidfile
    mkdir -p /run/libvirt
    libvirtd >/tmp/libvirtd.log 2>&1 &
    wait_for 60 libvirtd virsh -c network:///system uri || { tail -n 20 /tmp/libvirtd.log; return 1; }
    virsh -c network:///system net-start default || virsh -c network:///system net-list | grep -q default
    network routed virbr1 '<forward mode="route"/>' 192.168.130.1 >/tmp/routed.xml
    network apart virbr2 "" 192.168.131.1 >/tmp/apart.xml
    virsh -c network:///system net-create /tmp/routed.xml
    virsh -c network:///system net-create /tmp/apart.xml
    machine vnet0 virbr0
    machine vnet1 virbr1
    machine vnet2 virbr2
    version_of libvirt-daemon
}
