//! Costs of jobs at an executor of kind `process`, which has the whole protocol and no engine of others.
//!
//! `just bench-executors [plan|many]`, all without a name. Steps do next to nothing: no Terraform runs. State lies under `TMPDIR`, trees of
//! jobs under `/var/tmp/tidelock`. Exit code 1 when a bound is missed.

#[path = "../growth/costs.rs"]
#[expect(dead_code, reason = "the benchmark of growth uses the rest of it")]
mod costs;
#[path = "../growth/forge.rs"]
#[expect(dead_code, reason = "the benchmark of growth uses the rest of it")]
mod forge;
#[path = "../vault/machine.rs"]
#[expect(dead_code, reason = "the benchmark of the vault uses the rest of it")]
mod machine;
mod many;
#[path = "../vault/measures.rs"]
mod measures;
#[path = "../vault/place.rs"]
#[expect(dead_code, reason = "the benchmark of the vault uses the rest of it")]
mod place;
mod plan;
#[path = "../vault/report.rs"]
mod report;
#[path = "../vault/server.rs"]
#[expect(dead_code, reason = "the benchmark of the vault uses the rest of it")]
mod server;

use anyhow::Result;
use forge::Ground;
use futures::FutureExt;
use server::Server;
use std::process::ExitCode;
use tidelock_storage_double::StorageDouble;

fn main() -> Result<ExitCode> {
    measures::run(&[
        ("plan", |report| plan::measure(report).boxed_local()),
        ("many", |report| many::measure(report).boxed_local()),
    ])
}

/// Starts a server with this `repos.yaml` on the double's bucket, which gets the forge's webhooks.
async fn start(ground: &Ground, double: &StorageDouble, rules: &str, flags: &[String]) -> Result<Server> {
    let config = ground.path().join("repos.yaml");
    std::fs::write(&config, rules)?;
    let mut all = place::flags(double).to_vec();
    all.push(format!("--repo-config={}", config.display()));
    all.extend_from_slice(flags);
    let (data, tools) = (ground.path().join("data"), ground.path().join("tools"));
    let server = Server::start_with_tools(&ground.forge, &data, &all, Some(&tools)).await?;
    ground.forge.set_webhook(&format!("http://{}/events", server.address));
    Ok(server)
}
