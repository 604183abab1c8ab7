//! Fuzzes everything that the vault reads: journal, base, lease, inbox. With any change of bytes, nothing panics and nothing is
//! overwritten. A read returns the written data, or an error that names the object.

use super::bucket::Listed;
use super::chain::{Chain, WantedFile};
use super::inbox::{self, InboxEntry, InboxEntryKind, LateOutcome, StoredDelivery};
use super::lease;
use super::memory::{Memory, StoredObject, vault};
use super::*;
use bytes::Bytes;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::collections::BTreeMap;
use std::time::Instant;
use tempfile::TempDir;

/// Duration of the long run: `TIDELOCK_FUZZ_SECONDS=600 cargo test -p tidelock-vault fuzz -- --ignored`.
const SECONDS: &str = "TIDELOCK_FUZZ_SECONDS";

/// One change of an object's bytes; places are taken modulo its length.
#[derive(Debug, Clone)]
enum Change {
    Flip(usize, u8),
    Cut(usize),
    Zero(usize, usize),
    Insert(usize, Vec<u8>),
    Remove(usize, usize),
    /// Exchanges some bytes with others.
    Swap(usize, usize, usize),
    /// Bytes of another object.
    Splice(usize, usize, usize, usize),
    /// Extreme number, as in a length or an offset.
    Number(usize, u64),
    All(Vec<u8>),
}

fn change() -> impl Strategy<Value = Change> {
    // Positions in headers are more frequent.
    let at = || prop_oneof![0..200_usize, any::<usize>()];
    let bytes = || prop::collection::vec(any::<u8>(), 0..40);
    let extreme = prop::sample::select(vec![0, 1, 23, 24, 25, 1 << 20, 1 << 32, i64::MAX as u64, u64::MAX]);
    prop_oneof![
        4 => (at(), 0..8_u8).prop_map(|(at, bit)| Change::Flip(at, bit)),
        2 => at().prop_map(Change::Cut),
        1 => (at(), 1..300_usize).prop_map(|(at, length)| Change::Zero(at, length)),
        1 => (at(), bytes()).prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        1 => (at(), 1..300_usize).prop_map(|(at, length)| Change::Remove(at, length)),
        1 => (at(), at(), 1..100_usize).prop_map(|(a, b, length)| Change::Swap(a, b, length)),
        2 => (any::<usize>(), at(), at(), 1..4000_usize).prop_map(|(o, from, to, n)| Change::Splice(o, from, to, n)),
        2 => (prop_oneof![0..32_usize, any::<usize>()], extreme).prop_map(|(at, number)| Change::Number(at, number)),
        1 => prop::collection::vec(any::<u8>(), 0..300).prop_map(Change::All),
    ]
}

fn write(bytes: &mut [u8], at: usize, new: &[u8]) {
    for (place, byte) in bytes.iter_mut().skip(at).zip(new) {
        *place = *byte;
    }
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>, others: &[Bytes]) {
        let length = bytes.len().max(1);
        match self {
            Change::Flip(at, bit) => {
                if let Some(byte) = bytes.get_mut(at % length) {
                    *byte ^= 1 << bit;
                }
            }
            Change::Cut(at) => bytes.truncate(at % length),
            Change::Zero(at, count) => write(bytes, at % length, &vec![0; *count]),
            Change::Insert(at, new) => {
                let at = at % (bytes.len() + 1);
                bytes.splice(at..at, new.iter().copied());
            }
            Change::Remove(at, count) => {
                let at = at % length;
                bytes.drain(at.min(bytes.len())..(at + count).min(bytes.len()));
            }
            Change::Swap(a, b, count) => {
                for step in 0..*count {
                    let (a, b) = (a.wrapping_add(step) % length, b.wrapping_add(step) % length);
                    if a < bytes.len() && b < bytes.len() {
                        bytes.swap(a, b);
                    }
                }
            }
            Change::Splice(other, from, to, count) => {
                let other = &others[other % others.len()];
                let from = from % other.len().max(1);
                let piece = other.slice(from.min(other.len())..(from + count).min(other.len()));
                write(bytes, to % length, &piece);
            }
            Change::Number(at, number) => write(bytes, at % length, &number.to_le_bytes()),
            Change::All(new) => bytes.clone_from(new),
        }
    }
}

fn noise(length: usize, seed: u64) -> Vec<u8> {
    (0..length as u64).map(|at| ((at * at).wrapping_mul(seed | 1) >> 7) as u8).collect()
}

/// Content of a chain.
#[derive(PartialEq)]
struct State {
    position: Position,
    schema: u32,
    rows: Vec<(u64, u32, Bytes)>,
    database: Option<Vec<u8>>,
    files: Vec<Vec<u8>>,
}

