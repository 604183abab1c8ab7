//! The bucket against the double, over the wire: the trait's conformance, faults, settings.

mod accounts;
mod combined;
mod credentials;
mod double;
mod faults;
mod settings;
mod tools;
mod uploads;

use super::{Access, AccountRights, Address, Gcs, Limits, Options};
use crate::bucket::conformance::{Fresh, Scale, conforms};
use crate::bucket::{Body, Bucket, BucketError, Written};
use bytes::Bytes;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidelock_storage_double::{Operation, Settings, StorageDouble};

/// Bucket of the double.
const BUCKET: &str = "acme-tidelock";

/// Limits short enough for a test to reach each of them.
fn short() -> Limits {
    Limits {
        attempt: Duration::from_millis(700),
        call: Duration::from_secs(3),
        rate: 64 << 20,
        attempts: 4,
        first_wait: Duration::from_millis(5),
        longest_wait: Duration::from_millis(20),
        resumable: 1 << 20,
        stall: Duration::from_millis(700),
        slowest: 8 << 10,
        page: 1000,
    }
}

fn options(double: &StorageDouble, limits: Limits) -> Options {
    Options { endpoint: Some(double.endpoint()), access: Access::Anonymous, limits, rights: AccountRights::Objects }
}

/// Returns a double with an empty bucket without a limit of changes a second, and a client.
async fn open(limits: Limits) -> (StorageDouble, Gcs) {
    let double = StorageDouble::start().await.unwrap();
    double.bucket(BUCKET, Settings::default());
    double.limit_mutations(false);
    let gcs = Gcs::new(Address::parse("gs://acme-tidelock/prod").unwrap(), options(&double, limits));
    (double, gcs)
}

fn text(text: &'static str) -> Body {
    Body::Bytes(Bytes::from_static(text.as_bytes()))
}

