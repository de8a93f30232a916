"""What kubectl's flags say over a kubeconfig, and as whom requests are made."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Impersonation:
    """Whom requests are made as (kubectl's --as, --as-group, --as-uid); nobody else without a user.

    Source: client-go transport.ImpersonationConfig, and the API server's headers of impersonation.
    """

    user: str = ""
    groups: tuple[str, ...] = ()
    uid: str = ""

    def headers(self) -> tuple[tuple[str, str], ...]:
        """The headers, of which that of groups may be repeated."""
        if not self.user:
            return ()
        uid = (("Impersonate-Uid", self.uid),) if self.uid else ()
        return (("Impersonate-User", self.user), *(("Impersonate-Group", group) for group in self.groups), *uid)


@dataclass(frozen=True, slots=True)
class Overrides:
    """What kubectl's flags of these names say over a kubeconfig; None leaves what it says."""

    cluster: str | None = None
    user: str | None = None
    server: str | None = None
    token: str | None = None
    username: str | None = None
    password: str | None = None
    certificate_authority: str | None = None
    client_certificate: str | None = None
    client_key: str | None = None
    tls_server_name: str | None = None
    insecure_skip_tls_verify: bool | None = None
    as_user: str | None = None
    as_groups: tuple[str, ...] = ()
    as_uid: str | None = None
