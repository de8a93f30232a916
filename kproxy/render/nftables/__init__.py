"""kube-proxy v1.36's nftables mode: one table a family, with the same ServicePorts and endpoints as iptables mode.

names        of chains, sets and maps
base         what is there whatever the cluster holds
serviceport  what one ServicePort becomes: chains, affinity sets, and elements of the shared sets and maps
renderer     keeps all that of one family on one node
table        a rendered table: as `nft -f` input, and object by object with its provenance
save         as nft lists it
"""
