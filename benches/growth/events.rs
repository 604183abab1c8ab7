//! Memory after many events that cause work: comments that ask for a plan, over a few pull requests.

use crate::costs::{Costs, resident};
use crate::forge::Ground;
use crate::report::Report;
use anyhow::Result;
use futures::StreamExt;
use std::time::Duration;
use tidelock_forge::{OpenOptions, Pull};

const PULLS: usize = 20;
/// Comments, half of which are ordinary talk.
const EVENTS: usize = 10_000;
/// Number of events between two readings of the memory.
const STEP: usize = 1_000;
/// Limits in megabytes: at the end, and for each thousand events after the first thousand.
const MEMORY: f64 = 60.0;
const GROWTH: f64 = 3.0;
const LIMIT: Duration = Duration::from_secs(60);

pub(crate) async fn measure(report: &mut Report) -> Result<()> {
    let ground = Ground::new().await?;
    let path = |project: usize| format!("live/p{project:02}/main.tf");
    let first: Vec<_> = (0..PULLS).map(|project| (path(project), "# one\n")).collect();
    let first: Vec<_> = first.iter().map(|(path, text)| (path.as_str(), *text)).collect();
    let repo = ground.forge.create_repo("acme/infra", &first).await?;
    let server = ground.server("data", &[]).await?;
    let mut pulls = Vec::new();
    for project in 0..PULLS {
        let file = path(project);
        let changes = [(file.as_str(), Some("# two\n"))];
        let pull =
            repo.open_pull(&format!("b{project}"), "alice", "A change", &changes, OpenOptions::default()).await?;
        pull.wait_for_comment(0, LIMIT).await?;
        pulls.push(pull);
    }
    let mut marks = vec![resident(&server)?];
    for done in (0..EVENTS).step_by(STEP) {
        let before = Costs::of(&server).await?;
        let each = STEP / PULLS;
        futures::stream::iter(&pulls).map(|pull| talk(pull, each)).buffer_unordered(4).collect::<Vec<_>>().await;
        let cost = Costs::of(&server).await?.since(before, STEP);
        let rss = resident(&server)?;
        report.line(&format!(
            "{:>6} events: {rss:.0} MB resident; per event {:.2} ms CPU, {:.2} requests, {:.2} kB",
            done + STEP,
            cost.cpu,
            cost.requests,
            cost.bytes
        ))?;
        marks.push(rss);
    }
    let (Some(early), Some(last)) = (marks.get(1), marks.last()) else { anyhow::bail!("nothing was measured") };
    let growth = (last - early) / ((EVENTS - STEP) as f64 / 1000.0);
    report.bound(*last < MEMORY, &format!("after {EVENTS} events: {last:.0} MB resident (below {MEMORY})"))?;
    report.bound(growth < GROWTH, &format!("{growth:.2} MB for each 1,000 events more (below {GROWTH})"))
}

/// Comments on one pull request; every tenth asks for a plan and waits for its answer.
async fn talk(pull: &Pull, count: usize) -> Result<()> {
    for number in 0..count {
        if number % 10 == 0 {
            let seen = pull.bot_comments()?.len();
            pull.comment("alice", "atlantis plan")?;
            pull.wait_for_comment(seen, LIMIT).await?;
        } else {
            pull.comment("alice", &format!("This is remark {number}."))?;
        }
    }
    Ok(())
}
