"""A pod's volumes: what ConfigMaps, Secrets and the pod itself say as files, and empty directories.

They are kept in a directory of the node, and mounted for what really runs in a pod: a task's commands, and those of
`kubectl exec`. What comes from outside of the lab is not there: hostPath, claims, CSI and the like, tokens.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from kproxy.lab.kubelet.environment import MissingError, expand, field_of, map_of
from kproxy.lab.kubelet.resolver import PODS_DIRECTORY
from kproxy.lab.resources import Object
from kproxy.linux.isolation import Mount

Contents = Callable[[str, str], Mapping[str, bytes] | None]
"""The values of a ConfigMap or a Secret of the pod's namespace, by kind and name; None if there is none."""

_KINDS: Final = ("emptyDir", "configMap", "secret", "downwardAPI", "projected")
_NOT_A_KIND: Final = "name"
_MODE: Final = 0o644


def write_volumes(pod: Object, directory: Path, contents: Contents, *, strict: bool = True) -> None:
    """Writes the volumes of a pod as they are to be now; empty directories keep what is in them.

    Args:
        directory: the node's.

    Raises:
        MissingError: a ConfigMap, a Secret or a key of it that is not optional is not there, and it is `strict`;
            otherwise it is left out.
    """
    own = _directory(directory, str(pod["metadata"]["uid"]))
    for volume in pod["spec"].get("volumes") or ():
        kind = _kind(volume)
        if kind not in _KINDS:
            continue
        place = own / str(volume["name"])
        place.mkdir(parents=True, exist_ok=True)
        if kind == "emptyDir":
            place.chmod(0o777)
            continue
        sources = (volume[kind].get("sources") or ()) if kind == "projected" else ({kind: volume[kind]},)
        default = volume[kind].get("defaultMode", _MODE)
        for source in sources:
            for name, data, mode in _files(pod, source, contents, strict=strict):
                _write(place / name, data, default if mode is None else mode)


def volume_mounts(pod: Object, container: Object, directory: Path, values: Mapping[str, str]) -> list[Mount]:
    """What a container mounts of a pod's volumes that were written. `values` are its environment."""
    own = _directory(directory, str(pod["metadata"]["uid"]))
    kinds = {str(volume["name"]): _kind(volume) for volume in pod["spec"].get("volumes") or ()}
    found = []
    for each in container.get("volumeMounts") or ():
        kind = kinds.get(str(each["name"]))
        if kind not in _KINDS:
            continue
        source = own / str(each["name"])
        below = expand(str(each["subPathExpr"]), values) if each.get("subPathExpr") else str(each.get("subPath") or "")
        if below and not (source / _inside(below)).exists():
            (source / _inside(below)).mkdir(parents=True)  # as a kubelet does with a subPath that is not there
        target = os.path.normpath(f"/{each['mountPath']}".replace("//", "/"))
        found.append(Mount(str(source / _inside(below)), target, kind != "emptyDir" or bool(each.get("readOnly"))))
    return found


def not_mounted(pod: Object) -> list[str]:
    """The volumes that a lab has not, in words: `data (persistentVolumeClaim)`."""
    volumes = pod["spec"].get("volumes") or ()
    return [f"{volume['name']} ({_kind(volume)})" for volume in volumes if _kind(volume) not in _KINDS]


def remove_volumes(directory: Path, uid: str) -> None:
    """Takes away what was written for a pod."""
    shutil.rmtree(_directory(directory, uid), ignore_errors=True)


def _directory(directory: Path, uid: str) -> Path:
    return directory / PODS_DIRECTORY / f"{uid}.volumes"


def _kind(volume: Object) -> str:
    return next((key for key, value in volume.items() if key != _NOT_A_KIND and value is not None), "emptyDir")


def _files(
    pod: Object, source: Object, contents: Contents, *, strict: bool
) -> Iterator[tuple[PurePosixPath, bytes, int | None]]:
    """The files of one source: paths, contents and modes, None for the volume's."""
    for kind, named in (("configMap", "ConfigMap"), ("secret", "Secret")):
        given = source.get(kind)
        if given is None:
            continue
        name = str(given.get("name") or given.get("secretName") or "")
        values = contents(named, name)
        if values is None:
            if strict and not given.get("optional"):
                raise MissingError(f'{named.lower()} "{name}" not found')
            continue
        wanted = given.get("items") or [{"key": key, "path": key} for key in values]
        for item in wanted:
            if item["key"] in values:
                yield _inside(str(item["path"])), values[item["key"]], item.get("mode")
            elif strict and not given.get("optional"):
                where = f"{pod['metadata']['namespace']}/{name}"
                raise MissingError(f"{named.lower()} {where} references non-existent key: {item['key']}")
    for item in (source.get("downwardAPI") or {}).get("items") or ():
        path = str((item.get("fieldRef") or {}).get("fieldPath") or "")
        fields: Sequence[tuple[str, str]] = map_of(pod, path)
        text = "\n".join(f'{key}="{value}"' for key, value in fields) if fields else field_of(pod, path)
        yield _inside(str(item["path"])), text.encode(), item.get("mode")


def _inside(path: str) -> PurePosixPath:
    """A relative path without `..`, which the API server has refused."""
    return PurePosixPath(*(part for part in PurePosixPath(path).parts if part not in ("/", "..")))


def _write(path: Path, data: bytes, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_file() and path.read_bytes() == data:
        return
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    path.chmod(mode)