impl State {
    async fn read(chain: &Chain, hashes: &[Hash]) -> Result<State, VaultError> {
        chain.verify(&|_| ()).await?;
        let dir = TempDir::new().unwrap();
        let database = dir.path().join("database");
        let database = chain.database(&database).await?.then(|| std::fs::read(&database).unwrap());
        let path = |number: usize| dir.path().join(number.to_string());
        let wanted = |(number, hash): (usize, &Hash)| WantedFile { hash: *hash, path: path(number), mode: 0o600 };
        chain.fetch(hashes.iter().enumerate().map(wanted).collect(), &|_| ()).await?;
        let files = (0..hashes.len()).map(|number| std::fs::read(path(number)).unwrap()).collect();
        let rows = chain.rows().await?.into_iter().map(|rows| (rows.seq, rows.schema, rows.rows)).collect();
        Ok(State { position: chain.position, schema: chain.schema, rows, database, files })
    }
}

/// An undamaged bucket with a base in the middle, contents of several sizes, a lease, and an inbox.
struct Sound {
    objects: BTreeMap<String, StoredObject>,
    hashes: Vec<Hash>,
    state: State,
    bytes: Vec<Bytes>,
    delivery: (InboxEntry, StoredDelivery),
    end: (InboxEntry, LateOutcome),
}

impl Sound {
    async fn new() -> Sound {
        let bucket = Memory::new();
        let (vault, _) = vault(&bucket, "a");
        let lease = vault.acquire().await.unwrap();
        let (leader, _) = vault.lead(lease).await.unwrap().unwrap();
        let mut hashes = Vec::new();
        let dir = TempDir::new().unwrap();
        for round in 1..=4_u64 {
            let contents = [noise(round as usize * 100, round), vec![7; 3000], noise(300_000, round)];
            let blobs: Vec<Blob> = contents
                .iter()
                .take(if round == 4 { 2 } else { 3 })
                .map(|bytes| Blob {
                    hash: Hash::of(bytes),
                    length: bytes.len() as u64,
                    source: Source::Bytes(bytes.clone().into()),
                })
                .collect();
            hashes.extend(blobs.iter().map(|blob| blob.hash));
            let rows = noise(500 * round as usize, round + 9).into();
            let changes = Changes { schema: 2, rows, blobs: blobs.clone() };
            let position = leader.commit(changes).await.unwrap();
            if round == 2 {
                hashes.clear();
                hashes.extend(blobs.iter().map(|blob| blob.hash));
                let database = dir.path().join("database");
                std::fs::write(&database, noise(100_000, 3)).unwrap();
                assert!(leader.write_base(Image { position, schema: 2, database, blobs }).await.unwrap());
            }
        }
        let headers = vec![("x-github-event".to_owned(), "push".to_owned())];
        let delivery = StoredDelivery {
            format: FORMAT,
            received: "2026-01-02T03:04:05Z".parse().unwrap(),
            headers,
            body: "e30=".into(),
            key: Some("0011".into()),
        };
        inbox::store_delivery(&vault, Hash::of(b"x"), &delivery).await.unwrap();
        let end = LateOutcome {
            format: FORMAT,
            job: "job-1".into(),
            outcome: serde_json::json!({"text": "applied"}),
            errored_state: Some("e30=".into()),
        };
        inbox::store_late_outcome(&vault, &end).await.unwrap();
        let mail = |name: &str, kind| InboxEntry {
            name: name.to_owned(),
            generation: 1,
            created: jiff::Timestamp::UNIX_EPOCH,
            kind,
        };
        let state = State::read(&vault.read(None).await.unwrap(), &hashes).await.unwrap();
        let objects: BTreeMap<_, _> =
            bucket.names("").into_iter().map(|name| (name.clone(), bucket.object(&name))).collect();
        let bytes = objects.values().map(|kept| kept.bytes.clone()).collect();
        let first = |prefix: &str| objects.keys().find(|name| name.starts_with(prefix)).unwrap().clone();
        Sound {
            delivery: (mail(&first("inbox/delivery/"), InboxEntryKind::Delivery), delivery),
            end: (mail(&first("inbox/end/"), InboxEntryKind::LateOutcome), end),
            hashes,
            state,
            bytes,
            objects,
        }
    }

    fn bucket(&self) -> Arc<Memory> {
        let bucket = Memory::new();
        for (name, kept) in &self.objects {
            bucket.set(name, kept.bytes.clone(), &kept.label);
        }
        bucket
    }

    /// Returns a copy of the bucket with changes in one object.
    fn spoilt(&self, name: &str, changes: &[Change]) -> Arc<Memory> {
        let bucket = self.bucket();
        let apply = |bytes: &mut Vec<u8>| changes.iter().for_each(|change| change.apply(bytes, &self.bytes));
        bucket.damage(name, apply);
        bucket
    }