async fn create(gcs: &Gcs, name: &str, content: &'static str) -> i64 {
    match gcs.put(name, 0, text(content), "").await.unwrap() {
        Written::Stored(generation) => generation,
        Written::Refused => panic!("{name} is there already"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bucket_conforms_over_the_wire() {
    let fresh = async || {
        let double = StorageDouble::start().await.unwrap();
        double.bucket(BUCKET, Settings::default());
        double.limit_mutations(false);
        // Long limits: two cores are shared with other tests.
        let limits = Limits { attempt: Duration::from_secs(20), call: Duration::from_secs(30), ..Limits::default() };
        let way = || -> Arc<dyn Bucket> {
            Arc::new(Gcs::new(Address::parse("gs://acme-tidelock/team/prod").unwrap(), options(&double, limits)))
        };
        Fresh { one: way(), two: way(), keep: Box::new(double) }
    };
    conforms(fresh, Scale { many: 1100, ..Scale::default() }).await;
}

/// Lets the connection of the last request return to its pool, which takes turns of other tasks but no input.
async fn settled() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

// On one thread, so that `settled` is reliable.
#[tokio::test]
async fn each_operation_is_one_request() {
    let (double, gcs) = open(Limits::default()).await;
    let generation = create(&gcs, "journal/1", "0123456789").await;
    settled().await;
    gcs.get("journal/1").await.unwrap().unwrap();
    settled().await;
    gcs.get_range("journal/1", generation, 2..4).await.unwrap().unwrap();
    gcs.list("journal/", "").await.unwrap();
    assert!(gcs.delete("journal/1", generation).await.unwrap());
    let counts: Vec<_> = double.counts().into_iter().collect();
    let one = [(Operation::Insert, 1), (Operation::Read, 2), (Operation::Delete, 1), (Operation::List, 1)];
    assert_eq!(counts, one);
    assert_eq!(double.connections(), 2, "one for each transport");
    let counted: Vec<_> = gcs.requests().into_iter().filter(|(_, count)| *count > 0).collect();
    assert_eq!(counted, [("get", 1), ("get_range", 1), ("put", 1), ("delete", 1), ("list", 1)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_take_pages_and_name_what_they_need_only() {
    let (double, gcs) = open(Limits { page: 7, ..Limits::default() }).await;
    for number in 0..30 {
        create(&gcs, &format!("journal/{number:02}"), "x").await;
    }
    double.reset();
    assert_eq!(gcs.list("journal/", "").await.unwrap().len(), 30);
    assert_eq!(double.counts()[&Operation::List], 5);
    double.reset();
    // Earlier pages are not requested.
    assert_eq!(gcs.list("journal/", "journal/24").await.unwrap().len(), 5);
    assert_eq!(double.counts()[&Operation::List], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_lie_below_the_prefix_and_others_are_not_seen() {
    let (double, gcs) = open(Limits::default()).await;
    let other = Gcs::new(Address::parse("gs://acme-tidelock/production").unwrap(), options(&double, short()));
    create(&gcs, "journal/1", "ours").await;
    create(&other, "journal/2", "theirs").await;
    assert_eq!(double.names(BUCKET), ["prod/journal/1", "production/journal/2"]);
    let names = |listed: Vec<super::Listed>| listed.into_iter().map(|l| l.name).collect::<Vec<_>>();
    assert_eq!(names(gcs.list("", "").await.unwrap()), ["journal/1"]);
    assert_eq!(names(other.list("", "").await.unwrap()), ["journal/2"]);
    assert_eq!(gcs.get("journal/2").await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_generation_of_a_versioned_bucket_is_absent() {
    let (double, gcs) = open(Limits::default()).await;
    double.bucket(BUCKET, Settings { versioning: true, ..Settings::default() });
    let first = create(&gcs, "base/1", "first").await;
    let Written::Stored(second) = gcs.put("base/1", first, text("second"), "").await.unwrap() else {
        panic!("refused")
    };
    assert_eq!(gcs.get_range("base/1", first, 0..5).await.unwrap(), None);
    assert_eq!(gcs.get_range("base/1", second, 0..3).await.unwrap().unwrap(), "sec");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_upload_goes_on_where_it_was_cut_off() {
    // Long limits: nothing here waits for one, and other tests load the machine.
    let limits = Limits { attempt: Duration::from_secs(20), call: Duration::from_secs(60), ..short() };
    let (double, gcs) = open(limits).await;
    let content: Vec<u8> = (0..3_000_000_u32).map(|at| (at * 7 / 3) as u8).collect();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("base");
    std::fs::write(&path, &content).unwrap();
    use tidelock_storage_double::{Effect, Fault};
    // After the first piece, which is small.
    double.fault(Fault::next(Operation::UploadChunk, Effect::Cut(1 << 20)).skip(1));
    double.fault(Fault::next(Operation::UploadChunk, Effect::ResetAfter));
    let written = gcs.put("base/1", 0, Body::File(path), "base").await.unwrap();
    let counts = double.counts();
    assert!(matches!(written, Written::Stored(_)), "{written:?} {counts:?}");
    // One start, one cut piece, one lost answer. After each failure the client asks how much has arrived.
    assert_eq!((counts[&Operation::UploadStart], counts[&Operation::UploadStatus]), (1, 2));
    let object = gcs.get("base/1").await.unwrap().unwrap();
    assert!(object.bytes == content);
    assert_eq!(gcs.list("base/", "").await.unwrap()[0].label, "base");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_or_changing_file_is_refused() {
    let (double, gcs) = open(short()).await;
    let dir = tempfile::tempdir().unwrap();
    let missing = gcs.put("base/1", 0, Body::File(dir.path().join("none")), "").await;
    assert!(matches!(missing, Err(BucketError::Refused { .. })), "{missing:?}");
    assert!(double.counts().is_empty(), "nothing was asked");
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_content_is_not_handed_out() {
    let (double, gcs) = open(short()).await;
    create(&gcs, "journal/1", "content").await;
    assert!(double.damage(BUCKET, "prod/journal/1", Bytes::from_static(b"cantent")));
    let error = gcs.get("journal/1").await.unwrap_err();
    assert!(error.to_string().contains("checksum"), "{error}");
    assert_eq!(double.counts()[&Operation::Read], 4, "it may have been the wire");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limited_read_stops_early_and_never_lists() {
    let (double, gcs) = open(Limits::default()).await;
    let size = 32 << 20;
    gcs.put("jobs/large", 0, Body::Bytes(vec![b'x'; size].into()), "").await.unwrap();
    double.reset();
    let read = gcs.get_within("jobs/large", 10).await.unwrap().unwrap();
    assert!(read.bytes.len() > 10 && read.bytes.len() < size, "{}", read.bytes.len());
    assert_eq!(gcs.get_within("jobs/absent", 10).await.unwrap(), None);
    assert_eq!(double.counts().into_iter().collect::<Vec<_>>(), [(Operation::Read, 2)]);
    assert_eq!(gcs.get("jobs/absent").await.unwrap(), None);
    assert_eq!(double.counts()[&Operation::List], 1, "a missing bucket has to be told from a missing object");
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_may_be_shorter_than_asked_for() {
    let (double, gcs) = open(Limits::default()).await;
    double.limit_pages(2);
    for name in ["inbox/1", "inbox/2", "inbox/3", "inbox/4", "inbox/5"] {
        create(&gcs, name, "x").await;
    }
    assert_eq!(gcs.list("inbox/", "inbox/1").await.unwrap().len(), 4);
    assert_eq!(double.counts()[&Operation::List], 3, "the one after which it begins is asked for too");
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_to_different_names_do_not_wait_for_each_other() {
    let (double, gcs) = open(Limits::default()).await;
    create(&gcs, "journal/warm", "x").await;
    let delay = Duration::from_millis(300);
    double.delay(Duration::ZERO, delay);
    let begun = Instant::now();
    let names: Vec<_> = (0..20).map(|number| format!("inbox/{number}")).collect();
    futures::future::join_all(names.iter().map(|name| create(&gcs, name, "x"))).await;
    let took = begun.elapsed();
    assert!(took >= delay && took < delay * 10, "{took:?}");
}

/// Measures a create without any delay of the service, for `--nocapture`; not a limit.
#[tokio::test(flavor = "multi_thread")]
async fn creates_are_quick() {
    let (_double, gcs) = open(Limits::default()).await;
    create(&gcs, "journal/warm", "x").await;
    let mut times: Vec<Duration> = Vec::new();
    for number in 0..200 {
        let begun = Instant::now();
        create(&gcs, &format!("journal/{number:04}"), "content of a commit").await;
        times.push(begun.elapsed());
    }
    times.sort();
    println!("create: p50 {:?}, p99 {:?}", times[100], times[198]);
    assert!(times[100] < Duration::from_millis(200));
}
