"""What every answer carries."""

from __future__ import annotations

from tests.support.apiserver.server import Api


def test_audit_ids_are_the_clients_or_new(shared: Api) -> None:
    assert shared.raw("GET", "/version", None, Audit_ID="mine").getheader("Audit-Id") == "mine"
    made = {shared.raw("GET", "/version").getheader("Audit-Id") for _ in range(3)}
    assert len(made) == 3
    assert None not in made
