#!/bin/bash
# Boots the image of image.sh in qemu with this tree's kproxy in it, has the guest run provision/check.sh, shows what it
# says as it comes, and ends with the guest's result.
#
# usage: test.sh [ARGUMENT...]     the arguments are check.sh's, a scenario's name for instance
#   VM_ACCEL     kvm, tcg, or auto (the default): kvm if a kernel really boots with it, else tcg
#   VM_STEPS     some of overlay,checks,ipvs (the default: all); image: only build the image
#   VM_PACKETS   how many packets the step ipvs sends in each scenario and family, 4 by default
#   VM_GOLDEN    the folder of scenarios, rules_golden by default
#   VM_TIMEOUT   seconds the guest may take, 1500 by default
#   VM_APPEND    more for the guest kernel's command line
#   VM_LOG       where the whole log goes, $KPROXY_CACHE/vm/last.log by default
# exit: 0 all as expected, 1 differences or a guest that did not finish, 2 bad usage
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
tree=$(cd "$here/../.." && pwd)
cache=${KPROXY_CACHE:-${HOME:-/root}/.cache/kproxy}/vm
limit=${VM_TIMEOUT:-1500}
packets=${VM_PACKETS:-4}
steps=${VM_STEPS:-overlay,checks,ipvs}
golden=${VM_GOLDEN:-$tree/rules_golden}
log=${VM_LOG:-$cache/last.log}
temporary=${TMPDIR:-/tmp}
export PATH="$PATH:/usr/sbin:/sbin"
# shellcheck source=scripts/common.sh
. "$tree/scripts/common.sh"

[[ $limit =~ ^[1-9][0-9]*$ ]] || fail 2 "VM_TIMEOUT must be a number of seconds, not '$limit'"
case ${VM_ACCEL:-auto} in
    auto | kvm | tcg) ;;
    *) fail 2 "VM_ACCEL must be auto, kvm or tcg, not '$VM_ACCEL'" ;;
esac
[[ $packets =~ ^[1-9][0-9]*$ ]] || fail 2 "VM_PACKETS must be a number of packets, not '$packets'"
[[ $steps =~ ^(image|(overlay|checks|ipvs)(,(overlay|checks|ipvs))*)$ ]] ||
    fail 2 "VM_STEPS must be image, or some of overlay, checks and ipvs with commas, not '$steps'"
# All of this is checked before anything is installed or booted for nothing.
[ -d "$golden" ] || fail 2 "VM_GOLDEN must be a folder of scenarios, not '$golden'"
check_sources
for argument in "$@"; do
    case $argument in
        --all | --variant | nft | legacy | nftables) ;;
        -*) fail 2 "check.sh has no option '$argument', only --all and --variant nft|legacy|nftables" ;;
        # The guest's unit takes the arguments as words.
        "" | *[!a-zA-Z0-9.-]*) fail 2 "no scenario has such a name: '$argument'" ;;
        *) [ -f "$golden/$argument/cluster.yaml" ] || fail 2 "no scenario $golden/$argument" ;;
    esac
done

[ "$(uname -m)" = x86_64 ] || fail 1 "the image is for x86_64, and this machine is $(uname -m)"
missing=""
need() { # need COMMAND PACKAGE
    command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}
need qemu-system-x86_64 qemu-system-x86
need mmdebstrap mmdebstrap
need gpg gpg
need mount mount
need mke2fs e2fsprogs
need flock util-linux
if [ -n "$missing" ] && [ "$(id -u)" -eq 0 ]; then
    # shellcheck disable=SC2086  # a list of names
    install_packages $missing
elif [ -n "$missing" ]; then
    fail 1 "Debian packages are missing; install them with: sudo apt-get install$missing"
fi
[ "$(id -u)" -eq 0 ] || fail 1 "only root can build the guest's root directory; run: sudo make vm-test"

