"""A CNI invocation, from the environment and standard input to a value.

What is required of each command is in `_REQUIRED`, as CNI's own library asks for it. Errors carry the specification's
codes: 1 for a version or a command that the version does not have, 2 for a field we know of and do not support, 4 for
the environment, 6 for invalid JSON, 7 for the rest. Unknown keys are ignored, as the specification demands of
plugins.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kproxy.overlay.errors import CniError, Code
from kproxy.overlay.fieldnames import decode_configuration
from kproxy.overlay.netconf import NetConf, interface_name_problem, read_netconf

VERSIONS: Final = ("0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")
"""CNI versions served, oldest first."""

_SINCE: Final = {"CHECK": "0.4.0", "GC": "1.1.0", "STATUS": "1.1.0"}
_POD: Final = ("CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH")
_REQUIRED: Final[Mapping[str, tuple[str, ...]]] = {
    "ADD": _POD,
    "CHECK": _POD,
    "DEL": ("CNI_CONTAINERID", "CNI_IFNAME", "CNI_PATH"),
    "GC": ("CNI_PATH",),
    "STATUS": ("CNI_PATH",),
    "VERSION": (),
}
_CONTAINER: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.\-]*")
_NETWORK: Final = _CONTAINER
_SOFT: Final = ("DEL", "GC")


class Attachment(NamedTuple):
    """What identifies an attachment beside the network: the specification's (container, interface)."""

    container: str
    ifname: str

    @property
    def key(self) -> str:
        """`container/interface`; neither may hold a slash."""
        return f"{self.container}/{self.ifname}"


class Request(NamedTuple):
    """A valid invocation.

    Attributes:
        command: ADD, DEL, CHECK, GC, STATUS or VERSION.
        version: the configuration's cniVersion.
        attachment: None for GC, STATUS and VERSION.
        netns: CNI_NETNS, a path; "" if it was not given.
        sandbox: a descriptor of that namespace, if the caller has opened it.
        conf: None for VERSION.
    """

    command: str
    version: str
    attachment: Attachment | None
    netns: str
    conf: NetConf | None
    sandbox: int | None = None


def read_request(environ: Mapping[str, str], stdin: bytes) -> Request:
    """Reads and checks an invocation.

    Raises:
        CniError: it cannot be served.
    """
    command = environ.get("CNI_COMMAND", "")
    if command not in _REQUIRED:
        given = f"CNI_COMMAND={command}" if command else "CNI_COMMAND is not set"
        raise CniError(Code.INVALID_ENVIRONMENT, "no CNI command", f"{given}; there are {', '.join(_REQUIRED)}")
    _check_required(command, environ)
    if command == "VERSION":
        return Request(command, _version(_decode(stdin, command), command), None, "", None)
    attachment = None
    if command not in ("GC", "STATUS"):
        attachment = Attachment(environ["CNI_CONTAINERID"], environ["CNI_IFNAME"])
    version, conf = _configuration(command, stdin, environ.get("CNI_ARGS", ""))
    return Request(command, version, attachment, environ.get("CNI_NETNS", ""), conf)


# A daemon is given the same configuration for every pod without port mappings.
@functools.lru_cache(maxsize=8)
def _configuration(command: str, stdin: bytes, text: str) -> tuple[str, NetConf]:
    document = _decode(stdin, command)
    version = _version(document, command)
    arguments = _arguments("" if command in _SOFT else text)
    name = document.get("name")
    if not isinstance(name, str) or not _NETWORK.fullmatch(name):
        raise CniError(Code.INVALID_CONFIG, "invalid network name", f"name: {json.dumps(name)}")
    conf = read_netconf(document, arguments, lenient=command in _SOFT)
    if command == "CHECK" and conf.previous is None:
        raise CniError(Code.INVALID_CONFIG, "CHECK needs prevResult", "the result of ADD must come with it")
    return version, conf


def _check_required(command: str, environ: Mapping[str, str]) -> None:
    missing = [name for name in _REQUIRED[command] if not environ.get(name)]
    if missing:
        raise CniError(Code.INVALID_ENVIRONMENT, "required environment variables missing", ", ".join(missing))
    if "CNI_CONTAINERID" in _REQUIRED[command]:
        container = environ["CNI_CONTAINERID"]
        if not _CONTAINER.fullmatch(container):
            raise CniError(Code.INVALID_ENVIRONMENT, "invalid container ID", f"CNI_CONTAINERID={container!r}")
        problem = interface_name_problem(environ["CNI_IFNAME"])
        if problem:
            raise CniError(
                Code.INVALID_ENVIRONMENT, "invalid interface name", f"CNI_IFNAME={environ['CNI_IFNAME']!r} {problem}"
            )


def _decode(stdin: bytes, command: str) -> dict[str, Any]:
    if command == "VERSION" and not stdin.strip():
        return {}
    try:
        document = decode_configuration(stdin)
    except (ValueError, RecursionError) as error:
        raise CniError(Code.DECODE_FAILURE, "the configuration on standard input is no JSON", str(error)) from error
    if not isinstance(document, dict):
        raise CniError(Code.DECODE_FAILURE, "the configuration on standard input is no JSON object")
    return document


def _version(document: Mapping[str, Any], command: str) -> str:
    version = document.get("cniVersion", VERSIONS[-1] if command == "VERSION" else None)
    if command == "VERSION" and isinstance(version, str):
        return version if version in VERSIONS else VERSIONS[-1]
    if version not in VERSIONS:
        raise CniError(
            Code.INCOMPATIBLE_VERSION,
            "incompatible CNI version",
            f"cniVersion {json.dumps(version)}; served are {', '.join(VERSIONS)}",
        )
    since = _SINCE.get(command)
    if since and VERSIONS.index(version) < VERSIONS.index(since):
        raise CniError(
            Code.INCOMPATIBLE_VERSION, f"cniVersion {version} does not have {command}", f"it came with {since}"
        )
    return str(version)


def _arguments(text: str) -> dict[str, str]:
    arguments = {}
    for pair in filter(None, text.split(";")):
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise CniError(Code.INVALID_ENVIRONMENT, "CNI_ARGS are not K=V;K=V", f"{pair!r} in CNI_ARGS={text!r}")
        arguments[key] = value
    return arguments


def version_answer(version: str) -> dict[str, object]:
    """What VERSION prints."""
    return {"cniVersion": version, "supportedVersions": list(VERSIONS)}


def error_answer(error: CniError, version: str) -> dict[str, object]:
    """What is printed of an error; `version` is that of the configuration, as far as one could be read."""
    answer: dict[str, object] = {"cniVersion": version, "code": int(error.code), "msg": error.msg}
    if error.details:
        answer["details"] = error.details
    return answer


def answer_version(stdin: bytes) -> str:
    """The version of an error's answer: the configuration's if it is served, else the newest."""
    try:
        version = decode_configuration(stdin)["cniVersion"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return VERSIONS[-1]
    return version if version in VERSIONS else VERSIONS[-1]
