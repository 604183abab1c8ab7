//! Commits under lost answers and foreign objects, taking the lead, bases, deletion.

mod again;

use super::*;
use crate::bucket::Body;
use crate::chain::WantedFile;
use crate::memory::{Manual, Memory, RequestFault, vault};
use crate::{Blob, Hash, Source};

async fn leading(bucket: &Arc<Memory>, nonce: &str) -> (Leader, Arc<Manual>) {
    let (vault, clock) = vault(bucket, nonce);
    let lease = vault.acquire().await.unwrap();
    (vault.lead(lease).await.unwrap().unwrap().0, clock)
}

/// Returns a leader that keeps only the last state restorable, with its vault.
async fn leading_keeping_nothing(bucket: &Arc<Memory>) -> (Vault, Leader) {
    let (mut vault, _) = vault(bucket, "a");
    (vault.retention.keep_states, vault.retention.keep) = (0, Duration::ZERO);
    let lease = vault.acquire().await.unwrap();
    let (leader, _) = vault.lead(lease).await.unwrap().unwrap();
    (vault, leader)
}

/// Returns a leader whose caller has stopped waiting for a commit.
async fn after_an_abandoned_commit() -> Leader {
    let bucket = Memory::new();
    let (leader, _) = leading(&bucket, "a").await;
    bucket.fail("put", "journal/", RequestFault::Before);
    let mut commit = Box::pin(leader.commit(changes("one")));
    assert!(futures::poll!(&mut commit).is_pending());
    drop(commit);
    leader
}

fn changes(rows: &str) -> Changes {
    Changes { schema: 1, rows: rows.to_owned().into(), blobs: Vec::new() }
}

fn blob(text: &str) -> Blob {
    let bytes = text.as_bytes();
    Blob { hash: Hash::of(bytes), length: bytes.len() as u64, source: Source::Bytes(bytes.to_vec().into()) }
}

async fn rows(bucket: &Arc<Memory>, at: Option<u64>) -> Vec<String> {
    let chain = vault(bucket, "reader").0.read(at).await.unwrap();
    let rows = chain.rows().await.unwrap();
    rows.iter().map(|rows| String::from_utf8(rows.rows.to_vec()).unwrap()).collect()
}

/// Returns an image of the state at the leader's position, with a short text as its database.
fn image(leader: &Leader, dir: &std::path::Path, blobs: Vec<Blob>) -> Image {
    let position = leader.position();
    let database = dir.join(position.seq.to_string());
    std::fs::write(&database, format!("database {}", position.seq)).unwrap();
    Image { position, schema: 1, database, blobs }
}

#[tokio::test]
async fn a_commit_is_one_request_and_is_read_again() {
    let bucket = Memory::new();
    let (leader, _) = leading(&bucket, "a").await;
    assert_eq!(bucket.object("journal/0000000000000001").label, "seal");
    bucket.log();
    let position = leader.commit(changes("one")).await.unwrap();
    leader.commit(changes("two")).await.unwrap();
    assert_eq!(bucket.log(), ["put journal/0000000000000002", "put journal/0000000000000003"]);
    assert_eq!(position.seq, 2);
    assert_eq!(rows(&bucket, None).await, ["one", "two"]);
    assert_eq!(rows(&bucket, Some(2)).await, ["one"]);
    let figures = leader.figures();
    assert_eq!((figures.commits, figures.tail_objects), (2, 3));
    assert!(figures.commit_bytes < figures.tail_bytes);
}

#[tokio::test]
async fn a_lost_answer_is_asked_again_with_the_same_bytes() {
    for faults in [
        vec![RequestFault::Before],
        vec![RequestFault::After],
        vec![RequestFault::After, RequestFault::Before, RequestFault::After],
    ] {
        let bucket = Memory::new();
        let (leader, _) = leading(&bucket, "a").await;
        for fault in &faults {
            bucket.fail("put", "journal/", *fault);
        }
        bucket.fail("get", "journal/", RequestFault::Before);
        leader.commit(changes("one")).await.unwrap();
        leader.commit(changes("two")).await.unwrap();
        assert_eq!(rows(&bucket, None).await, ["one", "two"]);
    }
}

