"""Exec credential plugins: programs of a kubeconfig that print who we are (client.authentication.k8s.io v1, v1beta1).

The rules and the words are client-go's (plugin/pkg/client/auth/exec, tools/clientcmd/validation.go): interactiveMode
says whether the plugin may use the terminal, provideClusterInfo whether it gets the cluster's address and certificate;
what it prints must be of the version that the kubeconfig names. The official Python client knows no interactiveMode,
hands on the cluster's entry as it is, and hides what a plugin tells the user meanwhile; hence this module.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from typing import IO, Any, Final

import msgspec

from kproxy.client.errors import ConfigError, CredentialError

VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
NEVER, IF_AVAILABLE, ALWAYS = "Never", "IfAvailable", "Always"
EXTENSION: Final = "client.authentication.k8s.io/exec"
"""The extension of a cluster's entry that is for plugins."""

TOLD: Final = 2000
"""Characters of a plugin's stderr that errors repeat, from its end."""


class Variable(msgspec.Struct, frozen=True):
    name: str = ""
    value: str = ""


class ExecConfig(msgspec.Struct, rename="camel", frozen=True):
    """A plugin as a kubeconfig has it (ExecConfig). `cluster` is what it gets to know of the cluster, None for
    nothing."""

    api_version: str | None = None
    command: str | None = None
    args: tuple[str, ...] | None = None
    env: tuple[Variable, ...] | None = None
    interactive_mode: str | None = None
    provide_cluster_info: bool | None = None
    install_hint: str | None = None
    cluster: Mapping[str, Any] | None = None


def read_exec_config(entry: object, user: str, base: str, cluster: Mapping[str, Any]) -> ExecConfig:
    """The plugin of a user's entry.

    Args:
        base: the directory of the kubeconfig, which a command that is a relative path is relative to.
        cluster: the cluster as `cluster_info` says it, for a plugin that wants to know.

    Raises ConfigError.
    """
    try:
        found = msgspec.convert(entry, ExecConfig)
    except msgspec.ValidationError as error:
        raise ConfigError(f'user "{user}": exec: {error}') from error
    use = f'for user "{user}" to use an exec authentication plugin'
    if not found.command:
        raise ConfigError(f"command must be specified {use}")
    if not found.api_version:
        raise ConfigError(f"apiVersion must be specified {use}")
    if found.api_version not in VERSIONS:
        raise ConfigError(f'exec plugin: invalid apiVersion "{found.api_version}"; there are {", ".join(VERSIONS)}')
    if any(not variable.name for variable in found.env or ()):
        raise ConfigError(f"env variable name must be specified {use}")
    mode = found.interactive_mode or (IF_AVAILABLE if found.api_version == VERSIONS[1] else "")
    if not mode:
        raise ConfigError(f"interactiveMode must be specified {use}")
    if mode not in (NEVER, IF_AVAILABLE, ALWAYS):
        raise ConfigError(f'invalid interactiveMode for user "{user}": "{mode}"')
    command = os.path.join(base, found.command) if "/" in found.command else found.command
    return msgspec.structs.replace(
        found,
        command=os.path.normpath(command),
        interactive_mode=mode,
        cluster=cluster if found.provide_cluster_info else None,
        install_hint=_printable(found.install_hint or ""),
    )


def cluster_info(
    server: str,
    ca: str | None,
    tls_server_name: str,
    insecure_skip_tls_verify: bool,
    proxy_url: str,
    extensions: object,
) -> dict[str, Any]:
    """The cluster as spec.cluster of an ExecCredential has it; `ca` is PEM text."""
    info: dict[str, Any] = {"server": server}
    if tls_server_name:
        info["tls-server-name"] = tls_server_name
    if insecure_skip_tls_verify:
        info["insecure-skip-tls-verify"] = True
    if ca:
        info["certificate-authority-data"] = base64.b64encode(ca.encode()).decode()
    if proxy_url:
        info["proxy-url"] = proxy_url
    for extension in extensions if isinstance(extensions, list) else ():
        if isinstance(extension, dict) and extension.get("name") == EXTENSION:
            info["config"] = extension.get("extension")
    return info


