//! The memory of each form of the pods.

use anyhow::Result;

use crate::{form::Form, setup::Setup};

/// The resident bytes that the pods in each form add to a Listless.
#[derive(Clone, Debug)]
pub(crate) struct OfForms {
    pub(crate) json: u64,
    /// Those of another form beside JSON.
    pub(crate) beside: [(Form, u64); 2],
}

/// Measures each combination of forms in a process of its own, before any load on it.
pub(crate) async fn of_forms(setup: &Setup) -> Result<OfForms> {
    let without = setup.resident_bytes_in(&[]).await?;
    let alone = setup.resident_bytes_in(&[Form::Json]).await?;
    let mut beside = [(Form::Protobuf, 0), (Form::Table, 0)];
    for (form, added) in &mut beside {
        *added = setup.resident_bytes_in(&[Form::Json, *form]).await?.saturating_sub(alone);
    }
    Ok(OfForms { json: alone.saturating_sub(without), beside })
}
