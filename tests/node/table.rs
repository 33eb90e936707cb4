//! The figures of a run, printed at its end.

use std::fmt;

/// Figures in the order of their measurement.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<(String, String)>,
}

// === impl Table ===

impl Table {
    /// Adds a figure.
    pub fn row(&mut self, what: impl Into<String>, figure: impl Into<String>) {
        self.rows.push((what.into(), figure.into()));
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.rows.iter().map(|(what, _)| what.chars().count()).max().unwrap_or(0);
        for (what, figure) in &self.rows {
            writeln!(f, "proof: node: {what:width$}  {figure}")?;
        }
        Ok(())
    }
}
