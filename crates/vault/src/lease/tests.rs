//! Acquisition, renewal and release of the lease.

use super::*;
use crate::clock::Clock;
use crate::memory::{Manual, Memory, RequestFault, vault};

const TTL: Duration = Duration::from_secs(20);

fn held_record(bucket: &Memory) -> Record {
    serde_json::from_slice(&bucket.object(NAME).bytes).unwrap()
}

fn seconds(clock: &Manual) -> u64 {
    clock.now().as_secs()
}

#[tokio::test]
async fn an_empty_prefix_gives_the_lease_at_once() {
    let bucket = Memory::new();
    let (a, clock) = vault(&bucket, "a");
    let lease = a.acquire_asking().await.unwrap();
    assert_eq!((lease.epoch, lease.deadline, seconds(&clock)), (1, TTL * 4 / 5, 0));
    assert_eq!(held_record(&bucket).holder.unwrap().nonce, "a");
    assert_eq!(bucket.log(), ["get lock/leader.json", "put lock/leader.json"]);
}

#[tokio::test]
async fn a_waiter_takes_over_only_after_a_full_ttl_without_a_change() {
    let bucket = Memory::new();
    let (a, old) = vault(&bucket, "a");
    let held = Held::new(&a, &a.acquire().await.unwrap());
    let (b, clock) = vault(&bucket, "b");
    // A renewal is stored when the waiter has waited for 12 s.
    let renewals = clock.clone();
    let renewed = std::sync::Mutex::new(false);
    bucket.before(move |bucket, kind, name| {
        let mut renewed = renewed.lock().unwrap();
        if (kind, name) == ("get", NAME) && seconds(&renewals) >= 12 && !*renewed {
            *renewed = true;
            let kept = bucket.object(NAME);
            bucket.set(NAME, kept.bytes, "lease");
        }
    });
    let lease = b.acquire().await.unwrap();
    assert_eq!((lease.epoch, seconds(&clock)), (2, 32));
    old.advance(Duration::from_secs(6));
    // The error of the old holder's next renewal names the new leader.
    let error = held.renew().await.unwrap_err();
    insta::assert_snapshot!(error, @"deposed: b:1 (https://b.example) leads since epoch 2, ours was 1");
}

#[tokio::test]
async fn a_released_lease_and_one_of_a_dead_process_are_taken_at_once() {
    for buried in [false, true] {
        let bucket = Memory::new();
        let (a, _) = vault(&bucket, "a");
        let held = Held::new(&a, &a.acquire().await.unwrap());
        match buried {
            true => bucket.bury("a"),
            false => held.release().await.unwrap(),
        }
        let (b, clock) = vault(&bucket, "b");
        assert_eq!((b.acquire_asking().await.unwrap().epoch, seconds(&clock)), (2, 0));
        assert_eq!(bucket.names("inbox/"), Vec::<String>::new());
    }
}

#[tokio::test]
async fn taking_it_survives_a_lost_answer() {
    for (fault, epoch) in [(RequestFault::Before, 1), (RequestFault::After, 1)] {
        let bucket = Memory::new();
        let (a, clock) = vault(&bucket, "a");
        bucket.fail("put", NAME, fault);
        let lease = a.acquire().await.unwrap();
        assert_eq!((lease.epoch, lease.generation), (epoch, bucket.object(NAME).generation));
        // Counted from the first try whose answer was lost, not from its discovery.
        let deadline = if fault == RequestFault::After { TTL * 4 / 5 } else { clock.now() + TTL * 4 / 5 };
        assert_eq!(lease.deadline, deadline);
    }
}

#[tokio::test]
async fn a_refusal_after_a_lost_answer_neither_gives_the_lease_away_nor_keeps_it() {
    for first in [RequestFault::Before, RequestFault::After] {
        let bucket = Memory::new();
        let (a, _) = vault(&bucket, "a");
        bucket.fail("put", NAME, first);
        if first == RequestFault::Before {
            bucket.fail("put", NAME, RequestFault::Refused);
        }
        let lease = a.acquire().await.unwrap();
        assert_eq!((lease.epoch, lease.generation, bucket.faults_left()), (1, bucket.object(NAME).generation, 0));
        let held = Held::new(&a, &lease);
        bucket.fail("put", NAME, first);
        bucket.fail("get", NAME, RequestFault::Before);
        bucket.fail("put", NAME, RequestFault::Refused);
        bucket.fail("get", NAME, RequestFault::Refused);
        held.release().await.unwrap();
        assert_eq!((held_record(&bucket), bucket.faults_left()), (released(&a, 1), 0));
    }
}

#[tokio::test]
async fn of_two_takers_one_wins_and_the_other_waits() {
    let bucket = Memory::new();
    let (a, _) = vault(&bucket, "a");
    let taken = std::sync::Mutex::new(false);
    let (b, _) = vault(&bucket, "b");
    let record = serde_json::to_vec(&record(&b, 1)).unwrap();
    bucket.before(move |bucket, kind, name| {
        let mut taken = taken.lock().unwrap();
        if (kind, name) == ("put", NAME) && !std::mem::replace(&mut *taken, true) {
            bucket.set(NAME, record.clone(), "lease");
        }
    });
    assert_eq!(a.acquire().await.unwrap().epoch, 2);
}

