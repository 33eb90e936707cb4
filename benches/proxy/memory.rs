//! The memory of each form beside JSON.

use anyhow::Result;

use crate::{form::Form, setup::Setup};

/// The resident bytes of a Listless that holds all pods in one form or in two.
#[derive(Clone, Debug)]
pub(crate) struct OfForms {
    pub(crate) json_alone: u64,
    /// With each further form.
    pub(crate) beside: [(Form, u64); 2],
}

/// Measures each combination in a process of its own, before any load on it.
pub(crate) async fn of_forms(setup: &Setup) -> Result<OfForms> {
    let json_alone = setup.resident_bytes_in(&[Form::Json]).await?;
    let mut beside = [(Form::Protobuf, 0), (Form::Table, 0)];
    for (form, resident) in &mut beside {
        *resident = setup.resident_bytes_in(&[Form::Json, *form]).await?;
    }
    Ok(OfForms { json_alone, beside })
}
