#!/bin/sh
# Builds the guest's root directory: a small Debian from this machine's own apt sources, with Debian's cloud kernel and
# what kproxy depends on, and without kproxy itself. It is kept in a cache and built again only when its recipe changes:
# this file, provision/install.sh, kproxy's dependencies, the Debian suite and its sources.
#
# usage: image.sh        prints the folder on stdout; it holds root/ and vmlinuz
#   KPROXY_CACHE   where it is kept; ~/.cache/kproxy by default
#   VM_SOURCES     a file of apt sources ("deb URI SUITE COMPONENT..." lines) instead of this machine's
#   VM_SUITE       the Debian suite; this machine's by default
set -eu

here=$(cd "$(dirname "$0")" && pwd)
tree=$(cd "$here/../.." && pwd)
cache=${KPROXY_CACHE:-$HOME/.cache/kproxy}/vm
# Python is compiled against while the image is built; the compiler does not stay.
build_packages="gcc libc6-dev python3-dev"
packages="linux-image-cloud-amd64 systemd-sysv udev python3 python3-venv iptables ipset conntrack iproute2 iputils-ping kmod procps $build_packages"

fail() { # fail CODE MESSAGE
    echo "vm: $2" >&2
    exit "$1"
}

say() {
    echo "vm: $*" >&2
}

suite=${VM_SUITE:-$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)}
grep -q '^ID=debian' /etc/os-release || [ -n "${VM_SOURCES:-}" ] || suite=""
[ -n "$suite" ] || fail 2 "this machine is no Debian; name a suite in VM_SUITE and its apt sources in VM_SOURCES"

debian_sources() {
    if [ -n "${VM_SOURCES:-}" ]; then
        grep '^deb ' "$VM_SOURCES" || fail 2 "$VM_SOURCES: no line that begins with 'deb '"
        return
    fi
    # apt knows its sources whatever file and form they are written in; only Debian's own belong in the guest.
    # shellcheck disable=SC2016  # apt expands these
    apt-get indextargets --format '$(ORIGIN) $(CODENAME) deb $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
        awk -v suite="$suite" '$1 == "Debian" && index($2, suite) == 1 && $6 == "main" { print $3, $4, $5, $6 }' | sort -u
}

sources=$(debian_sources)
if [ -z "$sources" ]; then
    apt-get update -qq
    sources=$(debian_sources)
fi
[ -n "$sources" ] || fail 1 "apt of this machine has no source for Debian $suite; name a file of sources in VM_SOURCES"

dependencies=$(sed -n '/^\[build-system\]/,/^$/p; /^dependencies = \[/,/^\]/p' "$tree/pyproject.toml")
recipe=$({
    cat "$here/image.sh" "$here/../provision/install.sh"
    printf '%s\n' "$dependencies" "$suite" "$sources"
} | sha256sum | cut -c 1-16)
image=$cache/$recipe

mkdir -p "$cache"
exec 9>"$cache/lock"
flock --timeout 900 9 || fail 1 "another build has held $cache/lock for 15 minutes"
if [ -f "$image/vmlinuz" ]; then
    touch "$image"
    echo "$image"
    exit 0
fi

work=$cache/building
log=$cache/build.log
rm -rf "$work"
# shellcheck disable=SC2154  # the trap assigns it
trap 'code=$?; trap - EXIT; rm -rf "$work"; exit $code' EXIT
trap 'exit 130' INT TERM
mkdir -p "$work"
root=$work/root

step() { # step TITLE COMMAND...
    title=$1
    shift
    from=$(date +%s)
    "$@" >>"$log" 2>&1 9>&- || {
        tail -n 15 "$log" >&2
        fail 1 "the image could not be built ($title); the whole log is $log"
    }
    say "$(printf '%4d s  %s' $(($(date +%s) - from)) "$title")"
}

bootstrap() {
    # No initramfs: the cloud kernel has NVMe and ext4 built in, so it mounts its disk by itself.
    printf '%s\n' "$sources" | INITRD=No timeout 900 mmdebstrap --mode=root --variant=minbase --format=directory \
        --include="$(echo "$packages" | tr ' ' ',')" --aptopt='Acquire::Languages "none"' \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' "$suite" "$root" -
}

install_dependencies() {
    # pip in the guest's root fetches as pip of this machine does: its configuration, authorities and proxies are lent.
    mkdir -p "$root/tmp/lent" "$root/tmp/tree" "$root/root/.config/pip"
    cp "$tree/pyproject.toml" "$root/tmp/tree/"
    cp "$here/../provision/install.sh" "$root/tmp/"
    cp -L /etc/resolv.conf "$root/etc/resolv.conf"
    [ ! -f /etc/pip.conf ] || cp /etc/pip.conf "$root/etc/pip.conf"
    [ ! -f "$HOME/.config/pip/pip.conf" ] || cp "$HOME/.config/pip/pip.conf" "$root/root/.config/pip/pip.conf"
    authorities=${PIP_CERT:-${REQUESTS_CA_BUNDLE:-${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}}}
    [ ! -f "$authorities" ] || cp "$authorities" "$root/tmp/lent/authorities.crt"
    set -- PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
    [ ! -f "$authorities" ] || set -- "$@" PIP_CERT=/tmp/lent/authorities.crt
    for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY PIP_INDEX_URL PIP_EXTRA_INDEX_URL; do
        value=$(printenv "$name" || true)
        [ -z "$value" ] || set -- "$@" "$name=$value"
    done
    timeout 900 chroot "$root" env -i "$@" sh /tmp/install.sh /tmp/tree dependencies
    rm -rf "$root/tmp/lent" "$root/tmp/tree" "$root/tmp/install.sh" "$root/etc/pip.conf" "$root/root/.config" "$root/root/.cache"
}

trim() {
    # shellcheck disable=SC2086  # a list of names
    DEBIAN_FRONTEND=noninteractive timeout 300 chroot "$root" apt-get purge -y -qq --auto-remove $build_packages
    rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/var/log/*.log "$root"/usr/lib/x86_64-linux-gnu/perl* \
        "$root"/usr/share/perl*
    cp "$root"/boot/vmlinuz-* "$work/vmlinuz"
    rm -rf "${root:?}"/boot/*
}

: >"$log"
say "building a Debian $suite image (kept in $image)"
began=$(date +%s)
step "Debian's packages" bootstrap
step "what kproxy depends on" install_dependencies
step "removing what only the build needed" trim
printf '%s\n' "$sources" >"$work/sources"
# Older images belong to older recipes.
find "$cache" -mindepth 1 -maxdepth 1 -type d ! -name building -exec rm -rf {} +
mv "$work" "$image"
say "built in $(($(date +%s) - began)) s, $(du -sh "$image" | cut -f1)"
echo "$image"
