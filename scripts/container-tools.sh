#!/bin/sh
# Unpacks containerd and the CNI project's plugins from their Debian packages into a directory, for the tests that drive
# kproxy-cni with them. Nothing is installed, so that no service of theirs is started. Running it again does nothing.
#
# usage: container-tools.sh DIRECTORY
set -eu

target=${1:?usage: container-tools.sh DIRECTORY}
[ ! -x "$target/usr/lib/cni/loopback" ] || exit 0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
chmod 755 "$scratch" # apt downloads as a user of its own
cd "$scratch"
echo "downloading containerd and containernetworking-plugins" >&2
apt-get download -qq containerd containernetworking-plugins 2>/dev/null || {
    # The lists may be old, or not there yet.
    apt-get update -qq
    apt-get download -qq containerd containernetworking-plugins
}
mkdir unpacked
for package in ./*.deb; do
    dpkg -x "$package" unpacked
done
cd - >/dev/null
rm -rf "$target"
mkdir -p "$(dirname "$target")"
cp -r "$scratch/unpacked" "$target"
