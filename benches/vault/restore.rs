//! Restore of a gigabyte of state from a directory, against `cp -r` and hashing of the same bytes.

use crate::machine::{self, hashes};
use crate::place::{self, Lengths, Planned};
use crate::report::Report;
use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidelock_core::domain::state::Delivery;
use tidelock_core::domain::{CommentEvent, DeliveryId, Event, Login, PullId, RepoId};
use tidelock_store::Store;
use tidelock_vault::directory::Directory;
use tidelock_vault::{Retention, Vault};

/// Sizes as servers have them, with their numbers: most plans are small, some are of large states.
const SMALL: (u64, Lengths) = (2_400, Lengths { plan: 40_000, log: 60_000, left: 0 });
const MIDDLE: (u64, Lengths) = (400, Lengths { plan: 300_000, log: 400_000, left: 150_000 });
const LARGE: (u64, Lengths) = (40, Lengths { plan: 4_000_000, log: 3_000_000, left: 2_000_000 });
/// Deliveries in the database, and text of each: some 70 MB.
const DELIVERIES: u64 = 12_000;
const TEXT: usize = 5_000;
/// Number of steps in which it is written, and the step of the base; the rest is in the journal.
const STEPS: u64 = 40;
const BASE_AFTER: u64 = 32;
/// Number of measurements of each, in turns.
const ROUNDS: usize = 5;
/// Limit of the time of a restore, as a multiple of the time of copying and hashing.
const BOUND: f64 = 1.25;

pub(crate) async fn measure(report: &mut Report) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (bucket, data) = (dir.path().join("bucket"), dir.path().join("data"));
    fill(&bucket, &data).await?;
    // Copied are only the files that a restore makes, byte for byte, and nothing else of a data directory.
    let source = dir.path().join("source");
    restore(&bucket, &source).await?;
    tokio::fs::remove_dir_all(&data).await?;
    let wanted = hashes(&source)?;
    let bytes = size(&source, &wanted)?;
    report.line(&format!("{} files, {} MB, in a bucket of {} MB", wanted.len(), bytes >> 20, used(&bucket)? >> 20))?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let copy = dir.path().join("copy");
        theirs.push(copied(&source, &copy)?);
        std::fs::remove_dir_all(&copy)?;
        let restored = dir.path().join("restored");
        ours.push(restore(&bucket, &restored).await?);
        if round == 0 {
            ensure!(hashes(&restored)? == wanted, "two restores differ");
        }
        std::fs::remove_dir_all(&restored)?;
    }
    report.line(&format!("restore           {ours:.2?}"))?;
    report.line(&format!("cp -r and sha256  {theirs:.2?}"))?;
    let ratio = machine::median(ours).as_secs_f64() / machine::median(theirs).as_secs_f64();
    report.bound(ratio <= BOUND, &format!("restore: {ratio:.2} times the time of cp -r and hashing (at most {BOUND})"))
}

/// Fills the bucket as a leader does: a base, and a journal behind it.
async fn fill(bucket: &Path, data: &Path) -> Result<()> {
    let directory = Arc::new(Directory::open(bucket)?);
    // A base is due whenever it is requested: there is always enough for one.
    let retention = Retention { base_after_objects: 1, base_after_bytes: u64::MAX, ..Retention::default() };
    let (leader, store) = place::lead(directory, data, retention).await?;
    for step in 0..STEPS {
        let mut ids = Vec::new();
        for (kind, (count, lengths)) in [SMALL, MIDDLE, LARGE].into_iter().enumerate() {
            for number in (step..count).step_by(STEPS as usize) {
                let id = number * 3 + kind as u64;
                Planned::write(data, id, lengths)?;
                ids.push(id);
            }
        }
        for id in ids {
            Planned::read(data, id)?.record(&store).await?;
        }
        deliveries(&store, step).await?;
        if step + 1 == BASE_AFTER {
            store.write_base_if_due().await?;
            ensure!(leader.figures().bases == 1, "there is no base");
        }
        leader.renew().await?;
    }
    store.close().await?;
    leader.release().await?;
    Ok(())
}

async fn deliveries(store: &Store, step: u64) -> Result<()> {
    let numbers = (step..DELIVERIES).step_by(STEPS as usize);
    let accepting = numbers.map(|number| {
        let repo = RepoId { host: "github.com".into(), owner: "acme".into(), name: "infra".into() };
        let comment = CommentEvent {
            pull: PullId { repo, number },
            clone_url: "https://github.com/acme/infra.git".into(),
            comment_id: number,
            author: Login::new("alice"),
            body: String::from_utf8_lossy(&machine::output(number, TEXT)).into_owned(),
        };
        let delivery = Delivery {
            identity: DeliveryId::new(tidelock_vault::Hash::of(&number.to_le_bytes()).to_string()),
            host_id: number.to_string(),
            received: Timestamp::now(),
            event: Event::Comment(comment),
        };
        store.write(move |tx| tx.accept_delivery(&delivery))
    });
    futures::future::try_join_all(accepting).await.map(drop)
}

/// Restores as a server does at its start: lists and reads objects, and checks every hash. Returns the time.
async fn restore(bucket: &Path, to: &Path) -> Result<Duration> {
    let began = Instant::now();
    let chain = Vault::reader(Arc::new(Directory::existing(bucket)?)).read(None).await?;
    std::fs::create_dir(to)?;
    Store::restore(to, &chain).await?;
    Ok(began.elapsed())
}

fn copied(from: &Path, to: &Path) -> Result<Duration> {
    let began = Instant::now();
    let status = Command::new("cp").arg("-r").arg(from).arg(to).status().context("cannot run cp")?;
    ensure!(status.success(), "cp: {status}");
    hashes(to)?;
    Ok(began.elapsed())
}

fn size(dir: &Path, files: &std::collections::BTreeMap<String, tidelock_vault::Hash>) -> Result<u64> {
    files.keys().map(|name| Ok(std::fs::metadata(dir.join(name))?.len())).sum()
}

fn used(bucket: &Path) -> Result<u64> {
    size(bucket, &hashes(bucket)?)
}
