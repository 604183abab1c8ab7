//! Runs the measures that the command line names, all without a name, and reports the bounds that were missed.

use crate::report::Report;
use anyhow::{Context, Result, bail};
use futures::future::LocalBoxFuture;
use std::process::ExitCode;
use std::time::Instant;

/// A measure: writes its figures and bounds into the report.
pub(crate) type Measure = for<'a> fn(&'a mut Report) -> LocalBoxFuture<'a, Result<()>>;

/// Runs the requested measures, in the order in which they are named. Exit code 1 when a bound is missed.
pub(crate) fn run(measures: &[(&str, Measure)]) -> Result<ExitCode> {
    // Cargo adds `--bench`.
    let mut wanted: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if wanted.is_empty() || wanted == ["all"] {
        wanted = measures.iter().map(|(name, _)| (*name).to_owned()).collect();
    }
    let runtime = tokio::runtime::Runtime::new()?;
    let mut report = Report::default();
    for name in &wanted {
        let Some((_, measure)) = measures.iter().find(|(known, _)| known == name) else {
            let known: Vec<&str> = measures.iter().map(|(name, _)| *name).collect();
            bail!("there is no measure {name:?}: name some of {}", known.join(", "));
        };
        report.title(name)?;
        let began = Instant::now();
        runtime.block_on(measure(&mut report)).with_context(|| format!("measuring {name}"))?;
        report.line(&format!("({:.0} s)", began.elapsed().as_secs_f64()))?;
    }
    report.end()
}
