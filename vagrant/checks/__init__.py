"""What a machine must show before it counts as working: kproxy's golden clusters in its own kernel.

For each scenario of `rules_golden/`, with each variant of iptables and in nftables mode:

1. `kproxy apply --yes` brings the machine's own rules to what the cluster says, from whatever the scenario before left.
2. What `iptables-save` or `nft list table` prints afterwards must equal the scenario's `expected/`, in both families.
3. The scenario's golden packets are traced through what the kernel printed, and must go where `packets.yaml` says.
4. The same rules are loaded into a namespace with a network around it, and the packets are sent for real (`traffic`).

At the end `kproxy cleanup --yes` must leave nothing. `vagrant/provision/check.sh` runs this.
"""
