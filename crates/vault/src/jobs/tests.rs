//! Objects of a job under faults, and the deletion of those that nobody needs.

use super::files::PIECE;
use super::sweep::PAGE;
use super::*;
use crate::bucket::BucketError;
use crate::directory::Directory;
use crate::memory::{Manual, Memory, RequestFault, vault};
use crate::{Hash, Vault};
use serde_json::json;
use std::time::Duration;

const KEY: &str = "0123456789abcdef0123456789abcdef";
const DAY: Duration = Duration::from_secs(24 * 3600);

fn prefix() -> JobPrefix {
    JobPrefix::new("plans", KEY).unwrap()
}

fn name(object: &str) -> String {
    prefix().object(object)
}

fn job(bucket: Arc<dyn Bucket>) -> JobObjects {
    JobObjects::new(bucket, Arc::new(Manual::default()), prefix())
}

/// Runs a test on a bucket in memory, and on one in a directory.
async fn on_each_bucket(test: impl AsyncFn(JobObjects)) {
    test(job(Memory::new())).await;
    let dir = tempfile::tempdir().unwrap();
    test(job(Arc::new(Directory::open(&dir.path().join("bucket")).unwrap()))).await;
}

fn attempt(name: &str) -> Claimant {
    Claimant::Attempt(name.into())
}

fn ended(attempt: &str, result: serde_json::Value) -> JobResult {
    JobResult::Ended { attempt: attempt.into(), result }
}

fn given_up(leader: &str) -> JobResult {
    JobResult::GivenUp { leader: leader.into(), why: "its node is gone".into() }
}

fn damage(error: VaultError) -> String {
    match error {
        VaultError::Damaged(text) => text,
        error => panic!("{error:?}"),
    }
}

#[tokio::test]
async fn of_two_claimants_one_has_the_job() {
    on_each_bucket(async |job| {
        assert_eq!(job.spec::<String>().await.unwrap(), None);
        job.put_spec(&"work").await.unwrap();
        job.put_spec(&"work").await.unwrap();
        assert!(damage(job.put_spec(&"other work").await.unwrap_err()).contains("another specification is there"));
        assert_eq!(job.spec::<String>().await.unwrap().as_deref(), Some("work"));
        assert_eq!(job.claimant().await.unwrap(), None);
        let (a, b) = tokio::join!(job.claim("a"), job.claim("b"));
        let (a, b) = (a.unwrap(), b.unwrap());
        let (won, lost) = if a == Created::Ours { ("a", b) } else { ("b", a) };
        assert_eq!(lost, Created::Theirs(attempt(won)));
        assert_eq!(job.claim(won).await.unwrap(), Created::Ours);
        assert_eq!(job.withdraw("leader").await.unwrap(), Created::Theirs(attempt(won)));
        assert_eq!(job.claimant().await.unwrap(), Some(attempt(won)));
    })
    .await;
}

#[tokio::test]
async fn no_attempt_runs_a_job_that_was_withdrawn() {
    on_each_bucket(async |job| {
        assert_eq!(job.withdraw("one").await.unwrap(), Created::Ours);
        let withdrawn = Claimant::Withdrawn("one".into());
        assert_eq!(job.claim("a").await.unwrap(), Created::Theirs(withdrawn.clone()));
        assert_eq!(job.withdraw("two").await.unwrap(), Created::Theirs(withdrawn));
    })
    .await;
}

#[tokio::test]
async fn the_end_of_a_job_that_was_given_up_is_a_late_one() {
    on_each_bucket(async |job| {
        let result = json!({"plan": "1 to add"});
        assert_eq!(job.result().await.unwrap(), None);
        assert_eq!(job.give_up("leader", "its node is gone").await.unwrap(), Created::Ours);
        assert_eq!(job.late().await.unwrap(), None);
        // The second time as after an answer that was lost.
        for _ in 0..2 {
            assert_eq!(job.finish("a", result.clone()).await.unwrap(), Created::Theirs(given_up("leader")));
            assert_eq!(job.late().await.unwrap(), Some(ended("a", result.clone())));
        }
        assert_eq!(job.result().await.unwrap(), Some(given_up("leader")));
    })
    .await;
}

