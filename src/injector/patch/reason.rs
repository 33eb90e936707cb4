//! The reasons why a pod is skipped, and the notes for the owner of an injected one.

use std::fmt;

macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident = $name:literal: $sentence:literal),+ $(,)?) => {
        /// The reason why a pod is skipped.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum SkipReason { $($(#[$doc])* $variant),+ }

        impl SkipReason {
            /// Every reason.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Returns the reason's name in metrics, audit annotations and files.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// Returns the reason as a sentence.
            pub fn sentence(self) -> &'static str {
                match self { $(Self::$variant => $sentence),+ }
            }
        }
    };
}

reasons! {
    /// The pod or its template opted out.
    OptedOut = "opted_out": "listless.dev/inject disables injection",
    /// Its namespace is a system namespace or the injector's own.
    SystemNamespace = "system_namespace": "pods of this namespace are never injected",
    /// Its loopback addresses are the node's.
    HostNetwork = "host_network": "the pod uses the node's network, where all pods share 127.0.0.1",
    /// There is no image for Windows.
    Windows = "windows": "the pod is for Windows nodes",
    /// A kubelet runs it from a file.
    MirrorPod = "mirror_pod": "the pod mirrors a static pod, which admission cannot change",
    /// The sidecar is present and needs no change.
    AlreadyInjected = "already_injected": "the sidecar is already present",
    /// It records an injection, but has no sidecar.
    IncompleteInjection = "incomplete_injection":
        "listless.dev/status is present, but the sidecar is missing; run listless uninject on the \
         manifest",
    /// No container has a service account's token.
    NoServiceAccountMount = "no_service_account_mount": "no container mounts a service account",
    /// A token that is mounted as a single file is never updated.
    SubpathMount = "subpath_mount": "a container mounts single files of the service account",
    /// The mounted volume has no token for the apiserver, or no authority.
    UnusableServiceAccount = "unusable_service_account":
        "the mounted service account lacks a token for the apiserver or ca.crt",
    /// The exceptions from a container's proxy may be in `envFrom`, where they cannot be extended.
    UnknownProxyExceptions = "unknown_proxy_exceptions":
        "a container has a proxy in env, and its NO_PROXY may be in envFrom; set NO_PROXY in env",
    /// Its containers use different apiservers.
    ConflictingApiserverEnv = "conflicting_apiserver_env":
        "containers have different addresses of the apiserver, or one that cannot be copied",
    /// A container listens on a port of the sidecar.
    PortTaken = "port_taken": "a container declares a port that the sidecar needs",
    /// Its containers see each other's files and memory.
    SharedProcessNamespace = "shared_process_namespace":
        "the pod's containers share processes and could read the sidecar's keys; allow it with \
         listless.dev/share-process-namespace: allow",
    /// The sum of its containers' resources must fit into its own, which the sidecar would exceed.
    PodResources = "pod_resources":
        "the pod has resources of its own, into which the sidecar may not fit",
    /// The sidecar's name, or that of one of its volumes, is in use.
    NameTaken = "name_taken": "a container or volume already uses one of the sidecar's names",
    /// An annotation is invalid or not possible.
    InvalidAnnotation = "invalid_annotation": "an annotation cannot be used",
    /// The object is not a pod, or the apiserver would refuse it.
    Malformed = "malformed": "this is not a pod that can be changed",
}

/// A skipped pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip {
    /// The reason.
    pub reason: SkipReason,
    /// The detail, if the reason is not enough.
    pub detail: Option<String>,
}

/// A note for the owner of an injected pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// The container may use another way than its service account, which bypasses the sidecar.
    KubeconfigPresent {
        /// The container.
        container: String,
    },
    /// The container's service account mount is not usable; the container is unchanged.
    VolumeLeftAlone {
        /// The container.
        container: String,
        /// The missing part.
        detail: String,
    },
    /// The exceptions from the container's proxy may be in `envFrom`; the container is unchanged.
    UnknownProxyExceptions {
        /// The container.
        container: String,
    },
}

// === impl Skip ===

impl Skip {
    pub(super) fn because(reason: SkipReason, detail: impl Into<String>) -> Self {
        Self { reason, detail: Some(detail.into()) }
    }
}

impl From<SkipReason> for Skip {
    fn from(reason: SkipReason) -> Self {
        Self { reason, detail: None }
    }
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason.sentence())?;
        self.detail.iter().try_for_each(|detail| write!(f, ": {detail}"))
    }
}

// === impl Note ===

impl Note {
    /// Returns the note's name in audit annotations and files.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::KubeconfigPresent { .. } => "kubeconfig_present",
            Self::VolumeLeftAlone { .. } => "volume_left_alone",
            Self::UnknownProxyExceptions { .. } => "unknown_proxy_exceptions",
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KubeconfigPresent { container } => write!(
                f,
                "container {container} has a kubeconfig or another apiserver's address; requests \
                 it sends there bypass Listless"
            ),
            Self::VolumeLeftAlone { container, detail } => {
                write!(f, "container {container} is unchanged: {detail}")
            }
            Self::UnknownProxyExceptions { container } => write!(
                f,
                "container {container} is unchanged: it has a proxy in env, and its NO_PROXY may \
                 be in envFrom; set NO_PROXY in env"
            ),
        }
    }
}
