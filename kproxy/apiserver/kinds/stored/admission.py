"""What would admit, route and queue requests: webhooks and admission policies, APIServices, flow control."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from kproxy.api.fielderror import FieldError, duplicate, forbidden, invalid, repeats, required
from kproxy.apiserver.errors import Json
from kproxy.apiserver.kinds.stored.row import Kind
from kproxy.apiserver.kinds.strategy import path_name

_WEBHOOK: Final = """
    webhooks[].name                    needed; subdomain
    webhooks[].failurePolicy           one-of Fail Ignore
    webhooks[].sideEffects             needed; one-of None NoneOnDryRun
    webhooks[].admissionReviewVersions unique
    webhooks[].clientConfig.service.namespace  needed
    webhooks[].clientConfig.service.name       needed
    webhooks[].clientConfig.service.port       range 1 65535
    webhooks[].rules[].operations      needed
    webhooks[].rules[].operations[]    one-of * CONNECT CREATE DELETE UPDATE
    webhooks[].rules[].apiGroups       needed
    webhooks[].rules[].apiVersions     needed
    webhooks[].rules[].resources       needed
    webhooks[].rules[].scope           one-of * Cluster Namespaced
    webhooks[].namespaceSelector       selector
    webhooks[].objectSelector          selector
    webhooks[].matchPolicy             one-of Exact Equivalent
"""
_WEBHOOK_DEFAULTS: Final = """
    webhooks[].failurePolicy           "Fail"
    webhooks[].matchPolicy             "Equivalent"
    webhooks[].namespaceSelector       {}
    webhooks[].objectSelector          {}
    webhooks[].timeoutSeconds          10
    webhooks[].rules[].scope           "*"
    webhooks[].clientConfig.service.port  443
"""

_HTTPS: Final = "; desired format: https://host[/path]"
_NO_CONDITIONS: Final = "kproxy's API server does not evaluate CEL: narrow the rules, or let the webhook decide"


def _webhook_errors(value: Json) -> Iterator[FieldError]:
    webhooks = value.get("webhooks") or ()
    again = set(repeats([each.get("name") for each in webhooks]))
    for index, webhook in enumerate(webhooks):
        path, name = f"webhooks[{index}]", webhook.get("name", "")
        if name.count(".") < 2:
            yield invalid(f"{path}.name", name, "should be a domain with at least three segments separated by dots")
        if index in again:
            yield duplicate(f"{path}.name", name)
        if not 1 <= webhook.get("timeoutSeconds", 10) <= 30:
            seconds = webhook["timeoutSeconds"]
            yield invalid(f"{path}.timeoutSeconds", seconds, "the timeout value must be between 1 and 30 seconds")
        versions = webhook.get("admissionReviewVersions") or ()
        if not versions:
            yield required(f"{path}.admissionReviewVersions", "must specify one of v1")
        elif "v1" not in versions:
            yield invalid(f"{path}.admissionReviewVersions", list(versions), "must include at least one of v1")
        if webhook.get("matchConditions"):
            yield forbidden(f"{path}.matchConditions", _NO_CONDITIONS)
        yield from _client_errors(webhook.get("clientConfig") or {}, f"{path}.clientConfig")


def _client_errors(config: Json, path: str) -> Iterator[FieldError]:
    """k8s.io/apiserver pkg/util/webhook/validation.go."""
    url, service = config.get("url"), config.get("service")
    if (url is None) == (service is None):
        yield required(path, "exactly one of url or service is required")
    elif service is not None:
        if not service.get("path", "/").startswith("/"):
            yield invalid(f"{path}.service.path", service["path"], "must start with a '/'")
        return
    if url is None:
        return
    parts = urlsplit(url)
    for wrong, shown, why in (
        (parts.scheme != "https", parts.scheme, f"'https' is the only allowed URL scheme{_HTTPS}"),
        (not parts.netloc, parts.netloc, f"host must be specified{_HTTPS}"),
        ("@" in parts.netloc, parts.netloc.rpartition("@")[0], "user information is not permitted in the URL"),
        (parts.fragment, parts.fragment, "fragments are not permitted in the URL"),
        (parts.query, parts.query, "query parameters are not permitted in the URL"),
    ):
        if wrong:
            yield invalid(f"{path}.url", shown, why)


_ADMISSION: Final = "admissionregistration.k8s.io"
_FLOW: Final = "flowcontrol.apiserver.k8s.io"
_EXTENSIONS: Final = ("api-extensions",)
_NO_QUEUES: Final = "{} is stored, but kproxy's API server does not queue requests by it"

ROWS: Final = (
    Kind(_ADMISSION, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", namespaced=False,
           categories=_EXTENSIONS, generation=("webhooks",), rules=_WEBHOOK + """
        webhooks[].reinvocationPolicy      one-of IfNeeded Never
    """, defaults=_WEBHOOK_DEFAULTS + """
        webhooks[].reinvocationPolicy      "Never"
    """, errors=_webhook_errors),
    Kind(_ADMISSION, "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", namespaced=False,
           categories=_EXTENSIONS, generation=("webhooks",), rules=_WEBHOOK, defaults=_WEBHOOK_DEFAULTS,
           errors=_webhook_errors),
    *(
        Kind(_ADMISSION, kind, plural, namespaced=False, status=status, categories=_EXTENSIONS, generation=("spec",),
               unenforced=f"{kind} is stored, but kproxy's API server does not evaluate it")
        for kind, plural, status in (
            ("ValidatingAdmissionPolicy", "validatingadmissionpolicies", {}),
            ("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", None),
            ("MutatingAdmissionPolicy", "mutatingadmissionpolicies", None),
            ("MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings", None),
        )
    ),
    Kind(_FLOW, "FlowSchema", "flowschemas", namespaced=False, status={}, generation=("spec",), check_name=path_name,
           defaults="spec.matchingPrecedence  1000",
           unenforced=_NO_QUEUES.format("FlowSchema")),
    Kind(_FLOW, "PriorityLevelConfiguration", "prioritylevelconfigurations", namespaced=False, status={},
           generation=("spec",), check_name=path_name,
           unenforced=_NO_QUEUES.format("PriorityLevelConfiguration")),
    Kind("apiregistration.k8s.io", "APIService", "apiservices", namespaced=False, categories=_EXTENSIONS, status={},
           check_name=path_name, defaults="spec.service.port  443",
           unenforced="APIService is stored, but kproxy's API server forwards no requests"),
)  # fmt: skip
