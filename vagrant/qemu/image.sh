#!/bin/bash
# Builds the guest's root directory: a small Debian from this machine's own apt sources, with Debian's cloud kernel and
# what kproxy depends on, and without kproxy itself. It is kept in a cache and built again only when its recipe changes:
# this file, provision/install.sh, kproxy's dependencies, the Debian suite and its sources.
#
# usage: image.sh        prints the folder on stdout; it holds root/ and vmlinuz
#   KPROXY_CACHE   where it is kept; ~/.cache/kproxy by default
#   VM_SOURCES     a file of apt sources ("deb URI SUITE COMPONENT..." lines) instead of this machine's
#   VM_SUITE       the Debian suite; this machine's by default
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
tree=$(cd "$here/../.." && pwd)
cache=${KPROXY_CACHE:-${HOME:-/root}/.cache/kproxy}/vm
work=$cache/building
root=$work/root
log=$cache/build.log
# shellcheck source=scripts/common.sh
. "$tree/scripts/common.sh"
# Python is compiled against while the image is built; the compiler does not stay.
build_packages="gcc libc6-dev python3-dev"
packages="linux-image-cloud-amd64 systemd-sysv udev python3 python3-venv iptables nftables ipset ipvsadm conntrack iproute2 iputils-ping kmod procps $build_packages"

bootstrap() {
    # No initramfs: the cloud kernel has NVMe and ext4 built in, so it mounts its disk by itself.
    INITRD=No mmdebstrap --mode=root --variant=minbase --format=directory \
        --include="${packages// /,}" --aptopt='Acquire::Languages "none"' \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' "$suite" "$root" - <"$work/sources"
}

install_dependencies() {
    mkdir -p "$root/tmp/tree"
    cp "$tree/pyproject.toml" "$root/tmp/tree/"
    cp "$here/../provision/install.sh" "$root/tmp/"
    lend_configuration "$root"
    set -- PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 "${lent[@]}"
    chroot "$root" env -i "$@" sh /tmp/install.sh /tmp/tree dependencies
    rm -rf "$root/etc/lent" "$root/tmp/tree" "$root/tmp/install.sh" "$root/etc/pip.conf" "$root/root/.cache"
}

trim() {
    # shellcheck disable=SC2086  # a list of names
    DEBIAN_FRONTEND=noninteractive chroot "$root" apt-get purge -y -qq --auto-remove $build_packages
    rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/var/log/*.log "$root"/usr/lib/x86_64-linux-gnu/perl* \
        "$root"/usr/share/perl*
    cp "$root"/boot/vmlinuz-* "$work/vmlinuz"
    rm -rf "${root:?}"/boot/*
}

if [ "${1:-}" = --step ]; then
    # Of itself, below: one step as a process of its own, which can be ended. It does not end before what it runs has:
    # mmdebstrap has mounts to undo.
    trap 'exit 143' TERM
    "$2"
    exit
fi

check_sources
suite=${VM_SUITE:-$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)}
grep -q '^ID=debian' /etc/os-release || [ -n "${VM_SOURCES:-}" ] || suite=""
[ -n "$suite" ] || fail 2 "this machine is no Debian; name a suite in VM_SUITE and its apt sources in VM_SOURCES"
export suite HOME="${HOME:-/root}"

if [ -n "${VM_SOURCES:-}" ]; then
    sources=$(grep '^deb ' "$VM_SOURCES")
else
    sources=$(need_sources "$suite") ||
        fail 1 "apt of this machine has no source of Debian; name a file of sources in VM_SOURCES"
fi

dependencies=$(sed -n '/^\[build-system\]/,/^$/p; /^dependencies = \[/,/^\]/p; /^\[project.optional-dependencies\]/,/^$/p' "$tree/pyproject.toml")
recipe=$({
    cat "$here/image.sh" "$here/../provision/install.sh"
    printf '%s\n' "$dependencies" "$suite" "$sources"
} | sha256sum | cut -c 1-16)
image=$cache/$recipe

mkdir -p "$cache" || fail 1 "cannot make $cache; name another folder in KPROXY_CACHE"
exec 9>"$cache/lock"
trap 'code=$?; trap - EXIT; end_child; exit $code' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
attend "waiting for another build" "" flock --timeout 900 9 || fail 1 "another build has held $cache/lock for 15 minutes"
# A folder has its recipe's name only once it is complete.
if [ -f "$image/vmlinuz" ]; then
    echo "$image"
    exit 0
fi

need_room "$cache" 1500 "building the image"
# What an interrupted build left; on one file system, in case something is still mounted there.
rm -rf --one-file-system "$work" "$image"
trap 'code=$?; trap - EXIT; end_child; rm -rf --one-file-system "$work"; exit $code' EXIT
mkdir -p "$root"
printf '%s\n' "$sources" >"$work/sources"

step() { # step TITLE SECONDS FUNCTION
    local from=$SECONDS status=0
    attend "$1" "$log" timeout --kill-after=20 "$2" bash "$0" --step "$3" || status=$?
    if [ "$status" -ne 0 ]; then
        tail -n 15 "$log" >&2
        [ "$status" -ne 124 ] || fail 1 "the image could not be built ($1): not done after $2 s; the whole log is $log"
        fail 1 "the image could not be built ($1): exit $status; the whole log is $log"
    fi
    say "$(printf '%4d s  %s' $((SECONDS - from)) "$1")"
}

: >"$log"
say "building a Debian $suite image (kept in $image)"
began=$SECONDS
step "Debian's packages" 600 bootstrap
step "what kproxy depends on" 600 install_dependencies
step "removing what only the build needed" 120 trim
# Older images belong to older recipes.
find "$cache" -mindepth 1 -maxdepth 1 -type d ! -name building -exec rm -rf --one-file-system {} +
mv "$work" "$image"
say "built in $((SECONDS - began)) s, $(du -sh "$image" | cut -f1)"
echo "$image"