def stdin_is_terminal() -> bool:
    """Whether a plugin could ask a user."""
    try:
        return os.isatty(0)
    except OSError:
        return False


def run_plugin(config: ExecConfig, is_terminal: Callable[[], bool] = stdin_is_terminal) -> Mapping[str, Any]:
    """Runs the plugin; the status of the ExecCredential that it prints. Raises CredentialError."""
    interactive = _is_interactive(config, is_terminal)
    spec: dict[str, Any] = {"interactive": interactive}
    if config.cluster is not None:
        spec["cluster"] = config.cluster
    info = {"kind": "ExecCredential", "apiVersion": config.api_version, "spec": spec}
    given = {variable.name: variable.value for variable in config.env or ()}
    environ = {**os.environ, **given, "KUBERNETES_EXEC_INFO": json.dumps(info)}
    try:
        code, printed, stderr = _run([config.command or "", *(config.args or ())], environ, interactive)
    except FileNotFoundError as error:
        hint = f"\n\n{config.install_hint}" if config.install_hint else ""
        raise CredentialError(f"getting credentials: exec: executable {config.command} not found{hint}") from error
    except (OSError, ValueError) as error:
        reason = error.strerror.lower() if isinstance(error, OSError) and error.strerror else str(error)
        raise CredentialError(f"getting credentials: exec: executable {config.command}: {reason}") from error
    if code:
        how = f"failed with exit code {code}" if code > 0 else f"was ended by signal {-code}"
        text = f"getting credentials: exec: executable {config.command} {how}"
        raise CredentialError(f"{text}: {stderr}" if stderr else text)
    return _status(config, printed)


def _is_interactive(config: ExecConfig, is_terminal: Callable[[], bool]) -> bool:
    if config.interactive_mode == NEVER:
        return False
    terminal = is_terminal()
    if config.interactive_mode == ALWAYS and not terminal:
        raise CredentialError(
            "getting credentials: exec plugin cannot support interactive mode: standard input is not a terminal"
        )
    return terminal


def _run(command: list[str], environ: Mapping[str, str], interactive: bool) -> tuple[int, bytes, str]:
    """Exit code, stdout, and the end of stderr.

    Its stderr is for the user, who may have to act on it, so it is shown at once. A plugin that may use the terminal
    gets stderr itself.
    """
    with subprocess.Popen(
        command,
        env=dict(environ),
        stdin=None if interactive else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=None if interactive else subprocess.PIPE,
    ) as process:
        said: list[bytes] = []
        shower = None
        if process.stderr is not None:
            shower = threading.Thread(target=_show, args=(process.stderr, said), daemon=True)
            shower.start()
        assert process.stdout is not None
        printed = process.stdout.read()
        code = process.wait()
        if shower is not None:
            # Something that the plugin left behind may hold its stderr open.
            shower.join(1.0)
    return code, printed, " ".join(b"".join(said).decode(errors="replace").split())[-TOLD:]


def _show(stream: IO[bytes], said: list[bytes]) -> None:
    for line in stream:
        said.append(line)
        sys.stderr.write(line.decode(errors="replace"))
        sys.stderr.flush()


def _status(config: ExecConfig, printed: bytes) -> Mapping[str, Any]:
    try:
        answer = json.loads(printed)
    except ValueError as error:
        raise CredentialError(f"getting credentials: decoding stdout of {config.command}: {error}") from error
    if not isinstance(answer, dict) or answer.get("kind") != "ExecCredential":
        raise CredentialError(f"getting credentials: {config.command} printed no ExecCredential")
    if answer.get("apiVersion") != config.api_version:
        raise CredentialError(
            f"getting credentials: exec plugin is configured to use API version {config.api_version}, "
            f"plugin returned version {answer.get('apiVersion')}"
        )
    status = answer.get("status")
    if not isinstance(status, dict):
        raise CredentialError("getting credentials: exec plugin didn't return a status field")
    return status


def _printable(text: str) -> str:
    """A hint without what could move a terminal's cursor."""
    return re.sub(r"[^\n\t -~\u00a0-\U0010ffff]", "", text).strip()
