//! Several faults on one operation, for every kind of call of the vault. A write has no answer, stored or not, and later tries are
//! refused. No stored object is reported as not stored, and no missing one as stored.

use super::*;
use crate::bucket::probe::probe;
use crate::clock::Boottime;
use crate::inbox::{self, StoredDelivery};
use crate::leader::Leader;
use crate::lease::{self, Timing};
use crate::memory::{self, Memory};
use crate::{Changes, Hash, Image, Vault};
use tidelock_storage_double::{Effect, Fault, Operation, StorageDouble};

/// Time limit of one call here, with its retries and a margin for a loaded machine.
const BOUND: Duration = Duration::from_secs(120);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Call {
    Commit,
    Seal,
    Base,
    Acquire,
    Renew,
    Release,
    Inbox,
    Delete,
    Probe,
    ProbeDeletion,
}

const CALLS: [Call; 10] = [
    Call::Commit,
    Call::Seal,
    Call::Base,
    Call::Acquire,
    Call::Renew,
    Call::Release,
    Call::Inbox,
    Call::Delete,
    Call::Probe,
    Call::ProbeDeletion,
];

/// Returns the faults of one write, in the order of its attempts. The attempt after the last fault is answered normally.
fn combinations() -> Vec<Vec<Effect>> {
    let stored =
        [Effect::FailAfter(503), Effect::FailAfter(408), Effect::FailAfter(429), Effect::ResetAfter, Effect::Lost];
    let mut all = Vec::new();
    for first in stored.into_iter().chain([Effect::Fail(503)]) {
        // Followed by 412, or the normal answer.
        all.push(vec![first]);
        all.push(vec![first, Effect::Fail(403)]);
        // Refused more often than the bucket's own attempts.
        all.push([vec![first], vec![Effect::Fail(401); 4], vec![Effect::Fail(403); 2]].concat());
    }
    for first in [Effect::FailAfter(503), Effect::Fail(503)] {
        all.extend([401, 400, 404].map(|status| vec![first, Effect::Fail(status)]));
    }
    all.push(vec![Effect::FailAfter(503), Effect::Fail(412), Effect::Fail(403)]);
    all.push(vec![Effect::FailAfter(503), Effect::FailAfter(403), Effect::Fail(400)]);
    all
}

fn vault(double: &StorageDouble, nonce: &str) -> Vault {
    let limits = Limits { longest_wait: Duration::from_millis(10), ..short() };
    let timing =
        Timing { ttl: Duration::from_secs(120), renew: Duration::from_millis(20), poll: Duration::from_millis(20) };
    let gcs = Gcs::new(Address::parse("gs://acme-tidelock/prod").unwrap(), options(double, limits));
    Vault { bucket: Arc::new(gcs), clock: Arc::new(Boottime), timing, ..memory::vault(&Memory::new(), nonce).0 }
}

fn rows(text: &'static str) -> Changes {
    Changes { schema: 1, rows: text.into(), blobs: Vec::new() }
}

async fn leading(vault: &Vault) -> Leader {
    let lease = vault.acquire().await.unwrap();
    vault.lead(lease).await.unwrap().unwrap().0
}

/// Reads all rows of the newest state, as any server does.
async fn read(vault: &Vault) -> Vec<Bytes> {
    let chain = vault.read(None).await.unwrap();
    chain.rows().await.unwrap().into_iter().map(|rows| rows.rows).collect()
}

fn delivery() -> StoredDelivery {
    let received = jiff::Timestamp::UNIX_EPOCH;
    StoredDelivery { format: crate::FORMAT, received, headers: Vec::new(), body: "e30=".into(), key: None }
}

async fn tried_on_the_lease(call: Call, double: &StorageDouble, vault: &Vault, effects: &[Effect]) {
    let meet = || double.faults(Operation::Insert, lease::NAME, effects);
    match call {
        Call::Acquire => {
            meet();
            let taken = vault.acquire().await.unwrap();
            let there = lease::read(vault).await.unwrap().unwrap();
            assert_eq!((there.epoch, there.holder.unwrap().nonce), (taken.epoch, "a".to_owned()));
            assert_eq!(taken.epoch, 1, "it was taken once");
        }
        Call::Renew => {
            let leader = leading(vault).await;
            let before = vault.bucket.get(lease::NAME).await.unwrap().unwrap().generation;
            meet();
            while vault.bucket.get(lease::NAME).await.unwrap().unwrap().generation == before {
                leader.renew().await.unwrap();
            }
            leader.may_act().await.unwrap();
        }
        Call::Release => {
            let leader = leading(vault).await;
            meet();
            // Only a few tries: if they fail, the next server waits for the lease to expire.
            let released = leader.release().await;
            let held = lease::read(vault).await.unwrap().unwrap().holder.is_some();
            assert_eq!(released.is_ok(), !held, "{released:?}");
            assert!(!held || effects.len() > 4, "{released:?}");
        }
        other => panic!("{other:?} is none of the lease"),
    }
}

