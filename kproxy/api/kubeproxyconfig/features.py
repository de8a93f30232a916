"""The feature gates that kube-proxy v1.36.2 knows, by the stage it gives each.

A kube-proxy binary knows every gate of the Kubernetes libraries it is built with and refuses to start when its
configuration names another one. This is the list that a running kube-proxy v1.36.2 reports in its metric
kubernetes_feature_enabled (tests/reference/kube-proxy-http/responses.txt). The metric does not say which gates are
locked to their default, so kproxy warns about a gate that has graduated and leaves the refusal to kube-proxy.
"""

from __future__ import annotations

from typing import Final

_ALPHA: Final = """
    APIServingWithRoutine AllAlpha AllowUnsafeMalformedObjectDeletion CBORServingAndStorage
    CPUManagerPolicyAlphaOptions CRIListStreaming CSIVolumeHealth ClientsAllowCBOR ClientsPreferCBOR
    CloudControllerManagerWatchBasedRoutesReconciliation CloudControllerManagerWebhook ContainerStopSignals
    ControllerManagerReleaseLeaderElectionLockOnExit CrossNamespaceVolumeDataSource DRAListTypeAttributes
    DRANodeAllocatableResources DRAResourcePoolStatus DRAWorkloadResourceClaims EventedPLEG GangScheduling
    GenericWorkload HPAScaleToZero ImageVolumeWithDigest InPlacePodVerticalScalingExclusiveCPUs
    InPlacePodVerticalScalingExclusiveMemory KubeletInUserNamespace LoggingAlphaOptions
    ManifestBasedAdmissionControlConfig MemoryQoS MinimumKubeletVersion MutablePVNodeAffinity NativeHistograms
    PersistentVolumeClaimUnusedSinceTime PodAndContainerStatsFromCRI PodLevelResourceManagers
    PodLogsQuerySplitStreams PodsAPI QOSReserved ReduceDefaultCrashLoopBackOffDecay RouteExternalCertificate
    RuntimeClassInImageCriApi ShardedListAndWatch StorageCapacityScoring StoragePerformantSecurityPolicy
    StorageVersionAPI TaintTolerationComparisonOperators TopologyAwareWorkloadScheduling
    TopologyManagerPolicyAlphaOptions UserNamespacesHostNetworkSupport VolumeLimitScaling
    WindowsCPUAndMemoryAffinity WorkloadAwarePreemption WorkloadWithJob
"""

_BETA: Final = """
    APIResponseCompression APIServerIdentity AllBeta AllowParsingUserUIDFromCertAuth AtomicFIFO
    AuthorizePodWebsocketUpgradeCreatePermission CPUManagerPolicyBetaOptions CRDObservedGenerationTracking
    ClearingNominatedNodeNameAfterBinding ClientsAllowCARotation ClientsAllowTLSCacheGC ClusterTrustBundle
    ClusterTrustBundleProjection ComponentFlagz ComponentStatusz ConcurrentWatchObjectDecode
    ConstrainedImpersonation ContainerCheckpoint ContainerRestartRules ContextualLogging CoordinatedLeaderElection
    DRAConsumableCapacity DRADeviceBindingConditions DRADeviceTaintRules DRADeviceTaints DRAExtendedResource
    DRAPartitionableDevices DRAResourceClaimDeviceStatus DRAResourceClaimGranularStatusAuthorization
    DRASchedulerFilterTimeout DeclarativeValidationBeta DeploymentReplicaSetTerminatingReplicas
    DetectCacheInconsistency EnvFiles ExtendWebSocketsToKubelet GracefulNodeShutdown
    GracefulNodeShutdownBasedOnPodPriority HPAConfigurableTolerance HostnameOverride InOrderInformersBatchProcess
    InPlacePodLevelResourcesVerticalScaling InPlacePodVerticalScalingInitContainers KubeletCrashLoopBackOffMax
    KubeletEnsureSecretPulledImages KubeletSeparateDiskGC KubeletServiceAccountTokenForCredentialProviders
    ListFromCacheSnapshot LocalStorageCapacityIsolationFSQuotaMonitoring LoggingBetaOptions
    MatchLabelKeysInPodTopologySpread MatchLabelKeysInPodTopologySpreadSelectorMerge MaxUnavailableStatefulSet
    MutablePodResourcesForSuspendedJobs MutableSchedulingDirectivesForSuspendedJobs NodeDeclaredFeatures
    NominatedNodeNameForExpectation OpenAPIEnums OpportunisticBatching PLEGOnDemandRelist PodCertificateRequest
    PodDeletionCost PodLevelResources PodReadyToStartContainersCondition PodTopologyLabelsAdmission
    PortForwardWebsockets PreventStaticPodAPIReferences RelaxedServiceNameValidation ReloadKubeletClientCAFile
    ReloadKubeletServerCertificateFile RemoteRequestHeaderUID ResourceHealthStatus ResourceHealthStatusMessage
    RestartAllContainersOnContainerExits RotateKubeletServerCertificate SELinuxMount SchedulerAsyncAPICalls
    SchedulerAsyncPreemption SchedulerPopFromBackoffQ ServiceAccountNodeAudienceRestriction
    SizeBasedListCostEstimate StaleControllerConsistencyDaemonSet StaleControllerConsistencyJob
    StaleControllerConsistencyReplicaSet StaleControllerConsistencyStatefulSet StatefulSetSemanticRevisionComparison
    StorageVersionHash StorageVersionMigrator StrictIPCIDRValidation
    StructuredAuthenticationConfigurationEgressSelector StructuredAuthenticationConfigurationJWKSMetrics
    TokenRequestServiceAccountUIDValidation TopologyManagerPolicyBetaOptions TranslateStreamCloseWebsocketRequests
    UnauthenticatedHTTP2DOSMitigation UnknownVersionInteroperabilityProxy UnlockWhileProcessingFIFO
    WatchCacheInitializationPostStartHook WatchList WatchListClient WindowsGracefulNodeShutdown
"""

