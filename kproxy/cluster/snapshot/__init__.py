"""Snapshots: what is known of a cluster, in files (docs/snapshot.md).

    snapshot.json            versions, times, what failed
    objects/KIND.json        as kubectl prints lists
    nodes/NAME/iptables-save and others, under the names of the tools that print them

It is a directory, or the same in a .tar.gz, .tgz, .tar.zst or .tar. Every part may be missing, this file included: a
snapshot made by hand of three files is one. What is missing is named (`Cluster.missing`), and only what depends on it
is indeterminate.

    cluster = read_snapshot("shop.tar.gz")
    cluster.manifests.services, cluster.pods, cluster.proxy_config      # objects
    host = cluster.hosts["worker-1"]
    host.rules(Family.IPV4), host.model, host.links, host.kube_proxy    # of one node
    cluster.missing                                                     # what is not there, by host

`files` opens a directory or an archive and knows the bounds, `layout` the names, `host` reads what is known of one host
when it is first asked for, `cluster` the objects and all hosts; `kproxy.collect` writes the same format. Other sources
than files (a live cluster, namespaces) fill a `MemoryFiles` and are read alike.
"""
