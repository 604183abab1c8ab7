//! Time until the first and the second pull request of a large repository are planned: for the second one a spare checkout is ready.

use crate::forge::Ground;
use crate::report::Report;
use anyhow::{Result, ensure};
use std::path::Path;
use std::time::{Duration, Instant};
use tidelock_forge::{OpenOptions, Repo};

const FILES: usize = 20_000;
/// Files in one directory.
const PER_DIRECTORY: usize = 50;
/// Lines of 64 random characters in a file.
const LINES: usize = 92;
/// Limit of the second pull request's time, as a share of the first one's.
const BOUND: f64 = 0.1;
/// Limit of the time from the first pull request's plan until the spare checkout is ready.
const READY: Duration = Duration::from_secs(60);
const LIMIT: Duration = Duration::from_secs(240);

pub(crate) async fn measure(report: &mut Report) -> Result<()> {
    let ground = Ground::new().await?;
    let mut seed = 1_u64;
    let files: Vec<(String, String)> = (0..FILES).map(|number| (name(number), text(&mut seed))).collect();
    let mut files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    files.extend([("live/one/main.tf", "# one\n"), ("live/two/main.tf", "# one\n")]);
    let repo = ground.forge.create_repo("acme/large", &files).await?;
    let _server = ground.server("data", &[]).await?;
    let first = planned(&repo, "one").await?;
    let since = Instant::now();
    while !has_spare(&ground.path().join("data/mirrors")) {
        ensure!(since.elapsed() < READY, "no spare checkout is made");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let ready = since.elapsed();
    let second = planned(&repo, "two").await?;
    let ratio = second.as_secs_f64() / first.as_secs_f64();
    report.line(&format!(
        "{FILES} files: first pull request {:.2} s, a spare checkout {:.2} s later, second pull request {:.2} s",
        first.as_secs_f64(),
        ready.as_secs_f64(),
        second.as_secs_f64()
    ))?;
    report.bound(ratio < BOUND, &format!("second pull request against the first: {ratio:.3} (below {BOUND})"))
}

fn name(number: usize) -> String {
    let directory = number / PER_DIRECTORY;
    format!("services/s{:03}/d{:02}/f{:02}.txt", directory / 20, directory % 20, number % PER_DIRECTORY)
}

/// Returns letters that compress badly; the same in each run.
fn text(seed: &mut u64) -> String {
    let mut letter = || {
        // Xorshift.
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        char::from(b'a' + (*seed % 26) as u8)
    };
    (0..LINES).map(|_| (0..64).map(|_| letter()).chain(['\n']).collect::<String>()).collect()
}

/// Opens a pull request, and returns the time until its plan's comment.
async fn planned(repo: &Repo, branch: &str) -> Result<Duration> {
    let began = Instant::now();
    let file = format!("live/{branch}/main.tf");
    let changes = [(file.as_str(), Some("# two\n"))];
    let pull = repo.open_pull(branch, "alice", "A change", &changes, OpenOptions::default()).await?;
    let comment = pull.wait_for_comment(0, LIMIT).await?;
    let took = began.elapsed();
    ensure!(comment.body.contains("1 to add"), "not planned: {}", comment.body);
    Ok(took)
}

/// Returns true if a mirror below has the git directory of a spare tree.
fn has_spare(dir: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(dir) else { return false };
    let folders = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir());
    folders.into_iter().any(|path| {
        path.ends_with("worktrees/spare") || (!path.ends_with("objects") && !path.ends_with("refs") && has_spare(&path))
    })
}
