//! The store on top of the vault: restored and visible state, and the state that a killed or deposed server leaves.

mod adoption;
mod bases;
mod buckets;
mod kill;
mod life;
mod power;
mod replans;
mod states;

use super::*;
use buckets::{Dying, Slow};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tidelock_vault::bucket::Bucket;
use tidelock_vault::chain::Chain;
use tidelock_vault::clock::Clock;
use tidelock_vault::inbox::HandOverKey;
use tidelock_vault::leader::Leader;
use tidelock_vault::lease::{Identity, Timing};
use tidelock_vault::wording::Wording;
use tidelock_vault::{Hash, Retention, Vault, VaultError};

/// A clock on which waiting takes almost no time.
#[derive(Default)]
struct Quick(AtomicU64);

#[async_trait::async_trait]
impl Clock for Quick {
    fn now(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }

    async fn sleep(&self, time: Duration) {
        // Long sleeps let other threads work; short ones are pauses between tries.
        match time > Duration::from_secs(1) {
            true => tokio::time::sleep(Duration::from_millis(1)).await,
            false => tokio::task::yield_now().await,
        }
        self.0.fetch_add(u64::try_from(time.as_micros()).unwrap(), Ordering::Relaxed);
    }
}

/// Returns a retention under which no base is due.
fn no_bases() -> Retention {
    Retention { base_after_objects: u64::MAX, base_after_bytes: u64::MAX, ..Retention::default() }
}

fn vault(bucket: Arc<dyn Bucket>, retention: Retention) -> Vault {
    static SERVERS: AtomicU64 = AtomicU64::new(0);
    let number = SERVERS.fetch_add(1, Ordering::Relaxed);
    let identity = Identity {
        nonce: format!("{number:032x}"),
        url: String::new(),
        machine: "test".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        fingerprint: "f".into(),
        force: false,
    };
    Vault {
        bucket,
        clock: Arc::new(Quick::default()),
        identity,
        fingerprint: Default::default(),
        timing: Timing::default(),
        retention,
        handover: HandOverKey::derive("secret"),
        wording: Wording::default(),
    }
}

fn empty_disk() -> Arc<tempfile::TempDir> {
    Arc::new(tempfile::tempdir().unwrap())
}

/// A leading server with its data directory.
struct Server {
    dir: Arc<tempfile::TempDir>,
    store: Store,
    leader: Leader,
    vault: Vault,
}

impl Server {
    /// Starts on an empty disk.
    async fn start(bucket: &Arc<dyn Bucket>) -> Server {
        Server::try_start(empty_disk(), vault(bucket.clone(), no_bases())).await.unwrap()
    }

    async fn start_in(dir: Arc<tempfile::TempDir>, bucket: &Arc<dyn Bucket>) -> Server {
        Server::try_start(dir, vault(bucket.clone(), no_bases())).await.unwrap()
    }

    async fn try_start(dir: Arc<tempfile::TempDir>, vault: Vault) -> Result<Server> {
        let lease = vault.acquire().await?;
        let (leader, chain) = vault.lead(lease).await?.context("the lease went to another")?;
        Store::restore(dir.path(), &chain).await?;
        let store = Store::lead(dir.path(), leader.clone()).await?;
        Ok(Server { dir, store, leader, vault })
    }

    /// Starts on a bucket that dies; `None` if it dies before the server leads.
    async fn start_mortal(dir: Arc<tempfile::TempDir>, bucket: Arc<Dying>, retention: Retention) -> Option<Server> {
        tokio::select! {
            server = Server::try_start(dir, vault(bucket.clone(), retention)) => server.ok(),
            () = bucket.buried.notified() => None,
        }
    }

    fn digest(&self) -> Hash {
        digest(&self.dir.path().join(DATABASE)).unwrap()
    }

    fn file(&self, path: &str, content: &[u8]) {
        let path = self.dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    async fn accept(&self, identity: &str) -> Result<bool> {
        let delivery = delivery(identity);
        self.store.write(move |tx| tx.accept_delivery(&delivery)).await
    }

    /// Ends as after SIGKILL, without any further call to the bucket.
    async fn die(self) -> Arc<tempfile::TempDir> {
        self.store.shared.readers.close().await;
        self.store.shared.queue.close().await.unwrap();
        self.dir
    }

    async fn stop(self) -> Arc<tempfile::TempDir> {
        self.store.close().await.unwrap();
        self.leader.release().await.unwrap();
        self.dir
    }
}

/// Restores the state in a bucket to a directory of its own.
async fn restored(bucket: &Arc<dyn Bucket>, at: Option<u64>) -> tempfile::TempDir {
    let chain = vault(bucket.clone(), no_bases()).read(at).await.unwrap();
    restored_from(&chain).await
}

async fn restored_from(chain: &Chain) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    Store::restore(dir.path(), chain).await.unwrap();
    dir
}

/// Returns the digest of a state after its migration to the format of this version.
fn digest_in(dir: &tempfile::TempDir) -> Hash {
    let path = dir.path().join(DATABASE);
    drop(schema::open_writer(&path, Durability::Bucket).unwrap());
    digest(&path).unwrap()
}

/// Returns a plan and writes its file with this content.
fn plan_with_file(server: &Server, id: &str, number: u64, dir: &str, content: &[u8]) -> PlanRecord {
    let path = format!("plans/{id}.tfplan");
    server.file(&path, content);
    PlanRecord { path: Some(path), sha256: Some(Hash::of(content).to_string()), ..plan(id, number, dir) }
}

async fn journal(bucket: &Arc<dyn Bucket>) -> usize {
    bucket.list("journal/", "").await.unwrap().len()
}

/// Asserts that the kept files are exactly those that rows name, with the same content. Pieces of a log have to be consecutive ranges.
fn assert_files(dir: &Path) {
    let connection = schema::open_reader(&dir.join(DATABASE)).unwrap();
    let kept = View { connection: &connection }.kept_files("").unwrap();
    let mut lengths = std::collections::BTreeMap::new();
    for file in &kept {
        let (path, from) = files::pieces::piece_of(&file.path).unwrap_or((&file.path, 0));
        let content = std::fs::read(dir.join(path)).unwrap();
        let range = usize::try_from(from).unwrap()..usize::try_from(from + file.length).unwrap();
        assert_eq!(Hash::of(&content[range]).to_string(), file.sha256, "{}", file.path);
        assert_eq!(*lengths.get(path).unwrap_or(&0), from, "{}", file.path);
        lengths.insert(path.to_owned(), from + file.length);
    }
    let mut there = std::collections::BTreeMap::new();
    for folder in files::FOLDERS {
        for path in files::found(dir, folder).unwrap() {
            there.insert(path.clone(), KeptFile::read(dir, &path).unwrap().unwrap().length);
        }
    }
    assert_eq!(there, lengths);
    for file in kept.iter().filter(|file| files::pieces::piece_of(&file.path).is_none()) {
        let mode = KeptFile::read(dir, &file.path).unwrap().unwrap().mode;
        assert_eq!(mode, file.mode, "{}", file.path);
    }
}
