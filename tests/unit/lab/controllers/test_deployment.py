"""Deployments: when a template is another one."""

from __future__ import annotations

from kproxy.lab.controllers.deployment import same_template
from kproxy.lab.controllers.template import template_hash


def test_templates_are_compared_without_their_hash() -> None:
    one = {"metadata": {"labels": {"app": "a"}, "creationTimestamp": None}, "spec": {"containers": []}}
    other = {"metadata": {"labels": {"app": "a", "pod-template-hash": "x"}}, "spec": {"containers": []}}
    assert same_template(one, other)
    assert not same_template(one, {**other, "spec": {"containers": [1]}})
    assert template_hash(one) == template_hash(dict(reversed(list(one.items()))))
