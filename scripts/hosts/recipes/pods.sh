# What a node of a cluster has besides its own links: the node's address, pods, and routes to the pods of other nodes.
# The cluster is tests/reference/clusters/case-10013, and this is its node-0.
# shellcheck shell=bash

cluster=/mnt/reference/clusters/case-10013
declare -A pods=([web]=10.244.0.14 [shop]=10.244.0.245 [dns]=10.244.0.216)

end_of() { # end_of NAME: a link to a pod; only the host's end counts
    ip link add "$1" type veth peer name "o-$1" netns "$away"
    nsenter --net="/proc/$away/ns/net" ip link set "o-$1" up
    ip link set "$1" up
}

node_address() {
    ip address add 192.168.0.2/24 dev eth0
    ip address add 2001:db8::2/64 dev eth0 nodad
}

other_nodes() { # other_nodes [DEVICE]: routes to the pods of three other nodes, straight, or by a tunnel's device
    local number
    for number in 1 2 3; do
        if [ "$#" -eq 0 ]; then
            ip route add "10.244.$number.0/24" via "192.168.0.$((number + 2))" dev eth0
        else
            ip route add "10.244.$number.0/24" via "10.244.$number.0" dev "$1" onlink
        fi
    done
}

pods_on_bridge() { # as the bridge plugin lays them
    local name
    ip link add cni0 type bridge forward_delay 0
    ip address add 10.244.0.1/24 dev cni0
    ip link set cni0 up
    for name in "${!pods[@]}"; do
        end_of "veth$name"
        ip link set "veth$name" master cni0
        ip link set "veth$name" type bridge_slave hairpin on
    done
}

pods_on_routes() { # as Calico lays them: a link and a route for each
    local name
    for name in "${!pods[@]}"; do
        end_of "cali0$name"
        ip route add "${pods[$name]}/32" dev "cali0$name" scope link
    done
    ip route add blackhole 10.244.0.0/24
}

tunnel() { # tunnel NAME VNI PORT ADDRESS: a VXLAN device
    ip link add "$1" type vxlan id "$2" dev eth0 local 192.168.0.2 dstport "$3" nolearning
    ip address add "$4/32" dev "$1"
    ip link set "$1" up
}
