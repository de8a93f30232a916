#!/bin/bash
# usage: inside.sh ROOT SCRIPTS OUT RECIPE HOW [brief]     by record.sh, as the first process of its namespaces
# Enters the root as a throw-away copy, lays the host's links, runs recipes/RECIPE.sh, and prints the kernel's state to OUT.
set -euo pipefail
root=$1 scripts=$2 out=$3 recipe=$4 how=$5 brief=${6:-}

enter() { # the root below a layer in memory; nothing that the programs write is kept
    hostname kproxy-host
    local base=/mnt
    mount -t tmpfs tmpfs "$base"
    mkdir "$base"/{upper,work,root,out,scripts,reference}
    mount --bind "$out" "$base/out"
    mount --bind -o ro "$scripts" "$base/scripts"
    mount --bind -o ro "$scripts/../../tests/reference" "$base/reference"
    mount -t overlay -o "lowerdir=$root,upperdir=$base/upper,workdir=$base/work" overlay "$base/root"
    cd "$base/root"
    mkdir -p mnt/machine mnt/out mnt/scripts mnt/reference
    mount --move "$base/out" mnt/out
    mount --move "$base/scripts" mnt/scripts
    mount --move "$base/reference" mnt/reference
    mount -t proc proc proc
    mount -t sysfs sysfs sys
    mount --rbind /dev dev
    mount -t tmpfs tmpfs run
    mount -t tmpfs tmpfs tmp
    mount -t cgroup2 cgroup2 sys/fs/cgroup
    pivot_root . mnt/machine
    cd /
    export PATH=/usr/sbin:/usr/bin:/sbin:/bin
    hash -r
    umount --lazy /mnt/machine
    mkdir -p /run/lock /run/netns /run/dbus
}

# Every host has the same links. Nobody answers at their other ends; the neighbours are permanent.
#   eth0  192.0.2.10/24, 2001:db8:1::10/64     towards the world, by 192.0.2.1 and 2001:db8:1::1
#   eth1  10.9.0.1/24, fd00:9::1/64            an inner network
base_network() {
    unshare --net sleep infinity &
    away=$!
    sleep 0.2
    ip link set lo up
    echo 1 >/proc/sys/net/ipv4/ip_forward
    echo 1 >/proc/sys/net/ipv6/conf/all/forwarding
    echo 0 >/proc/sys/net/ipv6/conf/all/accept_dad
    echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad
    ip link add eth0 type veth peer name o0 netns "$away"
    ip link add eth1 type veth peer name o1 netns "$away"
    nsenter --net="/proc/$away/ns/net" ip link set o0 up
    nsenter --net="/proc/$away/ns/net" ip link set o1 up
    ip link set eth0 up
    ip link set eth1 up
    ip address add 192.0.2.10/24 dev eth0
    ip address add 2001:db8:1::10/64 dev eth0 nodad
    ip address add 10.9.0.1/24 dev eth1
    ip address add fd00:9::1/64 dev eth1 nodad
    ip route add default via 192.0.2.1
    ip -6 route add default via 2001:db8:1::1
}

wait_for() { # wait_for SECONDS WHAT COMMAND...: until the command succeeds
    local until=$((SECONDS + $1)) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$until" ] || { echo "$what did not come about"; return 1; }
        sleep 0.2
    done
}

use_iptables() { # use_iptables nft|legacy: the variant that is called iptables
    update-alternatives --set iptables "/usr/sbin/iptables-$1"
    update-alternatives --set ip6tables "/usr/sbin/ip6tables-$1"
}

version_of() { # version_of PACKAGE...: into the list of versions
    dpkg-query -W -f '${Package} ${Version}\n' "$@" >>/mnt/out/versions.txt
}

say_rules() { # FILE, if there is anything to say
    local file=/mnt/out/$1
    cat >"$file"
    grep -q '[^[:space:]]' "$file" || rm "$file"
}

native() { # FAMILY NAME of the tables that are not iptables-nft's, which iptables-save prints better
    nft list tables | sed -n 's/^table //p' | grep -vE '^(ip|ip6) (raw|mangle|nat|filter|security)$' || true
}

dump() { # everything that decides what becomes of a packet
    local family
    for family in ip ip6; do
        # What is not there is not printed: asking for a table of the legacy variant would make it.
        "${family}tables-nft-save" 2>/dev/null | sed '/^# Warning/d' | say_rules "${family}tables-save"
        ! grep -qs . "/proc/net/${family}_tables_names" ||
            "${family}tables-legacy-save" | sed '/^# Warning/d' | say_rules "${family}tables-legacy-save"
    done
    nft list ruleset 2>/dev/null | say_rules ruleset.nft
    if [ -z "$brief" ]; then
        native | while read -r family table; do nft -a list table "$family" "$table"; done | say_rules ruleset-handles.nft
        nft -j list ruleset | python3 /mnt/scripts/native_json.py "$(native)" | say_rules ruleset.json
    fi
    ipset save -sorted | say_rules ipset.save
    {
        printf '{"link": '
        ip -j -d link
        printf ', "address": '
        ip -j address
        printf ', "route": '
        ip -4 -j route show table all
        printf ', "route6": '
        ip -j -6 route show table all
        printf ', "rule": '
        ip -j rule
        printf ', "rule6": '
        ip -j -6 rule
        printf '}'
    } | python3 /mnt/scripts/tidy_ip.py >/mnt/out/ip.json
    # Of single interfaces only what is not zero.
    {
        sysctl net.ipv4.ip_forward net.ipv6.conf.all.forwarding
        sysctl -a -r '^net\.bridge\.bridge-nf-call-ip6?tables$'
        sysctl -a -r '^net\.ipv4\.conf\..*\.(rp_filter|route_localnet|accept_local|src_valid_mark)$' |
            grep -e '^net.ipv4.conf.all' -e ' = [^0]'
    } >/mnt/out/sysctl.txt
    {
        uname -sr
        . /etc/os-release
        echo "$PRETTY_NAME"
        date -u +%Y-%m-%d
    } >>/mnt/out/versions.txt
    version_of iptables nftables ipset
    chmod -R a+rX /mnt/out
}

enter
base_network
# shellcheck source=/dev/null
. "/mnt/scripts/recipes/$recipe.sh"
record "$how"
dump
