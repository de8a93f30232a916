# firewalld: two zones, a zone for banned addresses, services, port forwarding, masquerade, rich rules, a policy.
# shellcheck shell=bash

start_firewalld() { # start_firewalld nftables|iptables: the backend; with the bus that it needs, a private one
    sed -i -e "s/^FirewallBackend=.*/FirewallBackend=$1/" /etc/firewalld/firewalld.conf
    dbus-uuidgen --ensure
    dbus-daemon --system --fork --nopidfile
    firewalld --nofork --nopid >/tmp/firewalld.log 2>&1 &
    wait_for 60 firewalld firewall-cmd --state || { tail -n 20 /tmp/firewalld.log; return 1; }
    version_of firewalld
}

record() { # record nftables|iptables: the backend
    use_iptables nft
    local cmd=firewall-offline-cmd
    $cmd --new-ipset=blocked --type=hash:net
    $cmd --ipset=blocked --add-entry=198.51.100.0/24
    $cmd --zone=drop --add-source=ipset:blocked
    $cmd --zone=public --add-interface=eth0
    $cmd --zone=internal --add-interface=eth1
    $cmd --zone=public --add-service=https
    $cmd --zone=public --add-port=6000-6007/udp
    $cmd --zone=public --add-masquerade
    $cmd --zone=public --add-forward-port=port=8080:proto=tcp:toport=80:toaddr=10.9.0.5
    $cmd --zone=public --add-forward-port=port=2222:proto=tcp:toport=22
    $cmd --zone=public --add-icmp-block=timestamp-request
    $cmd --zone=public --add-rich-rule='rule family="ipv4" source address="203.0.113.0/24" service name="http" accept'
    $cmd --zone=public --add-rich-rule='rule family="ipv4" source address="203.0.113.66" reject type="icmp-admin-prohibited"'
    $cmd --zone=public --add-rich-rule='rule priority="-10" family="ipv6" source address="2001:db8:66::/48" drop'
    $cmd --zone=public --add-rich-rule='rule port port="9000" protocol="tcp" accept limit value="2/m"'
    $cmd --zone=internal --add-service=mysql
    $cmd --new-policy=out
    $cmd --policy=out --add-ingress-zone=internal
    $cmd --policy=out --add-egress-zone=public
    $cmd --policy=out --set-target=ACCEPT
    start_firewalld "$1"
    firewall-cmd --list-all-zones | grep -A 20 active
}
