#!/bin/bash
# Boots the image of image.sh in qemu with this tree's kproxy in it, has the guest run provision/check.sh, shows what it
# says as it comes, and ends with the guest's result.
#
# usage: test.sh [ARGUMENT...]     the arguments are check.sh's, a scenario's name for instance
#   VM_ACCEL     kvm, tcg, or auto (the default): kvm if a kernel really boots with it, else tcg
#   VM_STEPS     overlay, checks, or overlay,checks (the default); image: only build the image
#   VM_GOLDEN    the folder of scenarios, rules_golden by default
#   VM_TIMEOUT   seconds the guest may take, 900 by default
#   VM_LOG       where the whole log goes, $KPROXY_CACHE/vm/last.log by default
# exit: 0 all as expected, 1 differences or a guest that did not finish, 2 bad usage
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
tree=$(cd "$here/../.." && pwd)
cache=${KPROXY_CACHE:-$HOME/.cache/kproxy}/vm
limit=${VM_TIMEOUT:-900}
steps=${VM_STEPS:-overlay,checks}
golden=${VM_GOLDEN:-$tree/rules_golden}
log=${VM_LOG:-$cache/last.log}
export PATH="$PATH:/usr/sbin:/sbin"

fail() { # fail CODE MESSAGE
    echo "vm: $2" >&2
    exit "$1"
}

say() {
    echo "vm: $*" >&2
}

[[ $limit =~ ^[1-9][0-9]*$ ]] || fail 2 "VM_TIMEOUT must be a number of seconds, not '$limit'"
case ${VM_ACCEL:-auto} in
    auto | kvm | tcg) ;;
    *) fail 2 "VM_ACCEL must be auto, kvm or tcg, not '$VM_ACCEL'" ;;
esac
case $steps in
    image | overlay | checks | overlay,checks) ;;
    *) fail 2 "VM_STEPS must be image, overlay, checks or overlay,checks, not '$steps'" ;;
esac
[ "$(uname -m)" = x86_64 ] || fail 1 "the image is for x86_64, and this machine is $(uname -m)"
missing=""
need() { # need COMMAND PACKAGE
    command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}
need qemu-system-x86_64 qemu-system-x86
need mmdebstrap mmdebstrap
need mke2fs e2fsprogs
need flock util-linux
if [ -n "$missing" ] && [ "$(id -u)" -eq 0 ]; then
    say "installing Debian packages:$missing"
    # shellcheck disable=SC2086  # a list of names
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing; } >/dev/null ||
        fail 1 "could not install$missing"
elif [ -n "$missing" ]; then
    fail 1 "Debian packages are missing; install them with: sudo apt-get install$missing"
fi
[ "$(id -u)" -eq 0 ] || fail 1 "only root can build the guest's root directory; run: sudo make vm-test"
# Names of scenarios are checked here, before a guest is booted for nothing.
for argument in "$@"; do
    case $argument in
        # The guest's unit takes the arguments as words.
        *[!a-zA-Z0-9.-]*) fail 2 "no scenario has such a name: '$argument'" ;;
        nft | legacy | -*) ;;
        *) [ -f "$golden/$argument/cluster.yaml" ] || fail 2 "no scenario $golden/$argument" ;;
    esac
done

began=$(date +%s)
image=$(sh "$here/image.sh")
if [ "$steps" = image ]; then
    say "the image is $image"
    exit 0