#[tokio::test]
async fn a_large_commit_whose_answer_was_lost_is_compared_by_its_header() {
    let bucket = Memory::new();
    let (leader, _) = leading(&bucket, "a").await;
    let noise: Vec<u8> = (0..400_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let blob = Blob { hash: Hash::of(&noise), length: noise.len() as u64, source: Source::Bytes(noise.into()) };
    bucket.fail("put", "journal/", RequestFault::After);
    bucket.log();
    leader.commit(Changes { blobs: vec![blob], ..changes("one") }).await.unwrap();
    let (two, of) = ("journal/0000000000000002", "range journal/0000000000000002");
    assert_eq!(bucket.log(), [&format!("put {two}"), &format!("put {two}"), &format!("list {two}"), of, of]);
}

#[tokio::test]
async fn a_foreign_object_in_the_place_deposes_for_good() {
    let bucket = Memory::new();
    let (leader, _) = leading(&bucket, "a").await;
    let (other, _) = {
        bucket.bury("a");
        leading(&bucket, "b").await
    };
    let error = leader.commit(changes("late")).await.unwrap_err();
    insta::assert_snapshot!(error, @"deposed: journal/0000000000000002 was created by server b in epoch 2");
    assert_eq!(leader.deposed().await, "journal/0000000000000002 was created by server b in epoch 2");
    let later = [
        leader.commit(changes("later")).await.err(),
        leader.may_act().await.err(),
        leader.list_inbox().await.err(),
        leader.collect().await.err(),
    ];
    assert!(later.iter().all(|error| matches!(error, Some(VaultError::Deposed(_)))), "{later:?}");
    other.commit(changes("one")).await.unwrap();
    assert_eq!(rows(&bucket, None).await, ["one"]);
}

#[tokio::test]
async fn without_any_answer_a_commit_is_given_up_past_the_deadline() {
    let bucket = Memory::new();
    let (leader, clock) = leading(&bucket, "a").await;
    bucket.before(|bucket, kind, name| {
        if kind != "list" {
            bucket.fail(if kind == "put" { "put" } else { "get" }, name, RequestFault::Before);
        }
    });
    let error = leader.commit(changes("one")).await.unwrap_err();
    assert!(matches!(error, VaultError::Deposed(_)), "{error}");
    use crate::clock::Clock;
    assert!((16..25).contains(&clock.now().as_secs()));
}

#[tokio::test]
async fn a_refused_write_is_an_error_and_no_deposition() {
    let bucket = Memory::new();
    let (leader, _) = leading(&bucket, "a").await;
    bucket.fail("put", "journal/", RequestFault::Refused);
    assert!(matches!(leader.commit(changes("one")).await, Err(VaultError::Bucket(_))));
    leader.commit(changes("two")).await.unwrap();
    assert_eq!(rows(&bucket, None).await, ["two"]);
}

#[tokio::test]
async fn a_refusal_after_a_lost_answer_undoes_nothing() {
    for first in [RequestFault::Before, RequestFault::After] {
        let bucket = Memory::new();
        let (leader, _) = leading(&bucket, "a").await;
        for fault in [first, RequestFault::Refused, RequestFault::Refused] {
            bucket.fail("put", "journal/", fault);
        }
        // A refused read does not undo the commit either.
        bucket.fail("get", "journal/", RequestFault::Refused);
        leader.commit(changes("one")).await.unwrap();
        leader.commit(changes("two")).await.unwrap();
        assert_eq!((rows(&bucket, None).await, bucket.faults_left()), (vec!["one".to_owned(), "two".to_owned()], 0));
    }
}

#[tokio::test]
async fn a_commit_of_which_nobody_can_tell_deposes_instead_of_being_called_undone() {
    let bucket = Memory::new();
    let (leader, _) = leading(&bucket, "a").await;
    bucket.fail("put", "journal/", RequestFault::After);
    bucket.before(|bucket, kind, name| {
        if bucket.names("journal/").len() == 2 && kind != "list" {
            bucket.fail(if kind == "put" { "put" } else { "get" }, name, RequestFault::Refused);
        }
    });
    let error = leader.commit(changes("one")).await.unwrap_err();
    assert!(matches!(error, VaultError::Deposed(_)), "{error}");
    bucket.before(|_, _, _| ());
    assert_eq!(rows(&bucket, None).await, ["one"]);
}

#[tokio::test]
async fn a_refusal_of_an_inbox_write_or_of_a_deletion_after_a_lost_answer_says_nothing() {
    for first in [RequestFault::Before, RequestFault::After] {
        let bucket = Memory::new();
        let calls = vault(&bucket, "a").0.calls();
        [first, RequestFault::Refused].iter().for_each(|fault| bucket.fail("put", "inbox/", *fault));
        calls.create_any(&Proven, "inbox/1", "x".into(), "delivery").await.unwrap();
        let kept = bucket.object("inbox/1");
        [first, RequestFault::Refused].iter().for_each(|fault| bucket.fail("delete", "inbox/", *fault));
        assert!(calls.delete("inbox/1", kept.generation).await.unwrap());
        assert_eq!((bucket.names(""), bucket.faults_left()), (Vec::new(), 0));
        bucket.fail("put", "inbox/", RequestFault::Refused);
        assert!(calls.create_any(&Proven, "inbox/1", "x".into(), "delivery").await.is_err());
    }
}

#[tokio::test]
async fn an_abandoned_commit_deposes() {
    let leader = after_an_abandoned_commit().await;
    let error = leader.commit(changes("two")).await.unwrap_err();
    insta::assert_snapshot!(error, @"deposed: a commit was abandoned before its outcome was known");
    // The lease can still be released.
    leader.release().await.unwrap();
}

#[tokio::test]
async fn past_the_deadline_an_effect_waits_for_a_renewal() {
    let bucket = Memory::new();
    let (leader, clock) = leading(&bucket, "a").await;
    bucket.log();
    leader.may_act().await.unwrap();
    assert_eq!(bucket.log(), Vec::<String>::new());
    clock.advance(Duration::from_secs(17));
    leader.may_act().await.unwrap();
    assert_eq!(bucket.log(), ["put lock/leader.json"]);
    clock.advance(Duration::from_secs(17));
    bucket.bury("a");
    leading(&bucket, "b").await;
    assert!(matches!(leader.may_act().await, Err(VaultError::Deposed(_))));
}

#[tokio::test]
async fn a_renewal_is_one_request_and_a_look_is_another() {
    let bucket = Memory::new();
    let (leader, clock) = leading(&bucket, "a").await;
    clock.advance(Duration::from_secs(6));
    bucket.log();
    leader.renew().await.unwrap();
    assert_eq!(bucket.log(), ["put lock/leader.json"]);
    assert_eq!(leader.list_inbox().await.unwrap(), []);
    assert_eq!(bucket.log(), ["list inbox/"]);
    bucket.fail("list", "inbox/", RequestFault::Before);
    assert_eq!(leader.list_inbox().await.unwrap(), []);
}

#[tokio::test]
async fn a_lease_that_is_lost_while_restoring_gives_no_leader() {
    let bucket = Memory::new();
    let (a, _) = vault(&bucket, "a");
    let lease = a.acquire().await.unwrap();
    bucket.bury("a");
    leading(&bucket, "b").await;
    assert!(a.lead(lease).await.unwrap().is_none());
    assert_eq!(bucket.names("journal/").len(), 2);
}

#[tokio::test]
async fn a_base_that_comes_up_while_restoring_starts_it_over() {
    let bucket = Memory::new();
    let (leader, _) = leading(&bucket, "a").await;
    leader.commit(changes("one")).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    leader.write_base(image(&leader, dir.path(), vec![])).await.unwrap();
    leader.commit(changes("two")).await.unwrap();
    let base = bucket.object("base/0000000000000002");
    bucket.remove("base/0000000000000002");
    leader.release().await.unwrap();
    let (b, _) = vault(&bucket, "b");
    let lease = b.acquire().await.unwrap();
    let mut lists = 0;
    bucket.before(move |bucket, kind, name| {
        lists += i32::from((kind, name) == ("list", "base/"));
        // Between the read of the journal and the seal.
        if lists == 2 {
            bucket.set("base/0000000000000002", base.bytes.clone(), "base");
            bucket.remove("journal/0000000000000001");
        }
    });
    let (leader, chain) = b.lead(lease).await.unwrap().unwrap();
    assert_eq!((chain.base, chain.position, leader.position().seq), (2, leader.position(), 4));
}

#[tokio::test]
async fn a_base_holds_the_state_and_what_is_before_it_goes() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Memory::new();
    let (mut a, _) = vault(&bucket, "a");
    a.retention.keep_states = 2;
    let lease = a.acquire().await.unwrap();
    let (leader, _) = a.lead(lease).await.unwrap().unwrap();
    assert_eq!(leader.collect().await.unwrap(), 0);
    let kept = blob("a plan");
    let step = async |rows: &str| leader.commit(Changes { blobs: vec![blob(rows)], ..changes(rows) }).await.unwrap();
    step("one").await;
    step("two").await;
    assert!(leader.write_base(image(&leader, dir.path(), vec![kept.clone(), blob("two")])).await.unwrap());
    assert!(!leader.write_base(image(&leader, dir.path(), vec![])).await.unwrap());
    let after_a_day = async |rows: &str| {
        bucket.advance(Duration::from_secs(24 * 3600));
        step(rows).await;
    };
    after_a_day("three").await;
    // Too few states, then too young.
    assert_eq!(leader.collect().await.unwrap(), 0);
    after_a_day("four").await;
    assert_eq!(leader.collect().await.unwrap(), 0);
    after_a_day("five").await;
    assert_eq!(leader.figures().tail_objects, 3);
    assert_eq!(leader.collect().await.unwrap(), 2);
    let journal = [1, 4, 5, 6].map(|seq| format!("journal/{seq:016}"));
    assert_eq!((bucket.names("journal/"), bucket.names("base/").len()), (journal.to_vec(), 1));
    // After a second base, the first one is deleted with its journal, but not the seal.
    leader.write_base(image(&leader, dir.path(), vec![kept.clone()])).await.unwrap();
    for rows in ["six", "seven", "eight"] {
        after_a_day(rows).await;
    }
    assert_eq!(leader.collect().await.unwrap(), 4);
    assert_eq!(rows(&bucket, None).await, ["six", "seven", "eight"]);
    let chain = a.read(Some(7)).await.unwrap();
    let file = dir.path().join("plans/p");
    chain.database(&dir.path().join("restored")).await.unwrap();
    assert_eq!(std::fs::read(dir.path().join("restored")).unwrap(), b"database 6");
    chain.fetch(vec![WantedFile { hash: kept.hash, path: file.clone(), mode: 0o600 }], &|_| ()).await.unwrap();
    assert_eq!(std::fs::read(file).unwrap(), b"a plan");
}

