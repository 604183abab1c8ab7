//! Cost of a planned pull request when 20 are known and when 3,000 are; memory, and the time until a new server leads.

use crate::costs::{Costs, PerUnit, peak, resident};
use crate::forge::Ground;
use crate::report::Report;
use crate::server::Server;
use anyhow::{Result, ensure};
use futures::StreamExt;
use std::time::{Duration, Instant};
use tidelock_forge::{OpenOptions, Pull, Repo};

/// Pull requests, each over one project of its own, in this many repositories.
const PULLS: usize = 3_000;
const REPOS: usize = 30;
/// Pull requests that are planned at the same time, each of another repository: git's work in one repository goes one after the other.
const MAX_CONCURRENT: usize = 4;
/// Pull requests in one line of the table.
const WINDOW: usize = 250;
/// Number of pull requests between two readings of the bucket's bytes.
const STEP: usize = 25;
/// Pull requests that are not counted, the first of each repository: they make mirrors and fill caches.
const WARM: usize = REPOS;
/// Limit of the cost in the last window, as a multiple of that in the first one.
const BOUND: f64 = 1.2;
/// Limit of resident megabytes with [`MEMORY_AT`] pull requests known.
const MEMORY: f64 = 60.0;
const MEMORY_AT: usize = 1_000;
/// Limit of the time from the start of a server with an empty disk until it leads.
const LEADS: Duration = Duration::from_secs(1);
/// Wait for the allocator, which returns the memory of a restore about a second later.
const GIVEN_BACK: Duration = Duration::from_secs(3);
const LIMIT: Duration = Duration::from_secs(60);

pub(crate) async fn measure(report: &mut Report) -> Result<()> {
    let ground = Ground::new().await?;
    let path = |project: usize| format!("live/p{project:02}/main.tf");
    let first: Vec<_> = (0..PULLS / REPOS).map(|project| (path(project), "# one\n")).collect();
    let first: Vec<_> = first.iter().map(|(path, text)| (path.as_str(), *text)).collect();
    let mut repos = Vec::new();
    for number in 0..REPOS {
        repos.push(ground.forge.create_repo(&format!("acme/infra-{number}"), &first).await?);
    }
    let server = ground.server("data", &[]).await?;
    let mut windows: Vec<PerUnit> = Vec::new();
    let mut memory = None;
    plan(&repos, 0, WARM, &path).await?;
    let (mut done, mut before) = (WARM, Costs::of(&server).await?);
    let mut looks = vec![(WARM, before)];
    while done < PULLS {
        let (until, began) = ((done + WINDOW).min(PULLS), Instant::now());
        for from in (done..until).step_by(STEP) {
            let until = (from + STEP).min(until);
            plan(&repos, from, until, &path).await?;
            looks.push((until, Costs::of(&server).await?));
        }
        let (now, count) = (Costs::of(&server).await?, until - done);
        let (cost, rss) = (now.since(before, count), resident(&server)?);
        report.line(&format!(
            "{until:>5} known: per pull request {:.1} ms CPU, {:.1} requests, {:.1} kB; {rss:.0} MB resident; {:.0} s",
            cost.cpu,
            cost.requests,
            cost.bytes,
            began.elapsed().as_secs_f64()
        ))?;
        if until >= MEMORY_AT && memory.is_none() {
            memory = Some(rss);
        }
        // A shorter remainder is not significant.
        if count == WINDOW {
            windows.push(cost);
        }
        (done, before) = (until, now);
    }
    judge(report, &windows, &looks, memory)?;
    server.kill();
    start_again(report, &ground).await
}

/// Opens pull requests and waits until each is planned.
async fn plan(repos: &[Repo], from: usize, until: usize, path: &impl Fn(usize) -> String) -> Result<()> {
    let opened: Vec<Result<Pull>> = futures::stream::iter(from..until)
        .map(|number| async move {
            let (repo, project) = (&repos[number % REPOS], number / REPOS);
            let (branch, file) = (format!("b{number}"), path(project));
            let changes = [(file.as_str(), Some("# two\n"))];
            let pull = repo.open_pull(&branch, "alice", "A change", &changes, OpenOptions::default()).await?;
            let comment = pull.wait_for_comment(0, LIMIT).await?;
            ensure!(comment.body.contains("1 to add"), "{branch} was not planned: {}", comment.body);
            Ok(pull)
        })
        .buffered(MAX_CONCURRENT)
        .collect()
        .await;
    opened.into_iter().collect::<Result<Vec<_>>>().map(drop)
}

fn judge(report: &mut Report, windows: &[PerUnit], looks: &[(usize, Costs)], memory: Option<f64>) -> Result<()> {
    let (Some(first), Some(last)) = (windows.first(), windows.last()) else { anyhow::bail!("nothing was measured") };
    let (early, late) = bytes_of_halves(looks)?;
    report.line(&format!("per pull request, bases spread: earlier half {early:.1} kB, later half {late:.1} kB"))?;
    for (what, ratio) in [
        ("CPU", last.cpu / first.cpu),
        ("requests", last.requests / first.requests),
        ("bucket bytes, later half", late / early),
    ] {
        report.bound(
            ratio <= BOUND,
            &format!("{what} of the last pull request against the first: {ratio:.2} (at most {BOUND})"),
        )?;
    }
    let memory = memory.unwrap_or_default();
    report.bound(memory < MEMORY, &format!("with {MEMORY_AT} pull requests: {memory:.0} MB resident (below {MEMORY})"))
}

/// Returns the kilobytes in the bucket for each pull request of the earlier and of the later half. The bytes of a base are spread over the
/// pull requests since the base before it; those after the last base are not counted.
fn bytes_of_halves(looks: &[(usize, Costs)]) -> Result<(f64, f64)> {
    let mut spread: Vec<f64> = Vec::new();
    let mut journal: Vec<f64> = Vec::new();
    for pair in looks.windows(2) {
        let [(from, before), (until, now)] = pair else { continue };
        let (bytes, bases) = (now.bytes - before.bytes, now.base_bytes - before.base_bytes);
        let count = until - from;
        journal.extend(std::iter::repeat_n((bytes - bases) / count as f64, count));
        if bases > 0.0 {
            let since = journal.len() - spread.len();
            spread.extend(std::iter::repeat_n(bases / since as f64, since));
        }
    }
    ensure!(spread.len() > WINDOW, "bases were written for {} pull requests only", spread.len());
    let each: Vec<f64> = spread.iter().zip(&journal).map(|(base, journal)| (base + journal) / 1000.0).collect();
    let (early, late) = each.split_at(each.len() / 2);
    let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
    Ok((mean(early), mean(late)))
}

/// Has a server with an empty disk take over the bucket.
async fn start_again(report: &mut Report, ground: &Ground) -> Result<()> {
    let began = Instant::now();
    let server: Server = ground.server("other", &[]).await?;
    let took = began.elapsed();
    let what = format!("an empty disk, {PULLS} pull requests: leads after {:.2} s (at most 1)", took.as_secs_f64());
    report.bound(took <= LEADS, &what)?;
    tokio::time::sleep(GIVEN_BACK).await;
    let (rss, peak) = (resident(&server)?, peak(&server)?);
    let seconds = GIVEN_BACK.as_secs();
    let what = format!("… {seconds} s later: {rss:.0} MB resident (below {MEMORY}), {peak:.0} MB at most before");
    report.bound(rss < MEMORY, &what)
}
