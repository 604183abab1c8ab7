//! Time until files are durable: all of 5,000, one that changed, none; against the tools that copy directories into buckets.

use crate::machine::{self, hashes};
use crate::place::{self, Lengths, Planned};
use crate::report::Report;
use crate::rivals;
use anyhow::{Result, ensure};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use tidelock_core::domain::JobId;
use tidelock_core::domain::state::JobState;
use tidelock_storage_double::{Operation, Seen, StorageDouble};
use tidelock_store::Store;
use tidelock_store::logs::Logs;
use tidelock_vault::Retention;
use tidelock_vault::leader::Leader;

/// Plans with a file, a log and files that their steps left, and further ones without the latter: 5,000 files of 49 MB.
const TRIPLES: u64 = 1_600;
const PAIRS: u64 = 100;
const WITH_LEFT: Lengths = Lengths { plan: 8_000, log: 16_500, left: 4_600 };
/// Rounds of ours; rivals take one each.
const ROUNDS: usize = 3;
/// Limit of the requests of the first sync.
const REQUESTS: usize = 20;
/// Least quotient of each rival's time and ours.
const RCLONE: f64 = 20.0;
const GSUTIL: f64 = 100.0;
/// Folders with kept files.
const FOLDERS: [&str; 3] = ["plans", "logs", "left"];
/// Intervals in which nothing changes; as long as the service allows between two renewals.
const QUIET: usize = 5;
const INTERVAL: Duration = Duration::from_millis(1_100);
/// Delay of each write, as in a bucket of the same region.
const FAR: Duration = Duration::from_millis(50);

pub(crate) async fn measure(report: &mut Report) -> Result<()> {
    let source = tempfile::tempdir()?;
    for number in 0..TRIPLES + PAIRS {
        let left = if number < TRIPLES { WITH_LEFT.left } else { 0 };
        Planned::write(source.path(), number, Lengths { left, ..WITH_LEFT })?;
    }
    let wanted = hashes(source.path())?;
    report.line(&format!("{} files in {}", wanted.len(), FOLDERS.join(", ")))?;
    for (delay, name) in [(Duration::ZERO, "service that answers at once"), (FAR, "50 ms per write")] {
        report.line(&format!("-- {name}"))?;
        let mut times = Vec::new();
        for round in 0..ROUNDS {
            times.push(first(report, source.path(), &wanted, delay, round == 0).await?);
        }
        let ours = machine::median(times.clone());
        report.line(&format!("first sync, Tidelock: {ours:.2?} (of {times:.2?})"))?;
        against_rclone(report, source.path(), wanted.len(), delay, ours).await?;
        // It is limited by its own work, so once is enough.
        if delay.is_zero() {
            against_gsutil(report, source.path(), wanted.len(), ours).await?;
        }
    }
    Ok(())
}

/// Measures the time until these files, in a new data directory, are all durable in a new bucket.
async fn first(
    report: &mut Report,
    source: &Path,
    wanted: &BTreeMap<String, tidelock_vault::Hash>,
    delay: Duration,
    tell: bool,
) -> Result<Duration> {
    let double = place::double().await?;
    double.delay(Duration::ZERO, delay);
    let dir = tempfile::tempdir()?;
    let data = dir.path().join("data");
    let (leader, store) = place::lead(place::cloud(&double)?, &data, Retention::default()).await?;
    rivals::link(source, &data, &FOLDERS)?;
    double.reset();
    let began = Instant::now();
    record(&data, &store).await?;
    let took = began.elapsed();
    if tell {
        let requests = double.seen().len();
        report.bound(requests <= REQUESTS, &format!("first sync: {requests} requests (at most {REQUESTS})"))?;
        changed(report, &double, &data, &store).await?;
        unchanged(report, &double, &leader, &store).await?;
    }
    store.close().await?;
    leader.release().await?;
    let restored = dir.path().join("restored");
    place::export(place::cloud(&double)?, &restored).await?;
    let mut found = hashes(&restored)?;
    found.retain(|path, _| wanted.contains_key(path));
    ensure!(found == *wanted, "what was restored is not what was kept");
    if tell {
        report.bound(true, &format!("restored from the bucket: {} files with the same hashes", found.len()))?;
    }
    Ok(took)
}

