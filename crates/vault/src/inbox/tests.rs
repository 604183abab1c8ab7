//! Objects that other servers leave for the leader, and requests to hand over.

use super::requests::REQUESTS;
use super::*;
use crate::VaultError;
use crate::bucket::Bucket;
use crate::leader::Leader;
use crate::memory::{Memory, RequestFault, vault};
use std::sync::Arc;

fn delivery(body: &str) -> (Hash, StoredDelivery) {
    let delivery = StoredDelivery {
        format: FORMAT,
        received: Timestamp::UNIX_EPOCH,
        headers: vec![("x-github-event".into(), "push".into())],
        body: body.to_owned(),
        key: None,
    };
    (Hash::of(body.as_bytes()), delivery)
}

async fn leading(bucket: &Arc<Memory>, nonce: &str) -> (Vault, Leader) {
    let (vault, _) = vault(bucket, nonce);
    let lease = vault.acquire().await.unwrap();
    let (leader, _) = vault.lead(lease).await.unwrap().unwrap();
    (vault, leader)
}

#[tokio::test]
async fn a_delivery_is_stored_once_and_taken_up_in_the_order_of_its_coming() {
    let bucket = Memory::new();
    let (standby, _) = vault(&bucket, "b");
    let bodies = ["one", "two", "three"].map(delivery);
    for (name, delivery) in &bodies {
        store_delivery(&standby, *name, delivery).await.unwrap();
        store_delivery(&standby, *name, delivery).await.unwrap();
    }
    let end =
        LateOutcome { format: FORMAT, job: "j1".into(), outcome: serde_json::json!({"ok": true}), errored_state: None };
    store_late_outcome(&standby, &end).await.unwrap();
    bucket.set("inbox/notes.txt", "hello", "");
    let (vault, leader) = leading(&bucket, "a").await;
    let mail = leader.list_inbox().await.unwrap();
    assert_eq!(
        mail.iter().map(|mail| mail.kind).collect::<Vec<_>>(),
        [InboxEntryKind::Delivery, InboxEntryKind::Delivery, InboxEntryKind::Delivery, InboxEntryKind::LateOutcome]
    );
    for (mail, (_, delivery)) in mail.iter().zip(&bodies) {
        assert_eq!(read::<StoredDelivery>(&vault, mail).await.unwrap().as_ref(), Some(delivery));
    }
    assert_eq!(read::<LateOutcome>(&vault, &mail[3]).await.unwrap(), Some(end));
    delete(&vault, &mail).await.unwrap();
    delete(&vault, &mail).await.unwrap();
    assert_eq!(bucket.names("inbox/"), ["inbox/notes.txt"]);
    assert_eq!(read::<StoredDelivery>(&vault, &mail[0]).await.unwrap(), None);
}

#[tokio::test]
async fn a_long_inbox_is_listed_in_pieces_and_given_in_the_order_of_its_coming() {
    let bucket = Memory::new();
    let mut bodies: Vec<String> = Vec::new();
    for number in 0..2 * PAGE + 1 {
        let (name, _) = delivery(&number.to_string());
        let name = format!("{DELIVERY}{name}");
        bucket.set(&name, "x", "delivery");
        bodies.push(name);
        bucket.set(&format!("{FOLDER}foreign-{number}"), "x", "");
    }
    let (_, leader) = leading(&bucket, "a").await;
    bucket.log();
    let found: Vec<String> = leader.list_inbox().await.unwrap().into_iter().map(|mail| mail.name).collect();
    assert_eq!(found, bodies);
    // Twice as many objects as entries, a page each, and the empty one.
    assert_eq!(bucket.log().len(), 4 * PAGE / PAGE + 2);
}

