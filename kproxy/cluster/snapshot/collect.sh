#!/bin/sh
# Reads what decides a node's Service traffic, and changes nothing. Needs a POSIX shell; what of the tools is not there
# is named in the file `errors`. Each command has KPROXY_SECONDS (20), all of them KPROXY_TOTAL (90), each file
# KPROXY_KIB (262144) kibibytes. The kernel's lists of IPVS are read in KPROXY_NET (/proc/net).
#
#   sh collect.sh [NODE [DIRECTORY]]      writes DIRECTORY/nodes/NODE/; default: this host's name, here
#
# Rules need root. With KPROXY_BOUNDARY set, everything goes to standard output instead, each file between two lines
# that begin with it.
LC_ALL=C; export LC_ALL
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
seconds=${KPROXY_SECONDS:-20}
total=${KPROXY_TOTAL:-90}
boundary=${KPROXY_BOUNDARY:-}
net=${KPROXY_NET:-/proc/net}
node=${1:-}
[ -n "$node" ] || read -r node < /proc/sys/kernel/hostname
failures=

has() { command -v "$1" > /dev/null 2>&1; }

fail() { # NAME MESSAGE: its first line only
    failures="$failures$1: ${2%%
*}
"
}

if [ -z "$boundary" ]; then
    case $node in */* | . | .. | '') echo "collect: $node: not a node's name" >&2; exit 2 ;; esac
    out=${2:-.}/nodes/$node
    umask 077
    mkdir -p "$out/kube-proxy" || exit 1
    # In units of 512 octets; the command that writes more is ended by SIGXFSZ.
    ulimit -f $((${KPROXY_KIB:-262144} * 2)) 2> /dev/null
fi

now() { date +%s 2> /dev/null || echo 0; }
began=$(now)

limit=
if has timeout && timeout "$seconds" true 2> /dev/null; then limit="timeout $seconds"; fi

run() { $limit "$@"; }

# take NAME TOOL COMMAND...: what the command prints is the file NAME, unless it fails.
take() {
    name=$1; tool=$2; shift 2
    if [ -n "$tool" ] && ! has "$tool"; then fail "$name" "$tool: not found"; return 1; fi
    if [ $(($(now) - began)) -ge "$total" ]; then fail "$name" "no time left: $total s in all"; return 1; fi
    if [ -n "$boundary" ]; then
        printf '%s %s\n' "$boundary" "$name"
        exec 4>&1
        said=$( { "$@" >&4; } 2>&1 )
        code=$?
        exec 4>&-
        if [ $code = 0 ]; then printf '\n%s end\n' "$boundary"; else printf '\n%s drop\n' "$boundary"; fi
    else
        exec 4> "$out/$name"
        said=$( { "$@" >&4; } 2>&1 )
        code=$?
        exec 4>&-
        [ $code = 0 ] || rm -f "$out/$name"
    fi
    [ $code = 0 ] && return 0
    case $code in
    124 | 143) said="not done after $seconds s" ;;
    153) said="larger than ${KPROXY_KIB:-262144} KiB" ;;
    esac
    case $said in
    'BusyBox v'*) said="$tool is BusyBox's, which cannot do this" ;; # its version and usage come first
    esac
    fail "$name" "${said:-exit code $code}"
    return 1
}

lines() { while IFS= read -r line || [ -n "$line" ]; do printf '%s\n' "$line"; done < "$1"; }

# The plain names are those of the variant that this host uses; the other variant's are read beside them.
rules() { # iptables|ip6tables PROC
    plain=$1-save
    take "$plain" "$plain" run "$plain"
    case $("$1" -V 2> /dev/null) in
    *nf_tables*) other=legacy ;;
    *) other=nft ;;
    esac
    if [ "$other" = legacy ]; then
        # Without a table the tool has nothing to say, and asking would load modules.
        legacy=
        [ -r "$2" ] && read -r legacy < "$2"
        [ -n "$legacy" ] || return
    fi
    if has "$1-$other-save"; then take "$1-$other-save" "" run "$1-$other-save"; fi
}

both() { # COMMAND...: of both families, IPv4 first; a host may lack IPv6
    tool=$1; shift
    run "$tool" -json -4 "$@" || return
    run "$tool" -json -6 "$@" 2> /dev/null || :
}

flows() {
    if has conntrack; then
        run conntrack -L -f ipv4 2> /dev/null || { run conntrack -L -f ipv4 > /dev/null; return; }
        run conntrack -L -f ipv6 2> /dev/null || :
    elif [ -r /proc/net/nf_conntrack ]; then
        lines /proc/net/nf_conntrack
    else
        echo 'conntrack: not found' >&2; return 1
    fi
}

setting() { # FILE below /proc/sys. Not by `read`: the kernel gives a number only to who reads it at once.
    [ -r "/proc/sys/$1" ] && printf '%s = %s\n' "$1" "$(cat "/proc/sys/$1" 2> /dev/null)"
}

settings() {
    for name in net/ipv4/ip_forward net/ipv6/conf/all/forwarding net/ipv6/conf/all/disable_ipv6 \
        net/bridge/bridge-nf-call-iptables net/bridge/bridge-nf-call-ip6tables \
        net/netfilter/nf_conntrack_max net/netfilter/nf_conntrack_count net/netfilter/nf_conntrack_tcp_be_liberal; do
        setting "$name"
    done
    for path in /proc/sys/net/ipv4/vs/*; do
        setting "${path#/proc/sys/}"
    done
    setting net/ipv4/conf/all/arp_ignore
    setting net/ipv4/conf/all/arp_announce
    for directory in /proc/sys/net/ipv4/conf/*; do
        for name in forwarding rp_filter route_localnet accept_local; do
            setting "net/ipv4/conf/${directory##*/}/$name"
        done
    done
    return 0
}