#[tokio::test]
async fn a_base_is_due_after_so_many_objects_or_bytes() {
    let bucket = Memory::new();
    let (mut a, _) = vault(&bucket, "a");
    a.retention.base_after_objects = 3;
    let lease = a.acquire().await.unwrap();
    let (leader, _) = a.lead(lease).await.unwrap().unwrap();
    leader.commit(changes("one")).await.unwrap();
    assert!(!leader.base_due());
    leader.commit(changes("two")).await.unwrap();
    assert!(leader.base_due());
    let dir = tempfile::tempdir().unwrap();
    leader.write_base(image(&leader, dir.path(), vec![])).await.unwrap();
    assert!(!leader.base_due());
    assert_eq!(leader.figures().tail_bytes, 0);
    // A state that no commit of this leader made.
    let image = Image { position: Position { seq: 2, hash: Hash::of(b"") }, ..image(&leader, dir.path(), vec![]) };
    assert!(matches!(leader.write_base(image).await, Err(VaultError::Local(_))));
}

#[test]
fn bases_cost_a_fixed_share_of_the_journal_however_much_is_known() {
    let retention = super::super::Retention::default();
    // A pull request: six commits, their bytes, and the bytes that stay in a base.
    let (objects, bytes, stays) = (6, 19_000, 4_000);
    let (mut tail, mut base, mut state, mut written) = ((0, 0), 0, 0, 0_u64);
    let mut cost = Vec::new();
    for _ in 0..8 {
        let before = written;
        for _ in 0..2_000 {
            tail = (tail.0 + objects, tail.1 + bytes);
            (state, written) = (state + stays, written + bytes);
            if retention.is_base_due(tail.0, tail.1, base) {
                (tail, base, written) = ((0, 0), state, written + state);
            }
        }
        cost.push((written - before) as f64 / 2_000.0);
    }
    let (least, most) = (cost.iter().copied().fold(f64::MAX, f64::min), cost.iter().copied().fold(0.0, f64::max));
    assert!(most / least < 1.4 && most < 3.0 * bytes as f64, "{cost:?}");
    // A restore reads little more than the size of the state.
    assert!(tail.1 <= 2 * base, "{tail:?} after a base of {base}");
}

