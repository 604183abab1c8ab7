//! Costs of the vault, compared with its limits and, if there is one, with a rival in the same run.
//!
//! `just bench-vault [sync|ack|doors|restore|writes|exit|wake]`, all without a name. State is under `TMPDIR`. Exit code 1 when a bound is missed.

mod ack;
mod doors;
mod exit;
mod machine;
mod measures;
mod place;
mod report;
mod restore;
mod rivals;
#[expect(dead_code, reason = "another benchmark uses the rest of it")]
mod server;
mod sync;
mod wake;
mod writes;

use anyhow::Result;
use futures::FutureExt;
use std::process::ExitCode;

fn main() -> Result<ExitCode> {
    measures::run(&[
        ("sync", |report| sync::measure(report).boxed_local()),
        ("ack", |report| ack::measure(report).boxed_local()),
        ("doors", |report| doors::measure(report).boxed_local()),
        ("restore", |report| restore::measure(report).boxed_local()),
        ("writes", |report| writes::measure(report).boxed_local()),
        ("exit", |report| exit::measure(report).boxed_local()),
        ("wake", |report| wake::measure(report).boxed_local()),
    ])
}
