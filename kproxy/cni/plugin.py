"""One CNI request from beginning to end: read, decide, carry out, answer.

ADD writes a `pending` record before it makes anything and a `done` one at the end, with the attachment's lock held all
the while. So a pending record whose lock is free belongs to an ADD that was killed: the next ADD, DEL or GC removes
what it made, by the names that follow from the record. Whatever fails is taken back before the error is returned.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
from collections.abc import Mapping
from typing import Any

from kproxy.linux.pod import podlink
from kproxy.linux.pod.cnistore import Store
from kproxy.overlay import ipam
from kproxy.overlay.attach import PodPlan, link_name, plan_attachment
from kproxy.overlay.errors import CniError, Code
from kproxy.overlay.ipam import Address, Lease, Range, Record
from kproxy.overlay.netconf import NetConf
from kproxy.overlay.portmap import chain_name
from kproxy.overlay.request import (
    Attachment,
    Request,
    answer_version,
    error_answer,
    read_request,
    version_answer,
)
from kproxy.overlay.result import previous_addresses, previous_routes, render_result


def serve(environ: Mapping[str, str], stdin: bytes, sandbox: int | None = None) -> tuple[int, str]:
    """Serves a request in the network namespace of the calling thread; exit code and standard output.

    Args:
        sandbox: a descriptor of the container's network namespace, for a caller that cannot open CNI_NETNS itself.
    """
    try:
        answer = _serve(read_request(environ, stdin)._replace(sandbox=sandbox))
    except CniError as error:
        return 1, json.dumps(error_answer(error, answer_version(stdin))) + "\n"
    except Exception as error:  # the runtime must get an error result whatever happens
        internal = CniError(Code.INTERNAL, "internal error of kproxy-cni", repr(error))
        return 1, json.dumps(error_answer(internal, answer_version(stdin))) + "\n"
    return 0, "" if answer is None else json.dumps(answer) + "\n"


def _serve(request: Request) -> dict[str, Any] | None:
    if request.command == "VERSION":
        return version_answer(request.version)
    conf = request.conf
    assert conf is not None
    store = Store(os.path.join(conf.data_dir, conf.name))
    if request.command == "STATUS":
        _status(conf, store)
        return None
    if os.geteuid() != 0:
        raise CniError(Code.NOT_PERMITTED, "not permitted", f"{request.command} needs root")
    store.prepare()
    if request.command == "GC":
        _collect(conf, store)
        return None
    attachment = request.attachment
    assert attachment is not None
    with store.attachment(attachment.key):
        if request.command == "ADD":
            return _add(request, conf, attachment, store)
        if request.command == "CHECK":
            _check(request, conf, attachment, store)
        else:
            _free(conf, store, attachment.key, bool(conf.ports))
    return None


def _add(request: Request, conf: NetConf, attachment: Attachment, store: Store) -> dict[str, Any]:
    key, link = attachment.key, link_name(conf.name, attachment)
    with podlink.open_netns(request.netns, request.sandbox):
        pass  # before anything is written down
    ports = tuple((str(port.host_ip or ""), port.host_port, port.protocol) for port in conf.ports)
    record = Record(ipam.PENDING, (), link, request.netns, ports)
    with store.state():
        leases = store.load()
        known = leases.records.get(key)
        if known is None or known.state == ipam.DONE:
            leases, given = ipam.allocate(leases, key, record, conf.ranges, conf.reserved, conf.requested_ips)
            store.save(leases)
    if known is not None:
        _free(conf, store, key, False)  # an ADD was killed
        with store.state():
            leases, given = ipam.allocate(store.load(), key, record, conf.ranges, conf.reserved, conf.requested_ips)
            store.save(leases)
    plan = plan_attachment(conf, attachment, given)
    try:
        podlink.attach(plan, request.netns, request.sandbox)
        if conf.ports:
            from kproxy.linux.pod.portmap import map_ports

            with store.iptables():
                map_ports(conf.name, attachment.key, given, conf.ports, conf.iptables)
        with store.state():
            store.save(ipam.finish(store.load(), key))
    except BaseException:
        # If this fails as well, the pending record stays, and DEL or GC goes on from there.
        with contextlib.suppress(CniError):
            _free(conf, store, key, bool(ports))
        raise
    return render_result(request.version, plan, given, request.netns, conf.previous)


def _free(conf: NetConf, store: Store, key: str, has_ports: bool) -> None:
    """Takes an attachment down and frees what it has; nothing that is gone already is an error."""
    with store.state():
        record = store.load().records.get(key)
    container, _, ifname = key.partition("/")
    podlink.detach(record.link if record is not None else link_name(conf.name, Attachment(container, ifname)))
    if has_ports or (record is not None and record.ports):
        from kproxy.linux.pod.portmap import unmap_ports

        with store.iptables():
            unmap_ports([chain_name(conf.name, key)], conf.iptables)
    if record is not None:
        with store.state():
            store.save(ipam.release(store.load(), key))


def _check(request: Request, conf: NetConf, attachment: Attachment, store: Store) -> None:
    with store.state():
        record = store.load().records.get(attachment.key)
    if record is None or record.state != ipam.DONE:
        raise CniError(Code.UNKNOWN_CONTAINER, "the container is not attached", attachment.key)
    assert conf.previous is not None
    leases, found = _leases_of(record, conf)
    if not found:
        plan, found = _confirmed(plan_attachment(conf, attachment, leases), conf, request)
        found += podlink.check(plan, request.netns, request.sandbox)
        if conf.ports:
            from kproxy.linux.pod.portmap import check_ports

            found += check_ports(conf.name, attachment.key, leases, conf.ports, conf.iptables)
    if found:
        raise CniError(Code.CHECK_FAILED, "the container's network is not as it should be", "; ".join(found))


def _confirmed(plan: PodPlan, conf: NetConf, request: Request) -> tuple[PodPlan, list[str]]:
    """The plan without what prevResult no longer has, and what prevResult has that was not leased, in words.

    A plugin that comes later in the list may add, change and remove addresses and routes, and says so in its result.
    """
    assert conf.previous is not None
    previous = previous_addresses(conf.previous, plan.ifname, request.netns)
    kept = tuple(address for address in plan.addresses if address in previous)
    leased = ", ".join(plan.addresses)
    ours = (item for item in previous if _range_of(ipaddress.ip_interface(item).ip, conf) and item not in kept)
    found = [f"prevResult has {address}, and the leases are {leased}" for address in ours]
    if not kept and not found:
        found = [f"prevResult has {', '.join(previous)}, and the leases are {leased}"]
    left = previous_routes(conf.previous)
    routes = tuple(item for item in plan.routes if (str(item.destination), str(item.gateway or "")) in left)
    return plan._replace(addresses=kept, routes=routes), found


def _range_of(address: Address, conf: NetConf) -> Range | None:
    return next((part for item in conf.ranges if (part := item.range_of(address)) is not None), None)


def _leases_of(record: Record, conf: NetConf) -> tuple[tuple[Lease, ...], list[str]]:
    leases, found = [], []
    for ip in record.ips:
        address = ipaddress.ip_address(ip)
        holder = _range_of(address, conf)
        if holder is None:
            found.append(f"lease {ip} is in none of the ranges")
        else:
            leases.append(Lease(address, holder))
    return tuple(leases), found


def _collect(conf: NetConf, store: Store) -> None:
    with store.state():
        keys = ipam.stale(store.load(), conf.valid)
    problems = []
    for key in keys:
        try:
            with store.attachment(key):
                _free(conf, store, key, False)
        except CniError as error:
            problems.append(error)
    if problems:
        raise CniError(problems[0].code, "not everything could be freed", "; ".join(map(str, problems)))


def _status(conf: NetConf, store: Store) -> None:
    """Raises CniError with NOT_AVAILABLE if an ADD could not be served now, with LIMITED_CONNECTIVITY if containers
    have lost their bridge."""

    def unavailable(why: str) -> CniError:
        return CniError(Code.NOT_AVAILABLE, "the plugin is not available", why)

    if os.geteuid() != 0:
        raise unavailable("it needs root")
    try:
        store.prepare()
        with store.state():
            leases = store.load()
    except CniError as error:
        raise unavailable(str(error)) from error
    taken = {ip for record in leases.records.values() for ip in record.ips}
    for item in conf.ranges:
        if ipam.next_address(item, taken, conf.reserved, leases.last.get(item.key)) is None:
            raise unavailable(f"no address is free in {', '.join(str(part.subnet) for part in item.ranges)}")
    try:
        with podlink.open_route() as node:
            link = podlink.find_link(node, conf.bridge)
            # Leases that outlived their containers say nothing, and with a namespace its interface goes.
            works = link is not None and podlink.is_up(link)
            done = [] if works else [each for each in leases.records.values() if each.state == ipam.DONE]
            left = [each for each in done if podlink.find_link(node, each.link) is not None]
    except podlink.refused() as error:
        raise unavailable(f"rtnetlink: {error}") from error
    if link is not None and podlink.kind_of(link) != "bridge":
        raise unavailable(f"the bridge's name {conf.bridge} is taken")
    if left:
        what = "is not there" if link is None else "is down"
        raise CniError(
            Code.LIMITED_CONNECTIVITY,
            "containers have limited connectivity",
            f"the bridge {conf.bridge} of {len(left)} attachments {what}",
        )
