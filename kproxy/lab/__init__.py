"""A cluster network on one machine: nodes and pods as network namespaces, a real overlay, the real rules.

`lab up` builds a fabric (a bridge in a namespace of its own, which also routes), node namespaces, a client outside, and
starts real processes: the API server with the controllers, and on every node a kubelet, the overlay and the proxy. They
meet over HTTP and by executing the CNI plugin, as in a real cluster. docs/lab.md is the user's page.

    spec.py        names and addresses, from a LabSpec: values only
    state.py       the directory of a lab
    network.py     namespaces and links
    cluster.py     a lab as it is now: what `status`, `probe`, `trace` and `view` share
    faults.py      breaking a lab, and mending it
    lifecycle/     up, down, and the lab's processes
    controllers/   of workloads, scheduling, nodes, load balancers: functions in the API server's process
    kubelet/       pods: sandbox by CNI, echo servers, status, leases
    model/         the path of a packet over all hosts, as the data-plane model says
    capture/       what really passes: packets captured at every interface
    inspect/       probe and trace: real connections beside what the model says
"""