#[tokio::test]
async fn a_job_that_has_ended_is_not_given_up() {
    on_each_bucket(async |job| {
        assert_eq!(job.finish("a", json!(1)).await.unwrap(), Created::Ours);
        assert_eq!(job.finish("a", json!(1)).await.unwrap(), Created::Ours);
        assert_eq!(job.give_up("leader", "").await.unwrap(), Created::Theirs(ended("a", json!(1))));
        assert_eq!(job.result().await.unwrap(), Some(ended("a", json!(1))));
        assert_eq!(job.late().await.unwrap(), None);
    })
    .await;
}

#[tokio::test]
async fn log_signs_of_life_and_cancel_are_read_as_they_were_written() {
    on_each_bucket(async |job| {
        assert_eq!(job.log(0).await.unwrap(), None);
        job.put_log(0, "one".into()).await.unwrap();
        job.put_log(1, Bytes::new()).await.unwrap();
        job.put_log(0, "one".into()).await.unwrap();
        assert!(damage(job.put_log(0, "two".into()).await.unwrap_err()).contains("another object is there"));
        assert_eq!(job.log(0).await.unwrap().as_deref(), Some(&b"one"[..]));
        assert_eq!(job.log(1).await.unwrap(), Some(Bytes::new()));
        assert!(matches!(job.put_log(2, vec![0; MAX_SMALL + 1].into()).await, Err(VaultError::Local(_))));
        job.put_log(2, vec![0; MAX_SMALL].into()).await.unwrap();
        assert_eq!(job.log(2).await.unwrap().map(|text| text.len()), Some(MAX_SMALL));
        assert!(!job.is_alive(0).await.unwrap());
        job.put_alive(0).await.unwrap();
        assert!(job.is_alive(0).await.unwrap() && !job.is_alive(1).await.unwrap());
        assert_eq!(job.cancelled().await.unwrap(), None);
        job.cancel("alice has asked for it").await.unwrap();
        job.cancel("bob has, too").await.unwrap();
        assert_eq!(job.cancelled().await.unwrap().as_deref(), Some("alice has asked for it"));
        let other = job.of(JobPrefix::new("prod", KEY).unwrap());
        assert_eq!((other.cancelled().await.unwrap(), other.log(0).await.unwrap()), (None, None));
    })
    .await;
}

#[tokio::test]
async fn a_claim_whose_answer_was_lost_is_ours_only_if_it_is_there() {
    use RequestFault::{After, Before, Refused};
    for faults in [
        vec![Before],
        vec![After],
        vec![After, Before],
        vec![Before, After, After],
        vec![After, Refused],
        vec![After, Refused, Before],
        vec![Before, Refused],
    ] {
        for first in [None, Some("b")] {
            let bucket = Memory::new();
            let job = job(bucket.clone());
            if let Some(first) = first {
                job.claim(first).await.unwrap();
            }
            for fault in &faults {
                bucket.fail("put", "jobs/", *fault);
            }
            // The comparison fails once, too.
            bucket.fail("get", "jobs/", Before);
            let expected = first.map_or(Created::Ours, |first| Created::Theirs(attempt(first)));
            assert_eq!(job.claim("a").await.unwrap(), expected, "{faults:?}");
            assert_eq!(job.claimant().await.unwrap(), Some(attempt(first.unwrap_or("a"))), "{faults:?}");
        }
    }
}

#[tokio::test]
async fn a_refusal_is_an_error_and_nothing_is_claimed() {
    let bucket = Memory::new();
    let job = job(bucket.clone());
    bucket.fail("put", "jobs/", RequestFault::Refused);
    let refused = job.claim("a").await;
    assert!(matches!(refused, Err(VaultError::Bucket(BucketError::Refused { .. }))), "{refused:?}");
    assert_eq!(job.claimant().await.unwrap(), None);
}

#[tokio::test]
async fn a_refusal_to_overwrite_shows_whose_object_is_there() {
    let bucket = Memory::new();
    let job = job(bucket.clone());
    job.claim("a").await.unwrap();
    for (claimant, expected) in [("b", Created::Theirs(attempt("a"))), ("a", Created::Ours)] {
        bucket.fail("put", "jobs/", RequestFault::Refused);
        assert_eq!(job.claim(claimant).await.unwrap(), expected);
    }
    bucket.fail("put", "jobs/", RequestFault::Refused);
    bucket.fail("get", "jobs/", RequestFault::Before);
    let refused = job.claim("b").await;
    assert!(matches!(refused, Err(VaultError::Bucket(BucketError::Refused { .. }))), "{refused:?}");
}

