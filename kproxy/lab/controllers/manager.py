"""The controllers of a lab, in the process of its API server."""

from __future__ import annotations

from kproxy.apiserver.controllers.base import Controller
from kproxy.apiserver.registry.catalog import Catalog
from kproxy.apiserver.registry.registry import Registry
from kproxy.lab.controllers import daemonset, deployment, job, loadbalancer, nodes, replicaset, scheduler, statefulset
from kproxy.lab.controllers.runtime import Runtime, Tables
from kproxy.lab.spec import LabSpec

RECONCILERS = tuple(
    module.CONTROLLER
    for module in (daemonset, deployment, job, loadbalancer, nodes, replicaset, scheduler, statefulset)
)


def lab_controllers(registry: Registry, catalog: Catalog, spec: LabSpec) -> list[Controller]:
    """All controllers, for a server that starts and stops them."""
    tables = Tables(registry, catalog)
    return [Runtime(registry, catalog, tables, RECONCILERS), loadbalancer.Routes(tables, spec)]