# Only where the kernel has IPVS: ipvsadm would load it. The kernel's own list lacks some of what ipvsadm tells.
servers() { if has ipvsadm; then run ipvsadm -Sn; else run cat "$net/ip_vs"; fi; }

recent() {
    set -- /proc/net/xt_recent/*
    [ -e "$1" ] || return 0
    while read -r first second rest; do
        case "$first $second" in
        'now at') printf 'now at %s\n' "$rest" ;;
        'jiffies: '*) printf 'jiffies: %s\n' "$second"; break ;;
        esac
    done < /proc/timer_list
    for list; do
        printf '== %s\n' "${list##*/}"
        lines "$list"
    done
}

answer() { # URL
    if has curl; then
        curl -s -S -m 5 -w '\nHTTP %{http_code}\n' "$1"
    else
        wget -q -T 5 -O - "$1"
    fi
}

web() { # NAME URL
    if has curl; then take "$1" "" answer "$2"; else take "$1" wget answer "$2"; fi
}

version() { run kube-proxy --version; }

rules iptables /proc/net/ip_tables_names
rules ip6tables /proc/net/ip6_tables_names
if has nft; then take nft "" run nft list ruleset; else fail nft 'nft: not found'; fi
take ipset-save ipset run ipset save
if [ -e "$net/ip_vs" ]; then
    take ipvs "" servers
    take ipvs-connections cat run cat "$net/ip_vs_conn"
fi
take ip-addr.json ip run ip -json -details address show
take ip-route.json ip both ip route show table all
take ip-rule.json ip both ip rule show
take ip-neigh.json ip both ip neigh show
take bridge-fdb.json bridge run bridge -json fdb show
take sysctl cat settings
take conntrack "" flows
take xt-recent "" recent
web kube-proxy/configz "http://${KPROXY_METRICS:-127.0.0.1:10249}/configz"
web kube-proxy/metrics "http://${KPROXY_METRICS:-127.0.0.1:10249}/metrics"
web kube-proxy/healthz "http://${KPROXY_HEALTHZ:-127.0.0.1:10256}/healthz"
take kube-proxy/version kube-proxy version
total=$(($(now) + 1)) # there is always time to say what failed
if [ -n "$failures" ]; then take errors "" printf '%s' "$failures"; fi
exit 0