fi
scratch=$(mktemp -d "${TMPDIR:-/tmp}/kproxy-vm.XXXXXX")
qemu=""
finish() {
    code=$?
    trap - EXIT
    if [ -n "$qemu" ] && kill "$qemu" 2>/dev/null; then
        # timeout, which this is, hands it on to qemu, and kills that after 5 s if need be.
        wait "$qemu" || true
    fi
    rm -rf "$scratch"
    exit "$code"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

step() { # step TITLE COMMAND...: how long it took, and on failure what it said
    local title=$1 from
    shift
    from=$(date +%s)
    "$@" >>"$scratch/steps.log" 2>&1 || {
        tail -n 15 "$scratch/steps.log" >&2
        fail 1 "$title: failed"
    }
    say "$(printf '%4d s  %s' $(($(date +%s) - from)) "$title")"
}

copy_tree() {
    local root=$scratch/root
    # Copied, not linked: what follows must not reach into the cache. A build holds the same lock.
    flock --shared --timeout 60 "$cache/lock" cp -a --reflink=auto "$image/root" "$root"
    mkdir -p "$root/usr/src/kproxy"
    cp -R "$tree/pyproject.toml" "$tree/README.md" "$tree/LICENSE" "$tree/kproxy" "$tree/vagrant" \
        "$root/usr/src/kproxy/"
    # The scenarios may come from elsewhere: the tests send a wrong one in, to see it fail.
    cp -R "$golden" "$root/usr/src/kproxy/rules_golden"
    find "$root/usr/src/kproxy" -name __pycache__ -prune -exec rm -rf {} +
}

install_kproxy() {
    local root=$scratch/root
    timeout 300 chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
        sh /usr/src/kproxy/vagrant/provision/install.sh /usr/src/kproxy kproxy
    timeout 60 chroot "$root" env -i PATH=/usr/bin:/bin /opt/kproxy/bin/python -m compileall -q /usr/src/kproxy/vagrant
    cat >"$root/etc/systemd/system/kproxy-check.service" <<UNIT
[Unit]
Description=kproxy's checks
[Service]
Type=oneshot
ExecStart=/bin/sh /usr/src/kproxy/vagrant/qemu/guest.sh $steps $*
# However it ends, so does the guest.
ExecStopPost=/bin/systemctl poweroff --force --force
StandardOutput=journal+console
UNIT
    mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
    ln -s ../kproxy-check.service "$root/etc/systemd/system/multi-user.target.wants/kproxy-check.service"
    # Nobody logs in, nothing is scheduled, and there is no network to wait for.
    for unit in getty.target serial-getty@ttyS0.service apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer fstrim.timer \
        e2scrub_reap.service systemd-timesyncd.service systemd-update-utmp.service dpkg-db-backup.timer logrotate.timer \
        systemd-udev-settle.service systemd-hwdb-update.service systemd-journal-catalog-update.service; do
        ln -sf /dev/null "$root/etc/systemd/system/$unit"
    done
    echo kproxy-vm >"$root/etc/hostname"
}

make_disk() {
    mke2fs -q -t ext4 -O '^has_journal' -m 0 -d "$scratch/root" "$scratch/disk.ext4" 2g
    rm -rf "${scratch:?}/root"
}

boots_with_kvm() {
    # /dev/kvm may be there and not work, or work for a few instructions only. So a kernel must boot with it: without a
    # disk it panics, at which it reboots, at which qemu ends; on real hardware within a second.
    [ -w /dev/kvm ] || return 1
    timeout --kill-after=1 8 qemu-system-x86_64 -accel kvm -cpu host -m 256 -nodefaults -display none -no-reboot \
        -kernel "$image/vmlinuz" -append 'console=ttyS0 panic=-1' -serial "file:$scratch/probe" >/dev/null 2>&1 || return 1
    grep -q 'Kernel panic' "$scratch/probe"
}

choose_accelerator() {
    accelerator=${VM_ACCEL:-auto}
    if [ "$accelerator" = auto ]; then
        accelerator=tcg
        if boots_with_kvm; then accelerator=kvm; fi
    fi
}

say "the guest's disk"
step "copying the image and this tree" copy_tree
step "installing kproxy into it" install_kproxy "$@"
step "making the disk" make_disk
step "choosing an accelerator (kvm if it works)" choose_accelerator

# shellcheck disable=SC2054  # the commas are qemu's
case $accelerator in
    kvm) options=(-accel kvm -cpu host) ;;
    # max has more than the default CPU to offer, and nothing that tcg cannot do.
    tcg) options=(-accel tcg,thread=multi,tb-size=512 -cpu max) ;;
esac
say "booting with $accelerator, $limit s at most"
: >"$scratch/output"
timeout --kill-after=5 "$limit" qemu-system-x86_64 "${options[@]}" -machine q35 -smp 2 -m 2048 -nodefaults -display none \
    -no-reboot -kernel "$image/vmlinuz" \
    -append 'root=/dev/nvme0n1 rw console=ttyS0 panic=-1 quiet systemd.show_status=false mitigations=off net.ifnames=0' \
    -drive "file=$scratch/disk.ext4,format=raw,if=none,id=disk,cache=unsafe" -device nvme,drive=disk,serial=kproxy \
    -device virtio-rng-pci -serial "file:$scratch/console" -serial "file:$scratch/output" \
    >"$scratch/qemu" 2>&1 &
qemu=$!
# In the background, so that a signal ends the wait at once; tail ends when qemu has.
tail --pid="$qemu" --sleep-interval=0.5 -n +1 -f "$scratch/output" | grep --line-buffered -v '^kproxy-vm-result ' &
viewer=$!
status=0
wait "$qemu" || status=$?
qemu=""
wait "$viewer" || true

mkdir -p "$(dirname "$log")"
{
    echo "== steps"
    cat "$scratch/steps.log"
    echo "== qemu (exit $status)"
    cat "$scratch/qemu"
    echo "== console"
    cat "$scratch/console"
    echo "== checks"
    cat "$scratch/output"
} >"$log"
result=$(sed -n 's/^kproxy-vm-result \([0-9]*\)$/\1/p' "$scratch/output" | tail -n 1)
if [ -z "$result" ]; then
    tail -n 15 "$scratch/console" >&2
    if [ "$status" -eq 124 ]; then
        fail 1 "the guest was not done after $limit s (VM_TIMEOUT); the whole log is $log"
    fi
    fail 1 "the guest ended without a result (qemu exit $status); the whole log is $log"
fi
say "the guest's result is $result; $(($(date +%s) - began)) s in all; the whole log is $log"
exit "$result"