/// Makes one call under these faults, and checks the bucket afterwards.
async fn tried(call: Call, effects: Vec<Effect>) {
    let double = StorageDouble::start().await.unwrap();
    double.bucket(BUCKET, Settings::default());
    double.limit_mutations(false);
    let vault = vault(&double, "a");
    let count = |prefix: &str| double.names(BUCKET).iter().filter(|name| name.starts_with(prefix)).count();
    let meet = |operation, name| double.faults(operation, name, &effects);
    match call {
        Call::Commit => {
            let leader = leading(&vault).await;
            meet(Operation::Insert, "/journal/");
            leader.commit(rows("one")).await.unwrap();
            double.heal();
            leader.commit(rows("two")).await.unwrap();
            assert_eq!(read(&vault).await, ["one", "two"]);
        }
        Call::Seal => {
            let lease = vault.acquire().await.unwrap();
            meet(Operation::Insert, "/journal/");
            let (leader, _) = vault.lead(lease).await.unwrap().unwrap();
            double.heal();
            leader.commit(rows("one")).await.unwrap();
            assert_eq!((leader.position().seq, read(&vault).await.len()), (2, 1));
        }
        Call::Base => {
            let leader = leading(&vault).await;
            leader.commit(rows("one")).await.unwrap();
            let dir = tempfile::tempdir().unwrap();
            let database = dir.path().join("database");
            std::fs::write(&database, "database").unwrap();
            meet(Operation::Insert, "/base/");
            let image = Image { position: leader.position(), schema: 1, database, blobs: Vec::new() };
            assert!(leader.write_base(image).await.unwrap());
            assert_eq!(count("prod/base/"), 1);
        }
        Call::Acquire | Call::Renew | Call::Release => tried_on_the_lease(call, &double, &vault, &effects).await,
        Call::Inbox => {
            meet(Operation::Insert, "/inbox/");
            inbox::store_delivery(&vault, Hash::of(b"one"), &delivery()).await.unwrap();
            assert_eq!(count("prod/inbox/"), 1);
        }
        Call::Delete => {
            inbox::store_delivery(&vault, Hash::of(b"one"), &delivery()).await.unwrap();
            let mail = leading(&vault).await.list_inbox().await.unwrap();
            meet(Operation::Delete, "/inbox/");
            inbox::delete(&vault, &mail).await.unwrap();
            assert_eq!(count("prod/inbox/"), 0);
        }
        Call::Probe | Call::ProbeDeletion => {
            let operation = if call == Call::Probe { Operation::Insert } else { Operation::Delete };
            meet(operation, "doctor/");
            let probed = probe(&*vault.bucket, "doctor/1").await;
            // It fails sooner than a commit does, and leaves nothing if it can be removed.
            assert!(probed.is_ok() || effects.len() > 4, "{probed:?}");
            double.heal();
            probe(&*vault.bucket, "doctor/1").await.unwrap();
            assert_eq!(count("prod/doctor/"), 0);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_combination_of_faults_makes_a_call_tell_what_is_not_so() {
    use futures::StreamExt as _;
    let mut all = Vec::new();
    for call in CALLS {
        for effects in combinations() {
            // A false answer to a deletion cannot be detected: that the object is absent, or has another generation.
            let false_word = |effect: &Effect| matches!(effect, Effect::Fail(404 | 412));
            let deletes = matches!(call, Call::Delete | Call::ProbeDeletion);
            if !(deletes && effects.iter().any(false_word)) {
                all.push((call, effects));
            }
        }
    }
    let count = all.len();
    let runs = all.into_iter().map(|(call, effects)| async move {
        let shown = format!("{call:?} {effects:?}");
        let ended = tokio::time::timeout(BOUND, tokio::spawn(tried(call, effects))).await;
        match ended {
            Ok(Ok(())) => None,
            Ok(Err(panic)) => Some(format!("{shown}: {panic}")),
            Err(_) => Some(format!("{shown}: takes too long")),
        }
    });
    let failed: Vec<String> =
        futures::stream::iter(runs).buffer_unordered(16).filter_map(async |failed| failed).collect().await;
    assert!(failed.is_empty(), "{} of {count}:\n{}", failed.len(), failed.join("\n"));
}

/// The bucket itself never returns a plain refusal after an attempt without an answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_only_told_where_every_attempt_was_answered() {
    for (effects, unknown) in [
        (vec![Effect::Fail(403)], false),
        (vec![Effect::Fail(400)], false),
        (vec![Effect::Fail(404)], false),
        (vec![Effect::Fail(401); 4], false),
        (vec![Effect::Fail(401), Effect::Fail(403)], false),
        (vec![Effect::Fail(503), Effect::Fail(403)], true),
        (vec![Effect::FailAfter(503), Effect::Fail(404)], true),
        (vec![Effect::FailAfter(429), Effect::Fail(400)], true),
        (vec![Effect::ResetAfter, Effect::Fail(401), Effect::Fail(401), Effect::Fail(401)], true),
    ] {
        for operation in [Operation::Insert, Operation::Delete] {
            // Long limits: nothing here waits for one, and an attempt that times out is one without an answer.
            let limits = Limits { attempt: Duration::from_secs(20), call: Duration::from_secs(60), ..short() };
            let (double, gcs) = open(limits).await;
            if operation == Operation::Delete && effects.contains(&Effect::Fail(404)) {
                continue;
            }
            let generation = if operation == Operation::Delete { create(&gcs, "journal/1", "x").await } else { 0 };
            double.faults(operation, "journal/", &effects);
            let error = match operation {
                Operation::Delete => gcs.delete("journal/1", generation).await.unwrap_err(),
                _ => gcs.put("journal/1", 0, text("x"), "").await.unwrap_err(),
            };
            assert_eq!(matches!(error, BucketError::Unavailable { .. }), unknown, "{operation:?} {effects:?}: {error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_check_at_the_start_survives_what_its_probe_meets_and_leaves_nothing() {
    for operation in [Operation::Insert, Operation::Delete] {
        for refusal in [403, 401, 400] {
            let (double, gcs) = open(short()).await;
            double.fault(Fault::next(Operation::TestPermissions, Effect::Fail(403)));
            double.faults(operation, "probe", &[Effect::FailAfter(503), Effect::Fail(refusal)]);
            assert_eq!(gcs.check().await.unwrap(), Vec::<String>::new(), "{operation:?} {refusal}");
            assert_eq!(double.names(BUCKET), Vec::<String>::new(), "{operation:?} {refusal}");
        }
    }
}
