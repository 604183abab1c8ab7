//! What was measured, line by line, and whether every bound holds.

use crate::machine;
use anyhow::Result;
use std::io::Write;
use std::process::ExitCode;

/// Collects what missed its bound while it prints.
#[derive(Default)]
pub(crate) struct Report {
    missed: Vec<String>,
}

impl Report {
    /// Begins a measure: the load says what its figures are worth.
    pub(crate) fn title(&mut self, name: &str) -> Result<()> {
        self.line(&format!("\n== {name} ({})", machine::load()?))
    }

    /// Something to read.
    pub(crate) fn line(&mut self, text: &str) -> Result<()> {
        Ok(writeln!(std::io::stdout().lock(), "{text}")?)
    }

    /// A figure with its bound.
    pub(crate) fn bound(&mut self, holds: bool, what: &str) -> Result<()> {
        self.line(&format!("{}  {what}", if holds { "holds " } else { "MISSED" }))?;
        if !holds {
            self.missed.push(what.to_owned());
        }
        Ok(())
    }

    /// Success if nothing was missed.
    pub(crate) fn end(mut self) -> Result<ExitCode> {
        if self.missed.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        self.line("\nmissed:")?;
        for what in std::mem::take(&mut self.missed) {
            self.line(&format!("  {what}"))?;
        }
        Ok(ExitCode::FAILURE)
    }
}
