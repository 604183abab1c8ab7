//! Number of objects that an apply waits for on its way from the webhook to the comment, counted by the service.

use crate::place;
use crate::report::Report;
use crate::server::Server;
use anyhow::{Result, ensure};
use std::path::Path;
use std::time::{Duration, Instant};
use tidelock_forge::{Fault, Forge, ForgeOptions, OpenOptions};
use tidelock_storage_double::StorageDouble;

/// Time limit of one event.
const LIMIT: Duration = Duration::from_secs(60);
/// Delay of posts other than comments, so that they are recorded after what is measured.
const ASIDE: Duration = Duration::from_secs(8);
/// Interval between two checks of a file.
const LOOK: Duration = Duration::from_millis(5);

const MAIN: &str = "resource \"terraform_data\" \"this\" {\n  input = \"1\"\n}\n";

pub(crate) async fn measure(report: &mut Report) -> Result<()> {
    let (dir, double) = (tempfile::tempdir()?, place::double().await?);
    let forge = Forge::start(ForgeOptions { dir: dir.path().join("forge"), port: 0 }).await?;
    let repo = forge.create_repo("acme/infra", &[("main.tf", MAIN)]).await?;
    let repos = dir.path().join("repos.yaml");
    std::fs::write(&repos, workflow(dir.path()))?;
    let mut flags = place::flags(&double).to_vec();
    flags.push(format!("--repo-config={}", repos.display()));
    let server = Server::start(&forge, &dir.path().join("data"), &flags).await?;
    forge.set_webhook(&format!("http://{}/events", server.address));
    let changed = MAIN.replace('1', "2");
    let changes = [("main.tf", Some(changed.as_str()))];
    let pull = repo.open_pull("change", "alice", "A change", &changes, OpenOptions::default()).await?;
    let planned = pull.wait_for_comment(0, LIMIT).await?.body;
    ensure!(planned.contains("1 to add"), "not planned: {planned}");
    at_rest(&double).await?;

    for path in ["**/statuses/*", "**/reactions"] {
        forge.fail_next("POST", path, Fault::Stall(ASIDE), 100)?;
    }
    forge.fail_next("GET", "**/pulls/*", Fault::Stall(Duration::from_secs(1)), 1)?;
    let began = commits(&double);
    pull.comment("alice", "atlantis apply")?;
    forge.wait_for_deliveries(LIMIT).await?;
    let accepted = commits(&double);
    wait_for(&dir.path().join("before")).await?;
    let starting = commits(&double);
    std::fs::write(dir.path().join("before.open"), "")?;
    wait_for(&dir.path().join("after")).await?;
    let exited = commits(&double);
    // Its answer, and so its recording, comes late.
    forge.fail_next("POST", "**/comments", Fault::Stall(Duration::from_secs(2)), 1)?;
    std::fs::write(dir.path().join("after.open"), "")?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let told = commits(&double);
    let applied = pull.wait_for_comment(1, LIMIT).await?.body;
    ensure!(applied.contains("Apply complete!"), "not applied: {applied}");
    let counts = [accepted - began, starting - accepted, exited - starting, told - exited];
    let [received, beginning, running, ending] = counts;
    report.bound(received == 1, &format!("commits before the 2xx: {received} (1)"))?;
    report.bound(beginning == 1, &format!("from there to Terraform's start: {beginning} (1)"))?;
    report.bound(running == 0, &format!("while it runs: {running} (0)"))?;
    report.bound(ending == 1, &format!("from its exit to the comment: {ending} (1)"))?;
    server.terminate().await.map(drop)
}

/// Returns a workflow whose apply has steps before and after it that report their place, and wait.
fn workflow(dir: &Path) -> String {
    let gate = |name: &str| {
        let file = dir.join(name);
        let file = file.display();
        format!("        - run: \"touch {file}; while [ ! -e {file}.open ]; do sleep 0.02; done\"\n")
    };
    format!(
        "repos:\n  - id: /.*/\n    workflow: gated\nworkflows:\n  gated:\n    apply:\n      steps:\n{}        - apply\n{}",
        gate("before"),
        gate("after")
    )
}

/// Returns the number of journal objects so far.
fn commits(double: &StorageDouble) -> usize {
    double.seen().iter().filter(|seen| seen.operation.writes() && seen.name.contains("/journal/")).count()
}

/// Waits until there is no commit for a second.
async fn at_rest(double: &StorageDouble) -> Result<()> {
    let until = Instant::now() + LIMIT;
    loop {
        let before = commits(double);
        tokio::time::sleep(Duration::from_secs(1)).await;
        if commits(double) == before {
            return Ok(());
        }
        ensure!(Instant::now() < until, "the server does not come to rest");
    }
}

async fn wait_for(file: &Path) -> Result<()> {
    let until = Instant::now() + LIMIT;
    while !file.exists() {
        ensure!(Instant::now() < until, "{} does not come", file.display());
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}
