//! Time from SIGTERM to the exit of a server that knows 200 open pull requests and has nothing to do.

use crate::place;
use crate::report::Report;
use crate::server::Server;
use anyhow::{Result, ensure};
use std::path::Path;
use std::time::{Duration, Instant};
use tidelock_forge::{Forge, ForgeOptions, OpenOptions, Repo};

/// Pull requests, each planned.
const PULLS: usize = 200;
/// Limit of the time from SIGTERM to the exit.
const BOUND: Duration = Duration::from_secs(1);
/// Cloud Storage takes one write of an object a second: just after a renewal, the lease is given up only after that time.
const BETWEEN_WRITES: Duration = Duration::from_secs(1);
/// Time limit of all plans.
const LIMIT: Duration = Duration::from_secs(300);

/// Every pull request changes a project of its own. Terraform is not measured: the steps only print what it would.
const REPOS: &str = "repos:
  - id: /.*/
    workflow: told
workflows:
  told:
    plan:
      steps:
        - run: \"echo 'Plan: 1 to add, 0 to change, 0 to destroy.'\"
";

pub(crate) async fn measure(report: &mut Report) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let bucket = format!("--bucket=file://{}", dir.path().join("bucket").display());
    one(report, dir.path(), "a directory", &[bucket], BOUND).await?;
    let (dir, double) = (tempfile::tempdir()?, place::double().await?);
    double.delay(Duration::from_millis(20), Duration::from_millis(50));
    let bucket = "Cloud Storage's double, 20 ms per read, 50 ms per write";
    one(report, dir.path(), bucket, &place::flags(&double), BOUND + BETWEEN_WRITES).await
}

async fn one(report: &mut Report, dir: &Path, bucket: &str, flags: &[String], bound: Duration) -> Result<()> {
    let Planned { server, .. } = planned(dir, flags).await?;
    let took = server.terminate().await?;
    let what = format!("{PULLS} open pull requests in {bucket}: SIGTERM to exit 0 in {took:.3?} ({bound:?})");
    report.bound(took < bound, &what)
}

/// A server that has planned [`PULLS`] pull requests and has nothing to do.
pub(crate) struct Planned {
    pub(crate) forge: Forge,
    pub(crate) repo: Repo,
    pub(crate) server: Server,
    /// Its flags.
    pub(crate) flags: Vec<String>,
}

/// Starts a server with its disk in `dir`, and lets it plan.
pub(crate) async fn planned(dir: &Path, flags: &[String]) -> Result<Planned> {
    let forge = Forge::start(ForgeOptions { dir: dir.join("forge"), port: 0 }).await?;
    let files: Vec<_> = (0..PULLS).map(|number| format!("live/{number}/main.tf")).collect();
    let first: Vec<_> = files.iter().map(|path| (path.as_str(), "# one\n")).collect();
    let repo = forge.create_repo("acme/infra", &first).await?;
    let repos = dir.join("repos.yaml");
    std::fs::write(&repos, REPOS)?;
    let mut flags = flags.to_vec();
    flags.push(format!("--repo-config={}", repos.display()));
    let server = Server::start(&forge, &dir.join("data"), &flags).await?;
    forge.set_webhook(&format!("http://{}/events", server.address));
    for (number, path) in files.iter().enumerate() {
        let changes = [(path.as_str(), Some("# two\n"))];
        repo.open_pull(&format!("b{number}"), "alice", "A change", &changes, OpenOptions::default()).await?;
    }
    let until = Instant::now() + LIMIT;
    for pull in repo.pulls()? {
        let comment = pull.wait_for_comment(0, until.saturating_duration_since(Instant::now())).await?;
        ensure!(comment.body.contains("Plan: 1 to add"), "#{} was not planned: {}", pull.number(), comment.body);
    }
    while !server.get("/status").await?.contains("\"in_progress_operations\":0") {
        ensure!(Instant::now() < until, "commands do not end");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(Planned { forge, repo, server, flags })
}
