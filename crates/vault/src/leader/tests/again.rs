//! A process that leads again after a term of its own.

use super::*;
use crate::lease::Lease;

/// Leads, commits `one`, and releases the lease.
async fn after_a_term(bucket: &Arc<Memory>) -> (Vault, LastTerm) {
    let (vault, _) = vault(bucket, "a");
    let lease = vault.acquire().await.unwrap();
    let (leader, _) = vault.lead(lease).await.unwrap().unwrap();
    leader.commit(changes("one")).await.unwrap();
    let last = leader.release().await.unwrap().unwrap();
    (vault, last)
}

/// Leads again. Returns the leader, and whether it has restored the state.
async fn again(vault: &Vault, lease: Lease, last: &LastTerm) -> (Leader, bool) {
    let (leader, chain) = vault.lead_after(lease, Some(last)).await.unwrap().unwrap();
    (leader, chain.is_some())
}

#[tokio::test]
async fn a_process_that_nobody_followed_reads_only_the_last_object_again() {
    let bucket = Memory::new();
    let (vault, last) = after_a_term(&bucket).await;
    let lease = vault.acquire().await.unwrap();
    bucket.log();
    let (leader, is_restored) = again(&vault, lease, &last).await;
    assert!(!is_restored);
    insta::assert_snapshot!(bucket.log().join("\n"), @"
    list base/
    list journal/
    range journal/0000000000000002
    put journal/0000000000000003
    get lock/leader.json
    list base/
    list journal/
    ");
    leader.commit(changes("two")).await.unwrap();
    assert_eq!(rows(&bucket, None).await, ["one", "two"]);
    let figures = leader.figures();
    assert_eq!((figures.commits, figures.tail_objects), (1, 4));
}

#[tokio::test]
async fn the_term_of_another_process_makes_it_restore() {
    let bucket = Memory::new();
    let (vault, last) = after_a_term(&bucket).await;
    let (other, _) = leading(&bucket, "b").await;
    other.commit(changes("two")).await.unwrap();
    other.release().await.unwrap();
    let (leader, is_restored) = again(&vault, vault.acquire().await.unwrap(), &last).await;
    assert!(is_restored);
    leader.commit(changes("three")).await.unwrap();
    assert_eq!(rows(&bucket, None).await, ["one", "two", "three"]);
}

#[tokio::test]
async fn a_journal_or_base_that_was_changed_meanwhile_makes_it_restore() {
    // As an operator may do who goes back to a copy of the bucket while the server sleeps.
    for changed in ["journal/0000000000000002", "journal/0000000000000003", "base/0000000000000002"] {
        let bucket = Memory::new();
        let (vault, last) = after_a_term(&bucket).await;
        let (twin, other) = (Memory::new(), changed.starts_with("journal/"));
        let (leader, _) = leading(&twin, "c").await;
        leader.commit(changes("another")).await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        match other {
            true => {
                for name in ["journal/0000000000000001", "journal/0000000000000002"] {
                    let object = twin.object(name);
                    bucket.set(name, object.bytes.clone(), &object.label);
                }
                if changed.ends_with('3') {
                    leader.commit(changes("more")).await.unwrap();
                    let object = twin.object(changed);
                    bucket.set(changed, object.bytes.clone(), &object.label);
                }
            }
            false => {
                leader.write_base(image(&leader, dir.path(), vec![])).await.unwrap();
                bucket.set(changed, twin.object(changed).bytes.clone(), "base");
            }
        }
        let (_, is_restored) = again(&vault, vault.acquire().await.unwrap(), &last).await;
        assert!(is_restored, "{changed}");
    }
}

#[tokio::test]
async fn a_leader_whose_last_commit_is_unknown_leaves_no_last_term() {
    let leader = after_an_abandoned_commit().await;
    assert!(leader.release().await.unwrap().is_none());
}

#[tokio::test]
async fn bases_go_on_where_the_last_term_left_them() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Memory::new();
    let (vault, leader) = leading_keeping_nothing(&bucket).await;
    leader.commit(Changes { schema: 3, ..changes("one") }).await.unwrap();
    leader.write_base(image(&leader, dir.path(), vec![])).await.unwrap();
    leader.commit(changes("two")).await.unwrap();
    let last = leader.release().await.unwrap().unwrap();
    let (leader, is_restored) = again(&vault, vault.acquire().await.unwrap(), &last).await;
    assert!(!is_restored);
    // The base was verified in the last term.
    assert_eq!(leader.collect().await.unwrap(), 1);
    leader.commit(changes("three")).await.unwrap();
    assert_eq!(leader.figures().tail_objects, 3);
    let reader = super::vault(&bucket, "reader").0;
    assert_eq!(reader.read(None).await.unwrap().schema, 3);
    assert!(leader.write_base(image(&leader, dir.path(), vec![])).await.unwrap());
    let read = reader.read(None).await.unwrap();
    assert_eq!((read.base, read.position), (5, leader.position()));
}
