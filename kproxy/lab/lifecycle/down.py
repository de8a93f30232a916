"""`lab down`: nothing left, whatever state the lab is in."""

from __future__ import annotations

import shutil
from collections.abc import Iterable

import msgspec

from kproxy.lab.lifecycle import processes
from kproxy.lab.network import delete_namespaces, lab_namespaces, remove_node, stray_labs
from kproxy.lab.spec import LabSpec, NodePlan
from kproxy.lab.state import DEFAULT_ROOT, LabDirectory, lab_root, list_labs


def tear_down(lab: LabDirectory, *, keep_directory: bool = False) -> tuple[int, int]:
    """Ends a lab's processes, deletes its namespaces and its directory; how many processes and namespaces there were.

    Links, routes, rules and sockets go with the namespaces. What is not there does no harm, so this may be done again
    after it was interrupted.

    Raises:
        LabError: something does not go away, or what has this name belongs to a lab that is kept elsewhere.
    """
    processes.require_no_namesake(lab)
    record = lab.record()
    if record is not None and not keep_directory:
        lab.write(msgspec.structs.replace(record, phase="stopping"))
    ended = processes.end(lab)
    names = lab_namespaces(lab.name)
    delete_namespaces(names)
    # A pod's namespace may have been made by a child that was on its way.
    delete_namespaces(lab_namespaces(lab.name))
    if keep_directory:
        for item in ("apiserver", "bin", "nodes", "logs"):
            shutil.rmtree(lab.path / item, ignore_errors=True)
        for file in (lab.kubeconfig, lab.node_kubeconfig, lab.path / "network"):
            file.unlink(missing_ok=True)
    else:
        lab.remove()
    return ended, len(names)


def all_labs() -> list[LabDirectory]:
    """Every lab of which anything is left: those with a directory, and those of which there are namespaces. Where its
    processes run, they say where a lab is kept, though that directory may be gone.

    With another directory ($KPROXY_LAB_DIR) only the labs in it are meant."""
    found = {each.name: each for each in list_labs()}
    if str(lab_root()) == DEFAULT_ROOT:
        strays = stray_labs() - {*found}
        homes = {path.name: path for path in processes.homes()} if strays else {}
        for name in strays:
            home = homes.get(name)
            found[name] = LabDirectory(name, None if home is None else home.parent)
    return [found[name] for name in sorted(found)]


def tear_down_node(lab: LabDirectory, spec: LabSpec, plan: NodePlan, pods: Iterable[str]) -> None:
    """Ends a node's processes and deletes its namespace and those of its pods (uids). Raises LabError."""
    processes.end(lab, lambda item: item.node == plan.name)
    delete_namespaces([spec.pod_namespace(uid) for uid in pods])
    remove_node(spec, plan)
    shutil.rmtree(lab.node(plan.name), ignore_errors=True)
