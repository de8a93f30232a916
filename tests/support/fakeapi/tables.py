"""Tables as kube-apiserver prints them (recorded in tests/reference/kubectl/), for the kinds that tests look at."""

from __future__ import annotations

from typing import Any

from tests.support.fakeapi.storage import Json, Kind


def column(name: str, priority: int = 0, kind: str = "string", form: str = "") -> Json:
    return {"name": name, "type": kind, "format": form, "priority": priority}


NAME = column("Name", form="name")
AGE = column("Age")
SERVICE = [
    NAME,
    column("Type"),
    column("Cluster-IP"),
    column("External-IP"),
    column("Port(s)"),
    AGE,
    column("Selector", 1),
]
FRUIT = [NAME, column("sweet", kind="boolean"), column("weight", kind="integer")]


def as_table(kind: Kind, items: list[Json], answer: Json) -> Json:
    """The Table of some objects; `answer` is the object or list that it stands for."""
    columns, cells = COLUMNS.get(kind.kind, ([NAME, AGE], lambda item: [item["metadata"]["name"], "1h"]))
    rows = [
        {
            "cells": cells(item),
            "object": {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": item["metadata"],
            },
        }
        for item in items
    ]
    meta = {name: value for name, value in answer["metadata"].items() if name in ("resourceVersion", "continue")}
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": meta,
        "columnDefinitions": columns,
        "rows": rows,
    }


def _service(item: Json) -> list[Any]:
    spec = item.get("spec", {})
    ports = ",".join(
        f"{port['port']}{':' + str(port['nodePort']) if port.get('nodePort') else ''}/{port.get('protocol', 'TCP')}"
        for port in spec.get("ports", [])
    )
    selector = ",".join(f"{name}={value}" for name, value in sorted(spec.get("selector", {}).items()))
    return [
        item["metadata"]["name"],
        spec.get("type", "ClusterIP"),
        spec.get("clusterIP", "<none>"),
        "<none>",
        ports or "<none>",
        "1h",
        selector or "<none>",
    ]


def _fruit(item: Json) -> list[Any]:
    return [item["metadata"]["name"], item["spec"]["sweet"], item["spec"]["weight"]]


COLUMNS = {"Service": (SERVICE, _service), "Fruit": (FRUIT, _fruit)}
