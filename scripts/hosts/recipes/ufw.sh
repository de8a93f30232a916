# ufw: allow, deny, reject and limit rules, routed traffic, and the port forwarding of ufw-framework(8).
# shellcheck shell=bash

start_ufw() {
    ufw default deny incoming
    ufw default allow outgoing
    ufw default deny routed
    ufw deny from 198.51.100.0/24
    ufw allow 22/tcp
    ufw limit 2222/tcp
    ufw reject 25/tcp
    ufw allow from 10.9.0.0/24 to any port 3306 proto tcp
    ufw allow in on eth1 to any port 53
    ufw allow proto tcp to any port 80,443
    ufw allow 6000:6007/udp
    ufw reject out to 203.0.113.25 port 25 proto tcp
    ufw route allow in on eth1 out on eth0
    ufw route allow in on eth0 to 10.9.0.5 port 80 proto tcp
    ufw route deny from any to 10.9.0.6
    ufw --force enable
    ufw status verbose
    version_of ufw
}

record() { # record nft|legacy: the variant that is called iptables
    use_iptables "$1"
    cat - /etc/ufw/before.rules >/tmp/before.rules <<'END'
*nat
:PREROUTING ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
-A PREROUTING -i eth0 -p tcp --dport 8080 -j DNAT --to-destination 10.9.0.5:80
-A POSTROUTING -s 10.9.0.0/24 -o eth0 -j MASQUERADE
COMMIT
END
    cp /tmp/before.rules /etc/ufw/before.rules
    start_ufw
}