#[tokio::test]
async fn a_server_that_held_it_before_takes_it_with_a_new_epoch() {
    let bucket = Memory::new();
    let (a, clock) = vault(&bucket, "a");
    a.acquire().await.unwrap();
    assert_eq!((a.acquire().await.unwrap().epoch, seconds(&clock)), (2, 0));
}

#[tokio::test]
async fn a_renewal_moves_the_deadline_from_when_it_was_sent() {
    let bucket = Memory::new();
    let (a, clock) = vault(&bucket, "a");
    let held = Held::new(&a, &a.acquire().await.unwrap());
    let slow = clock.clone();
    bucket.before(move |_, kind, _| {
        if kind == "put" {
            slow.advance(Duration::from_secs(3));
        }
    });
    clock.advance(Duration::from_secs(6));
    held.renew().await.unwrap();
    assert_eq!((held.deadline(), held.age()), (Duration::from_secs(22), Duration::from_secs(3)));
    bucket.log();
    // No more than one write a second.
    bucket.before(|_, _, _| ());
    held.renew().await.unwrap();
    bucket.log();
    clock.advance(Duration::from_millis(500));
    held.renew().await.unwrap();
    assert_eq!(bucket.log(), Vec::<String>::new());
    clock.advance(Duration::from_millis(500));
    held.renew().await.unwrap();
    assert_eq!(bucket.log(), ["put lock/leader.json"]);
}

#[tokio::test]
async fn a_lost_renewal_is_found_again_and_counts_from_its_own_sending() {
    let bucket = Memory::new();
    let (a, clock) = vault(&bucket, "a");
    let held = Held::new(&a, &a.acquire().await.unwrap());
    clock.advance(Duration::from_secs(6));
    bucket.fail("put", NAME, RequestFault::After);
    held.renew().await.unwrap();
    assert_eq!((held.deadline(), bucket.faults_left()), (Duration::from_secs(22), 0));
    clock.advance(Duration::from_secs(6));
    held.renew().await.unwrap();
    assert_eq!(held.deadline(), Duration::from_secs(28));
    held.release().await.unwrap();
    assert_eq!(held_record(&bucket), released(&a, 1));
}

#[tokio::test]
async fn of_several_lost_renewals_the_deadline_counts_from_the_first() {
    let bucket = Memory::new();
    let (a, clock) = vault(&bucket, "a");
    let held = Held::new(&a, &a.acquire().await.unwrap());
    clock.advance(Duration::from_secs(6));
    // The first write is stored without an answer; the second one does not reach the bucket.
    bucket.fail("put", NAME, RequestFault::After);
    bucket.fail("get", NAME, RequestFault::Before);
    bucket.fail("put", NAME, RequestFault::Before);
    held.renew().await.unwrap();
    assert_eq!((bucket.faults_left(), clock.now()), (0, Duration::from_secs(7)));
    assert_eq!(held.deadline(), Duration::from_secs(22));
}

#[tokio::test]
async fn a_renewal_whose_answer_comes_after_its_own_deadline_is_none() {
    let bucket = Memory::new();
    let (a, clock) = vault(&bucket, "a");
    let held = Held::new(&a, &a.acquire().await.unwrap());
    clock.advance(Duration::from_secs(6));
    let slow = clock.clone();
    let slowly = std::sync::Mutex::new(1);
    bucket.before(move |_, kind, _| {
        let mut left = slowly.lock().unwrap();
        if kind == "put" && *left > 0 {
            *left -= 1;
            slow.advance(Duration::from_secs(17));
        }
    });
    // That answer came too late, so a second renewal follows.
    held.renew().await.unwrap();
    assert_eq!((held.deadline(), held.is_past()), (Duration::from_secs(23) + TTL * 4 / 5, false));
    let slow = clock.clone();
    bucket.before(move |_, kind, _| {
        if kind == "put" {
            slow.advance(Duration::from_secs(17));
        }
    });
    clock.advance(Duration::from_secs(6));
    let error = held.renew().await.unwrap_err();
    insta::assert_snapshot!(error, @"deposed: the lease could not be renewed in time: its answers come too late");
}

#[tokio::test]
async fn without_answers_it_is_deposed_only_past_its_deadline() {
    let bucket = Memory::new();
    let (a, clock) = vault(&bucket, "a");
    let held = Held::new(&a, &a.acquire().await.unwrap());
    let silence = || {
        for _ in 0..6 {
            bucket.fail("put", NAME, RequestFault::Before);
            bucket.fail("get", NAME, RequestFault::Before);
        }
    };
    silence();
    clock.advance(Duration::from_secs(6));
    held.renew().await.unwrap();
    clock.advance(Duration::from_secs(12));
    let error = held.renew().await.unwrap_err();
    insta::assert_snapshot!(error, @"deposed: the lease could not be renewed in time: memory://test: get lock/leader.json: no answer: timed out");
}