_GA: Final = """
    APIServerTracing AllowServiceExternalIPs AnonymousAuthConfigurableEndpoints AnyVolumeDataSource
    AuthorizeNodeWithSelectors AuthorizeWithSelectors BtreeWatchCache CPUManagerPolicyOptions
    CRDValidationRatcheting CSIServiceAccountTokenSecrets ConsistentListFromCache CustomCPUCFSQuotaPeriod
    CustomResourceFieldSelectors DRAAdminAccess DRAPrioritizedList DeclarativeValidation DisableAllocatorDualWrite
    DynamicResourceAllocation ExecProbeTimeout ExternalServiceAccountTokenSigner ImageMaximumGCAge ImageVolume
    InOrderInformers InPlacePodVerticalScaling InformerResourceVersion JobBackoffLimitPerIndex JobManagedBy
    JobPodReplacementPolicy JobSuccessPolicy KubeletCgroupDriverFromCRI KubeletFineGrainedAuthz KubeletPSI
    KubeletPodResourcesDynamicResources KubeletPodResourcesGet KubeletTracing LogarithmicScaleDown
    MatchLabelKeysInPodAffinity MultiCIDRServiceAllocator MutableCSINodeAllocatableCount MutatingAdmissionPolicy
    NFTablesProxyMode NodeInclusionPolicyInPodTopologySpread NodeLogQuery NodeSwap OrderedNamespaceDeletion
    PodLifecycleSleepAction PodLifecycleSleepActionAllowZero PodObservedGenerationTracking PodSchedulingReadiness
    PreferSameTrafficDistribution ProcMountType RecoverVolumeExpansionFailure RecursiveReadOnlyMounts
    RelaxedDNSSearchValidation RelaxedEnvironmentVariableValidation ResilientWatchCacheInitialization
    RetryGenerateName SELinuxChangePolicy SELinuxMountReadWriteOncePod SchedulerQueueingHints
    SeparateTaintEvictionController ServiceAccountTokenJTI ServiceAccountTokenNodeBinding
    ServiceAccountTokenNodeBindingValidation ServiceAccountTokenPodNodeInfo SidecarContainers
    StreamingCollectionEncodingToJSON StreamingCollectionEncodingToProtobuf StructuredAuthenticationConfiguration
    SupplementalGroupsPolicy SystemdWatchdog TopologyManagerPolicyOptions UserNamespacesSupport
    VolumeAttributesClass WinDSR WinOverlay
"""

_DEPRECATED: Final = """
    AggregatedDiscoveryRemoveBetaType AllowDNSOnlyNodeCSR AllowInsecureKubeletCertificateSigningRequests
    AllowOverwriteTerminationGracePeriodSeconds ChangeContainerStatusOnKubeletRestart DeclarativeValidationTakeover
    DisableCPUQuotaWithExclusiveCPUs DisableNodeKubeProxyVersion GitRepoVolumeDriver KMSv1
    KubeletPodResourcesListUseActivePods KubeletRegistrationGetOnExistsOnly SeparateCacheWatchRPC
    ServiceCIDRStatusFieldWiping StorageNamespaceIndex WindowsHostNetwork
"""

STAGES: Final = {
    name: stage
    for stage, names in (("ALPHA", _ALPHA), ("BETA", _BETA), ("GA", _GA), ("DEPRECATED", _DEPRECATED))
    for name in names.split()
}
