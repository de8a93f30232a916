"""The values of ConfigMaps and Secrets, as a pod of their namespace gets them."""

from __future__ import annotations

import base64
from collections.abc import Mapping

from kproxy.client import ApiError, RestClient
from kproxy.lab.resources import CONFIG_MAPS, SECRETS, Object


class Values:
    """Asks the API server, each time anew. None stands for an object that is not there. All raise ApiError."""

    def __init__(self, client: RestClient) -> None:
        self._client = client

    def texts(self, pod: Object, kind: str, name: str) -> Mapping[str, str] | None:
        """What the environment of a command gets: `binaryData` is not for it."""
        found = self._data(pod, kind, name)
        if found is None:
            return None
        plain, packed = found
        if kind == "ConfigMap":
            return plain
        return {key: base64.b64decode(value).decode(errors="replace") for key, value in packed.items()}

    def contents(self, pod: Object, kind: str, name: str) -> Mapping[str, bytes] | None:
        """What files get."""
        found = self._data(pod, kind, name)
        if found is None:
            return None
        plain, packed = found
        own = {key: value.encode() for key, value in plain.items()}
        return own | {key: base64.b64decode(value) for key, value in packed.items()}

    def _data(self, pod: Object, kind: str, name: str) -> tuple[Mapping[str, str], Mapping[str, str]] | None:
        """What is written as it is, and what in base64."""
        resource = {"ConfigMap": CONFIG_MAPS, "Secret": SECRETS}[kind]
        try:
            found = self._client.get(resource, name, pod["metadata"]["namespace"]).raw
        except ApiError as error:
            if error.code != 404:
                raise
            return None
        if kind == "ConfigMap":
            return found.get("data") or {}, found.get("binaryData") or {}
        return {}, found.get("data") or {}