#[tokio::test]
async fn a_base_that_is_not_what_was_written_deletes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Memory::new();
    let (_, leader) = leading_keeping_nothing(&bucket).await;
    leader.commit(changes("one")).await.unwrap();
    bucket.before(|bucket, kind, name| {
        if kind == "list" && name == "base/" && !bucket.names("base/").is_empty() {
            bucket.damage("base/0000000000000002", |bytes| *bytes.last_mut().unwrap() ^= 1);
        }
    });
    let error = leader.write_base(image(&leader, dir.path(), vec![blob("content")])).await.unwrap_err();
    assert!(matches!(&error, VaultError::Damaged(text) if text.contains("base/0000000000000002")), "{error}");
    assert_eq!(leader.collect().await.unwrap(), 0);
    assert_eq!(bucket.names("journal/").len(), 2);
}

#[tokio::test]
async fn a_damaged_base_after_a_verified_one_deletes_nothing_that_the_verified_one_needs() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Memory::new();
    let (_, leader) = leading_keeping_nothing(&bucket).await;
    leader.commit(changes("one")).await.unwrap();
    assert!(leader.write_base(image(&leader, dir.path(), vec![])).await.unwrap());
    for rows in ["two", "three"] {
        leader.commit(changes(rows)).await.unwrap();
    }
    bucket.before(|bucket, kind, name| {
        if kind == "list" && name == "base/" && bucket.names("base/").len() == 2 {
            bucket.damage("base/0000000000000004", |bytes| *bytes.last_mut().unwrap() ^= 1);
        }
    });
    let error = leader.write_base(image(&leader, dir.path(), vec![blob("content")])).await.unwrap_err();
    assert!(matches!(&error, VaultError::Damaged(text) if text.contains("base/0000000000000004")), "{error}");
    // The commit of the first base may be deleted, later ones may not.
    assert_eq!(leader.collect().await.unwrap(), 1);
    let journal = [1, 3, 4].map(|seq| format!("journal/{seq:016}"));
    assert_eq!((bucket.names("journal/"), bucket.names("base/").len()), (journal.to_vec(), 2));
    let damaged = "base/0000000000000004".to_owned();
    bucket.before(|_, _, _| ());
    bucket.remove(&damaged);
    assert_eq!(rows(&bucket, None).await, ["two", "three"]);
}

