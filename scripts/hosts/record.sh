#!/bin/bash
# Records the rules that programs write on a host: each program of a Debian suite is started in namespaces of its own
# (network, mount, PID, UTS, IPC), told its configuration, and what the kernel then holds is printed into a folder.
# The programs are installed into a root directory of their own, never on this machine, and what they change in that root
# is thrown away. The machine's network is used by apt alone.
#
# usage: record.sh FOLDER [NAME...]     FOLDER/NAME is written for each NAME; all names by default
#        record.sh --list               the names, each with its Debian suite and recipe
#   KPROXY_CACHE     where the roots are kept between runs; ~/.cache/kproxy by default
# exit: 0 all recorded, 1 something failed, 2 bad usage
#
# A recipe is recipes/RECIPE.sh, sourced by inside.sh in the namespaces; tests/reference/hosts/README.md tells what each does.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
export HOME="${HOME:-/root}" PATH="$PATH:/usr/sbin:/sbin"
cache=${KPROXY_CACHE:-$HOME/.cache/kproxy}/hosts
program=record
# shellcheck source=scripts/common.sh
. "$here/../common.sh"

# name, suite, recipe, what the recipe is told, and `brief` where another recording has the tables' handles and JSON
hosts='
docker                 bookworm docker nft
docker-legacy          bookworm docker legacy
docker-trixie          trixie   docker nft
ufw                    bookworm ufw nft
ufw-legacy             bookworm ufw legacy
firewalld-nftables     bookworm firewalld nftables
firewalld-iptables     bookworm firewalld iptables brief
firewalld-trixie       trixie   firewalld nftables brief
fail2ban-iptables      bookworm fail2ban iptables
fail2ban-nftables      trixie   fail2ban nftables
netavark-iptables      trixie   netavark iptables
netavark-nftables      trixie   netavark nftables
libvirt-iptables       bookworm libvirt iptables
libvirt-nftables       trixie   libvirt nftables
calico-iptables        bookworm calico iptables
calico-nftables        trixie   calico nftables
flannel-iptables       bookworm flannel iptables
flannel-nftables       trixie   flannel nftables brief
kube-proxy-iptables    bookworm kube-proxy iptables
kube-proxy-nftables    trixie   kube-proxy nftables
mixed                  trixie   mixed - brief
'
packages=ca-certificates,iproute2,iptables,nftables,ipset,conntrack,docker.io,firewalld,ufw,fail2ban,netavark,aardvark-dns
packages+=,dbus,dnsmasq-base,procps,python3,python3-systemd,kmod,busybox-static
packages+=,libvirt-daemon-system,libvirt-daemon,libvirt-clients,libvirt-daemon-config-network

case ${1:-} in
    -h | --help)
        sed -n '2,/^set /{/^set /d; s/^# \{0,1\}//; p}' "$0"
        exit 0
        ;;
    --list)
        printf '%s' "$hosts" | sed '/^$/d'
        exit 0
        ;;
    "") fail 2 "usage: record.sh FOLDER [NAME...]" ;;
esac
folder=$(mkdir -p "$1" && cd "$1" && pwd)
shift
[ "$(id -u)" -eq 0 ] || fail 1 "only root can make namespaces and a root directory"
# shellcheck disable=SC2046  # a list of names
[ "$#" -gt 0 ] || set -- $(printf '%s' "$hosts" | awk 'NF {print $1}')
for tool in mmdebstrap unshare pivot_root; do
    command -v "$tool" >/dev/null || fail 1 "needs $tool"
done
mkdir -p "$cache"

root_of() { # root_of SUITE: $root, a Debian root with the programs in it; made if it is not there
    root=$cache/$1
    [ ! -e "$root.done" ] || return 0
    local sources
    sources=$(need_sources "$1") || fail 1 "apt of this machine has no source of Debian"
    need_room "$cache" 3000 "a root with the programs"
    rm -rf --one-file-system "$root"
    say "$1: installing the programs into a root of their own"
    local more=""
    # Debian 13 has the client in a package of its own.
    [ "$1" = bookworm ] || more=,docker-cli
    printf '%s\n' "$sources" | mmdebstrap --mode=root --variant=minbase --format=directory --include="$packages$more" \
        "$1" "$root" - >"$root.log" 2>&1 || fail 1 "$1: no root; $root.log says why"
    touch "$root.done"
}

failures=0
for name in "$@"; do
    read -r _ suite recipe how brief < <(printf '%s' "$hosts" | grep -E "^$name ") || fail 2 "'$name' is not recorded here; see --list"
    root_of "$suite"
    out=$(mktemp -d)
    # --kill-child: whatever a recipe started is in its PID namespace, and ends with it.
    if unshare --net --mount --pid --uts --ipc --fork --kill-child --propagation private \
        bash "$here/inside.sh" "$root" "$here" "$out" "$recipe" "$how" "$brief" >"$out.log" 2>&1 </dev/null; then
        mkdir -p "$folder/$name"
        # The README and the questions beside the dumps are written by hand.
        find "$folder/$name" -type f ! -name README.md ! -name questions.yaml -delete
        cp -r "$out/." "$folder/$name/"
        say "$name: recorded"
    else
        tail -n 25 "$out.log" >&2
        say "$name: failed"
        failures=$((failures + 1))
    fi
    [ -n "${RECORD_KEEP_LOGS:-}" ] || rm -f "$out.log"
    rm -rf "$out"
done
[ "$failures" -eq 0 ] || fail 1 "$failures recordings failed"
