#!/bin/sh
# Runs the checks of vagrant/checks on this machine, with the kproxy that install.sh installed: golden clusters in its own
# kernel, compared with rules_golden/, their packets traced and sent.
#
# usage: check.sh TREE [--all] [--variant nft|legacy|nftables] [SCENARIO...]
#   TREE   the checkout that kproxy was installed from
# exit: 0 all as expected, 1 differences or a failed command, 2 bad usage
set -eu

tree=${1:?usage: check.sh TREE [--all] [--variant nft|legacy|nftables] [SCENARIO...]}
shift
[ -f "$tree/vagrant/checks/__main__.py" ] || { echo "check.sh: $tree is no checkout of kproxy" >&2; exit 2; }
[ "$(id -u)" -eq 0 ] || { echo "check.sh: must run as root" >&2; exit 2; }
[ -x /opt/kproxy/bin/python ] || { echo "check.sh: kproxy is not installed; run install.sh $tree" >&2; exit 2; }
export PATH="/usr/local/bin:$PATH:/usr/sbin:/sbin"

echo "kernel $(uname -r), $(iptables-nft --version), $(iptables-legacy --version), $(nft --version | cut -d " " -f 1,2), $(kproxy --version)"
# A bridge passes its packets to iptables only with this module; nothing loads it by itself.
modprobe br_netfilter
cd "$tree"
# The tree may be read-only, or shared with the host.
PYTHONDONTWRITEBYTECODE=1 exec /opt/kproxy/bin/python -m vagrant.checks "$@"
