"""The list of feature gates is the recorded one."""

from __future__ import annotations

import re

from kproxy.api.kubeproxyconfig.features import STAGES
from tests.support import paths

RESPONSES = paths.TESTS / "reference" / "kube-proxy-http" / "responses.txt"


def test_the_gates_and_their_stages_are_those_that_kube_proxy_reports() -> None:
    found = re.findall(r'^kubernetes_feature_enabled\{name="(\w+)",stage="(\w*)"\} [01]$', RESPONSES.read_text(), re.M)
    assert {name: stage or "GA" for name, stage in found} == STAGES
