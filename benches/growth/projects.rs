//! CPU of a plan per project: one pull request over 20 projects, and one over 1,000 of the same repository.

use crate::costs::Costs;
use crate::forge::Ground;
use crate::report::Report;
use anyhow::{Result, ensure};
use std::time::{Duration, Instant};
use tidelock_forge::OpenOptions;

const FEW: usize = 20;
const MANY: usize = 1_000;
/// Pull requests of [`FEW`] projects, so that the ticks in which CPU time is counted do not matter.
const FEW_PULLS: usize = 10;
/// Limit of the cost of a project among many, as a multiple of that among few.
const BOUND: f64 = 1.2;
const LIMIT: Duration = Duration::from_secs(240);

pub(crate) async fn measure(report: &mut Report) -> Result<()> {
    let ground = Ground::new().await?;
    let path = |project: usize| format!("live/p{project:04}/main.tf");
    let first: Vec<_> = (0..MANY).map(|project| (path(project), "# one\n")).collect();
    let first: Vec<_> = first.iter().map(|(path, text)| (path.as_str(), *text)).collect();
    // Few and many projects in repositories of their own size, as users have them.
    let large = ground.forge.create_repo("acme/large", &first).await?;
    let small = ground.forge.create_repo("acme/small", first.get(..FEW).unwrap_or_default()).await?;
    let repos = ground.path().join("repos.yaml");
    std::fs::write(&repos, "repos:\n  - id: /.*/\n    repo_locks: {mode: disabled}\n")?;
    let config = format!("--repo-config={}", repos.display());
    let server = ground.server("data", &[&config, "--parallel-plan"]).await?;
    let mut per_project = Vec::new();
    for (repo, projects, pulls) in [(&small, FEW, 1), (&small, FEW, FEW_PULLS), (&large, MANY, 1)] {
        let (before, began) = (Costs::of(&server).await?, Instant::now());
        for number in 0..pulls {
            let text = format!("# {number}\n");
            let changes: Vec<_> = (0..projects).map(|project| (path(project), text.as_str())).collect();
            let changes: Vec<_> = changes.iter().map(|(path, text)| (path.as_str(), Some(*text))).collect();
            let branch = format!("b{pulls}-{number}");
            let pull = repo.open_pull(&branch, "alice", "A change", &changes, OpenOptions::default()).await?;
            let comment = pull.wait_for_comment(0, LIMIT).await?;
            let parts = parts(&comment.body);
            for part in 1..parts {
                pull.wait_for_comment(part, LIMIT).await?;
            }
            // A long answer has a table instead of each plan.
            let planned = comment.body.contains("1 to add") || comment.body.contains("+1 ~0 -0");
            ensure!(planned, "#{} was not planned: {:.300}", pull.number(), comment.body);
        }
        let cost = Costs::of(&server).await?.since(before, projects * pulls);
        report.line(&format!(
            "{projects:>5} projects, {pulls:>2} pull requests: per project {:.2} ms CPU, {:.2} requests, {:.2} kB; {:.1} s",
            cost.cpu,
            cost.requests,
            cost.bytes,
            began.elapsed().as_secs_f64()
        ))?;
        per_project.push(cost);
    }
    let [_, few, many] = per_project.as_slice() else { anyhow::bail!("three runs were measured") };
    for (what, few, many) in
        [("CPU", few.cpu, many.cpu), ("requests", few.requests, many.requests), ("bucket bytes", few.bytes, many.bytes)]
    {
        let ratio = many / few;
        report.bound(
            ratio <= BOUND,
            &format!("{what} of a project, {MANY} against {FEW}: {ratio:.2} (at most {BOUND})"),
        )?;
    }
    Ok(())
}

/// Returns the number of comments of the answer, by the marker in its first one.
fn parts(body: &str) -> usize {
    let count = body.rsplit_once("\"parts\":").map(|(_, rest)| rest.chars().take_while(char::is_ascii_digit).collect());
    count.and_then(|count: String| count.parse().ok()).unwrap_or(1)
}