    fn names(&self, prefix: &str) -> Vec<String> {
        self.objects.keys().filter(|name| name.starts_with(prefix)).cloned().collect()
    }

    /// Checks that a read returns the same state, or an error about this object.
    async fn chain(&self, name: &str, changes: &[Change]) -> Result<(), TestCaseError> {
        let bucket = self.spoilt(name, changes);
        let spoilt = listed(&bucket).await;
        let (vault, _) = vault(&bucket, "b");
        let read = async {
            let chain = vault.read(None).await?;
            State::read(&chain, &self.hashes).await
        };
        match read.await {
            Ok(state) => prop_assert!(state == self.state, "{name}: another state"),
            Err(error) => {
                let text = error.to_string();
                prop_assert!(matches!(error, VaultError::Damaged(_)) && text.contains(name), "{name}: {text}");
            }
        }
        prop_assert_eq!(listed(&bucket).await, spoilt);
        Ok(())
    }

    /// Checks that the lease can be used, or that a read returns an error about it; then nobody takes it.
    async fn lease(&self, changes: &[Change]) -> Result<(), TestCaseError> {
        let bucket = self.spoilt(lease::NAME, changes);
        let (vault, _) = vault(&bucket, "b");
        let spoilt = bucket.object(lease::NAME).bytes;
        match lease::read(&vault).await {
            Ok(record) => prop_assert!(record.is_some_and(|record| record.epoch < u64::MAX)),
            Err(error) => {
                prop_assert!(matches!(error, VaultError::Damaged(_)) && error.to_string().contains(lease::NAME));
                prop_assert!(matches!(vault.acquire().await, Err(VaultError::Damaged(_))));
                prop_assert_eq!(bucket.object(lease::NAME).bytes, spoilt);
            }
        }
        Ok(())
    }

    /// Checks that a read of the inbox returns the stored data, or an error about the object.
    async fn mail(&self, changes: &[Change]) -> Result<(), TestCaseError> {
        let (mail, delivery) = &self.delivery;
        let (reader, _) = vault(&self.spoilt(&mail.name, changes), "b");
        match inbox::read::<StoredDelivery>(&reader, mail).await {
            Ok(read) => prop_assert_eq!(read.as_ref(), Some(delivery)),
            Err(error) => prop_assert!(error.to_string().contains(&mail.name)),
        }
        let (mail, end) = &self.end;
        let (reader, _) = vault(&self.spoilt(&mail.name, changes), "b");
        match inbox::read::<LateOutcome>(&reader, mail).await {
            Ok(read) => prop_assert_eq!(read.as_ref(), Some(end)),
            Err(error) => prop_assert!(error.to_string().contains(&mail.name)),
        }
        Ok(())
    }
}

async fn listed(bucket: &Memory) -> Vec<(String, i64, u64)> {
    let row = |Listed { name, generation, size, .. }| (name, generation, size);
    bucket.list("", "").await.unwrap().into_iter().map(row).collect()
}

/// Tries `cases` changes of each kind of object.
fn fuzz(cases: u32) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let sound = runtime.block_on(Sound::new());
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let needed: Vec<String> = [sound.names("base/"), sound.names("journal/").split_off(3)].concat();
    let changes = prop::collection::vec(change(), 1..4);
    let tried = runner.run(&(prop::sample::select(needed), changes), |(name, changes)| {
        runtime.block_on(async {
            sound.chain(&name, &changes).await?;
            sound.lease(&changes).await?;
            sound.mail(&changes).await
        })
    });
    if let Err(error) = tried {
        panic!("{error}");
    }
}

#[test]
fn changed_objects_are_refused_by_name_or_read_as_they_were() {
    fuzz(300);
}

#[test]
#[ignore = "long"]
fn changed_objects_are_refused_by_name_or_read_as_they_were_for_long() {
    let seconds = std::env::var(SECONDS).ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(60);
    let (since, mut cases) = (Instant::now(), 0);
    while since.elapsed().as_secs() < seconds {
        fuzz(1000);
        cases += 1000;
    }
    println!("{cases} cases");
}

#[tokio::test]
async fn an_epoch_that_cannot_grow_is_refused() {
    let sound = Sound::new().await;
    let bucket = sound.bucket();
    let json = String::from_utf8(bucket.object(lease::NAME).bytes.to_vec()).unwrap();
    let changed = json.replace("\"epoch\":1", &format!("\"epoch\":{}", u64::MAX));
    assert_ne!(json, changed);
    bucket.set(lease::NAME, changed, "lease");
    let (vault, _) = vault(&bucket, "b");
    let error = vault.acquire().await.unwrap_err().to_string();
    assert!(error.contains(lease::NAME), "{error}");
}
