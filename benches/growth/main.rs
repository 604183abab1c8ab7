//! Growth of costs with the state of a server: the last of many pull requests, projects and events against the first. Also the second pull
//! request of a large repository against the first.
//!
//! `just bench-growth [pulls|projects|events|features|log|monorepo]`, all without a name. A stand-in for Terraform of a few milliseconds runs
//! instead of Terraform, so that the server's own cost shows, but for `features`. State lies under `TMPDIR`. Exit code 1 when a bound is missed.

#[expect(dead_code, reason = "the benchmark of executors uses the rest of it")]
mod costs;
mod events;
mod features;
mod forge;
mod log;
#[path = "../vault/machine.rs"]
#[expect(dead_code, reason = "the benchmark of the vault uses the rest of it")]
mod machine;
#[path = "../vault/measures.rs"]
mod measures;
mod monorepo;
mod projects;
mod pulls;
#[path = "../vault/report.rs"]
mod report;
#[path = "../vault/server.rs"]
#[expect(dead_code, reason = "the benchmark of the vault uses the rest of it")]
mod server;

use anyhow::Result;
use futures::FutureExt;
use std::process::ExitCode;

fn main() -> Result<ExitCode> {
    measures::run(&[
        ("projects", |report| projects::measure(report).boxed_local()),
        ("log", |report| log::measure(report).boxed_local()),
        ("events", |report| events::measure(report).boxed_local()),
        ("features", |report| features::measure(report).boxed_local()),
        ("monorepo", |report| monorepo::measure(report).boxed_local()),
        ("pulls", |report| pulls::measure(report).boxed_local()),
    ])
}
