"""What can go wrong with an API server, as errors of one root."""

from __future__ import annotations

from kproxy.errors import InputError, KproxyError
from kproxy.informer.objects import Status


class ConfigError(InputError):
    """A kubeconfig, a credential or the environment cannot be used."""


class CredentialError(KproxyError):
    """A credential could not be had now: a plugin failed, a token file is gone."""


class TransportError(KproxyError):
    """No answer: refused, reset, timed out, cut off, or no TLS.

    `reason` says why; str() puts `address` before it, the host and port that were to answer.
    """

    def __init__(self, reason: str, address: str = "") -> None:
        super().__init__(f"{address}: {reason}" if address else reason)
        self.reason = reason
        self.address = address


class SilenceError(TransportError):
    """Nothing came for as long as the caller would wait, on a connection that is there as far as TCP can tell."""


class CancelledError(KproxyError):
    """The call was ended by `Call.cancel` from another thread."""


class ApiError(KproxyError):
    """The server answered with an error.

    `status` has the code, reason and message, which is what str() gives. `request` is the method and path.
    """

    def __init__(self, status: Status, request: str = "") -> None:
        super().__init__(status.message)
        self.status = status
        self.request = request

    @property
    def code(self) -> int:
        return self.status.code

    @property
    def reason(self) -> str:
        """metav1.StatusReason: NotFound, Conflict, Forbidden...; "" if the server gave none."""
        return self.status.reason

    @property
    def message(self) -> str:
        return self.status.message


class DiscoveryError(InputError):
    """The server has no such resource."""