#[tokio::test]
async fn a_claim_that_is_never_answered_is_an_error_also_where_it_is_there() {
    let bucket = Memory::new();
    let job = job(bucket.clone());
    for _ in 0..1000 {
        bucket.fail("put", "jobs/", RequestFault::After);
    }
    for _ in 0..1000 {
        bucket.fail("get", "jobs/", RequestFault::Before);
    }
    let unknown = job.claim("a").await;
    assert!(matches!(unknown, Err(VaultError::Bucket(BucketError::Unavailable { .. }))), "{unknown:?}");
    assert!(bucket.faults_left() > 1000);
}

#[tokio::test]
async fn a_late_end_is_stored_although_answers_are_lost() {
    for fault in [RequestFault::Before, RequestFault::After] {
        let bucket = Memory::new();
        let job = job(bucket.clone());
        for object in ["result", "late"] {
            bucket.fail("put", &name(object), fault);
        }
        // The leader gives it up between two tries of the attempt.
        let mut puts = 0;
        bucket.before(move |bucket, kind, asked| {
            puts += usize::from(kind == "put" && asked == name("result"));
            if puts == 2 && fault == RequestFault::Before {
                puts += 1;
                let end = document(&name("result"), &given_up("leader"), MAX_SMALL).unwrap();
                bucket.set(&name("result"), end, GIVEN_UP);
            }
        });
        let created = job.finish("a", json!(7)).await.unwrap();
        let late = job.late().await.unwrap();
        match fault {
            RequestFault::Before => {
                assert_eq!((created, late), (Created::Theirs(given_up("leader")), Some(ended("a", json!(7)))));
            }
            _ => assert_eq!((created, late), (Created::Ours, None)),
        }
    }
}