/// Records every plan at about the same time: hashed by threads, as in a server, and committed together if they wait together.
async fn record(data: &Path, store: &Store) -> Result<()> {
    let lanes = std::thread::available_parallelism()?.get() as u64;
    let reading = (0..lanes).map(|lane| {
        let (data, store) = (data.to_owned(), store.clone());
        tokio::spawn(async move {
            let numbers = (lane..TRIPLES + PAIRS).step_by(lanes as usize);
            let read = move || numbers.map(|number| Planned::read(&data, number)).collect::<Result<Vec<_>>>();
            let planned = tokio::task::spawn_blocking(read).await??;
            futures::future::try_join_all(planned.into_iter().map(|one| one.record(&store))).await
        })
    });
    for lane in futures::future::join_all(reading).await {
        lane??;
    }
    Ok(())
}

/// Measures the log of a running job that grew.
async fn changed(report: &mut Report, double: &StorageDouble, data: &Path, store: &Store) -> Result<()> {
    let mut job = Planned::read(data, 0)?.job;
    job.id = JobId::from_bits(u64::MAX.into());
    (job.state, job.finished) = (JobState::Running, None);
    let log = Logs::new(data).create(&job.id)?;
    store.write(move |tx| tx.put_job(&job)).await?;
    log.line("Refreshing state...");
    double.reset();
    let began = Instant::now();
    store.sync().await?;
    let (took, requests) = (began.elapsed(), double.seen().len());
    report.bound(requests == 1, &format!("one changed file: {requests} request (1) in {took:.2?}"))
}

/// Measures several intervals of a server at rest, after the base that so much new state makes due.
async fn unchanged(report: &mut Report, double: &StorageDouble, leader: &Leader, store: &Store) -> Result<()> {
    double.reset();
    store.write_base_if_due().await?;
    report.line(&format!("        the base that was due then: {} requests", double.seen().len()))?;
    tokio::time::sleep(INTERVAL).await;
    double.reset();
    for _ in 0..QUIET {
        store.sync().await?;
        store.write_base_if_due().await?;
        leader.renew().await?;
        tokio::time::sleep(INTERVAL).await;
    }
    let of_lease = |seen: &Seen| match seen.operation {
        Operation::Insert => seen.name.ends_with("lock/leader.json"),
        Operation::List => seen.name.contains("inbox"),
        _ => false,
    };
    let seen = double.seen();
    let others: Vec<_> = seen.iter().filter(|seen| !of_lease(seen)).collect();
    let what = format!(
        "nothing changed, {QUIET} intervals: {} requests but the lease's {} {others:?} (0)",
        others.len(),
        seen.len() - others.len()
    );
    report.bound(others.is_empty() && seen.len() >= QUIET, &what)
}

async fn against_rclone(
    report: &mut Report,
    source: &Path,
    files: usize,
    delay: Duration,
    ours: Duration,
) -> Result<()> {
    let Some(rclone) = rivals::tool("RCLONE", "rclone") else {
        return report.line("skipped: rclone sync (no rclone: scripts/fetch-rclone, or name one in RCLONE)");
    };
    // It takes four by default.
    let mut plain = Duration::ZERO;
    for transfers in [32, 4] {
        let double = place::double().await?;
        double.delay(Duration::ZERO, delay);
        let took = rivals::rclone(&rclone, source, &double, transfers).await?;
        ensure!(double.names(place::BUCKET).len() == files, "rclone has not copied everything");
        let requests: u64 = double.counts().values().sum();
        let times = took.as_secs_f64() / ours.as_secs_f64();
        report.line(&format!(
            "first sync, rclone, {transfers} transfers: {took:.2?}, {requests} requests, {times:.0} times"
        ))?;
        plain = took;
    }
    ratio(report, "rclone sync", plain, ours, RCLONE)
}

async fn against_gsutil(report: &mut Report, source: &Path, files: usize, ours: Duration) -> Result<()> {
    let Some(gsutil) = rivals::tool("GSUTIL", "gsutil") else {
        return report.line("skipped: gsutil rsync (no gsutil: pip install gsutil, or name one in GSUTIL)");
    };
    let double = StorageDouble::start_tls().await?;
    double.bucket(place::BUCKET, Default::default());
    let took = rivals::gsutil(&gsutil, source, &double).await?;
    let copied = double.names(place::BUCKET).len();
    ensure!(copied == files, "gsutil has copied {copied} of {files} files");
    let requests: u64 = double.counts().values().sum();
    report.line(&format!("first sync, gsutil -m: {took:.2?}, {requests} requests"))?;
    ratio(report, "gsutil rsync", took, ours, GSUTIL)
}

fn ratio(report: &mut Report, rival: &str, theirs: Duration, ours: Duration, bound: f64) -> Result<()> {
    let ratio = theirs.as_secs_f64() / ours.as_secs_f64();
    report.bound(ratio >= bound, &format!("first sync: {ratio:.0} times faster than {rival} (at least {bound:.0})"))
}
