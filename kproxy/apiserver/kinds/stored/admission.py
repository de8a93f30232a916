"""What would admit, route and queue requests: webhooks and admission policies, APIServices, flow control."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kproxy.api.fielderror import FieldError, invalid, required
from kproxy.apiserver.errors import Json
from kproxy.apiserver.kinds.stored.row import Stored, indented
from kproxy.apiserver.kinds.strategy import Context, path_name

_MATCH: Final = """
    namespaceSelector                  selector
    objectSelector                     selector
    matchPolicy                        one-of Exact Equivalent
"""
_WEBHOOK: Final = """
    webhooks[].name                    needed; subdomain
    webhooks[].failurePolicy           one-of Fail Ignore
    webhooks[].sideEffects             needed; one-of None NoneOnDryRun
    webhooks[].admissionReviewVersions needed; unique
    webhooks[].timeoutSeconds          range 1 30
    webhooks[].clientConfig.service.namespace  needed
    webhooks[].clientConfig.service.name       needed
    webhooks[].clientConfig.service.port       range 1 65535
    webhooks[].rules[].operations      needed
    webhooks[].rules[].operations[]    one-of * CONNECT CREATE DELETE UPDATE
    webhooks[].rules[].apiGroups       needed
    webhooks[].rules[].apiVersions     needed
    webhooks[].rules[].resources       needed
    webhooks[].rules[].scope           one-of * Cluster Namespaced
    webhooks[].matchConditions         at-most 64; unique name
    webhooks[].matchConditions[].name        needed; qualified
    webhooks[].matchConditions[].expression  needed
""" + indented(_MATCH, "webhooks[]")
_WEBHOOK_DEFAULTS: Final = """
    webhooks[].failurePolicy           "Fail"
    webhooks[].matchPolicy             "Equivalent"
    webhooks[].namespaceSelector       {}
    webhooks[].objectSelector          {}
    webhooks[].timeoutSeconds          10
    webhooks[].rules[].scope           "*"
    webhooks[].clientConfig.service.port  443
"""
_POLICY: Final = """
    spec.failurePolicy                 one-of Fail Ignore
    spec.paramKind.apiVersion          needed
    spec.paramKind.kind                needed
    spec.matchConstraints              set
    spec.matchConstraints.resourceRules          needed
    spec.matchConstraints.resourceRules[].operations   needed
    spec.matchConstraints.resourceRules[].operations[] one-of * CONNECT CREATE DELETE UPDATE
    spec.matchConstraints.resourceRules[].apiGroups    needed
    spec.matchConstraints.resourceRules[].apiVersions  needed
    spec.matchConstraints.resourceRules[].resources    needed
    spec.matchConditions               at-most 64; unique name
    spec.matchConditions[].name        needed; qualified
    spec.matchConditions[].expression  needed
    spec.variables                     unique name
    spec.variables[].name              needed
    spec.variables[].expression        needed
""" + indented(_MATCH, "spec.matchConstraints")
_POLICY_DEFAULTS: Final = """
    spec.failurePolicy                           "Fail"
    spec.matchConstraints.matchPolicy            "Equivalent"
    spec.matchConstraints.namespaceSelector      {}
    spec.matchConstraints.objectSelector         {}
    spec.matchConstraints.resourceRules[].scope  "*"
"""
_POLICY_BINDING: Final = """
    spec.policyName                    needed; subdomain
    spec.paramRef.parameterNotFoundAction  needed; one-of Allow Deny
    spec.paramRef.selector             selector
""" + indented(_MATCH, "spec.matchResources")
_BINDING_DEFAULTS: Final = """
    spec.matchResources.matchPolicy            "Equivalent"
    spec.matchResources.namespaceSelector      {}
    spec.matchResources.objectSelector         {}
    spec.matchResources.resourceRules[].scope  "*"
