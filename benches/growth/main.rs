//! How costs grow with what a server knows: the last of many pull requests, projects and events against the first.
//!
//! `just bench-growth [pulls|projects|events|log]`, all without a name. A stand-in for Terraform of a few milliseconds runs instead of
//! Terraform, so that the server's own cost shows. State lies under `TMPDIR`. Exit code 1 when a bound is missed.

mod costs;
mod events;
mod forge;
mod log;
#[path = "../vault/machine.rs"]
#[expect(dead_code, reason = "the benchmark of the vault uses the rest of it")]
mod machine;
mod projects;
mod pulls;
#[path = "../vault/report.rs"]
mod report;
#[path = "../vault/server.rs"]
#[expect(dead_code, reason = "the benchmark of the vault uses the rest of it")]
mod server;

use anyhow::{Context, Result, bail};
use report::Report;
use std::process::ExitCode;

/// In the order in which they run.
const MEASURES: [&str; 4] = ["projects", "log", "events", "pulls"];

fn main() -> Result<ExitCode> {
    // Cargo adds `--bench`.
    let mut wanted: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if wanted.is_empty() || wanted == ["all"] {
        wanted = MEASURES.map(str::to_owned).to_vec();
    }
    let runtime = tokio::runtime::Runtime::new()?;
    let mut report = Report::default();
    for name in &wanted {
        report.title(name)?;
        let measured = match name.as_str() {
            "projects" => runtime.block_on(projects::measure(&mut report)),
            "log" => runtime.block_on(log::measure(&mut report)),
            "events" => runtime.block_on(events::measure(&mut report)),
            "pulls" => runtime.block_on(pulls::measure(&mut report)),
            other => bail!("there is no measure {other:?}: name some of {}", MEASURES.join(", ")),
        };
        measured.with_context(|| format!("measuring {name}"))?;
    }
    report.end()
}
