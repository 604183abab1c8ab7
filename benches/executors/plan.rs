//! Time of a plan at an executor against the same plan in the server, in turns, with a bucket that takes its time for each request.

use crate::forge::{Ground, planned};
use crate::machine::median;
use crate::place;
use crate::report::Report;
use anyhow::Result;
use std::time::Duration;
use tidelock_storage_double::StorageDouble;

/// Time of each request to the bucket.
const FAR: Duration = Duration::from_millis(50);
/// Plans of each kind.
const ROUNDS: usize = 7;
/// Limit of what a plan takes longer at the executor.
const BOUND: Duration = Duration::from_millis(800);
/// Both repositories have the same steps. Terraform's state would be in its `local` backend, which no executor takes.
const RULES: &str = r#"
executors: {jobs: {kind: process}}
repos:
  - {id: /.*/, workflow: planned}
  - {id: /.*\/acme\/remote/, executor: [{plan: jobs, apply: jobs}]}
workflows:
  planned:
    plan:
      steps:
        - run: 'echo planned > "$PLANFILE"; echo "Plan: 1 to add, 0 to change, 0 to destroy."'
"#;

pub(crate) async fn measure(report: &mut Report) -> Result<()> {
    let (near, far) = (rounds(report, Duration::ZERO).await?, rounds(report, FAR).await?);
    let requests = far.saturating_sub(near).as_secs_f64() / FAR.as_secs_f64();
    report.line(&format!("requests in a row of a plan at the executor, more than in the server: {requests:.1}"))?;
    let what = format!(
        "a plan at the executor with {} ms a request, against the server: {:.2} s more (at most {:.2} s)",
        FAR.as_millis(),
        far.as_secs_f64(),
        BOUND.as_secs_f64()
    );
    report.bound(far <= BOUND, &what)
}

/// Returns the median of what a plan takes longer at the executor.
async fn rounds(report: &mut Report, delay: Duration) -> Result<Duration> {
    let (ground, double) = (Ground::new().await?, place::double().await?);
    let files = [("main.tf", "# one\n")];
    let local = ground.forge.create_repo("acme/local", &files).await?;
    let remote = ground.forge.create_repo("acme/remote", &files).await?;
    let _server = crate::start(&ground, &double, RULES, &[]).await?;
    // Mirrors are made, and the double was fast until now.
    for repo in [&local, &remote] {
        planned(repo, "warm", "# warm\n").await?;
    }
    double.delay(delay, delay);
    let (mut here, mut there, mut requests) = (Vec::new(), Vec::new(), 0);
    for round in 0..ROUNDS {
        let branch = format!("round-{round}");
        let text = format!("# {branch}\n");
        here.push(planned(&local, &branch, &text).await?);
        let before = count(&double);
        there.push(planned(&remote, &branch, &text).await?);
        requests = count(&double) - before;
    }
    let differences = here.iter().zip(&there).map(|(here, there)| there.saturating_sub(*here)).collect();
    let (here, there, difference) = (median(here), median(there), median(differences));
    report.line(&format!(
        "{:>3} ms a request: {:.2} s in the server, {:.2} s at the executor; of {ROUNDS} pairs {:.2} s more; {requests} requests in all",
        delay.as_millis(),
        here.as_secs_f64(),
        there.as_secs_f64(),
        difference.as_secs_f64()
    ))?;
    Ok(difference)
}

fn count(double: &StorageDouble) -> u64 {
    double.counts().values().sum()
}
