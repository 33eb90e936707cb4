//! The memory of each form of the pods.

use anyhow::{Result, ensure};

use crate::{cell::median, form::Form, setup::Setup};

/// Processes of each combination of forms. The memory of one process varies by about a megabyte.
const PROCESSES: usize = 3;

/// The resident bytes that the pods in each form add to a Listless.
#[derive(Clone, Debug)]
pub(crate) struct OfForms {
    pub(crate) json: f64,
    /// Those of another form beside JSON.
    pub(crate) beside: [(Form, f64); 2],
}

/// Measures each combination of forms in processes of its own, before any load on them.
pub(crate) async fn of_forms(setup: &Setup) -> Result<OfForms> {
    let without = resident_bytes(setup, &[]).await?;
    let alone = resident_bytes(setup, &[Form::Json]).await?;
    let mut beside = [(Form::Protobuf, 0.0), (Form::Table, 0.0)];
    for (form, added) in &mut beside {
        *added = growth(alone, resident_bytes(setup, &[Form::Json, *form]).await?)?;
    }
    Ok(OfForms { json: growth(without, alone)?, beside })
}

/// Returns what was added, which is more than nothing unless the measurement failed.
fn growth(before: f64, after: f64) -> Result<f64> {
    ensure!(after > before, "more pods took less memory: {before} B, then {after} B");
    Ok(after - before)
}

/// Returns the median of processes that run together.
async fn resident_bytes(setup: &Setup, forms: &[Form]) -> Result<f64> {
    let bytes = setup.resident_bytes_in(forms, PROCESSES).await?;
    Ok(median(&bytes.into_iter().map(|bytes| bytes as f64).collect::<Vec<_>>()))
}
