//! Results of measures, line by line, and a check of every bound.

use crate::machine;
use anyhow::Result;
use std::io::Write;
use std::process::ExitCode;

/// Prints figures, and collects those that missed their bound.
#[derive(Default)]
pub(crate) struct Report {
    missed: Vec<String>,
}

impl Report {
    /// Begins a measure, with the load, by which its figures can be judged.
    pub(crate) fn title(&mut self, name: &str) -> Result<()> {
        self.line(&format!("\n== {name} ({})", machine::load()?))
    }

    /// Prints a line.
    pub(crate) fn line(&mut self, text: &str) -> Result<()> {
        Ok(writeln!(std::io::stdout().lock(), "{text}")?)
    }

    /// Prints a figure with its bound.
    pub(crate) fn bound(&mut self, holds: bool, what: &str) -> Result<()> {
        self.line(&format!("{}  {what}", if holds { "holds " } else { "MISSED" }))?;
        if !holds {
            self.missed.push(what.to_owned());
        }
        Ok(())
    }

    /// Returns success if no bound was missed.
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
