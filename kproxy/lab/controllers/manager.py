"""The process of the controllers: one informer per resource, shared by all."""

from __future__ import annotations

import signal

from kproxy.client import RestClient, SharedInformerFactory, load_client_config
from kproxy.lab.controllers.base import Controller
from kproxy.lab.controllers.daemonset import DaemonSetController
from kproxy.lab.controllers.deployment import DeploymentController
from kproxy.lab.controllers.job import JobController
from kproxy.lab.controllers.loadbalancer import LoadBalancerController
from kproxy.lab.controllers.nodes import NodeLifecycleController
from kproxy.lab.controllers.replicaset import ReplicaSetController
from kproxy.lab.controllers.scheduler import Scheduler
from kproxy.lab.controllers.statefulset import StatefulSetController
from kproxy.lab.spec import LabSpec
from kproxy.lab.state import LabDirectory


def run_controllers(lab: LabDirectory, spec: LabSpec) -> None:
    """Runs all controllers until a signal ends the process."""
    client = RestClient(load_client_config(str(lab.kubeconfig)))
    factory = SharedInformerFactory(client)
    controllers: list[Controller] = [
        DeploymentController(client, factory),
        ReplicaSetController(client, factory),
        DaemonSetController(client, factory),
        StatefulSetController(client, factory),
        JobController(client, factory),
        Scheduler(client, factory),
        NodeLifecycleController(client, factory),
        LoadBalancerController(client, factory, spec),
    ]
    factory.start()
    try:
        factory.wait_for_cache_sync()
        for controller in controllers:
            controller.start()
        while True:
            signal.pause()
    finally:
        for controller in controllers:
            controller.stop(0.5)
        factory.shutdown(0.5)