#[tokio::test]
async fn who_may_act_looks_at_the_deadline_again_after_a_renewal() {
    let bucket = Memory::new();
    let (leader, clock) = leading(&bucket, "a").await;
    clock.advance(Duration::from_secs(60));
    let slow = clock.clone();
    bucket.before(move |_, kind, name| {
        if (kind, name) == ("put", crate::lease::NAME) {
            slow.advance(Duration::from_secs(60));
        }
    });
    // Each renewal is answered, but too late to act on.
    assert!(matches!(leader.may_act().await, Err(VaultError::Deposed(_))));
}

#[tokio::test]
async fn an_interrupted_deletion_is_harmless() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Memory::new();
    let (a, leader) = leading_keeping_nothing(&bucket).await;
    for rows in ["one", "two", "three"] {
        leader.commit(changes(rows)).await.unwrap();
    }
    leader.write_base(image(&leader, dir.path(), vec![])).await.unwrap();
    bucket.fail("delete", "journal/0000000000000003", RequestFault::Refused);
    assert_eq!(leader.collect().await.unwrap(), 2);
    assert_eq!(rows(&bucket, None).await, Vec::<String>::new());
    let error = a.read(Some(3)).await.err().unwrap();
    insta::assert_snapshot!(error, @"memory://test: state 3 is not kept: kept are 1 to 1 and 4 to 4 (`tidelock vault ls`)");
    // It is deleted after the next state.
    leader.commit(changes("four")).await.unwrap();
    leader.collect().await.unwrap();
    assert_eq!(bucket.names("journal/"), [1, 5].map(|seq| format!("journal/{seq:016}")));
}

