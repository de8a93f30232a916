# fail2ban: jails with several actions, and addresses that they banned.
# shellcheck shell=bash

record() { # record iptables|nftables: the family of actions
    local ports=iptables-multiport all=iptables-allports sets=iptables-ipset-proto6 protocol=all
    [ "$1" = iptables ] || ports=nftables-multiport all=nftables-allports sets=nftables-multiport protocol=tcp
    touch /var/log/auth.log /var/log/web.log
    cat >/etc/fail2ban/jail.d/defaults-debian.conf <<END
[DEFAULT]
backend = polling
bantime = 4w
[sshd]
enabled = true
port = 22,2222
logpath = /var/log/auth.log
banaction = $ports
[nginx-http-auth]
enabled = true
port = 80,443
logpath = /var/log/web.log
banaction = $sets
[recidive]
enabled = true
logpath = /var/log/web.log
banaction = $all
protocol = $protocol
END
    use_iptables nft
    mkdir -p /run/fail2ban
    fail2ban-server -f >/tmp/fail2ban.log 2>&1 &
    wait_for 60 fail2ban fail2ban-client ping || { tail -n 20 /tmp/fail2ban.log; return 1; }
    wait_for 30 jails fail2ban-client status recidive
    fail2ban-client set sshd banip 198.51.100.7 198.51.100.8 2001:db8:66::7
    fail2ban-client set nginx-http-auth banip 198.51.100.9 2001:db8:66::9
    fail2ban-client set recidive banip 198.51.100.10

    # The server does as it is told in its own time.
    if [ "$1" = iptables ]; then
        wait_for 30 "the ban" sh -c 'iptables-save | grep -q 198.51.100.10'
        wait_for 30 "the ban" sh -c 'ip6tables-save | grep -q 2001:db8:66::7'
        wait_for 30 "the ban" sh -c 'ipset save | grep -q 2001:db8:66::9'
    else
        wait_for 30 "the ban" sh -c 'nft list ruleset | grep -q 198.51.100.10'
        wait_for 30 "the ban" sh -c 'nft list ruleset | grep -q 2001:db8:66::9'
    fi
    version_of fail2ban
}
