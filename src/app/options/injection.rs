//! The settings of an injected sidecar.

use clap::Args;

use super::{UsageError, whole};
use crate::injector::patch::{Origin, Resources, Settings, freshness_named, mode_named};

/// The sidecar's settings. Annotations of a pod override them.
#[derive(Clone, Debug, Args)]
pub struct InjectionOptions {
    /// The sidecar's image [default: that of this version].
    #[arg(long, value_name = "IMAGE", help_heading = SIDECAR)]
    pub image: Option<String>,
    /// An image pull secret in the pod's namespace; may be repeated.
    #[arg(long = "image-pull-secret", value_name = "NAME", help_heading = SIDECAR)]
    pub image_pull_secrets: Vec<String>,
    /// The sidecar's port, on loopback.
    #[arg(long, value_name = "PORT", help_heading = SIDECAR, default_value_t = 16443)]
    #[arg(value_parser = whole::<u16>(1024..=65535))]
    pub port: u16,
    /// The address of the sidecar's health and metrics, without a port.
    #[arg(long = "sidecar-health-address", value_name = "ADDRESS", help_heading = SIDECAR)]
    #[arg(value_parser = ["0.0.0.0", "[::]"], default_value = "0.0.0.0")]
    pub health_address: String,
    /// The mode: enforce, or observe to only report the savings.
    #[arg(long, help_heading = SIDECAR, value_parser = ["enforce", "observe"])]
    #[arg(default_value = "enforce")]
    pub mode: String,
    /// The freshness of responses to reads without a resourceVersion.
    #[arg(long, help_heading = SIDECAR, default_value = "session")]
    #[arg(value_parser = ["mostRecent", "session", "bounded", "any"])]
    pub freshness: String,
    /// The CPU request.
    #[arg(long, value_name = "QUANTITY", help_heading = SIDECAR, default_value = "10m")]
    pub cpu_request: String,
    /// The CPU limit.
    #[arg(long, value_name = "QUANTITY", help_heading = SIDECAR, default_value = "1")]
    pub cpu_limit: String,
    /// The memory request.
    #[arg(long, value_name = "QUANTITY", help_heading = SIDECAR, default_value = "64Mi")]
    pub memory_request: String,
    /// The memory limit; half of it is for objects.
    #[arg(long, value_name = "QUANTITY", help_heading = SIDECAR, default_value = "256Mi")]
    pub memory_limit: String,
    /// A name for these settings, which is recorded in the pods.
    #[arg(long, value_name = "NAME", help_heading = SIDECAR, default_value = "default")]
    pub revision: String,
}

const SIDECAR: &str = "Sidecar";

// === impl InjectionOptions ===

impl InjectionOptions {
    /// Returns the settings, or the error in the options.
    pub fn settings(&self, origin: Origin) -> Result<Settings, UsageError> {
        let defaults = Settings::default();
        let resources = Resources {
            cpu_request: self.cpu_request.clone(),
            cpu_limit: self.cpu_limit.clone(),
            memory_request: self.memory_request.clone(),
            memory_limit: self.memory_limit.clone(),
        };
        let settings = Settings {
            image: self.image.clone().unwrap_or(defaults.image),
            image_pull_secrets: self.image_pull_secrets.clone(),
            revision: self.revision.clone(),
            port: self.port,
            health_address: self.health_address.clone(),
            mode: mode_named(&self.mode).unwrap_or_default(),
            freshness: freshness_named(&self.freshness).unwrap_or_default(),
            resources,
            origin,
            ..Settings::default()
        };
        settings.check().map_err(|skip| UsageError(skip.detail.unwrap_or_default()))?;
        Ok(settings)
    }
}
