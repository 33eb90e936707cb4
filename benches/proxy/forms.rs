//! The forms of the pods: cells in protobuf, as Tables and in pages, and the memory of each form.
//!
//! They have a Listless of their own. The pages' tokens last five minutes, so each cell gets its
//! expected responses just before it is measured.

use anyhow::Result;

use crate::{
    cell,
    content::Content,
    options::Options,
    report::Report,
    setup::{IdleLoad, Setup},
};

/// The cell of the memory.
pub(crate) const MEMORY: &str = "forms";

const FORMS: [Content; 3] = [Content::Json, Content::Protobuf, Content::Table];

/// Measures all selected cells.
pub(crate) async fn measure(
    options: &Options,
    setup: &Setup,
    idle: IdleLoad,
    report: &mut Report,
) -> Result<()> {
    let cells = || cell::FORM_CELLS.iter().filter(|cell| options.wants(cell.id));
    if cells().next().is_some() {
        let listless = setup.with_forms(&FORMS).await?;
        for cell in cells() {
            let expected = cell::expected(cell, setup, &listless)?;
            let bare = setup.bare(expected.answers())?;
            let sides = (setup, &listless);
            report.cell(&cell::measure(cell, &expected, sides, &bare, options, idle)?);
        }
    }
    if options.wants(MEMORY) {
        let mut resident = Vec::new();
        for form in FORMS {
            let listless = setup.with_forms(&[form]).await?;
            resident.push((form, listless.resident_bytes()?));
        }
        report.forms(&resident, setup.json_bytes);
    }
    Ok(())
}
