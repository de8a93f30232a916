"""Kinds that the API server stores as any cluster's does, and that nothing in a lab acts on."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

_NO_VOLUMES: Final = "pods have no persistent volumes"
_NO_ADMISSION: Final = "no request is judged by it"

INERT: Final = MappingProxyType(
    {
        ("", "PersistentVolume"): _NO_VOLUMES,
        ("", "PersistentVolumeClaim"): _NO_VOLUMES,
        ("", "ReplicationController"): "no pods are made of it",
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicy"): _NO_ADMISSION,
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"): _NO_ADMISSION,
        ("apiregistration.k8s.io", "APIService"): "no request is passed on",
        ("batch", "CronJob"): "no Jobs are made of it; `kubectl create job --from=cronjob/NAME` makes one",
        ("autoscaling", "HorizontalPodAutoscaler"): "nothing is scaled by it",
        ("certificates.k8s.io", "CertificateSigningRequest"): "nobody signs it",
        ("networking.k8s.io", "Ingress"): "no ingress controller runs here",
        ("networking.k8s.io", "NetworkPolicy"): "no packet is refused by it",
        ("policy", "PodDisruptionBudget"): "nothing counts its pods, so none can be evicted",
        ("resource.k8s.io", "ResourceClaim"): "no device is given",
        ("storage.k8s.io", "StorageClass"): _NO_VOLUMES,
    }
)
"""By group and kind: what does not happen. What only informs others, as a ConfigMap does, is not here."""
CUSTOM: Final = "the lab runs none of its controllers; an image of one is an echo server, as all are"
"""The same of custom resources."""