#[tokio::test]
async fn what_is_not_what_its_name_says_is_named() {
    let bucket = Memory::new();
    let (vault, leader) = leading(&bucket, "a").await;
    for body in ["one", "two"] {
        let (name, delivery) = delivery(body);
        store_delivery(&vault, name, &delivery).await.unwrap();
    }
    let mail = leader.list_inbox().await.unwrap();
    bucket.damage(&mail[0].name, |bytes| *bytes.last_mut().unwrap() ^= 1);
    let swapped = bucket.object(&mail[0].name).bytes;
    let error = read::<StoredDelivery>(&vault, &mail[0]).await.unwrap_err().to_string();
    insta::assert_snapshot!(error.replace(&mail[0].name, "inbox/delivery/HASH"), @"memory://test/inbox/delivery/HASH cannot be used: its content does not have the hash that it names. It was left there; when it is a delivery, redeliver it from the host's list of deliveries, then delete the object");
    bucket.set(&mail[1].name, swapped, "delivery");
    let error = read::<StoredDelivery>(&vault, &mail[1]).await.unwrap_err();
    assert!(matches!(&error, VaultError::Damaged(text) if text.contains("another object under this name")), "{error}");
    bucket.set(&mail[1].name, "{\"format\":9,\"name\":\"\",\"sha256\":\"", "");
    assert!(read::<StoredDelivery>(&vault, &mail[1]).await.is_err());
}

#[tokio::test]
async fn a_name_that_is_not_ours_stops_neither_mail_nor_hand_over() {
    let odd = [
        "inbox/",
        "inbox/x",
        "inbox/delivery/",
        "inbox/delivery/x",
        "inbox/end/",
        "inbox/end/a b",
        "inbox/handover/",
        "inbox/handover/ü",
        "inbox/handover/a/b",
        "inbox/new/thing",
    ];
    for name in odd {
        let bucket = Memory::new();
        bucket.set(name, "", "");
        let (_, leader) = leading(&bucket, "a").await;
        let (standby, _) = vault(&bucket, "b");
        let (hash, delivery) = delivery("one");
        store_delivery(&standby, hash, &delivery).await.unwrap();
        request_handover(&standby, 1).await.unwrap();
        let kinds: Vec<InboxEntryKind> = leader.list_inbox().await.unwrap().iter().map(|mail| mail.kind).collect();
        assert_eq!(kinds, [InboxEntryKind::Delivery, InboxEntryKind::HandOver], "{name}");
        assert_eq!(bucket.names("inbox/").iter().filter(|left| *left == name).count(), 1, "{name} is left alone");
    }
}

#[tokio::test]
async fn a_hand_over_request_that_cannot_be_read_or_deleted_stops_no_other() {
    let bucket = Memory::new();
    let (_, leader) = leading(&bucket, "a").await;
    // More requests than one look checks.
    for number in 0..2 * REQUESTS {
        let name = format!("{HANDOVER}odd-{number}");
        bucket.set(&name, "{}", "handover");
        bucket.fail("get", &name, RequestFault::Refused);
    }
    let (standby, _) = vault(&bucket, "b");
    request_handover(&standby, 1).await.unwrap();
    bucket.fail("delete", "inbox/handover/b", RequestFault::Refused);
    let mut followed = Vec::new();
    for _ in 0..3 {
        followed.extend(leader.list_inbox().await.unwrap().into_iter().map(|mail| mail.name));
    }
    assert_eq!(followed, ["inbox/handover/b"]);
    assert_eq!(bucket.faults_left(), 0);
}

#[tokio::test]
async fn a_request_to_an_earlier_leader_does_not_stand_for_one_to_this_one() {
    let bucket = Memory::new();
    let (_, leader) = leading(&bucket, "a").await;
    let (standby, _) = vault(&bucket, "b");
    // A request to an earlier leader that nobody has deleted.
    request_handover(&standby, leader.epoch() + 7).await.unwrap();
    request_handover(&standby, leader.epoch()).await.unwrap();
    let followed: Vec<String> = leader.list_inbox().await.unwrap().into_iter().map(|mail| mail.name).collect();
    assert_eq!(followed, ["inbox/handover/b"]);
    // Its own earlier try is valid.
    request_handover(&standby, leader.epoch()).await.unwrap();
    let generation = bucket.get("inbox/handover/b").await.unwrap().unwrap().generation;
    request_handover(&standby, leader.epoch()).await.unwrap();
    assert_eq!(bucket.get("inbox/handover/b").await.unwrap().unwrap().generation, generation);
}

