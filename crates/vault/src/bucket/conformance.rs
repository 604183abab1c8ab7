//! Requirements on every [`Bucket`], as named checks that run on each implementation.

use super::{Body, Bucket, BucketError, Generation, Listed, MAX_SEGMENT, Written};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use std::any::Any;
use std::sync::Arc;
use tokio::task::JoinSet;

/// A bucket that was empty, as two servers see it.
pub(crate) struct Fresh {
    pub(crate) one: Arc<dyn Bucket>,
    pub(crate) two: Arc<dyn Bucket>,
    /// Resource that has to live as long: a directory, a server.
    pub(crate) keep: Box<dyn Any + Send>,
}

/// Sizes of the checks.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    /// Objects of a long list.
    pub(crate) many: usize,
    /// Writes to one name by each of eight tasks; fewer for a service that allows one a second.
    pub(crate) rounds: u64,
    /// Bytes of a large object.
    pub(crate) large: usize,
}

impl Default for Scale {
    fn default() -> Scale {
        Scale { many: 2500, rounds: 10, large: 20 << 20 }
    }
}

type Check = fn(Fresh, Scale) -> BoxFuture<'static, ()>;

/// Every check, with the sentence that it proves.
pub(crate) const CHECKS: &[(&str, Check)] = &[
    ("a bucket that may be used passes its check", |f, s| checks_out(f, s).boxed()),
    ("a create succeeds only when there is none", |f, s| create_only(f, s).boxed()),
    ("of a hundred creators one wins", |f, s| one_creator_wins(f, s).boxed()),
    ("no increment of a counter is lost", |f, s| counter(f, s).boxed()),
    ("an old generation is refused and changes nothing", |f, s| stale_refused(f, s).boxed()),
    ("a delete needs the present generation", |f, s| delete_by_generation(f, s).boxed()),
    ("a generation is never used again", |f, s| generations_are_new(f, s).boxed()),
    ("a limited read shows that an object is larger", |f, s| limited_reads(f, s).boxed()),
    ("a range is cut at the end, and absent of another generation", |f, s| ranges(f, s).boxed()),
    ("a list shows label, size and generation", |f, s| labels(f, s).boxed()),
    ("a list is in order, by prefix, and begins after a name", |f, s| list_order(f, s).boxed()),
    ("a list goes over all pages", |f, s| long_list(f, s).boxed()),
    ("created times grow", |f, s| created_grows(f, s).boxed()),
    ("empty and large bodies come back as they were", |f, s| bodies(f, s).boxed()),
    ("a file is stored with its content", |f, s| file_bodies(f, s).boxed()),
    ("a read beside writers is whole", |f, s| reads_are_whole(f, s).boxed()),
    ("a list beside a writer has no gap", |f, s| lists_have_no_gap(f, s).boxed()),
    ("names that no object can have are refused", |f, s| odd_names(f, s).boxed()),
    ("requests are counted", |f, s| requests_are_counted(f, s).boxed()),
];

/// Runs all checks, each on a fresh bucket; panics with the names of those that failed.
pub(crate) async fn conforms(fresh: impl AsyncFn() -> Fresh, scale: Scale) {
    let mut failed = Vec::new();
    for (name, check) in CHECKS {
        let fresh = fresh().await;
        if tokio::spawn(check(fresh, scale)).await.is_err() {
            failed.push(*name);
        }
    }
    assert!(failed.is_empty(), "these do not hold (their panics are above): {failed:#?}");
}

fn text(text: impl Into<String>) -> Body {
    Body::Bytes(Bytes::from(text.into()))
}

async fn create(bucket: &dyn Bucket, name: &str, content: &str) -> Generation {
    match bucket.put(name, 0, text(content), "").await.expect("a create") {
        Written::Stored(generation) => generation,
        Written::Refused => panic!("{name} is there already"),
    }
}

async fn content(bucket: &dyn Bucket, name: &str) -> Option<String> {
    let object = bucket.get(name).await.expect("a read")?;
    Some(String::from_utf8(object.bytes.to_vec()).expect("text"))
}

async fn names(bucket: &dyn Bucket, prefix: &str, after: &str) -> Vec<String> {
    bucket.list(prefix, after).await.expect("a list").into_iter().map(|listed| listed.name).collect()
}

