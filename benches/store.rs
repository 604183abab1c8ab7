//! Rate at which deliveries become durable: group commit at several numbers of callers, against one commit each on the same disk, and into
//! the vault in a directory of that disk.
//!
//! `cargo bench --bench store`; the state lies under `TMPDIR`, so point that at the disk that is to be measured.

use anyhow::Result;
use jiff::Timestamp;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidelock_core::domain::state::Delivery;
use tidelock_core::domain::{CommentEvent, DeliveryId, Event, Login, PullId, RepoId};
use tidelock_store::Store;
use tidelock_vault::clock::Boottime;
use tidelock_vault::directory::Directory;
use tidelock_vault::inbox::HandOverKey;
use tidelock_vault::lease::{Identity, Timing};
use tidelock_vault::wording::Wording;
use tidelock_vault::{Retention, Vault};

/// Deliveries per measurement.
const DELIVERIES: u32 = 8_000;

/// Deliveries a second that the group commit has to reach at 64 callers.
const GOAL: f64 = 5_000.0;

fn main() -> Result<()> {
    let mut out = std::io::stdout().lock();
    let runtime = tokio::runtime::Runtime::new()?;
    writeln!(out, "fdatasync after 4 KiB     {:>9.3} ms", millis(fsync()?))?;
    writeln!(out, "open a fresh directory    {:>9.3} ms", millis(open()?))?;
    let each = one_commit_each()?;
    writeln!(out, "one commit each, no store {each:>9.0} /s")?;
    let mut rate = 0.0;
    for callers in [1, 4, 16, 64] {
        rate = runtime.block_on(group_commit(callers))?;
        writeln!(out, "{callers:>3} callers               {rate:>9.0} /s   {:.1} times one commit each", rate / each)?;
    }
    for callers in [1, 64] {
        let (rate, objects) = runtime.block_on(into_the_vault(callers))?;
        writeln!(out, "{callers:>3} callers, with a vault {rate:>9.0} /s   in {objects} journal objects")?;
    }
    writeln!(out, "goal {GOAL} /s at 64 callers: {}", if rate >= GOAL { "reached" } else { "MISSED" })?;
    Ok(())
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn fsync() -> Result<Duration> {
    let mut file = tempfile::tempfile()?;
    let mut times = Vec::new();
    for _ in 0..200 {
        file.write_all(&[1; 4096])?;
        let start = Instant::now();
        file.sync_data()?;
        times.push(start.elapsed());
    }
    Ok(median(times))
}

fn open() -> Result<Duration> {
    let mut times = Vec::new();
    for _ in 0..20 {
        let dir = tempfile::tempdir()?;
        let start = Instant::now();
        let _store = Store::open(dir.path())?;
        times.push(start.elapsed());
    }
    Ok(median(times))
}

fn delivery(identity: String) -> Delivery {
    let repo = RepoId { host: "github.com".into(), owner: "acme".into(), name: "infra".into() };
    let comment = CommentEvent {
        pull: PullId { repo, number: 1 },
        clone_url: "https://github.com/acme/infra.git".into(),
        comment_id: 7,
        author: Login::new("alice"),
        body: "atlantis plan".into(),
    };
    Delivery {
        identity: DeliveryId::new(identity),
        host_id: "0-1-2".into(),
        received: Timestamp::UNIX_EPOCH,
        event: Event::Comment(comment),
    }
}

/// Returns an identity as spread as a hash, which real ones are.
fn identity(number: u32) -> String {
    format!("{:08x}{:056x}", number.wrapping_mul(0x9e37_79b9), number)
}

/// Writes the same rows by the simplest means: one connection, one transaction for each delivery, the same durability.
fn one_commit_each() -> Result<f64> {
    let dir = tempfile::tempdir()?;
    drop(Store::open(dir.path())?);
    let connection = reopen(&dir.path().join("tidelock.db"))?;
    let count = DELIVERIES / 4;
    let start = Instant::now();
    for number in 0..count {
        let delivery = delivery(identity(number));
        connection
            .prepare_cached(
                "INSERT INTO deliveries (identity, host_id, state, received, record) VALUES (?1, ?2, 'queued', ?3, ?4)",
            )?
            .execute((
                delivery.identity.as_str(),
                &delivery.host_id,
                delivery.received.as_microsecond(),
                serde_json::to_string(&delivery)?,
            ))?;
    }
    Ok(f64::from(count) / start.elapsed().as_secs_f64())
}

fn reopen(path: &Path) -> Result<rusqlite::Connection> {
    let connection = rusqlite::Connection::open(path)?;
    connection.pragma_update(None, "synchronous", "full")?;
    Ok(connection)
}

async fn group_commit(callers: u32) -> Result<f64> {
    let dir = tempfile::tempdir()?;
    accept(Store::open(dir.path())?, callers).await
}

/// Writes the same into a bucket in a directory. Returns the number of journal objects too.
async fn into_the_vault(callers: u32) -> Result<(f64, u64)> {
    let (dir, bucket) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let identity = Identity {
        nonce: "0".repeat(32),
        url: String::new(),
        machine: String::new(),
        version: env!("CARGO_PKG_VERSION").into(),
        fingerprint: String::new(),
        force: false,
    };
    let vault = Vault {
        bucket: Arc::new(Directory::open(bucket.path())?),
        clock: Arc::new(Boottime),
        identity,
        fingerprint: Default::default(),
        timing: Timing::default(),
        retention: Retention::default(),
        handover: HandOverKey::derive("secret"),
        wording: Wording::default(),
    };
    let lease = vault.acquire().await?;
    let (leader, chain) = vault.lead(lease).await?.ok_or_else(|| anyhow::anyhow!("the lease went to another"))?;
    Store::restore(dir.path(), &chain).await?;
    let store = Store::lead(dir.path(), leader.clone()).await?;
    let rate = accept(store, callers).await?;
    Ok((rate, leader.figures().commits))
}

/// Accepts the deliveries, and returns their number a second.
async fn accept(store: Store, callers: u32) -> Result<f64> {
    let start = Instant::now();
    let tasks: Vec<_> = (0..callers)
        .map(|caller| {
            let store = store.clone();
            tokio::spawn(async move {
                for number in (caller..DELIVERIES).step_by(callers as usize) {
                    let delivery = delivery(identity(number));
                    anyhow::ensure!(store.write(move |tx| tx.accept_delivery(&delivery)).await?);
                }
                Ok(())
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    let rate = f64::from(DELIVERIES) / start.elapsed().as_secs_f64();
    anyhow::ensure!(store.read(|view| view.unfinished_deliveries()).await?.len() == DELIVERIES as usize);
    store.close().await?;
    Ok(rate)
}
