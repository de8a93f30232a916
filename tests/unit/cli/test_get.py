"""`kproxy get` as a process, against a small API server; the texts are kubectl v1.32's for the same server."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest
import yaml

from tests.support import paths
from tests.support.cli import KPROXY, run_kproxy
from tests.support.fakeapi.server import FakeApiServer
from tests.support.waiting import PATIENCE

Result = subprocess.CompletedProcess[str]


class Get(Protocol):
    def __call__(self, *words: str) -> Result: ...


@pytest.fixture
def api() -> Iterator[FakeApiServer]:
    with FakeApiServer() as server:
        for name, address in (("web", "10.0.0.1"), ("database", "10.0.0.20")):
            spec = {"type": "ClusterIP", "clusterIP": address, "ports": [{"port": 80}], "selector": {"app": name}}
            server.put("services", {"metadata": {"name": name, "labels": {"app": name}}, "spec": spec})
        spec = {"clusterIP": "10.0.7.7", "ports": [{"port": 80, "nodePort": 30080}], "type": "NodePort"}
        server.put("services", {"metadata": {"name": "shop", "namespace": "shop"}, "spec": spec})
        server.put("fruits", {"metadata": {"name": "apple"}, "spec": {"sweet": False, "weight": 100}})
        server.put("nodes", {"metadata": {"name": "n1"}})
        yield server


@pytest.fixture
def config(api: FakeApiServer, tmp_path: Path) -> str:
    path = tmp_path / "kubeconfig"
    contexts = [
        {"name": "c", "context": {"cluster": "c"}},
        {"name": "s", "context": {"cluster": "c", "namespace": "shop"}},
    ]
    clusters = [{"name": "c", "cluster": {"server": api.url}}]
    path.write_text(yaml.safe_dump({"current-context": "c", "contexts": contexts, "clusters": clusters}))
    return str(path)


@pytest.fixture
def get(config: str) -> Get:
    def run(*words: str) -> Result:
        done = run_kproxy("get", *words, "--kubeconfig", config, timeout=180)
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return run


SERVICES = """\
NAME       TYPE        CLUSTER-IP   EXTERNAL-IP   PORT(S)   AGE
database   ClusterIP   10.0.0.20    <none>        80/TCP    1h
web        ClusterIP   10.0.0.1     <none>        80/TCP    1h
"""

WIDE = """\
NAMESPACE   NAME       TYPE        CLUSTER-IP   EXTERNAL-IP   PORT(S)        AGE   SELECTOR
default     database   ClusterIP   10.0.0.20    <none>        80/TCP         1h    app=database
default     web        ClusterIP   10.0.0.1     <none>        80/TCP         1h    app=web
shop        shop       NodePort    10.0.7.7     <none>        80:30080/TCP   1h    <none>
"""

TWO = """\
NAME               TYPE        CLUSTER-IP   EXTERNAL-IP   PORT(S)   AGE
service/database   ClusterIP   10.0.0.20    <none>        80/TCP    1h
service/web        ClusterIP   10.0.0.1     <none>        80/TCP    1h