async fn checks_out(fresh: Fresh, _: Scale) {
    fresh.one.check().await.expect("the check of an empty one");
    create(&*fresh.one, "journal/1", "x").await;
    fresh.two.check().await.expect("the check of one with objects");
    fresh.two.inspect().await.expect("a look through its objects");
    assert_eq!(names(&*fresh.one, "", "").await, ["journal/1"], "a check leaves nothing");
    assert!(fresh.one.location().contains("://"));
}

async fn create_only(fresh: Fresh, _: Scale) {
    let Fresh { one, two, keep: _keep } = fresh;
    assert_eq!(one.get("journal/1").await.expect("a read"), None);
    let generation = create(&*one, "journal/1", "first").await;
    assert!(generation > 0);
    for bucket in [&one, &two] {
        let again = bucket.put("journal/1", 0, text("second"), "").await.expect("an answer");
        assert_eq!(again, Written::Refused);
        let object = bucket.get("journal/1").await.expect("a read").expect("an object");
        assert_eq!((object.generation, &object.bytes[..]), (generation, &b"first"[..]));
    }
}

async fn one_creator_wins(fresh: Fresh, _: Scale) {
    let mut tasks = JoinSet::new();
    for number in 0..100 {
        let bucket = if number % 2 == 0 { fresh.one.clone() } else { fresh.two.clone() };
        tasks.spawn(async move {
            let written = bucket.put("journal/1", 0, text(number.to_string()), "").await.expect("an answer");
            (number, written)
        });
    }
    let answers = tasks.join_all().await;
    let winners: Vec<_> = answers.into_iter().filter(|(_, written)| *written != Written::Refused).collect();
    let [(number, Written::Stored(generation))] = winners[..] else { panic!("not one winner: {winners:?}") };
    let object = fresh.two.get("journal/1").await.expect("a read").expect("an object");
    assert_eq!((object.generation, object.bytes), (generation, Bytes::from(number.to_string())));
}

