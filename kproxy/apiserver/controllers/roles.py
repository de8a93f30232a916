"""What kube-controller-manager's controllers may do, each by its own account: ClusterRoles `system:controller:...`.

Source: kubernetes/kubernetes plugin/pkg/auth/authorizer/rbac/bootstrappolicy/controller_policy.go.
"""

from __future__ import annotations

from typing import Final

from kproxy.apiserver.errors import Json

_EVENTS: Final = "/events,events.k8s.io/events create,patch,update"
_TABLE: Final = """
attachdetach-controller: /persistentvolumeclaims,/persistentvolumes list,watch; /nodes get,list,watch;
  /nodes/status patch,update; /pods list,watch; storage.k8s.io/volumeattachments create,delete,get,list,watch;
  storage.k8s.io/csidrivers,storage.k8s.io/csinodes get,list,watch
clusterrole-aggregation-controller: rbac.authorization.k8s.io/clusterroles escalate,get,list,patch,update,watch
cronjob-controller: batch/cronjobs get,list,update,watch; batch/jobs create,delete,get,list,patch,update,watch;
  batch/cronjobs/status,batch/cronjobs/finalizers update; /pods delete,list
daemon-set-controller: apps/daemonsets get,list,watch; apps/daemonsets/status,apps/daemonsets/finalizers update;
  /nodes list,watch; /pods create,delete,list,patch,watch; /pods/binding create;
  apps/controllerrevisions create,delete,get,list,patch,update,watch
deployment-controller: apps/deployments get,list,update,watch;
  apps/deployments/status,apps/deployments/finalizers update;
  apps/replicasets create,delete,get,list,patch,update,watch; /pods get,list,update,watch
disruption-controller: apps/deployments,apps/replicasets,apps/statefulsets,/replicationcontrollers get,list,watch;
  policy/poddisruptionbudgets get,list,watch; policy/poddisruptionbudgets/status update; /pods/status patch,update;
  */*/scale get; /pods get,list,watch
endpoint-controller: /pods,/services get,list,watch; /endpoints create,delete,get,list,update;
  /endpoints/restricted create; /services/finalizers update
endpointslice-controller: /nodes,/pods,/services get,list,watch; /services/finalizers update;
  discovery.k8s.io/endpointslices create,delete,get,list,update,watch;
  discovery.k8s.io/endpointslices/restricted create
endpointslicemirroring-controller: /endpoints,/services get,list,watch;
  /services/finalizers,/endpoints/finalizers update;
  discovery.k8s.io/endpointslices create,delete,get,list,update,watch;
  discovery.k8s.io/endpointslices/restricted create
ephemeral-volume-controller: /pods get,list,watch; /pods/finalizers update;
  /persistentvolumeclaims create,get,list,watch
expand-controller: /persistentvolumes get,list,patch,update,watch; /persistentvolumeclaims get,list,watch;
  /persistentvolumeclaims/status patch,update; storage.k8s.io/storageclasses get,list,watch; /secrets get
generic-garbage-collector: */* delete,get,list,patch,update,watch
horizontal-pod-autoscaler: autoscaling/horizontalpodautoscalers get,list,watch;
  autoscaling/horizontalpodautoscalers/status update; */*/scale get,update; /pods list; metrics.k8s.io/pods list;
  custom.metrics.k8s.io/*,external.metrics.k8s.io/* get,list
job-controller: batch/jobs get,list,patch,update,watch; batch/jobs/status,batch/jobs/finalizers update;
  /pods create,delete,list,patch,watch
legacy-service-account-token-cleaner: /configmaps get; /secrets delete,patch
namespace-controller: /namespaces delete,get,list,watch; /namespaces/finalize,/namespaces/status update;
  */* delete,deletecollection,get,list
node-controller: /nodes delete,get,list,patch,update; /nodes/status patch,update; /pods/status patch,update;
  /pods delete,get,list
persistent-volume-binder: /persistentvolumes create,delete,get,list,update,watch; /persistentvolumes/status update;
  /persistentvolumeclaims get,list,update,watch; /persistentvolumeclaims/status update;
  /pods create,delete,get,list,watch; storage.k8s.io/storageclasses get,list,watch;
  /endpoints,/services create,delete,get,update; /secrets get,list; /nodes get,list
pod-garbage-collector: /pods delete,list,watch; /nodes get,list; /pods/status patch
pv-protection-controller: /persistentvolumes get,list,update,watch
pvc-protection-controller: /persistentvolumeclaims get,list,update,watch; /pods get,list,watch
replicaset-controller: apps/replicasets get,list,update,watch;
  apps/replicasets/status,apps/replicasets/finalizers update; /pods create,delete,list,patch,watch
replication-controller: /replicationcontrollers get,list,update,watch;
  /replicationcontrollers/status,/replicationcontrollers/finalizers update; /pods create,delete,list,patch,watch
resource-claim-controller: /pods get,list,watch; /pods/finalizers update; /pods/status patch,update;
  resource.k8s.io/resourceclaims create,delete,get,list,watch; resource.k8s.io/resourceclaims/status update
resourcequota-controller: */* list,watch; /resourcequotas/status update
root-ca-cert-publisher: /configmaps create,update
route-controller: /nodes list,watch; /nodes/status patch
selinux-warning-controller: /persistentvolumeclaims,/persistentvolumes,/pods get,list,watch;
  storage.k8s.io/csidrivers get,list,watch
service-account-controller: /serviceaccounts create
service-cidrs-controller: networking.k8s.io/servicecidrs get,list,patch,update,watch;
  networking.k8s.io/servicecidrs/finalizers,networking.k8s.io/servicecidrs/status patch,update;
  networking.k8s.io/ipaddresses get,list,watch
service-controller: /services get,list,watch; /services/status patch,update; /nodes list,watch
statefulset-controller: /pods list,watch; apps/statefulsets get,list,watch;
  apps/statefulsets/status,apps/statefulsets/finalizers update; /pods create,delete,get,patch,update;
  apps/controllerrevisions create,delete,get,list,patch,update,watch;
  /persistentvolumeclaims create,delete,get,list,update,watch
ttl-after-finished-controller: batch/jobs delete,get,list,watch
ttl-controller: /nodes list,patch,update,watch
validatingadmissionpolicy-status-controller: admissionregistration.k8s.io/validatingadmissionpolicies get,list,watch;
  admissionregistration.k8s.io/validatingadmissionpolicies/status get,patch,update;
  apiextensions.k8s.io/customresourcedefinitions get,list,watch
certificate-controller: certificates.k8s.io/certificatesigningrequests delete,get,list,watch;
  certificates.k8s.io/certificatesigningrequests/approval,certificates.k8s.io/certificatesigningrequests/status
  update;
  certificates.k8s.io/signers approve,sign; authorization.k8s.io/subjectaccessreviews create
"""
"""Controller: resources, each with its group before it, and verbs."""


def controller_rules() -> dict[str, list[Json]]:
    """The rules of each ClusterRole by its name; all may write events."""
    found = {}
    for line in _TABLE.replace("\n  ", " ").split("\n"):
        name, _, text = line.partition(":")
        if name:
            rules = [_rule(part.strip()) for part in (*text.split(";"), _EVENTS) if part.strip()]
            found[f"system:controller:{name}"] = rules
    return found


def _rule(text: str) -> Json:
    things, verbs = text.split()
    pairs = [each.partition("/") for each in things.split(",")]
    return {
        "verbs": verbs.split(","),
        "apiGroups": list(dict.fromkeys(group for group, _, _ in pairs)),
        "resources": list(dict.fromkeys(resource for _, _, resource in pairs)),
    }
