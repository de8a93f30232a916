#!/bin/sh
# What the guest runs once it is up, as a systemd unit: the provisioning scripts that Vagrant's machines run, with their
# output on the second serial line, then the result as a last line, which test.sh on the other side waits for.
#
# usage: guest.sh STEPS PACKETS [ARGUMENT...]     STEPS: of overlay, checks, ipvs, with commas; PACKETS: of ipvs; the
# arguments are check.sh's
set -u

tree=/usr/src/kproxy
steps=,$1,
packets=$2
shift 2
line=/dev/ttyS1
provision=$tree/vagrant/provision

seconds() {
    cut -d . -f 1 /proc/uptime
}

overlay() {
    # The guest is the first node. The second is a namespace at the other end of a link, which stands for a machine.
    first=192.168.56.11 second=192.168.56.12
    ip netns add kp-node-2
    ip link add underlay type veth peer name underlay netns kp-node-2
    ip addr add "$first/24" dev underlay
    ip link set underlay up
    ip -n kp-node-2 addr add "$second/24" dev underlay
    ip -n kp-node-2 link set lo up
    ip -n kp-node-2 link set underlay up
    export KPROXY_TOKEN=only-this-guest
    # Both at once, as machines come up; whichever has its overlay last pings the other's pod. By nsenter and not by
    # `ip netns exec`, whose mount namespace ends with the command, and with it the pod's namespace that it mounted.
    sh "$provision/overlay.sh" "$tree" node-1 "node-1=$first" "node-2=$second" >/run/node-1.said 2>&1 &
    one=$!
    KPROXY_NETNS=/run/netns/kp-node-2 nsenter --net=/run/netns/kp-node-2 \
        sh "$provision/overlay.sh" "$tree" node-2 "node-1=$first" "node-2=$second" >/run/node-2.said 2>&1 &
    failed=0
    wait "$!" || failed=1
    wait "$one" || failed=1
    cat /run/node-1.said /run/node-2.said
    grep -q 'its pod reaches those of: node-1 node-2$' /run/node-1.said /run/node-2.said || failed=1
    # Now that the scripts have ended: each node's pod is still there, and the other's answers it.
    for pair in "1 2" "2 1"; do
        from=${pair% *} to=${pair#* }
        for address in "10.244.$to.10" "fd00:10:244:$to::10"; do
            ip netns exec "kp-pod-node-$from" ping -c 1 -W 5 "$address" >/run/ping.said 2>&1 || {
                failed=1
                echo "node-$from's pod does not reach $address:"
                cat /run/ping.said
            }
        done
    done
    [ "$failed" -eq 0 ]
}

main() {
    read -r up _ </proc/uptime
    echo "guest: up after $up s: Linux $(uname -r), $(iptables-nft --version), $(python3 --version)"
    # A bridge passes its packets to iptables only with this module; nothing loads it by itself.
    modprobe br_netfilter
    result=0
    case $steps in *,overlay,*)
        began=$(seconds)
        overlay || result=1
        echo "$(($(seconds) - began)) s  the overlay of two nodes: $([ "$result" -eq 0 ] && echo ok || echo FAILED)"
        [ "$result" -eq 0 ] || journalctl --no-pager --lines 30 -u kproxy-apiserver -u 'kproxy-overlay-*'
        systemctl stop kproxy-apiserver kproxy-overlay-node-1 kproxy-overlay-node-2 2>/dev/null
        ;;
    esac
    case $steps in *,checks,*)
        sh "$provision/check.sh" "$tree" "$@" || result=$?
        ;;
    esac
    case $steps in *,ipvs,*)
        modprobe ip_vs
        (cd "$tree" && /opt/kproxy/bin/python -m vagrant.checks.ipvs --packets "$packets") || result=1
        ;;
    esac
    echo "kproxy-vm-result $result"
}

# Raw: the line must not turn what is written into something else.
stty -F "$line" raw -echo 115200
main "$@" >"$line" 2>&1