async fn counter(fresh: Fresh, scale: Scale) {
    const TASKS: u64 = 8;
    create(&*fresh.one, "lock/counter", "0").await;
    let mut tasks = JoinSet::new();
    for number in 0..TASKS {
        let bucket = if number % 2 == 0 { fresh.one.clone() } else { fresh.two.clone() };
        tasks.spawn(async move {
            let mut done = 0;
            while done < scale.rounds {
                let object = bucket.get("lock/counter").await.expect("a read").expect("an object");
                let value: u64 = String::from_utf8_lossy(&object.bytes).parse().expect("a number");
                let next = text((value + 1).to_string());
                if bucket.put("lock/counter", object.generation, next, "").await.expect("an answer") != Written::Refused
                {
                    done += 1;
                }
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(content(&*fresh.one, "lock/counter").await, Some((TASKS * scale.rounds).to_string()));
}

async fn stale_refused(fresh: Fresh, _: Scale) {
    let first = create(&*fresh.one, "lock/a", "one").await;
    let Written::Stored(second) = fresh.two.put("lock/a", first, text("two"), "").await.expect("an answer") else {
        panic!("the present generation was refused")
    };
    assert_ne!(first, second);
    for stale in [first, second ^ 1, i64::MAX, 0] {
        assert_eq!(fresh.one.put("lock/a", stale, text("three"), "").await.expect("an answer"), Written::Refused);
    }
    assert_eq!(content(&*fresh.one, "lock/a").await.as_deref(), Some("two"));
    // An object that does not exist has no generation.
    assert_eq!(fresh.one.put("lock/b", first, text("x"), "").await.expect("an answer"), Written::Refused);
    assert_eq!(content(&*fresh.one, "lock/b").await, None);
}

async fn delete_by_generation(fresh: Fresh, _: Scale) {
    let Fresh { one, two, keep: _keep } = fresh;
    let generation = create(&*one, "journal/1", "x").await;
    assert!(!two.delete("journal/1", generation ^ 1).await.expect("an answer"), "another generation is there");
    assert_eq!(content(&*one, "journal/1").await.as_deref(), Some("x"));
    assert!(two.delete("journal/1", generation).await.expect("an answer"));
    assert_eq!(content(&*one, "journal/1").await, None);
    assert!(one.delete("journal/1", generation).await.expect("an answer"), "it is not there any more");
    assert!(one.delete("never/there", 1).await.expect("an answer"));
    assert!(names(&*one, "", "").await.is_empty());
}

async fn generations_are_new(fresh: Fresh, _: Scale) {
    let mut seen = std::collections::BTreeSet::new();
    for round in 0..10 {
        let bucket = if round % 2 == 0 { &fresh.one } else { &fresh.two };
        let generation = create(&**bucket, "journal/1", "the same").await;
        assert!(seen.insert(generation), "{generation} came back");
        assert!(fresh.one.delete("journal/1", generation).await.expect("an answer"));
        for old in &seen {
            let written = fresh.two.put("journal/1", *old, text("x"), "").await.expect("an answer");
            assert_eq!(written, Written::Refused, "a deleted generation is none");
        }
    }
}

async fn limited_reads(fresh: Fresh, _: Scale) {
    let generation = create(&*fresh.one, "jobs/a", "0123456789").await;
    for most in [10, 11, usize::MAX] {
        let read = fresh.two.get_within("jobs/a", most).await.expect("an answer").expect("an object");
        assert_eq!((read.generation, &read.bytes[..]), (generation, &b"0123456789"[..]), "{most}");
    }
    for most in [0, 1, 9] {
        let read = fresh.two.get_within("jobs/a", most).await.expect("an answer").expect("an object");
        assert!(read.bytes.len() > most && b"0123456789".starts_with(&read.bytes), "{most}");
    }
    create(&*fresh.one, "jobs/b", "").await;
    assert_eq!(fresh.two.get_within("jobs/b", 0).await.expect("an answer").expect("an object").bytes, Bytes::new());
    assert_eq!(fresh.two.get_within("jobs/c", 9).await.expect("an answer"), None);
}

async fn ranges(fresh: Fresh, _: Scale) {
    let Fresh { one, two, keep: _keep } = fresh;
    let first = create(&*one, "base/1", "0123456789").await;
    for (range, expected) in [(0..10, "0123456789"), (3..5, "34"), (0..1, "0"), (8..100, "89"), (9..10, "9")] {
        let bytes = two.get_range("base/1", first, range.clone()).await.expect("a read").expect("that generation");
        assert_eq!(bytes, expected, "{range:?}");
    }
    for empty in [3..3, 10..20, 50..60] {
        let bytes = two.get_range("base/1", first, empty.clone()).await.expect("a read").expect("that generation");
        assert!(bytes.is_empty(), "{empty:?}");
    }
    assert!(matches!(one.put("base/1", first, text("new"), "").await, Ok(Written::Stored(_))));
    assert_eq!(two.get_range("base/1", first, 0..3).await.expect("a read"), None);
    assert_eq!(two.get_range("base/2", first, 0..3).await.expect("a read"), None);
}

async fn labels(fresh: Fresh, _: Scale) {
    let one = &fresh.one;
    let Ok(Written::Stored(first)) = one.put("journal/1", 0, text("12345"), "seal").await else { panic!("a create") };
    create(&**one, "journal/2", "").await;
    let shown = |listed: Vec<Listed>| {
        let row = |l: Listed| (l.name, l.generation, l.size, l.label);
        listed.into_iter().map(row).next().expect("an object")
    };
    let listed = shown(fresh.two.list("journal/1", "").await.expect("a list"));
    assert_eq!(listed, ("journal/1".to_owned(), first, 5, "seal".to_owned()));
    let Ok(Written::Stored(second)) = one.put("journal/1", first, text("123"), "commit").await else {
        panic!("a write")
    };
    let listed = shown(fresh.two.list("journal/1", "").await.expect("a list"));
    assert_eq!(listed, ("journal/1".to_owned(), second, 3, "commit".to_owned()));
    let listed = shown(fresh.two.list("journal/2", "").await.expect("a list"));
    assert_eq!((listed.2, listed.3.as_str()), (0, ""));
}

async fn list_order(fresh: Fresh, _: Scale) {
    let all = [
        "base/0001",
        "inbox/a-b",
        "inbox/a/b",
        "inbox/a0",
        "journal/0001",
        "journal/0002",
        "journal/0010",
        "lock/l.json",
    ];
    for name in all.iter().rev() {
        create(&*fresh.one, name, name).await;
    }
    let cases: &[(&str, &str, &[&str])] = &[
        ("", "", &all),
        ("journal/", "", &all[4..7]),
        ("journal/000", "", &all[4..6]),
        ("jour", "", &all[4..7]),
        ("inbox/a", "", &all[1..4]),
        ("inbox/a/", "", &all[2..3]),
        ("journal/", "journal/0001", &all[5..7]),
        ("journal/", "journal/0005", &all[6..7]),
        ("journal/", "journal/0010", &[]),
        ("journal/", "base/9", &all[4..7]),
        ("", "inbox/a/b", &all[3..]),
        ("nothing/", "", &[]),
        ("journal/0001/", "", &[]),
        ("../", "", &[]),
    ];
    for (prefix, after, expected) in cases {
        assert_eq!(names(&*fresh.two, prefix, after).await, *expected, "{prefix:?} after {after:?}");
    }
}

async fn long_list(fresh: Fresh, scale: Scale) {
    let mut tasks = JoinSet::new();
    for number in 0..scale.many {
        let bucket = fresh.one.clone();
        tasks.spawn(async move { create(&*bucket, &format!("journal/{number:08}"), "x").await });
        if tasks.len() >= 64 {
            tasks.join_next().await;
        }
    }
    tasks.join_all().await;
    let listed = names(&*fresh.two, "journal/", "").await;
    let expected: Vec<_> = (0..scale.many).map(|number| format!("journal/{number:08}")).collect();
    assert_eq!(listed.len(), scale.many);
    assert_eq!(listed, expected);
    let tail = names(&*fresh.two, "journal/", &expected[scale.many / 2]).await;
    assert_eq!(tail, expected[scale.many / 2 + 1..]);
}

async fn created_grows(fresh: Fresh, _: Scale) {
    let mut first = 0;
    for number in 0..5 {
        let generation = create(&*fresh.one, &format!("inbox/{number}"), "x").await;
        if number == 0 {
            first = generation;
        }
    }
    let written = fresh.one.put("inbox/0", first, text("y"), "").await.expect("an answer");
    assert_ne!(written, Written::Refused);
    let listed = fresh.two.list("inbox/", "").await.expect("a list");
    let created: Vec<_> = listed.iter().map(|listed| listed.created).collect();
    assert!(created[1..].is_sorted(), "{created:?}");
    assert!(created[0] >= created[4], "a replaced object is as new as its content: {created:?}");
}

async fn bodies(fresh: Fresh, scale: Scale) {
    let large: Vec<u8> = (0..scale.large).map(|at| (at * 31 / 7) as u8).collect();
    for (name, body) in [("base/empty", Vec::new()), ("base/one", vec![0]), ("base/large", large)] {
        let body = Bytes::from(body);
        let written = fresh.one.put(name, 0, Body::Bytes(body.clone()), "").await.expect("an answer");
        let object = fresh.two.get(name).await.expect("a read").expect("an object");
        assert_eq!(written, Written::Stored(object.generation));
        assert!(object.bytes == body, "{name} came back differently");
        let tail = (body.len() as u64).saturating_sub(10);
        let range = fresh.two.get_range(name, object.generation, tail..u64::MAX).await.expect("a read");
        assert_eq!(range.expect("that generation"), body.slice(body.len().saturating_sub(10)..));
    }
}

async fn file_bodies(fresh: Fresh, scale: Scale) {
    let dir = tempfile::TempDir::new().expect("a directory");
    for (name, length) in [("base/1", 0), ("base/2", 3_000_000.min(scale.large))] {
        let path = dir.path().join("content");
        let content: Vec<u8> = (0..length).map(|at| (at * 17 / 5) as u8).collect();
        std::fs::write(&path, &content).expect("a file");
        let written = fresh.one.put(name, 0, Body::File(path.clone()), "base").await.expect("an answer");
        // The object is a copy: later changes of the file do not affect it.
        std::fs::write(&path, "another").expect("a file");
        let object = fresh.two.get(name).await.expect("a read").expect("an object");
        assert_eq!(written, Written::Stored(object.generation));
        assert!(object.bytes == content);
    }
    let missing = fresh.one.put("base/3", 0, Body::File(dir.path().join("missing")), "").await;
    assert!(matches!(missing, Err(BucketError::Refused { .. })), "{missing:?}");
    assert_eq!(content(&*fresh.one, "base/3").await, None);
}

async fn reads_are_whole(fresh: Fresh, scale: Scale) {
    let body = |round: u64| Body::Bytes(vec![b'a' + (round % 26) as u8; 100_000 + round as usize].into());
    let Ok(Written::Stored(mut generation)) = fresh.one.put("lock/a", 0, body(0), "").await else { panic!("a create") };
    let writer = fresh.one.clone();
    let writing = tokio::spawn(async move {
        for round in 1..=scale.rounds {
            let Ok(Written::Stored(next)) = writer.put("lock/a", generation, body(round), "").await else {
                panic!("refused though nobody else writes")
            };
            generation = next;
        }
    });
    let mut last = false;
    while !last {
        last = writing.is_finished();
        let object = fresh.two.get("lock/a").await.expect("a read").expect("an object");
        let first = object.bytes[0];
        assert_eq!(first, b'a' + ((object.bytes.len() - 100_000) % 26) as u8);
        assert!(object.bytes.iter().all(|byte| *byte == first), "two contents in one");
        // A range is of this generation, or absent.
        if let Some(range) = fresh.two.get_range("lock/a", object.generation, 0..u64::MAX).await.expect("a read") {
            assert!(range == object.bytes);
        }
    }
    writing.await.expect("the writer");
}

async fn lists_have_no_gap(fresh: Fresh, scale: Scale) {
    let total = scale.many.min(150);
    let writer = fresh.one.clone();
    let writing = tokio::spawn(async move {
        for number in 0..total {
            create(&*writer, &format!("journal/{number:08}"), "x").await;
        }
    });
    let mut last = false;
    while !last {
        last = writing.is_finished();
        let listed = names(&*fresh.two, "journal/", "").await;
        let expected: Vec<_> = (0..listed.len()).map(|number| format!("journal/{number:08}")).collect();
        assert_eq!(listed, expected);
        assert!(!last || listed.len() == total);
    }
    writing.await.expect("the writer");
}

async fn odd_names(fresh: Fresh, _: Scale) {
    let long = "x".repeat(MAX_SEGMENT + 1);
    let odd = [
        "", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "../b", ".hidden", "a/.b", "a b", "ä", "a\0b", "a\nb", "a?b",
        &long,
    ];
    for name in odd {
        let put = fresh.one.put(name, 0, text("x"), "").await;
        assert!(matches!(put, Err(BucketError::Refused { .. })), "put {name:?}: {put:?}");
        assert!(matches!(fresh.one.get(name).await, Err(BucketError::Refused { .. })), "get {name:?}");
        assert!(matches!(fresh.one.get_range(name, 1, 0..1).await, Err(BucketError::Refused { .. })), "range {name:?}");
        assert!(matches!(fresh.one.delete(name, 1).await, Err(BucketError::Refused { .. })), "delete {name:?}");
    }
    assert!(names(&*fresh.one, "", "").await.is_empty());
    for name in ["a", "A-Z_0.9", "a.b/c-d/e_f", "0000000000000001", &"x".repeat(MAX_SEGMENT)] {
        create(&*fresh.one, name, "fine").await;
        assert_eq!(content(&*fresh.two, name).await.as_deref(), Some("fine"), "{name}");
    }
}

async fn requests_are_counted(fresh: Fresh, _: Scale) {
    let count = |kind: &str| {
        let requests = fresh.one.requests();
        requests.into_iter().filter(|(name, _)| *name == kind).map(|(_, count)| count).sum::<u64>()
    };
    let before = ["put", "get", "get_range", "list", "delete"].map(&count);
    let generation = create(&*fresh.one, "a", "x").await;
    assert!(content(&*fresh.one, "a").await.is_some());
    assert!(fresh.one.get_range("a", generation, 0..1).await.expect("a read").is_some());
    assert_eq!(names(&*fresh.one, "", "").await, ["a"]);
    assert!(fresh.one.delete("a", generation).await.expect("an answer"));
    let after = ["put", "get", "get_range", "list", "delete"].map(&count);
    assert_eq!(after, before.map(|count| count + 1));
}
