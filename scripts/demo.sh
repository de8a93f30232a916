#!/bin/sh
# The main job on real input, shown: the minikube cluster of the article becomes a node's rules; as root they are also loaded
# into a namespace of their own, where iptables-save must print the same bytes.
#
# usage: demo.sh BIN CLUSTER     BIN holds the kproxy command, CLUSTER is a folder with cluster.yaml and config.yaml
set -eu

[ "$#" -eq 2 ] || { echo "usage: demo.sh BIN CLUSTER" >&2; exit 2; }
kproxy=$1/kproxy
cluster=$2
work=$(mktemp -d)
namespace=kp-demo-$$
trap 'rm -rf "$work"; ip netns del "$namespace" 2>/dev/null || true' EXIT
set -- -f "$cluster/cluster.yaml" --config "$cluster/config.yaml"

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
[ -t 1 ] || say() { printf '\n%s\n' "$*"; }

say "kproxy's demo, about 5 seconds: the rules of the minikube cluster of the article, as kube-proxy would write them"
echo "Three commands answer from two files, $cluster/cluster.yaml and config.yaml; nothing of this machine is changed."
echo "As root the rules are also loaded into a network namespace that is made for it, and taken away again."

say "What the Service default/crd-array-watcher becomes on node minikube"
"$kproxy" explain "$@" --service default/crd-array-watcher

say "The chain that the article shows, each rule with the object that it was made for"
"$kproxy" render "$@" --format yaml -t nat --chain KUBE-SERVICES

"$kproxy" render "$@" --format save -o "$work/rendered.save"
"$kproxy" render "$@" --format restore -o "$work/rendered.restore"
say "Rendered $(grep -c '^-A' "$work/rendered.save") rules of $(grep -c '^:KUBE' "$work/rendered.save") chains"

if [ "$(id -u)" -ne 0 ]; then
    say "Not root, so the rules are not loaded into a namespace."
    exit 0
fi
PATH="$PATH:/usr/sbin:/sbin"
ip netns add "$namespace"
# `ip netns exec` would remount /, which is no mount point in a plain chroot.
# The jump rules and canaries: what is left without kube-proxy's own rules.
grep -v -E -e '^-A KUBE' -e '^:KUBE-(SEP|SVC|SVL|EXT|FW)-' "$work/rendered.save" >"$work/jumps"
nsenter --net="/run/netns/$namespace" iptables-nft-restore --noflush <"$work/jumps"
nsenter --net="/run/netns/$namespace" iptables-nft-restore --noflush <"$work/rendered.restore"
nsenter --net="/run/netns/$namespace" iptables-nft-save | grep -v '^#' | sed 's/\[[0-9]*:[0-9]*\]/[0:0]/' >"$work/kernel.save"
if diff -u "$work/rendered.save" "$work/kernel.save"; then
    say "Loaded into namespace $namespace: iptables-save prints the rendered bytes exactly."
else
    say "The kernel disagrees with the rendered rules."
    exit 1
fi
