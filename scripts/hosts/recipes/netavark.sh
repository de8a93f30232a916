# netavark, which makes podman's networks: two networks, one of them isolated, containers with published ports.
# shellcheck shell=bash

network() { # network NAME BRIDGE SUBNET OPTIONS: the part of netavark's input that tells a network
    printf '"%s": {"name": "%s", "id": "%064d", "driver": "bridge", "network_interface": "%s", "internal": false,' \
        "$1" "$1" "$(cksum <<<"$1" | cut -d ' ' -f 1)" "$2"
    printf '"dns_enabled": false, "ipv6_enabled": false, "options": {%s}, "ipam_options": {"driver": "host-local"},' "$4"
    printf '"subnets": [{"subnet": "%s", "gateway": "%s"}]}' "$3" "${3%.*}.1"
}

container() { # container NAME ADDRESS PORTS NETWORK...: as `podman run` would have it
    local name=$1 address=$2 ports=$3
    shift 3
    ip netns add "$name"
    printf '{"container_id": "%064d", "container_name": "%s", "port_mappings": [%s],
        "networks": {"%s": {"static_ips": ["%s"], "interface_name": "eth0"}}, "network_info": {%s}}' \
        "$(cksum <<<"$name" | cut -d ' ' -f 1)" "$name" "$ports" "$1" "$address" "$(network "$@")" >/tmp/input.json
    NETAVARK_FW=$driver /usr/lib/podman/netavark --config /run/netavark setup "/run/netns/$name" </tmp/input.json
    local number link
    number=$(ip netns exec "$name" cat /sys/class/net/eth0/iflink)
    link=$(ip -o link | sed -n "s/^$number: \([^@:]*\).*/\1/p")
    ip link set "$link" name "v$name"
}

published() { # published HOST-IP HOST-PORT CONTAINER-PORT PROTOCOL
    printf '{"host_ip": "%s", "host_port": %d, "container_port": %d, "protocol": "%s", "range": 1}' "$@"
}

record() { # record iptables|nftables: the driver
    driver=$1
    use_iptables nft
    mkdir -p /run/netavark
    container web 10.88.0.5 "$(published "" 8080 80 tcp),$(published "" 53 53 udp)" podman podman0 10.88.0.0/16 ""
    container shop 10.89.0.5 "$(published 192.0.2.10 8443 443 tcp)" front podman1 10.89.0.0/24 '"isolate": "true"'
    container store 10.90.0.5 "" back podman2 10.90.0.0/24 '"isolate": "true"'
    version_of netavark
}