#[tokio::test]
async fn what_is_not_ours_among_journal_and_bases_stops_neither_start_nor_bases_nor_deletion() {
    for odd in ["journal/", "journal/notes", "journal/00000000000000009", "base/", "base/0000000000000000", "base/x"] {
        let dir = tempfile::tempdir().unwrap();
        let bucket = Memory::new();
        bucket.set(odd, "mine", "");
        let (a, leader) = leading_keeping_nothing(&bucket).await;
        leader.commit(changes("one")).await.unwrap();
        assert!(leader.write_base(image(&leader, dir.path(), vec![])).await.unwrap(), "{odd}");
        assert_eq!(leader.collect().await.unwrap(), 1, "{odd}");
        leader.commit(changes("two")).await.unwrap();
        assert_eq!(rows(&bucket, None).await, ["two"], "{odd}");
        let inventory = a.inventory().await.unwrap();
        assert_eq!((inventory.others, inventory.restorable), (vec![odd.to_owned()], vec![(1, 3)]), "{odd}");
        assert_eq!(bucket.object(odd).bytes, "mine");
        // A missing number is still refused by name.
        bucket.remove("journal/0000000000000003");
        leader.release().await.unwrap();
        bucket.set("journal/0000000000000004", "x", "commit");
        let error = a.read(None).await.err().unwrap().to_string();
        assert!(error.contains("journal/0000000000000003 is missing"), "{error}");
    }
}

#[tokio::test]
async fn an_old_object_that_cannot_be_deleted_keeps_no_other_from_it() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Memory::new();
    let (_, leader) = leading_keeping_nothing(&bucket).await;
    for rows in ["one", "two", "three"] {
        leader.commit(changes(rows)).await.unwrap();
        leader.write_base(image(&leader, dir.path(), vec![])).await.unwrap();
    }
    for _ in 0..2 {
        bucket.fail("delete", "base/0000000000000002", RequestFault::Refused);
        leader.collect().await.unwrap();
    }
    assert_eq!(bucket.names("base/"), [2, 4].map(|seq| format!("base/{seq:016}")));
    assert_eq!(bucket.names("journal/"), ["journal/0000000000000001"]);
}

#[test]
fn its_futures_can_go_to_any_thread() {
    fn sends<T: Send>(_: &T) {}
    fn all(vault: &Vault, leader: &Leader, lease: super::super::lease::Lease, image: Image) {
        sends(&vault.lead(lease));
        sends(&vault.acquire_asking());
        sends(&vault.read(None));
        sends(&leader.commit(Changes::default()));
        sends(&leader.renew());
        sends(&leader.list_inbox());
        sends(&leader.write_base(image));
        sends(&leader.collect());
        sends(&leader.release());
        sends(&leader.deposed());
    }
    let _ = (all, Body::Bytes(bytes::Bytes::new()));
}
