//! What the vault costs, held against its bounds and, where there is one, against a rival in the same run.
//!
//! `just bench-vault [sync|ack|restore|writes|exit]`, all without a name. State lies under `TMPDIR`. Exit code 1 when a bound is missed.

mod ack;
mod exit;
mod machine;
mod place;
mod report;
mod restore;
mod rivals;
#[expect(dead_code, reason = "another benchmark uses the rest of it")]
mod server;
mod sync;
mod writes;

#[path = "../../tests/storage_double/storage_double.rs"]
#[expect(dead_code, reason = "the tests use the rest of it")]
mod storage_double;

use anyhow::{Context, Result, bail};
use report::Report;
use std::process::ExitCode;

/// In the order in which they run.
const MEASURES: [&str; 5] = ["sync", "ack", "restore", "writes", "exit"];

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
            "sync" => runtime.block_on(sync::measure(&mut report)),
            "ack" => runtime.block_on(ack::measure(&mut report)),
            "restore" => runtime.block_on(restore::measure(&mut report)),
            "writes" => runtime.block_on(writes::measure(&mut report)),
            "exit" => runtime.block_on(exit::measure(&mut report)),
            other => bail!("there is no measure {other:?}: name some of {}", MEASURES.join(", ")),
        };
        measured.with_context(|| format!("measuring {name}"))?;
    }
    report.end()
}