"""


def _webhook_errors(value: Json) -> Iterator[FieldError]:
    for index, webhook in enumerate(value.get("webhooks") or ()):
        path = f"webhooks[{index}]"
        config = webhook.get("clientConfig") or {}
        if bool(config.get("url")) == bool(config.get("service")):
            yield required(f"{path}.clientConfig", "exactly one of url or service is required")
        elif config.get("url") and not config["url"].startswith("https://"):
            yield invalid(f"{path}.clientConfig.url", config["url"], "'https' is the only allowed URL scheme")
        if webhook.get("name", "").count(".") < 2:
            yield invalid(f"{path}.name", webhook.get("name"), "should be a domain with at least three segments "
                          "separated by dots")  # fmt: skip
        versions = webhook.get("admissionReviewVersions") or ()
        if versions and not set(versions) & {"v1", "v1beta1"}:
            text = "must include at least one of v1, v1beta1"
            yield invalid(f"{path}.admissionReviewVersions", list(versions), text)


def _policy_errors(value: Json) -> Iterator[FieldError]:
    spec = value["spec"]
    if not spec.get("validations") and not spec.get("auditAnnotations"):
        yield required("spec.validations", "validations or auditAnnotations must contain at least one item")


def _mutation_errors(value: Json) -> Iterator[FieldError]:
    spec = value["spec"]
    if not spec.get("mutations"):
        yield required("spec.mutations", "mutations must contain at least one item")
    for index, each in enumerate(spec.get("mutations") or ()):
        wanted = {"ApplyConfiguration": "applyConfiguration", "JSONPatch": "jsonPatch"}.get(each.get("patchType"))
        if wanted is not None and not each.get(wanted):
            yield required(f"spec.mutations[{index}].{wanted}")


def _begin_api_service(value: Json, context: Context) -> None:
    if value["spec"].get("service") is None:
        condition = {"type": "Available", "status": "True", "lastTransitionTime": context.now, "reason": "Local",
                     "message": "Local APIServices are always available"}  # fmt: skip
        value["status"] = {"conditions": [condition]}


_ADMISSION: Final = "admissionregistration.k8s.io"
_FLOW: Final = "flowcontrol.apiserver.k8s.io"
_EXTENSIONS: Final = ("api-extensions",)
_NOT_CALLED: Final = "{} is stored, but kproxy's API server calls no webhooks"
_NOT_EVALUATED: Final = "{} is stored, but kproxy's API server does not evaluate it"
_NO_QUEUES: Final = "{} is stored, but kproxy's API server does not queue requests by it"

ROWS: Final = (
    Stored(_ADMISSION, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", namespaced=False,
           categories=_EXTENSIONS, generation=("webhooks",), rules=_WEBHOOK + """
        webhooks[].reinvocationPolicy      one-of IfNeeded Never
    """, defaults=_WEBHOOK_DEFAULTS + """
        webhooks[].reinvocationPolicy      "Never"
    """, errors=_webhook_errors, unenforced=_NOT_CALLED.format("MutatingWebhookConfiguration")),
    Stored(_ADMISSION, "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", namespaced=False,
           categories=_EXTENSIONS, generation=("webhooks",), rules=_WEBHOOK, defaults=_WEBHOOK_DEFAULTS,
           errors=_webhook_errors, unenforced=_NOT_CALLED.format("ValidatingWebhookConfiguration")),
    Stored(_ADMISSION, "ValidatingAdmissionPolicy", "validatingadmissionpolicies", namespaced=False, status={},
           categories=_EXTENSIONS, generation=("spec",), defaults=_POLICY_DEFAULTS, errors=_policy_errors,
           rules=_POLICY + """
        spec.validations[].expression        needed
        spec.auditAnnotations[].key          needed; qualified
        spec.auditAnnotations[].valueExpression  needed
    """, unenforced=_NOT_EVALUATED.format("ValidatingAdmissionPolicy")),
    Stored(_ADMISSION, "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", namespaced=False,
           categories=_EXTENSIONS, generation=("spec",), defaults=_BINDING_DEFAULTS, rules=_POLICY_BINDING + """
        spec.validationActions               needed; unique
        spec.validationActions[]             one-of Audit Deny Warn
    """, unenforced=_NOT_EVALUATED.format("ValidatingAdmissionPolicyBinding")),
    Stored(_ADMISSION, "MutatingAdmissionPolicy", "mutatingadmissionpolicies", namespaced=False,
           categories=_EXTENSIONS, generation=("spec",), defaults=_POLICY_DEFAULTS, errors=_mutation_errors,
           rules=_POLICY + """
        spec.reinvocationPolicy              needed; one-of IfNeeded Never
        spec.mutations[].patchType           needed; one-of ApplyConfiguration JSONPatch
        spec.mutations[].jsonPatch.expression           needed
        spec.mutations[].applyConfiguration.expression  needed
    """, unenforced=_NOT_EVALUATED.format("MutatingAdmissionPolicy")),
    Stored(_ADMISSION, "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings", namespaced=False,
           categories=_EXTENSIONS, generation=("spec",), defaults=_BINDING_DEFAULTS, rules=_POLICY_BINDING,
           unenforced=_NOT_EVALUATED.format("MutatingAdmissionPolicyBinding")),
    Stored(_FLOW, "FlowSchema", "flowschemas", namespaced=False, status={}, generation=("spec",), check_name=path_name,
           defaults="spec.matchingPrecedence  1000",
           unenforced=_NO_QUEUES.format("FlowSchema")),
    Stored(_FLOW, "PriorityLevelConfiguration", "prioritylevelconfigurations", namespaced=False, status={},
           generation=("spec",), check_name=path_name,
           unenforced=_NO_QUEUES.format("PriorityLevelConfiguration")),
    Stored("apiregistration.k8s.io", "APIService", "apiservices", namespaced=False, categories=_EXTENSIONS, status={},
           begin=_begin_api_service, check_name=path_name, defaults="spec.service.port  443",
           unenforced="APIService is stored, but kproxy's API server forwards no requests"),
)  # fmt: skip