NAME                      SWEET   WEIGHT
fruit.example.org/apple   false   100
"""


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("services", SERVICES),
        ("svc", SERVICES),
        ("Service -n default", SERVICES),
        ("svc.v1. web --no-headers", "web   ClusterIP   10.0.0.1   <none>   80/TCP   1h\n"),
        ("svc -A -o wide", WIDE),
        ("svc,fr", TWO),
        ("svc,fr -o name", "service/database\nservice/web\nfruit.example.org/apple\n"),
        ("svc/web fruit/apple -o name", "service/web\nfruit.example.org/apple\n"),
        ("svc -l app=web -o name", "service/web\n"),
        ("svc --context s -o name", "service/shop\n"),
        ("nodes -n shop", "NAME   AGE\nn1     1h\n"),
        ("all -A -o name", "service/database\nservice/web\nservice/shop\n"),
        ("fruits.example.org apple", "NAME    SWEET   WEIGHT\napple   false   100\n"),
    ],
)
def test_tables_and_names(get: Get, words: str, text: str) -> None:
    done = get(*words.split())
    assert (done.stdout, done.stderr, done.returncode) == (text, "", 0)


@pytest.mark.parametrize(
    ("words", "message", "code"),
    [
        ("svc nosuch", 'Error from server (NotFound): services "nosuch" not found\n', 1),
        ("svc nosuch -o json", 'Error from server (NotFound): services "nosuch" not found\n', 1),
        ("cm", "No resources found in default namespace.\n", 0),
        ("cm -A", "No resources found\n", 0),
        ("cm,deploy -n none", "No resources found in none namespace.\n", 0),
        ("nosuch", 'error: the server doesn\'t have a resource type "nosuch"\n', 2),
        ("svc web -A", "error: a resource cannot be retrieved by name across all namespaces\n", 2),
        ("svc web -l a=b", "error: a selector and a name cannot be given together\n", 2),
        ("svc,fr -w", "error: -w takes a single resource type and at most one name\n", 2),
        ("svc/", "error: 'svc/' is no TYPE/NAME\n", 2),
        ("svc ..", "error: invalid resource name \"..\": may not be '..'\n", 2),
        ("svc .. -o name", "error: invalid resource name \"..\": may not be '..'\n", 2),
        ("svc a%2fb", "error: invalid resource name \"a%2fb\": may not contain '%'\n", 2),
        ("svc -n ../nodes", "error: invalid namespace \"../nodes\": may not contain '/'\n", 2),
        ("svc --context nosuch", 'error: context "nosuch" does not exist\n', 2),
    ],
)
def test_messages_and_exit_codes(get: Get, words: str, message: str, code: int) -> None:
    done = get(*words.split())
    assert (done.stdout, done.stderr, done.returncode) == ("", message, code)


def test_an_empty_name_is_none(get: Get) -> None:
    done = get("svc", "")
    assert (done.stdout, done.stderr, done.returncode) == ("", "error: a resource name may not be empty\n", 2)


def test_rows_of_several_names_line_up(get: Get) -> None:
    assert get("svc", "database", "web").stdout == SERVICES


def test_some_found_and_some_not(get: Get) -> None:
    done = get("svc", "web", "nosuch")
    assert "web    ClusterIP" in done.stdout
    assert done.stderr == 'Error from server (NotFound): services "nosuch" not found\n'
    assert done.returncode == 1


def test_json_and_yaml(get: Get, api: FakeApiServer) -> None:
    meta = {"name": "web", "managedFields": [{"manager": "x"}], "annotations": {"n": "1", "y": "yes", "t": "a\nb\n"}}
    api.put("services", {"metadata": meta, "spec": {"ports": []}})
    one = json.loads(get("svc", "web", "-o", "json").stdout)
    assert (one["kind"], one["apiVersion"], one["metadata"]["name"]) == ("Service", "v1", "web")
    assert "managedFields" not in one["metadata"]
    text = get("svc/web", "-o", "yaml").stdout
    assert yaml.safe_load(text) == one
    assert '    "n": "1"\n    t: |\n      a\n      b\n    "y": "yes"\n' in text
    several = json.loads(get("svc,fr", "-o", "json").stdout)
    assert (several["kind"], several["metadata"]) == ("List", {"resourceVersion": ""})
    assert [item["kind"] for item in several["items"]] == ["Service", "Service", "Fruit"]
    assert json.loads(get("cm", "-o", "json").stdout)["items"] == []


def test_no_server_and_no_configuration(get: Get, api: FakeApiServer, tmp_path: Path) -> None:
    api.tokens = {}
    refused = get("svc")
    assert refused.stderr.startswith("Error from server (Forbidden): ")
    api.stop()
    gone = get("svc")
    assert gone.stderr == f"error: cannot reach the server {api.url}: connection refused\n"
    assert gone.returncode == 1
    command = [*KPROXY, "get", "svc"]
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    none = subprocess.run(command, capture_output=True, text=True, check=False, env=env, cwd=paths.ROOT)
    assert none.stderr.startswith("error: no kubeconfig: ")
    assert none.returncode == 2


@pytest.mark.parametrize(
    ("output", "lines"),
    [
        ([], ["NAME   TYPE", "web    ClusterIP", "web    ExternalName", "web    ExternalName"]),
        (["-o", "name"], ["service/web", "service/web", "service/web"]),
    ],
)
def test_watch_shows_what_there_is_and_every_change(
    api: FakeApiServer, config: str, output: list[str], lines: list[str]
) -> None:
    command = [*KPROXY, "get", "svc", "web", "-w", *output, "--kubeconfig", config]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        until = time.monotonic() + PATIENCE
        while not api.watchers and time.monotonic() < until:
            time.sleep(0.01)
        api.put("services", {"metadata": {"name": "other"}, "spec": {}})
        api.put("services", {"metadata": {"name": "web"}, "spec": {"type": "ExternalName"}})
        api.delete("services", "default/web")
        assert process.stdout is not None
        seen = [process.stdout.readline() for _ in lines]
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()
        process.wait(PATIENCE)
    for got, start in zip(seen, lines, strict=True):
        assert got.startswith(start)
    assert process.returncode == 130
