//! Why a pod is left as it is, and what its owner should know of one that is not.

use std::fmt;

macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident = $name:literal: $sentence:literal),+ $(,)?) => {
        /// Why a pod is left as it is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum SkipReason { $($(#[$doc])* $variant),+ }

        impl SkipReason {
            /// Every reason.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The reason as metrics, audit annotations and files name it.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// The reason as a sentence.
            pub fn sentence(self) -> &'static str {
                match self { $(Self::$variant => $sentence),+ }
            }
        }
    };
}

reasons! {
    /// It, or its template, says no.
    OptedOut = "opted_out": "listless.dev/inject says no",
    /// Its namespace is the system's or the injector's own.
    SystemNamespace = "system_namespace": "pods of this namespace are left alone",
    /// Its loopback addresses are the node's.
    HostNetwork = "host_network": "the pod uses the node's network, where 127.0.0.1 is everybody's",
    /// There is no image for it.
    Windows = "windows": "the pod is for Windows nodes",
    /// A kubelet runs it from a file.
    MirrorPod = "mirror_pod": "the pod mirrors a static pod, which admission cannot change",
    /// It is as it should be.
    AlreadyInjected = "already_injected": "the sidecar is there",
    /// It says that it was injected, and has no sidecar.
    IncompleteInjection = "incomplete_injection":
        "listless.dev/status is there and the sidecar is not; run listless uninject on the manifest",
    /// Nothing in it has a service account's token.
    NoServiceAccountMount = "no_service_account_mount": "no container mounts a service account",
    /// A token that is mounted as a single file cannot change.
    SubpathMount = "subpath_mount": "a container mounts single files of the service account",
    /// What is mounted there has no token for the apiserver, or no authority.
    UnusableServiceAccount = "unusable_service_account":
        "what is mounted as the service account lacks a token for the apiserver or ca.crt",
    /// Its containers go to different apiservers.
    ConflictingApiserverEnv = "conflicting_apiserver_env":
        "containers are told different addresses of the apiserver, or one that cannot be copied",
    /// A container listens where the sidecar would.
    PortTaken = "port_taken": "a container declares a port that the sidecar needs",
    /// Its containers see each other's files and memory.
    SharedProcessNamespace = "shared_process_namespace":
        "the pod's containers share processes and could read the sidecar's keys; allow it with \
         listless.dev/share-process-namespace: allow",
    /// Something else has the name of the sidecar or of one of its volumes.
    NameTaken = "name_taken": "a container or volume has a name that is the sidecar's",
    /// What it wishes cannot be understood or had.
    InvalidAnnotation = "invalid_annotation": "an annotation cannot be used",
    /// It is no pod, or the apiserver would refuse it.
    Malformed = "malformed": "this is not a pod that can be changed",
}

/// A pod that is left as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip {
    /// Why.
    pub reason: SkipReason,
    /// What exactly, if the reason does not say it all.
    pub detail: Option<String>,
}

/// What the owner of an injected pod should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// This container may not use the service account at all, and so not the sidecar.
    KubeconfigPresent {
        /// The container.
        container: String,
    },
    /// What this container mounts as its service account has no use; it was left alone.
    VolumeLeftAlone {
        /// The container.
        container: String,
        /// What is missing.
        detail: String,
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
    /// The note as audit annotations and files name it.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::KubeconfigPresent { .. } => "kubeconfig_present",
            Self::VolumeLeftAlone { .. } => "volume_left_alone",
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KubeconfigPresent { container } => write!(
                f,
                "container {container} is told of a kubeconfig or another apiserver; what it sends \
                 there does not pass Listless"
            ),
            Self::VolumeLeftAlone { container, detail } => {
                write!(f, "container {container} is left alone: {detail}")
            }
        }
    }
}
