"""A namespace that is being deleted: its Pods go first, and its conditions say what is left."""

from __future__ import annotations

from tests.support.apiserver.server import Api

MERGE = "application/merge-patch+json"
HELD = {"finalizers": ["example.org/held"]}


def test_conditions_of_a_namespace_that_cannot_go(shared: Api) -> None:
    """Spec: OrderedNamespaceDeletion namespace deletion should delete pod first."""
    shared.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "leaving"}})
    path = "/api/v1/namespaces/leaving"
    spec = {"containers": [{"name": "c", "image": "i"}]}
    shared.ok("POST", f"{path}/pods", {"metadata": {"name": "p", **HELD}, "spec": spec})
    shared.ok("POST", f"{path}/configmaps", {"metadata": {"name": "m", **HELD}})
    shared.ok("DELETE", path)

    def says(kind: str, text: str) -> dict[str, str]:
        """The messages by type, once one of them is as wanted."""

        def messages(got: dict[str, dict[str, list[dict[str, str]]]]) -> dict[str, str]:
            return {each["type"]: each["message"] for each in got["status"].get("conditions") or ()}

        return messages(shared.eventually(path, lambda got: messages(got).get(kind) == text))

    found = says("NamespaceContentRemaining", "Some resources are remaining: pods. has 1 resource instances")
    assert found["NamespaceFinalizersRemaining"] == (
        "Some content in the namespace has finalizers remaining: example.org/held in 1 resource instances"
    )
    assert found["NamespaceDeletionContentFailure"].startswith("All content successfully deleted")
    assert "deletionTimestamp" in shared.ok("GET", f"{path}/pods/p")["metadata"]
    assert "deletionTimestamp" not in shared.ok("GET", f"{path}/configmaps/m")["metadata"]
    shared.ok("PATCH", f"{path}/pods/p", {"metadata": {"finalizers": None}}, MERGE)
    says("NamespaceContentRemaining", "Some resources are remaining: configmaps. has 1 resource instances")
    shared.ok("PATCH", f"{path}/configmaps/m", {"metadata": {"finalizers": None}}, MERGE)
    shared.eventually(path, lambda got: got.get("code") == 404)
