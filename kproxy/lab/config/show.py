"""A lab's file as one that asks for the same lab without the command line's options."""

from __future__ import annotations

from typing import Any

import yaml

from kproxy.lab.config.types import API_VERSION, KIND, LabConfig
from kproxy.lab.spec import NodeSettings


def lab_text(config: LabConfig) -> str:
    """The file as YAML, the manifests of the one that was read behind it."""
    documents = [lab_document(config), *(each.document.value for each in config.objects)]
    return "---\n".join(yaml.safe_dump(each, sort_keys=False, allow_unicode=True) for each in documents)


def lab_document(config: LabConfig) -> dict[str, Any]:
    """The Lab."""
    spec = config.spec
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": spec.name,
        "nodes": [_node(spec.node(number).settings) for number in range(1, spec.nodes + 1)]
        if any(each != NodeSettings() for each in config.settings)
        else spec.nodes,
        "networking": {
            "ipFamily": spec.ip_family,
            "backend": spec.backend,
            **({"podSubnet": ",".join(spec.pod_subnets)} if spec.pod_subnets else {}),
            **({"serviceSubnet": ",".join(spec.service_subnets)} if spec.service_subnets else {}),
            **({"mtu": spec.mtu} if spec.mtu else {}),
            **({"dns": spec.dns} if config.choices.dns is not None else {}),
        },
        "proxy": {
            "mode": spec.mode,
            "variant": spec.variant,
            **({"config": {**config.proxy, "mode": spec.mode}} if config.proxy else {}),
        },
        **({"manifests": list(config.manifests)} if config.manifests else {}),
        **({"commands": [{"host": each.host, "run": each.run} for each in config.commands]} if config.commands else {}),
        "timeout": f"{config.timeout:g}s",
    }


def _node(settings: NodeSettings) -> dict[str, Any]:
    taints = {"taints": list(settings.taints)} if settings.taints else {}
    return {**({"labels": settings.labels} if settings.labels else {}), **taints}