began=$SECONDS
# The image's size twice: its root directory and the disk made of it.
need_room "$temporary" 1500 "the guest's disk"
scratch=$(mktemp -d "$temporary/kproxy-vm.XXXXXX")
probe=""
finish() {
    code=$?
    trap - EXIT
    end_child
    if [ -n "$probe" ] && kill "$probe" 2>/dev/null; then wait "$probe" || true; fi
    rm -rf "$scratch"
    exit "$code"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

status=0
bash "$here/image.sh" >"$scratch/image" &
child=$!
wait "$child" || status=$?
child=""
[ "$status" -eq 0 ] || exit "$status"
image=$(cat "$scratch/image")
if [ "$steps" = image ]; then
    say "the image is $image"
    exit 0
fi

step() { # step TITLE COMMAND...: how long it took, and on failure what it said
    local title=$1 from=$SECONDS
    shift
    "$@" >>"$scratch/steps.log" 2>&1 || {
        tail -n 15 "$scratch/steps.log" >&2
        fail 1 "$title: failed"
    }
    say "$(printf '%4d s  %s' $((SECONDS - from)) "$title")"
}

copy_tree() {
    local root=$scratch/root
    # Copied, not linked: what follows must not reach into the cache. A build, which deletes older images, holds the same
    # lock, so the kernel is copied too.
    flock --shared --timeout 60 "$cache/lock" cp -a --reflink=auto "$image/root" "$image/vmlinuz" "$scratch/"
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
ExecStart=/bin/sh /usr/src/kproxy/vagrant/qemu/guest.sh $steps $packets $*
# However it ends, so does the guest.
ExecStopPost=/bin/systemctl poweroff --force --force
StandardOutput=journal+console
UNIT
    mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
    ln -s ../kproxy-check.service "$root/etc/systemd/system/multi-user.target.wants/kproxy-check.service"
    # Nobody logs in, not even after a failure, nothing is scheduled, and there is no network to wait for.
    for unit in getty.target serial-getty@ttyS0.service apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer fstrim.timer \
        e2scrub_reap.service systemd-timesyncd.service systemd-update-utmp.service dpkg-db-backup.timer logrotate.timer \
        emergency.target rescue.target systemd-udev-settle.service systemd-hwdb-update.service systemd-journal-catalog-update.service; do
        ln -sf /dev/null "$root/etc/systemd/system/$unit"
    done
    echo kproxy-vm >"$root/etc/hostname"
}

make_disk() {
    mke2fs -q -t ext4 -O '^has_journal' -m 0 -d "$scratch/root" "$scratch/disk.ext4" 2g
    rm -rf "${scratch:?}/root"
}

# /dev/kvm may be there and not work, or work for a few instructions only. So a kernel must boot with it: without a disk it
# panics, at which it reboots, at which qemu ends; on real hardware within a second. Meanwhile the disk is made.
start_probe() {
    : >"$scratch/probe"
    [ -w /dev/kvm ] || return 0
    timeout --kill-after=1 8 qemu-system-x86_64 -accel kvm -cpu host -m 256 -nodefaults -display none -no-reboot \
        -kernel "$scratch/vmlinuz" -append 'console=ttyS0 panic=-1' -serial "file:$scratch/probe" >/dev/null 2>&1 &
    probe=$!
}

choose_accelerator() {
    if [ -n "$probe" ] && wait "$probe" && grep -q 'Kernel panic' "$scratch/probe"; then
        accelerator=kvm
    else
        accelerator=tcg
    fi
    probe=""
}

say "the guest's disk"
step "copying the image and this tree" copy_tree
accelerator=${VM_ACCEL:-auto}
[ "$accelerator" != auto ] || start_probe
step "installing kproxy into it" install_kproxy "$@"
step "making the disk" make_disk
[ "$accelerator" != auto ] || step "trying whether KVM works" choose_accelerator

# shellcheck disable=SC2054  # the commas are qemu's
case $accelerator in
    kvm) options=(-accel kvm -cpu host) ;;
    # max has more than the default CPU to offer, and nothing that tcg cannot do.
    tcg) options=(-accel tcg,thread=multi,tb-size=512 -cpu max) ;;
esac
say "booting with $accelerator, $limit s at most"
: >"$scratch/output"
timeout --kill-after=5 "$limit" qemu-system-x86_64 "${options[@]}" \
    -machine q35 -smp 2 -m 2048 -nodefaults -display none -no-reboot -kernel "$scratch/vmlinuz" \
    -append "root=/dev/nvme0n1 rw console=ttyS0 panic=-1 quiet systemd.show_status=error mitigations=off net.ifnames=0 ${VM_APPEND:-}" \
    -drive "file=$scratch/disk.ext4,format=raw,if=none,id=disk,cache=unsafe,werror=report" \
    -device nvme,drive=disk,serial=kproxy \
    -device virtio-rng-pci -serial "file:$scratch/console" -serial "file:$scratch/output" \
    >"$scratch/qemu" 2>&1 &
child=$!
# It ends when qemu has.
tail --pid="$child" --sleep-interval=0.5 -n +1 -f "$scratch/output" | grep --line-buffered -v '^kproxy-vm-result ' &
viewer=$!
status=0
await "the guest" "$scratch/output" || status=$?
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
    say "the end of the guest's console:"
    tail -n 60 "$scratch/console" >&2
    if [ "$status" -eq 124 ]; then
        fail 1 "the guest was not done after $limit s (VM_TIMEOUT); the whole log is $log"
    fi
    fail 1 "the guest ended without a result (qemu exit $status); the whole log is $log"
fi
say "the guest's result is $result; $((SECONDS - began)) s in all; the whole log is $log"
exit "$result"