#[tokio::test]
async fn other_settings_never_lead_without_being_forced() {
    let bucket = Memory::new();
    let (a, _) = vault(&bucket, "a");
    Held::new(&a, &a.acquire().await.unwrap()).release().await.unwrap();
    let (mut b, clock) = vault(&bucket, "b");
    b.identity.fingerprint = fingerprint(&["host.example", "another", "github.com/*"]);
    let waits = tokio::task::spawn({
        let b = b.clone();
        async move { b.acquire_asking().await }
    });
    while clock.now() < Duration::from_secs(600) {
        tokio::task::yield_now().await;
    }
    waits.abort();
    assert!(waits.await.unwrap_err().is_cancelled());
    assert_eq!(bucket.names(""), [NAME]);
    insta::assert_snapshot!(held_back(&b, &read(&b).await.unwrap().unwrap()).unwrap(), @"its settings differ from those of the last leader in the account and the list. If this is the right bucket and the settings are meant to change, start this server once with --force, all else as it is; otherwise correct --place or the settings");
    b.identity.force = true;
    assert_eq!(b.acquire_asking().await.unwrap().epoch, 2);
    assert_eq!(held_record(&bucket).fingerprint, b.identity.fingerprint);
}

#[tokio::test]
async fn a_fingerprint_that_changes_is_renewed_with_the_lease() {
    let bucket = Memory::new();
    let (a, clock) = vault(&bucket, "a");
    let held = Held::new(&a, &a.acquire().await.unwrap());
    let new = fingerprint(&["host.example", "bot", "host.example/*"]);
    a.fingerprint.set(new.clone());
    let (b, _) = vault(&bucket, "b");
    assert!(held_back(&b, &held_record(&bucket)).is_none());
    clock.advance(Duration::from_secs(6));
    held.renew().await.unwrap();
    let record = held_record(&bucket);
    assert_eq!((record.fingerprint.as_str(), record.holder.clone().unwrap().fingerprint), (new.as_str(), new.clone()));
    // Another server leads with the same settings only.
    assert!(held_back(&b, &record).unwrap().contains("in the list."));
    b.fingerprint.set(new.clone());
    assert!(held_back(&b, &record).is_none());
    held.release().await.unwrap();
    assert_eq!(held_record(&bucket).fingerprint, new);
}

#[tokio::test]
async fn settings_that_this_process_had_do_not_hold_it_back() {
    let bucket = Memory::new();
    let (a, _) = vault(&bucket, "a");
    Held::new(&a, &a.acquire().await.unwrap()).release().await.unwrap();
    let record = held_record(&bucket);
    // The settings change while nobody renews the lease.
    let other = |number: usize| fingerprint(&["host.example", "bot", &format!("host.example/{number}")]);
    (0..40).for_each(|number| a.fingerprint.set(other(number)));
    assert!(held_back(&a, &record).is_none(), "those of the start");
    assert!(held_back(&a, &Record { fingerprint: other(39), ..record.clone() }).is_none());
    assert!(held_back(&a, &Record { fingerprint: other(24), ..record.clone() }).is_none());
    assert!(held_back(&a, &Record { fingerprint: other(23), ..record.clone() }).is_some(), "only some are kept");
    // One that has started with the new settings has never had the old ones.
    let (mut b, _) = vault(&bucket, "b");
    b.identity.fingerprint = other(39);
    assert!(held_back(&b, &record).is_some());
}

#[tokio::test]
async fn a_lease_that_is_not_ours_or_newer_stops_the_server() {
    let bucket = Memory::new();
    let (a, _) = vault(&bucket, "a");
    bucket.set(NAME, "leader: none", "");
    insta::assert_snapshot!(a.acquire_asking().await.unwrap_err(), @"memory://test/lock/leader.json is not a lease of Tidelock (expected value at line 1 column 1). Nothing was changed. Give Tidelock a prefix of the bucket for itself (--place), or bring that object back from a copy of the bucket");
    bucket.set(NAME, r#"{"format":2,"terms":[]}"#, "");
    insta::assert_snapshot!(read(&a).await.unwrap_err(), @"memory://test/lock/leader.json was written by a newer version of Tidelock (format 2, this one reads up to 1). Nothing was changed. Run the newer version again; or, to go back, let it write a state from before its start with `tidelock vault export DIR --at SEQ` and start this version with that");
    bucket.fail("get", NAME, RequestFault::Refused);
    assert!(matches!(a.acquire_asking().await, Err(VaultError::Bucket(BucketError::Refused { .. }))));
}

#[tokio::test]
async fn a_waiter_asks_once_for_the_hand_over() {
    let bucket = Memory::new();
    let (a, _) = vault(&bucket, "a");
    a.acquire().await.unwrap();
    let (b, _) = vault(&bucket, "b");
    bucket.fail("put", "inbox/", RequestFault::Before);
    bucket.log();
    b.acquire_asking().await.unwrap();
    let asked: Vec<String> = bucket.log().into_iter().filter(|request| request.contains("inbox")).collect();
    assert_eq!(asked, ["put inbox/handover/b", "put inbox/handover/b"]);
    let _: Arc<Memory> = bucket;
}