#[tokio::test]
async fn a_hand_over_is_followed_while_the_webhook_secret_changes() {
    let bucket = Memory::new();
    let (old, new) = (HandOverKey::derive("old"), HandOverKey::derive("new"));
    let both = || HandOverKey::derive("new").and_previous("old");
    // The leader's secrets, those of the server that asks, and true if they have one in common.
    for (leads, asks, follows) in [
        (&old, &new, false),
        (&old, &both(), true),
        (&both(), &old, true),
        (&both(), &new, true),
        (&new, &both(), true),
        (&HandOverKey::derive("third").and_previous("new"), &both(), true),
        (&HandOverKey::derive("third"), &both(), false),
    ] {
        let (mut a, _) = vault(&bucket, "a");
        a.handover = leads.clone();
        bucket.bury("a");
        let lease = a.acquire().await.unwrap();
        let (leader, _) = a.lead(lease).await.unwrap().unwrap();
        let (mut b, _) = vault(&bucket, "b");
        b.handover = asks.clone();
        request_handover(&b, leader.epoch()).await.unwrap();
        let case = [leads.ids().collect::<Vec<_>>(), asks.ids().collect()];
        assert_eq!(leader.list_inbox().await.unwrap().len(), usize::from(follows), "{case:?}");
        leader.release().await.unwrap();
    }
}

#[test]
fn a_secret_has_an_id_of_its_own_that_is_no_proof() {
    let ids = |secret: &str| HandOverKey::derive(secret).ids().next().unwrap().to_owned();
    assert_eq!(ids("webhook secret"), ids("webhook secret"));
    assert_ne!(ids("webhook secret"), ids("webhook secret "));
    assert_eq!(ids("webhook secret").len(), 2 * ID_BYTES);
    let key = HandOverKey::derive("webhook secret");
    assert!(!key.keys[0].key.expose_secret().contains(&ids("webhook secret")));
}

#[tokio::test]
async fn a_hand_over_is_followed_only_when_it_is_proven_and_meant_for_this_leader() {
    let bucket = Memory::new();
    let (_, leader) = leading(&bucket, "a").await;
    let ask = async |change: fn(&mut Vault), epoch: u64| {
        let (mut standby, _) = vault(&bucket, "b");
        change(&mut standby);
        request_handover(&standby, epoch).await.unwrap();
        let mail = leader.list_inbox().await.unwrap();
        assert_eq!(bucket.names("inbox/"), Vec::<String>::new());
        mail.iter().map(|mail| (mail.name.clone(), mail.kind)).collect::<Vec<_>>()
    };
    let followed = [("inbox/handover/b".to_owned(), InboxEntryKind::HandOver)];
    assert_eq!(ask(|_| (), 1).await, followed);
    assert_eq!(ask(|_| (), 2).await, []);
    assert_eq!(ask(|vault| vault.handover = HandOverKey::derive("another"), 1).await, []);
    assert_eq!(ask(|vault| vault.identity.fingerprint = "x".into(), 1).await, []);
    let forced = |vault: &mut Vault| {
        vault.identity.fingerprint = "x".into();
        vault.identity.force = true;
    };
    assert_eq!(ask(forced, 1).await, followed);
    assert_eq!(ask(|vault| vault.identity.nonce = "a".into(), 1).await, []);
}

#[test]
fn a_proof_covers_every_field() {
    let (standby, _) = vault(&Memory::new(), "b");
    let from = standby.identity.clone();
    let (proof, previous_proof, keys) = (String::new(), None, Vec::new());
    let request = HandOver { format: FORMAT, from, epoch: 4, proof, previous_proof, keys };
    let signed = standby.handover.sign(request);
    assert!(standby.handover.verify(&signed));
    let changes: [fn(&mut HandOver); 6] = [
        |request| request.epoch += 1,
        |request| request.from.force = true,
        |request| request.from.fingerprint.push('0'),
        |request| request.from.url.push('/'),
        |request| request.proof.clear(),
        |request| request.proof.insert(0, 'g'),
    ];
    for change in changes {
        let mut changed = signed.clone();
        change(&mut changed);
        assert!(!standby.handover.verify(&changed));
    }
    assert!(!standby.handover.keys[0].prove(&signed).unwrap().finalize().into_bytes().iter().all(|byte| *byte == 0));
}
