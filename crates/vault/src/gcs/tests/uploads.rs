//! Uploads in pieces over a slow or broken connection and with lost sessions, and reads over a broken connection.

use super::*;
use crate::Changes;
use crate::clock::Boottime;
use crate::memory::{self, Memory};
use crate::{Blob, Hash, Source, Vault};
use tidelock_storage_double::{Effect, Fault, Operation, StorageDouble};

const MIB: usize = 1 << 20;
/// Time limit of one of these on a loaded machine.
const BOUND: Duration = Duration::from_secs(60);

/// Returns bytes that do not compress.
fn noise(length: usize) -> Bytes {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(|_| next()).collect::<Vec<_>>().into()
}

/// Limits long enough for a loaded machine, for tests without timeouts.
fn patient() -> Limits {
    Limits { stall: Duration::from_secs(20), call: Duration::from_secs(60), ..short() }
}

async fn stored(gcs: &Gcs, name: &str, content: &Bytes) -> bool {
    let written = tokio::time::timeout(BOUND, gcs.put(name, 0, Body::Bytes(content.clone()), "base")).await;
    matches!(written.expect("it ends").unwrap(), Written::Stored(_))
}

fn count(double: &StorageDouble, operation: Operation) -> u64 {
    double.counts().get(&operation).copied().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_way_takes_as_long_as_it_takes_and_is_told() {
    // The upload takes more than two seconds; an attempt in one request has less than one.
    let (double, gcs) =
        open(Limits { attempt: Duration::from_millis(700), call: Duration::from_secs(1), ..patient() }).await;
    let (gcs, content) = (Arc::new(gcs), noise(3 * MIB));
    double.drip(MIB as u64);
    let begun = Instant::now();
    let (writer, bytes) = (Arc::clone(&gcs), content.clone());
    let writing = tokio::spawn(async move { stored(&writer, "base/1", &bytes).await });
    let mut arrived = Vec::new();
    while !writing.is_finished() {
        let all = gcs.uploads();
        if let Some(upload) = all.first() {
            assert_eq!((all.len(), upload.name.as_str(), upload.size), (1, "base/1", 3 * MIB as u64));
            arrived.push(upload.arrived);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(writing.await.unwrap());
    assert!(begun.elapsed() > Duration::from_secs(2), "{:?}", begun.elapsed());
    arrived.dedup();
    assert!(arrived.len() > 2 && arrived.is_sorted(), "{arrived:?}");
    assert!(gcs.uploads().is_empty());
    assert_eq!(count(&double, Operation::UploadStart), 1);
    double.drip(0);
    assert!(gcs.get("base/1").await.unwrap().unwrap().bytes == content);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_arrive_in_one_request_goes_on_in_pieces() {
    let (double, gcs) = open(Limits { attempt: Duration::from_millis(700), ..patient() }).await;
    let content = noise(MIB / 2);
    double.drip(MIB as u64 / 4);
    assert!(stored(&gcs, "journal/1", &content).await);
    let asked = [Operation::Insert, Operation::UploadStart, Operation::UploadChunk].map(|o| count(&double, o));
    // The first request ends before its body is complete.
    assert_eq!(asked, [0, 1, 2]);
    double.drip(0);
    assert!(gcs.get("journal/1").await.unwrap().unwrap().bytes == content);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_piece_that_is_not_answered_is_asked_for_and_the_rest_goes_on() {
    for effect in [Effect::Hang, Effect::Lost, Effect::Fail(503), Effect::ResetAfter, Effect::Cut(256 << 10)] {
        let (double, gcs) = open(Limits { stall: Duration::from_secs(2), ..patient() }).await;
        let content = noise(3 * MIB);
        double.fault(Fault::next(Operation::UploadChunk, effect).skip(1));
        assert!(stored(&gcs, "base/1", &content).await, "{effect:?}");
        assert_eq!(count(&double, Operation::UploadStart), 1, "{effect:?}");
        assert!(count(&double, Operation::UploadStatus) >= 1, "{effect:?}");
        assert!(gcs.get("base/1").await.unwrap().unwrap().bytes == content, "{effect:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_session_starts_over() {
    for (operation, status) in [
        (Operation::UploadChunk, 404),
        (Operation::UploadChunk, 410),
        (Operation::UploadStatus, 404),
        (Operation::UploadStatus, 410),
    ] {
        let (double, gcs) = open(patient()).await;
        let content = noise(2 * MIB);
        if operation == Operation::UploadStatus {
            double.fault(Fault::next(Operation::UploadChunk, Effect::Fail(503)).skip(1));
        }
        let skip = u32::from(operation == Operation::UploadChunk);
        double.fault(Fault::next(operation, Effect::Fail(status)).skip(skip));
        assert!(stored(&gcs, "base/1", &content).await, "{operation:?} {status}");
        assert_eq!(count(&double, Operation::UploadStart), 2, "{operation:?} {status}");
        assert!(gcs.get("base/1").await.unwrap().unwrap().bytes == content);
    }
    // The upload fails if its session is lost each time.
    let (double, gcs) = open(short()).await;
    double.fault(Fault::next(Operation::UploadChunk, Effect::Fail(410)).times(u32::MAX));
    let error = tokio::time::timeout(BOUND, gcs.put("base/1", 0, Body::Bytes(noise(2 * MIB)), "")).await.unwrap();
    assert!(matches!(error, Err(BucketError::Unavailable { .. })), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_progress_it_ends_and_the_next_call_goes_on_with_its_session() {
    let (double, gcs) = open(short()).await;
    let content = noise(3 * MIB);
    double.fault(Fault::next(Operation::UploadChunk, Effect::Fail(503)).skip(1).times(u32::MAX));
    let given_up = gcs.put("base/1", 0, Body::Bytes(content.clone()), "").await;
    assert!(matches!(given_up, Err(BucketError::Unavailable { .. })), "{given_up:?}");
    assert!(gcs.uploads().is_empty());
    double.heal();
    assert!(stored(&gcs, "base/1", &content).await);
    assert_eq!(count(&double, Operation::UploadStart), 1);
    // Another content under the same name has another session.
    assert!(!stored(&gcs, "base/1", &noise(2 * MIB)).await);
    assert_eq!(count(&double, Operation::UploadStart), 2);
    assert!(gcs.get("base/1").await.unwrap().unwrap().bytes == content);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_last_piece_that_was_stored_and_then_refused_is_unknown_and_found_by_the_vault() {
    for refusal in [400, 401, 403] {
        let limits = Limits { resumable: 64 << 10, ..patient() };
        let (double, gcs) = open(limits).await;
        let bucket: Arc<dyn Bucket> = Arc::new(gcs);
        let vault = Vault { bucket: bucket.clone(), clock: Arc::new(Boottime), ..memory::vault(&Memory::new(), "a").0 };
        let lease = vault.acquire().await.unwrap();
        let (leader, _) = vault.lead(lease).await.unwrap().unwrap();
        let bytes = noise(200 << 10);
        let blob = Blob { hash: Hash::of(&bytes), length: bytes.len() as u64, source: Source::Bytes(bytes) };
        double.fault(Fault::next(Operation::UploadChunk, Effect::FailAfter(503)));
        double.fault(Fault::next(Operation::UploadStatus, Effect::Fail(refusal)).times(4));
        let changes = |rows: &'static str, blobs| Changes { schema: 1, rows: rows.into(), blobs };
        leader.commit(changes("one", vec![blob])).await.unwrap();
        double.heal();
        leader.commit(changes("two", Vec::new())).await.unwrap();
        let rows = vault.read(None).await.unwrap().rows().await.unwrap();
        assert_eq!(rows.len(), 2, "{refusal}");
        assert!(count(&double, Operation::UploadStatus) > 0, "{refusal}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_that_is_cut_again_and_again_goes_on_where_it_stopped() {
    let (double, gcs) = open(patient()).await;
    let content = noise(2 * MIB);
    assert!(stored(&gcs, "base/1", &content).await);
    let generation = gcs.list("base/", "").await.unwrap()[0].generation;
    // More cuts than one call has attempts; each read brings at most a ninth.
    let cut = 2 * MIB / 9;
    double.fault(Fault::next(Operation::Read, Effect::Truncate(cut)).times(100));
    double.reset();
    let read = tokio::time::timeout(BOUND, gcs.get_range("base/1", generation, 0..content.len() as u64)).await;
    assert!(read.expect("it ends").unwrap().unwrap() == content);
    assert!((10..40).contains(&count(&double, Operation::Read)), "{:?}", double.counts());
    // A part in the middle, and one that ends beyond the object.
    let (from, behind) = (MIB as u64 / 2, 3 * MIB as u64);
    let part = gcs.get_range("base/1", generation, from..from + MIB as u64).await.unwrap().unwrap();
    assert!(part == content.slice(MIB / 2..MIB / 2 + MIB));
    let rest = gcs.get_range("base/1", generation, from..behind).await.unwrap().unwrap();
    assert!(rest == content.slice(MIB / 2..));
    // Bytes of another generation are never appended to those of this one.
    double.heal();
    double.fault(Fault::next(Operation::Read, Effect::Truncate(cut)));
    assert_eq!(gcs.get_range("base/1", generation + 1, 0..9).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_of_which_next_to_nothing_comes_ends() {
    let (double, gcs) = open(patient()).await;
    let content = noise(MIB / 2);
    assert!(stored(&gcs, "base/1", &content).await);
    let generation = gcs.list("base/", "").await.unwrap()[0].generation;
    double.fault(Fault::next(Operation::Read, Effect::Truncate(9)).times(100));
    let read = tokio::time::timeout(BOUND, gcs.get_range("base/1", generation, 0..content.len() as u64)).await;
    assert!(matches!(read.expect("it ends"), Err(BucketError::Unavailable { .. })));
}
