"""Refusals as Kubernetes words them: metav1.Status.

Every refusal of the API server is a `StatusError`, which is raised anywhere and answered at the edge. The constructors
are those of k8s.io/apimachinery/pkg/api/errors, and their wording is compared with the recorded answers in
tests/reference/kubectl.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from kproxy.api.fielderror import ErrorType, FieldError
from kproxy.errors import KproxyError

Json = dict[str, Any]


class StatusError(KproxyError):
    """One refusal: an HTTP status code, a reason, a message and details; `status` is the metav1.Status to send."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.metadata = metadata
        self.headers = tuple(headers)

    @property
    def status(self) -> Json:
        """The metav1.Status object."""
        status: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": dict(self.metadata or {}),
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = dict(self.details)
        status["code"] = self.code
        return status


def bad_request(message: str) -> StatusError:
    """400 BadRequest."""
    return StatusError(400, "BadRequest", message)


def unauthorized() -> StatusError:
    """401: unknown credentials."""
    return StatusError(401, "Unauthorized", "Unauthorized")


def _details(group: str, resource: str, name: str) -> Json:
    details: Json = {}
    if name:
        details["name"] = name
    if group:
        details["group"] = group
    details["kind"] = resource
    return details


def qualified(resource: str, group: str) -> str:
    """`deployments.apps`, `services`: how messages name a resource or a kind."""
    return f"{resource}.{group}" if group else resource


def forbidden(group: str, resource: str, name: str, why: str) -> StatusError:
    """403: `services "web" is forbidden: User "x" cannot ...`."""
    subject = qualified(resource, group)
    message = f'{subject} "{name}" is forbidden: {why}' if name else f"{subject} is forbidden: {why}"
    if not resource:
        return StatusError(403, "Forbidden", f"forbidden: {why}", {})
    return StatusError(403, "Forbidden", message, _details(group, resource, name))


def not_found(group: str, resource: str, name: str) -> StatusError:
    """404 for an object."""
    message = f'{qualified(resource, group)} "{name}" not found'
    return StatusError(404, "NotFound", message, _details(group, resource, name))


def no_resource() -> StatusError:
    """404 for a path that names no resource of a known group."""
    return StatusError(404, "NotFound", "the server could not find the requested resource", {})


def method_not_allowed() -> StatusError:
    """405."""
    return StatusError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def already_exists(group: str, resource: str, name: str) -> StatusError:
    """409 AlreadyExists."""
    message = f'{qualified(resource, group)} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, _details(group, resource, name))


def conflict(group: str, resource: str, name: str, why: str) -> StatusError:
    """409 Conflict."""
    message = f'Operation cannot be fulfilled on {qualified(resource, group)} "{name}": {why}'
    return StatusError(409, "Conflict", message, _details(group, resource, name))


def stale(group: str, resource: str, name: str) -> StatusError:
    """409: the object has changed since it was read."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(group, resource, name, why)


def expired(requested: int, oldest: int) -> StatusError:
    """410: the history before `oldest` is gone."""
    return StatusError(410, "Expired", f"too old resource version: {requested} ({oldest})")


def compacted() -> StatusError:
    """410: a list asks for a version whose history is gone."""
    return StatusError(410, "Expired", "The resourceVersion for the provided list is too old.")


def causes_of(errors: Iterable[FieldError]) -> list[Json]:
    """StatusCauses of field errors."""
    return [
        {"reason": (error.type or ErrorType.INVALID).value, "message": error.message, "field": error.path}
        for error in errors
    ]


_MOST_TOLD: Final = 1 << 20


def first_errors(errors: Iterable[FieldError]) -> Iterator[FieldError]:
    """Errors up to _MOST_TOLD characters: each of a list's items may have several, or name all values of an enum."""
    left = _MOST_TOLD
    for each in errors:
        yield each
        left -= len(each.path) + len(each.message)
        if left < 0:
            return


def invalid(group: str, kind: str, name: str, errors: Sequence[FieldError]) -> StatusError:
    """422 Invalid, with a cause for each field error, as far as `first_errors` goes."""
    found, errors = len(errors), list(first_errors(errors))
    texts = [str(error) if error.path else error.message for error in errors]
    if len(errors) < found:
        texts.append(f"and {found - len(errors)} more")
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details: Json = {}
    if name:
        details["name"] = name
    if group:
        details["group"] = group
    if kind:
        details["kind"] = kind
    details["causes"] = causes_of(errors)
    return StatusError(422, "Invalid", f'{qualified(kind, group)} "{name}" is invalid: {listed}', details)


def rejected() -> StatusError:
    """422 without a reason of its own: a JSON patch that cannot be applied."""
    return StatusError(422, "Invalid", "the server rejected our request due to an error in our request", {})


def unsupported_media_type(accepted: str) -> StatusError:
    """415."""
    message = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
    return StatusError(415, "UnsupportedMediaType", message)


def not_acceptable(accepted: str) -> StatusError:
    """406."""
    message = f"406: Not Acceptable\n\nAvailable representations: {accepted}"
    return StatusError(406, "NotAcceptable", message, {})


def too_large(why: str) -> StatusError:
    """413: a body of more bytes, or a patch of more operations, than is allowed."""
    return StatusError(413, "RequestEntityTooLarge", f"Request entity too large: {why}", {})


def too_many_requests(message: str) -> StatusError:
    """429 with Retry-After."""
    return StatusError(429, "TooManyRequests", message, {"retryAfterSeconds": 1}, headers=[(b"retry-after", b"1")])


def unavailable(message: str) -> StatusError:
    """503: nothing answers what would be passed on."""
    return StatusError(503, "ServiceUnavailable", message)


def timeout(message: str) -> StatusError:
    """504."""
    return StatusError(504, "Timeout", f"Timeout: {message}", {"retryAfterSeconds": 1})


def internal(message: str) -> StatusError:
    """500: a fault of the server's own."""
    return StatusError(
        500,
        "InternalError",
        f"Internal error occurred: {message}",
        {"causes": [{"message": message}]},
    )


def denied(webhook: str, status: Json) -> StatusError:
    """A webhook denies a write; `status` is what it says of that (pkg/admission/plugin/webhook/errors)."""
    said = status.get("message") or status.get("reason")
    denied = f'admission webhook "{webhook}" denied the request'
    message = f"{denied}: {said}" if said else f"{denied} without explanation"
    code = status.get("code")
    code = code if isinstance(code, int) and 400 <= code < 600 else 400
    return StatusError(code, str(status.get("reason") or ""), message, status.get("details"))
