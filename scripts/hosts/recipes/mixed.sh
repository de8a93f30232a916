# Everything on one node: ufw's rules left in iptables-legacy, firewalld's and kube-proxy's in nftables, Docker's and Calico's in
# iptables-nft.
# shellcheck shell=bash
. /mnt/scripts/recipes/pods.sh
. /mnt/scripts/recipes/kube-proxy.sh
. /mnt/scripts/recipes/calico.sh
. /mnt/scripts/recipes/docker.sh
. /mnt/scripts/recipes/firewalld.sh

ufw_leftover() { # from the time when iptables was the legacy variant
    use_iptables legacy
    ufw default deny incoming
    ufw default allow outgoing
    ufw default allow routed
    ufw deny from 198.51.100.66
    ufw route deny from 198.51.100.66
    ufw allow 22/tcp
    ufw limit 2222/tcp
    ufw allow 9000/tcp
    ufw allow in on cali0shop
    ufw --force enable
    version_of ufw
    use_iptables nft
}

firewall() {
    local cmd=firewall-offline-cmd
    $cmd --new-ipset=blocked --type=hash:net
    $cmd --ipset=blocked --add-entry=198.51.100.128/25
    $cmd --zone=drop --add-source=ipset:blocked
    $cmd --zone=public --add-interface=eth0
    $cmd --zone=internal --add-interface=eth1
    $cmd --zone=trusted --add-interface=cali+
    $cmd --zone=trusted --add-interface=vxlan.calico
    $cmd --zone=public --add-port=2222/tcp
    start_firewalld nftables
}

record() {
    use_iptables nft
    node_address
    firewall
    ufw_leftover
    start_docker
    docker network create --subnet 172.28.0.0/24 --opt com.docker.network.bridge.name=br-front front
    start web -p 8080:80
    start shop --network front --ip 172.28.0.10 -p 8443:443
    pods_on_routes
    tunnel vxlan.calico 4096 4789 10.244.0.1
    other_nodes vxlan.calico
    calico_iptables
    kube_proxy_nftables
}