#[tokio::test]
async fn files_come_back_as_they_were() {
    let dir = tempfile::tempdir().unwrap();
    on_each_bucket(async |job| {
        for (number, size) in [0, 1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE].into_iter().enumerate() {
            let (from, to) = (dir.path().join("from"), dir.path().join("to"));
            let content: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
            std::fs::write(&from, &content).unwrap();
            let file = format!("file-{number}");
            let stored = job.put_file(&file, &from).await.unwrap();
            assert_eq!(stored, StoredFile { size: size as u64, sha256: Hash::of(&content) });
            assert_eq!(job.put_file(&file, &from).await.unwrap(), stored, "once more, as after an error");
            job.get_file(&file, stored, &to).await.unwrap();
            assert!(std::fs::read(&to).unwrap() == content, "{size}");
            std::fs::remove_file(&to).unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn a_file_is_stored_in_as_few_pieces_as_possible() {
    let (bucket, dir) = (Memory::new(), tempfile::tempdir().unwrap());
    let from = dir.path().join("from");
    for (size, pieces) in [(0, 1), (PIECE, 1), (PIECE + 1, 2)] {
        std::fs::write(&from, vec![7; size]).unwrap();
        let file = format!("file-{size}");
        job(bucket.clone()).put_file(&file, &from).await.unwrap();
        assert_eq!(bucket.names(&name(&file)).len(), pieces, "{size}");
    }
}

#[tokio::test]
async fn a_file_that_is_not_what_it_should_be_is_refused_and_leaves_nothing() {
    let (bucket, dir) = (Memory::new(), tempfile::tempdir().unwrap());
    let job = job(bucket.clone());
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    std::fs::write(&from, vec![7; PIECE + 10]).unwrap();
    let stored = job.put_file("plan", &from).await.unwrap();
    let refused = async |file: StoredFile, why: &str| {
        let text = damage(job.get_file("plan", file, &to).await.unwrap_err());
        assert!(text.contains(why) && text.contains("jobs/plans/…/plan"), "{text}");
        assert!(!to.exists(), "{why}");
    };
    refused(StoredFile { size: stored.size - 1, ..stored }, "it does not have its size").await;
    refused(StoredFile { size: stored.size + 1, ..stored }, "it does not have its size").await;
    refused(StoredFile { size: 2 * PIECE as u64 + 1, ..stored }, "it does not have its size").await;
    refused(StoredFile { sha256: Hash::of(b"another"), ..stored }, "its content does not have its hash").await;
    bucket.damage(&name("plan/00000001"), |bytes| bytes[0] ^= 1);
    refused(stored, "its content does not have its hash").await;
    bucket.remove(&name("plan/00000001"));
    refused(stored, "it is not there").await;
    assert!(job.put_file("plan", &dir.path().join("absent")).await.is_err());
}

#[tokio::test]
async fn a_file_replaces_no_other() {
    let (bucket, dir) = (Memory::new(), tempfile::tempdir().unwrap());
    let job = job(bucket.clone());
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    std::fs::write(&from, "one").unwrap();
    let stored = job.put_file("plan", &from).await.unwrap();
    std::fs::write(&to, "mine").unwrap();
    assert!(matches!(job.get_file("plan", stored, &to).await, Err(VaultError::Local(_))));
    assert_eq!(std::fs::read_to_string(&to).unwrap(), "mine");
    std::fs::write(&from, "two").unwrap();
    assert!(damage(job.put_file("plan", &from).await.unwrap_err()).contains("another object is there"));
    let too_large = stored.within(2).unwrap_err().to_string();
    assert_eq!(too_large, "the file has 3 bytes, and may have 2");
    assert_eq!(stored.within(3), Ok(stored));
    bucket.log();
    for name in
        ["", "spec", "claim", "cancel", "result", "late", "log", "alive", "a/b", "..", "Plan", "ä", &"a".repeat(41)]
    {
        assert!(matches!(job.put_file(name, &from).await, Err(VaultError::Local(_))), "{name:?}");
        assert!(
            matches!(job.get_file(name, stored, &dir.path().join(KEY)).await, Err(VaultError::Local(_))),
            "{name:?}"
        );
    }
    assert_eq!(bucket.log(), Vec::<String>::new());
}

#[test]
fn a_prefix_has_names_that_lead_nowhere_else() {
    let fits = |executor: &str, key: &str| JobPrefix::new(executor, key).is_some();
    assert!(fits("plans", KEY) && fits("a-b_0", KEY) && fits(&"a".repeat(40), KEY));
    for executor in ["", "Plans", "a/b", ".", "..", "a b", "ä", &"a".repeat(41)] {
        assert!(!fits(executor, KEY), "{executor:?}");
    }
    for key in ["", &KEY[1..], &format!("{KEY}0"), &KEY.to_uppercase(), "0123456789abcdef0123456789abcde/"] {
        assert!(!fits("plans", key), "{key:?}");
    }
    assert_eq!(JobPrefix::parse(&prefix().to_string()), Some(prefix()));
    assert_eq!((prefix().executor(), prefix().key()), ("plans", KEY));
    for text in ["", "jobs/plans", "plans/x", &format!("{}/", prefix()), &format!("/{}", prefix())] {
        assert_eq!(JobPrefix::parse(text), None, "{text:?}");
    }
    assert_eq!(JobPrefix::of_object(&name("log/0")), Some(prefix()));
    for text in ["jobs/x", "jobs/plans/x/claim", &prefix().to_string(), "inbox/plans"] {
        assert_eq!(JobPrefix::of_object(text), None, "{text:?}");
    }
}

#[tokio::test]
async fn an_object_that_is_damaged_or_too_large_is_named() {
    let bucket = Memory::new();
    let job = job(bucket.clone());
    job.claim("a").await.unwrap();
    job.finish("a", json!(1)).await.unwrap();
    let claim = bucket.object(&name("claim")).bytes;
    bucket.set(&name("spec"), claim.clone(), "");
    let text = damage(job.spec::<String>().await.unwrap_err());
    assert_eq!(text, "memory://test/jobs/plans/…/spec cannot be used: it is another object under this name");
    bucket.set(&name("late"), "{}", "");
    assert!(damage(job.late().await.unwrap_err()).contains("Tidelock did not write it"));
    bucket.damage(&name("claim"), |bytes| *bytes.last_mut().unwrap() ^= 1);
    assert!(damage(job.claimant().await.unwrap_err()).contains("does not have the hash"));
    // Whose claim it is cannot be read, so it is not ours.
    assert!(damage(job.claim("a").await.unwrap_err()).contains("does not have the hash"));
    assert!(damage(job.withdraw("leader").await.unwrap_err()).contains("does not have the hash"));
    bucket.set(&name("claim"), "{\"format\":9,\"name\":\"\",\"sha256\":\"", "");
    assert!(job.claimant().await.is_err());
    bucket.set(&name("result"), vec![b' '; MAX_DOCUMENT + 1], "");
    assert!(damage(job.result().await.unwrap_err()).contains("it is too large"));
    assert!(damage(job.give_up("leader", "").await.unwrap_err()).contains("it is too large"));
    for object in ["cancel", "claim", "log/00000000"] {
        bucket.set(&name(object), vec![b' '; MAX_SMALL + 1], "");
    }
    assert!(damage(job.cancelled().await.unwrap_err()).contains("it is too large"));
    assert!(damage(job.claimant().await.unwrap_err()).contains("it is too large"));
    assert!(damage(job.log(0).await.unwrap_err()).contains("it is too large"));
}

#[tokio::test]
async fn what_its_readers_would_refuse_is_not_written() {
    let bucket = Memory::new();
    let job = job(bucket.clone());
    assert!(matches!(job.put_spec(&"a".repeat(MAX_DOCUMENT)).await, Err(VaultError::Local(_))));
    for too_large in [job.claim(&"a".repeat(MAX_SMALL)).await.map(drop), job.cancel(&"a".repeat(MAX_SMALL)).await] {
        assert!(matches!(too_large, Err(VaultError::Local(_))), "{too_large:?}");
    }
    assert_eq!(bucket.names(""), Vec::<String>::new());
}

/// Writes a job with every kind of object, whose claim has an attempt.
async fn write_all(job: &JobObjects) {
    let file = tempfile::NamedTempFile::new().unwrap();
    job.put_spec(&"work").await.unwrap();
    job.claim("a").await.unwrap();
    job.put_log(0, "text".into()).await.unwrap();
    job.put_alive(0).await.unwrap();
    job.cancel("why").await.unwrap();
    job.put_file("tree", file.path()).await.unwrap();
}

#[tokio::test]
async fn deletion_keeps_what_a_paused_attempt_has_to_find() {
    on_each_bucket(async |job| {
        let left = async || {
            let listed = job.calls.bucket.list("", "").await.unwrap().into_iter();
            listed.map(|object| object.name.replace(&name(""), "")).collect::<Vec<_>>()
        };
        write_all(&job).await;
        let other = job.of(JobPrefix::new("prod", KEY).unwrap());
        other.claim("c").await.unwrap();
        let others = other.prefix().object("claim");
        job.finish("a", json!(1)).await.unwrap();
        job.delete().await.unwrap();
        job.delete().await.unwrap();
        assert_eq!(left().await, ["claim", &others]);
        assert_eq!(job.claim("b").await.unwrap(), Created::Theirs(attempt("a")));
        // As another job that is given up.
        job.give_up("leader", "its node is gone").await.unwrap();
        job.put_log(1, "text".into()).await.unwrap();
        job.delete().await.unwrap();
        assert_eq!(left().await, ["claim", "result", &others]);
        assert_eq!(job.finish("a", json!(1)).await.unwrap(), Created::Theirs(given_up("leader")));
        job.delete().await.unwrap();
        assert_eq!(left().await, ["claim", "late", "result", &others]);
    })
    .await;
}

#[tokio::test]
async fn a_deletion_goes_on_after_a_lost_answer() {
    let bucket = Memory::new();
    let job = job(bucket.clone());
    write_all(&job).await;
    for fault in [RequestFault::Before, RequestFault::After] {
        bucket.fail("delete", &name("log"), fault);
        bucket.fail("list", &name(""), fault);
    }
    job.delete().await.unwrap();
    assert_eq!((bucket.names(""), bucket.faults_left()), (vec![name("claim")], 0));
}

/// Returns a server on the bucket, which renews the lease after each step of the bucket's clock.
fn leader(bucket: &Arc<Memory>) -> (Vault, impl Fn(Duration)) {
    let (vault, _) = vault(bucket, "a");
    bucket.set("lock/leader.json", "", "");
    let clock = bucket.clone();
    let pass = move |time: Duration| {
        clock.advance(time);
        clock.set("lock/leader.json", "", "");
    };
    (vault, pass)
}

async fn sweep_all(vault: &Vault, kept: &[JobPrefix]) -> u64 {
    let swept = sweep(vault, |prefix| kept.contains(prefix), "").await.unwrap();
    assert_eq!(swept.next, None);
    swept.deleted
}

#[tokio::test]
async fn a_sweep_deletes_what_no_record_names_after_a_day_and_claims_after_thirty() {
    let bucket = Memory::new();
    let (vault, pass) = leader(&bucket);
    let [left, kept, given_up] =
        ["a", "b", "c"].map(|executor| job(bucket.clone()).of(JobPrefix::new(executor, KEY).unwrap()));
    for job in [&left, &kept, &given_up] {
        write_all(job).await;
    }
    left.finish("a", json!(1)).await.unwrap();
    given_up.give_up("leader", "why").await.unwrap();
    let foreign = ["jobs/notes.txt", "jobs/a/b/c"];
    foreign.iter().for_each(|name| bucket.set(name, "", ""));
    let names = |job: &JobObjects| {
        let folder = job.prefix().object("");
        bucket.names(&folder).iter().map(|name| name[folder.len()..].to_owned()).collect::<Vec<_>>()
    };
    let keep = [kept.prefix().clone()];
    pass(DAY / 2);
    assert_eq!(sweep_all(&vault, &keep).await, 0);
    // One young object shows that a job may still run.
    left.put_alive(1).await.unwrap();
    pass(DAY / 2);
    assert_eq!(sweep_all(&vault, &keep).await, 5, "of the job that was given up");
    assert_eq!(names(&given_up), ["claim", "result"]);
    assert_eq!(names(&left).len(), 8);
    pass(DAY / 2);
    assert_eq!(sweep_all(&vault, &keep).await, 7);
    assert_eq!(names(&left), ["claim"]);
    given_up.finish("a", json!(1)).await.unwrap();
    pass(27 * DAY);
    assert_eq!(sweep_all(&vault, &keep).await, 0);
    pass(2 * DAY);
    assert_eq!(sweep_all(&vault, &keep).await, 1, "the claim alone; the late end is younger");
    assert_eq!(names(&given_up), ["claim", "late", "result"]);
    pass(2 * DAY);
    assert_eq!(sweep_all(&vault, &keep).await, 3);
    assert_eq!((names(&left), names(&given_up)), (vec![], vec![]));
    assert_eq!(names(&kept).len(), 6);
    assert!(foreign.iter().all(|name| bucket.names(name).len() == 1));
    let inventory = vault.inventory().await.unwrap_err();
    assert!(matches!(inventory, VaultError::Damaged(_)), "the lease is none");
    bucket.remove("lock/leader.json");
    assert_eq!(sweep_all(&vault, &[]).await, 0, "without a leader the time is not known");
    let inventory = vault.inventory().await.unwrap();
    assert_eq!((inventory.jobs, inventory.others), (1, foreign.iter().rev().map(|name| name.to_string()).collect()));
}

#[tokio::test]
async fn a_sweep_goes_on_where_the_last_one_has_ended() {
    let bucket = Memory::new();
    let (vault, pass) = leader(&bucket);
    // Three jobs that do not fit into one sweep; the second is larger than any.
    for (executor, count) in [("a", 5 * PAGE), ("b", 25 * PAGE), ("c", 1)] {
        let prefix = JobPrefix::new(executor, KEY).unwrap();
        (0..count).for_each(|number| bucket.set(&prefix.numbered("log", number as u32), "", "log"));
    }
    pass(2 * DAY);
    let (mut after, mut deleted) = (String::new(), Vec::new());
    loop {
        bucket.log();
        let swept = sweep(&vault, |_| false, &after).await.unwrap();
        assert!(bucket.log().iter().filter(|request| request.starts_with("list")).count() <= 22);
        deleted.push(swept.deleted);
        let Some(next) = swept.next else { break };
        assert!(next > after);
        after = next;
    }
    assert_eq!(deleted.iter().sum::<u64>(), 30 * PAGE as u64 + 1, "{deleted:?}");
    assert_eq!(bucket.names("jobs/"), Vec::<String>::new());
}

#[tokio::test]
async fn a_sweep_deletes_nothing_that_was_written_again() {
    let bucket = Memory::new();
    let (vault, pass) = leader(&bucket);
    let old = name("log/00000000");
    bucket.set(&old, "old", "log");
    pass(2 * DAY);
    let (changed, mut done) = (old.clone(), false);
    bucket.before(move |bucket, kind, asked| {
        if kind == "delete" && asked == changed && !std::mem::replace(&mut done, true) {
            bucket.set(asked, "new", "log");
        }
    });
    sweep_all(&vault, &[]).await;
    assert_eq!(bucket.object(&old).bytes, "new");
}
