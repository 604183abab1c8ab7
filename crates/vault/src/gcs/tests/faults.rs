//! Faults of the connection: each call ends with the right answer, in bounded time.

use super::*;
use tidelock_storage_double::{Effect, Fault, Operation, StorageDouble};

/// Time limit of all attempts of one call, with a margin for a loaded machine.
const BOUND: Duration = Duration::from_secs(8);

async fn bounded<T>(doing: impl Future<Output = T>) -> T {
    tokio::time::timeout(BOUND, doing).await.expect("it takes no longer than its limits")
}

/// Result of a call.
#[derive(Debug, PartialEq)]
enum End {
    Done,
    Refused,
    Unavailable,
}

fn end<T>(result: Result<T, BucketError>, done: impl Fn(T) -> bool) -> End {
    match result.map(done) {
        Ok(true) => End::Done,
        Ok(false) => End::Refused,
        Err(BucketError::Unavailable { .. }) => End::Unavailable,
        Err(error) => panic!("{error}"),
    }
}

async fn put(gcs: &Gcs) -> End {
    end(bounded(gcs.put("journal/1", 0, text("x"), "")).await, |written| written != Written::Refused)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_fault_of_a_create_ends_as_it_must() {
    const INSERT: Operation = Operation::Insert;
    const ALWAYS: u32 = 100;
    for (effect, times, expected, stored) in [
        (Effect::Fail(503), 2, End::Done, true),
        (Effect::Fail(503), ALWAYS, End::Unavailable, false),
        (Effect::Fail(408), 1, End::Done, true),
        (Effect::Fail(401), 1, End::Done, true),
        (Effect::Reset, 2, End::Done, true),
        (Effect::Reset, ALWAYS, End::Unavailable, false),
        (Effect::Hang, 1, End::Done, true),
        (Effect::Hang, ALWAYS, End::Unavailable, false),
        // The first try took effect, so the next one is refused: the vault reads and compares.
        (Effect::FailAfter(503), 1, End::Refused, true),
        (Effect::ResetAfter, 1, End::Refused, true),
        (Effect::Lost, 1, End::Refused, true),
        (Effect::Freeze, 1, End::Done, true),
    ] {
        let (double, gcs) = open(short()).await;
        double.fault(Fault::next(INSERT, effect).times(times));
        assert_eq!(put(&gcs).await, expected, "{effect:?} x {times}");
        assert_eq!(!double.names(BUCKET).is_empty(), stored, "{effect:?} x {times}");
        double.heal();
        assert!(matches!(put(&gcs).await, End::Done | End::Refused), "afterwards all is well");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_nobody_waits_for_any_more_may_still_come() {
    let (double, gcs) = open(short()).await;
    let late = Effect::Late(Duration::from_millis(1800));
    double.fault(Fault::next(Operation::Insert, late).named("journal/"));
    double.fault(Fault::next(Operation::Insert, Effect::Fail(503)).times(100));
    assert_eq!(put(&gcs).await, End::Unavailable);
    assert_eq!(gcs.get("journal/1").await.unwrap(), None);
    let seen = async {
        while gcs.get("journal/1").await.unwrap().is_none() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    bounded(seen).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_fault_of_a_deletion_ends_as_it_must() {
    for (effect, times, expected) in [
        (Effect::Fail(503), 2, End::Done),
        (Effect::Fail(503), 100, End::Unavailable),
        (Effect::Reset, 1, End::Done),
        (Effect::Hang, 1, End::Done),
        (Effect::Hang, 100, End::Unavailable),
        // Absence is the aim of a deletion.
        (Effect::FailAfter(503), 1, End::Done),
        (Effect::ResetAfter, 1, End::Done),
        (Effect::Lost, 1, End::Done),
        (Effect::Freeze, 1, End::Done),
    ] {
        let (double, gcs) = open(short()).await;
        let generation = create(&gcs, "journal/1", "x").await;
        double.fault(Fault::next(Operation::Delete, effect).times(times));
        let result = bounded(gcs.delete("journal/1", generation)).await;
        assert_eq!(end(result, |gone| gone), expected, "{effect:?} x {times}");
        assert_eq!(double.names(BUCKET).is_empty(), expected == End::Done, "{effect:?} x {times}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_fault_of_a_read_ends_as_it_must() {
    for (effect, times, expected) in [
        (Effect::Fail(500), 3, End::Done),
        (Effect::Fail(504), 100, End::Unavailable),
        (Effect::Reset, 1, End::Done),
        (Effect::Lost, 1, End::Done),
        (Effect::Lost, 100, End::Unavailable),
        (Effect::Truncate(4), 1, End::Done),
        (Effect::Truncate(4), 100, End::Unavailable),
        (Effect::Truncate(0), 1, End::Done),
    ] {
        let (double, gcs) = open(short()).await;
        let generation = create(&gcs, "journal/1", "0123456789").await;
        for ranged in [false, true] {
            double.fault(Fault::next(Operation::Read, effect).times(times));
            let whole = async { gcs.get("journal/1").await.map(|object| object.unwrap().bytes) };
            let range = async { gcs.get_range("journal/1", generation, 0..10).await.map(Option::unwrap) };
            let bytes = if ranged { bounded(range).await } else { bounded(whole).await };
            // An interrupted range is resumed.
            let goes_on = ranged && matches!(effect, Effect::Truncate(4));
            let expected = if goes_on { &End::Done } else { &expected };
            assert_eq!(&end(bytes, |bytes| bytes == "0123456789"), expected, "{effect:?} x {times}");
            double.heal();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_fault_of_a_list_ends_as_it_must() {
    for (effect, skip, times, expected) in [
        (Effect::Fail(503), 0, 2, End::Done),
        (Effect::Fail(503), 1, 2, End::Done),
        (Effect::Fail(503), 1, 100, End::Unavailable),
        (Effect::Reset, 1, 1, End::Done),
        (Effect::Lost, 2, 1, End::Done),
        (Effect::Lost, 2, 100, End::Unavailable),
        (Effect::Freeze, 1, 1, End::Done),
    ] {
        let (double, gcs) = open(Limits { page: 2, ..short() }).await;
        for name in ["inbox/1", "inbox/2", "inbox/3", "inbox/4", "inbox/5"] {
            create(&gcs, name, "x").await;
        }
        double.fault(Fault::next(Operation::List, effect).skip(skip).times(times));
        let result = bounded(gcs.list("inbox/", "")).await;
        assert_eq!(end(result, |listed| listed.len() == 5), expected, "{effect:?} x {times} after {skip}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_change_within_a_second_waits_for_it() {
    let double = StorageDouble::start().await.unwrap();
    double.bucket(BUCKET, Default::default());
    let limits = Limits { call: Duration::from_secs(5), ..short() };
    let gcs = Gcs::new(Address::parse("gs://acme-tidelock").unwrap(), options(&double, limits));
    let begun = Instant::now();
    let first = create(&gcs, "lock/leader.json", "1").await;
    assert!(matches!(gcs.put("lock/leader.json", first, text("2"), "").await.unwrap(), Written::Stored(_)));
    assert!(begun.elapsed() >= Duration::from_secs(1));
    let inserts = double.counts()[&Operation::Insert];
    assert!((3..=5).contains(&inserts), "up to three were refused with 429: {inserts}");
    let seen: Vec<_> = double.seen().into_iter().map(|seen| seen.name).collect();
    assert!(seen.iter().all(|name| name == "lock/leader.json"), "{seen:?}");
    // The limit of one change a second is per name.
    create(&gcs, "journal/1", "x").await;
    assert_eq!(double.counts()[&Operation::Insert], inserts + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_network_is_no_answer_and_comes_back() {
    let (double, gcs) = open(short()).await;
    create(&gcs, "journal/1", "x").await;
    gcs.list("", "").await.unwrap();
    double.outage(true);
    assert_eq!(put(&gcs).await, End::Unavailable);
    let error = bounded(gcs.list("", "")).await.unwrap_err();
    assert!(matches!(error, BucketError::Unavailable { .. }), "{error}");
    let error = bounded(gcs.get("journal/1")).await.unwrap_err();
    assert!(error.to_string().starts_with("gs://acme-tidelock/prod: reading journal/1: no answer: "), "{error}");
    double.outage(false);
    assert_eq!(gcs.list("", "").await.unwrap().len(), 1);
    assert_eq!(put(&gcs).await, End::Refused);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_large_upload_ends_too() {
    let (double, gcs) = open(short()).await;
    double.fault(Fault::next(Operation::UploadChunk, Effect::Hang).times(100));
    let body = Body::Bytes(Bytes::from(vec![7; 2 << 20]));
    let error = bounded(gcs.put("base/1", 0, body, "")).await.unwrap_err();
    assert!(matches!(error, BucketError::Unavailable { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_upload_whose_name_is_taken_is_refused() {
    let (double, gcs) = open(short()).await;
    create(&gcs, "base/1", "first").await;
    let body = || Body::Bytes(Bytes::from(vec![7; 2 << 20]));
    assert_eq!(gcs.put("base/1", 0, body(), "").await.unwrap(), Written::Refused);
    // The answer to the last piece is lost with its connection: the client asks for the outcome.
    double.fault(Fault::next(Operation::UploadChunk, Effect::FailAfter(503)));
    assert!(matches!(gcs.put("base/2", 0, body(), "").await.unwrap(), Written::Stored(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_that_goes_away_is_never_an_empty_one() {
    let (double, gcs) = open(short()).await;
    let generation = create(&gcs, "journal/1", "x").await;
    double.remove_bucket(BUCKET);
    let text = |error: BucketError| error.to_string();
    for error in [
        text(gcs.get("journal/1").await.unwrap_err()),
        text(gcs.get_range("journal/1", generation, 0..1).await.unwrap_err()),
        text(gcs.list("journal/", "").await.unwrap_err()),
        text(gcs.delete("journal/1", generation).await.unwrap_err()),
        text(gcs.put("journal/2", 0, super::text("x"), "").await.unwrap_err()),
    ] {
        assert!(error.contains("the bucket does not exist. Create it: gcloud storage buckets create"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_right_that_is_taken_away_is_named() {
    let (double, gcs) = open(short()).await;
    let generation = create(&gcs, "journal/1", "x").await;
    let denied =
        vec!["storage.objects.create", "storage.objects.get", "storage.objects.delete", "storage.objects.list"];
    double.bucket(BUCKET, Settings { denied, ..Settings::default() });
    for (error, right) in [
        (gcs.get("journal/1").await.map(drop).unwrap_err(), "storage.objects.get"),
        (gcs.list("journal/", "").await.map(drop).unwrap_err(), "storage.objects.list"),
        (gcs.delete("journal/1", generation).await.map(drop).unwrap_err(), "storage.objects.delete"),
        (gcs.put("journal/2", 0, text("x"), "").await.map(drop).unwrap_err(), "storage.objects.create"),
    ] {
        let shown = error.to_string();
        assert!(matches!(error, BucketError::Refused { .. }), "{shown}");
        assert!(shown.contains(right) && shown.contains("--role=roles/storage.objectUser"), "{shown}");
    }
    assert_eq!(double.counts().values().sum::<u64>(), 5, "none of it is asked twice");
}
