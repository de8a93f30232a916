# Docker: the default bridge and two networks of its own, published ports, one network without a way out.
# shellcheck shell=bash

image() { # an image of nothing but busybox
    mkdir -p /tmp/image/bin
    cp /bin/busybox /tmp/image/bin/busybox
    tar -C /tmp/image -c . | docker import - box >/dev/null
}

start() { # start NAME OPTIONS...: a container that only is there; its end on the host is called vNAME
    local name=$1 number link
    shift
    docker run -d --name "$name" --cgroupns host "$@" box /bin/busybox sleep 100000
    number=$(docker exec "$name" /bin/busybox cat /sys/class/net/eth0/iflink)
    link=$(ip -o link | sed -n "s/^$number: \([^@:]*\).*/\1/p")
    ip link set "$link" name "v$name"
}

start_docker() {
    mkdir -p /etc/docker
    echo '{"storage-driver": "vfs"}' >/etc/docker/daemon.json
    dockerd >/tmp/dockerd.log 2>&1 &
    wait_for 60 "dockerd" docker info || { tail -n 20 /tmp/dockerd.log; return 1; }
    image
    version_of docker.io
}

record() { # record nft|legacy: the variant that is called iptables
    use_iptables "$1"
    start_docker
    docker network create --subnet 172.28.0.0/24 --opt com.docker.network.bridge.name=br-front front
    docker network create --subnet 172.29.0.0/24 --opt com.docker.network.bridge.name=br-back back
    docker network create --internal --subnet 172.30.0.0/24 --opt com.docker.network.bridge.name=br-inner inner
    start web -p 8080:80 -p 53:53/udp
    start plain
    start shop --network front --ip 172.28.0.10 -p 192.0.2.10:8443:443 -p 127.0.0.1:9000:9000
    start store --network back --ip 172.29.0.10
    start vault --network inner --ip 172.30.0.10
    docker ps -a
    # What an administrator adds, in the chain that Docker leaves to him.
    iptables -I DOCKER-USER -i eth0 -s 198.51.100.66 -j DROP
}
