//! Chains with gaps, swapped, damaged and newer objects; contents of all sizes.

use super::*;
use crate::leader::Leader;
use crate::memory::{Memory, RequestFault, vault};
use crate::{Blob, Changes, Image, Source, Vault};
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex};

async fn leading(bucket: &Arc<Memory>) -> (Vault, Leader) {
    let (vault, _) = vault(bucket, "a");
    let lease = vault.acquire().await.unwrap();
    let leader = vault.lead(lease).await.unwrap().unwrap().0;
    (vault, leader)
}

/// Returns a bucket with a seal and these commits.
async fn journal(commits: &[&str]) -> (Arc<Memory>, Vault) {
    let bucket = Memory::new();
    let (vault, leader) = leading(&bucket).await;
    for rows in commits {
        let changes = Changes { schema: 3, rows: rows.as_bytes().to_vec().into(), blobs: Vec::new() };
        leader.commit(changes).await.unwrap();
    }
    (bucket, vault)
}

fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    (0..length).map(next).collect()
}

async fn refusal(vault: &Vault) -> String {
    match vault.read(None).await {
        Err(VaultError::Damaged(text)) => text,
        other => panic!("{:?}", other.map(|chain| chain.position)),
    }
}

const SECOND: &str = "journal/0000000000000002";
const THIRD: &str = "journal/0000000000000003";

#[tokio::test]
async fn an_empty_prefix_is_a_chain_without_anything() {
    let chain = vault(&Memory::new(), "a").0.read(None).await.unwrap();
    assert_eq!((chain.position, chain.base, chain.schema), (Position::default(), 0, 0));
    assert!(chain.rows().await.unwrap().is_empty());
    assert!(!chain.database(Path::new("/nowhere")).await.unwrap());
}

#[tokio::test]
async fn a_missing_object_stops_with_its_name() {
    let (bucket, vault) = journal(&["one", "two", "three"]).await;
    bucket.remove(THIRD);
    insta::assert_snapshot!(refusal(&vault).await, @"memory://test/journal/0000000000000003 is missing, though journal/0000000000000004 is there and no newer base is: the state cannot be restored. Nothing was changed. Bring the object back from a copy of the bucket (its versions or soft-deleted objects, if those are on), or look with `tidelock vault ls` for an earlier state and go back to it with `tidelock vault export DIR --at SEQ`");
    assert_eq!(vault.read(Some(2)).await.unwrap().rows().await.unwrap().len(), 1);
    let error = vault.read(Some(4)).await.err().unwrap();
    insta::assert_snapshot!(error, @"memory://test: state 4 is not kept: kept are 1 to 2 (`tidelock vault ls`)");
    bucket.remove("journal/0000000000000001");
    assert!(refusal(&vault).await.starts_with("memory://test/journal/0000000000000001 is missing"));
}

#[tokio::test]
async fn a_swapped_object_stops_with_its_name() {
    let (bucket, vault) = journal(&["one", "two"]).await;
    let (other, _) = journal(&["one", "else"]).await;
    let second = bucket.object(SECOND).bytes;
    bucket.set(SECOND, other.object(SECOND).bytes, "commit");
    insta::assert_snapshot!(refusal(&vault).await, @"memory://test/journal/0000000000000002 does not continue the object before it: one of them was exchanged. Nothing was changed. Bring the object back from a copy of the bucket (its versions or soft-deleted objects, if those are on), or look with `tidelock vault ls` for an earlier state and go back to it with `tidelock vault export DIR --at SEQ`");
    bucket.set(SECOND, second.clone(), "commit");
    bucket.set(THIRD, second, "commit");
    assert!(
        refusal(&vault).await.contains("journal/0000000000000003 is damaged: it is another object under this name")
    );
}

#[tokio::test]
async fn damaged_and_newer_objects_stop_with_their_names() {
    let (bucket, vault) = journal(&["some rows that are long enough"]).await;
    let right = bucket.object(SECOND).bytes;
    bucket.damage(SECOND, |bytes| *bytes.last_mut().unwrap() ^= 1);
    insta::assert_snapshot!(refusal(&vault).await, @"memory://test/journal/0000000000000002 is damaged: its contents do not have the hash that its header names. Nothing was changed. Bring the object back from a copy of the bucket (its versions or soft-deleted objects, if those are on), or look with `tidelock vault ls` for an earlier state and go back to it with `tidelock vault export DIR --at SEQ`");
    for (bytes, why) in [
        (right.slice(..right.len() - 1), "its end is missing"),
        (right.slice(..20), "it is too short"),
        (right.slice(1..), "it does not begin as an object of Tidelock"),
        (Bytes::new(), "it is too short"),
    ] {
        bucket.set(SECOND, bytes, "commit");
        assert!(refusal(&vault).await.contains(why));
    }
    bucket.set(SECOND, right, "commit");
    bucket.damage(SECOND, |bytes| bytes[8] = 2);
    insta::assert_snapshot!(refusal(&vault).await, @"memory://test/journal/0000000000000002 was written by a newer version of Tidelock (format 2, this one reads up to 1). Nothing was changed. Run the newer version again; or, to go back, let it write a state from before its start with `tidelock vault export DIR --at SEQ` and start this version with that");
    bucket.remove(SECOND);
    bucket.set("journal/notes", "mine", "");
    assert_eq!(vault.read(None).await.unwrap().others, ["journal/notes"], "it is left alone");
}

#[tokio::test]
async fn what_goes_while_it_is_read_is_no_damage_when_a_newer_base_is_there() {
    let bucket = Memory::new();
    let (vault, leader) = leading(&bucket).await;
    let dir = tempfile::tempdir().unwrap();
    let database = dir.path().join("database");
    std::fs::write(&database, "rows").unwrap();
    leader.commit(Changes::default()).await.unwrap();
    let position = leader.position();
    leader.write_base(Image { position, schema: 7, database, blobs: vec![] }).await.unwrap();
    let base = bucket.object("base/0000000000000002").bytes;
    bucket.remove("base/0000000000000002");
    bucket.before(move |bucket, kind, name| {
        if (kind, name) == ("range", SECOND) {
            bucket.set("base/0000000000000002", base.clone(), "base");
            bucket.remove(SECOND);
        }
    });
    let chain = vault.read(None).await.unwrap();
    assert_eq!((chain.base, chain.position, chain.schema), (2, position, 7));
    // With a newer base at each read, the restore fails.
    let mut next = 2;
    bucket.before(move |bucket, kind, name| {
        if (kind, name) == ("list", "base/") {
            next += 1;
            bucket.set(&calls::base(next), "no base", "base");
        }
    });
    insta::assert_snapshot!(refusal(&vault).await, @"memory://test: newer bases came up 8 times while the state was read; try again");
}

#[tokio::test]
async fn contents_of_all_sizes_are_fetched_from_wherever_they_lie() {
    let bucket = Memory::new();
    let (vault, leader) = leading(&bucket).await;
    let dir = tempfile::tempdir().unwrap();
    let contents = [
        noise(400 << 10, 1),
        noise(300, 2),
        vec![b'x'; 700 << 10],
        Vec::new(),
        noise(200 << 10, 3),
        b"text ".repeat(60_000),
        noise(70 << 10, 4),
    ];
    let blob = |bytes: &Vec<u8>| Blob {
        hash: Hash::of(bytes),
        length: bytes.len() as u64,
        source: Source::Bytes(bytes.clone().into()),
    };
    let blobs: Vec<Blob> = contents.iter().map(blob).collect();
    leader.commit(Changes { schema: 1, rows: noise(300 << 10, 9).into(), blobs: blobs[..3].to_vec() }).await.unwrap();
    let database = dir.path().join("database");
    let raw = [noise(300 << 10, 5), b"page".repeat(1 << 17)].concat();
    std::fs::write(&database, &raw).unwrap();
    let image = Image { position: leader.position(), schema: 1, database, blobs: blobs[..5].to_vec() };
    assert!(leader.write_base(image).await.unwrap());
    leader.commit(Changes { schema: 2, rows: noise(400 << 10, 6).into(), blobs: blobs[4..].to_vec() }).await.unwrap();

    let chain = vault.read(None).await.unwrap();
    assert_eq!((chain.base, chain.schema), (2, 2));
    assert_eq!(chain.rows().await.unwrap()[0].rows, noise(400 << 10, 6));
    let restored = dir.path().join("restored");
    assert!(chain.database(&restored).await.unwrap());
    assert!(std::fs::read(&restored).unwrap() == raw);
    let path = |number: usize, copy: &str| dir.path().join(format!("deep/{number}/{copy}"));
    let wanted = |number: usize, copy: &str| WantedFile {
        hash: blobs[number].hash,
        path: path(number, copy),
        mode: if copy == "b" { 0o755 } else { 0o600 },
    };
    let files = (0..contents.len()).flat_map(|number| [wanted(number, "a"), wanted(number, "b")]);
    let seen = Mutex::new(Vec::new());
    chain.fetch(files.collect(), &|bytes| seen.lock().unwrap().push(bytes)).await.unwrap();
    for (number, content) in contents.iter().enumerate() {
        for (copy, mode) in [("a", 0o600), ("b", 0o755)] {
            assert!(std::fs::read(path(number, copy)).unwrap() == *content, "{number}");
            assert_eq!(std::fs::metadata(path(number, copy)).unwrap().permissions().mode() & 0o777, mode);
        }
    }
    let total: usize = contents.iter().map(Vec::len).sum();
    assert_eq!(seen.lock().unwrap().iter().max(), Some(&(total as u64)));
    chain.verify(&|_| ()).await.unwrap();

    let absent = WantedFile { hash: Hash::of(b"never kept"), path: path(9, "a"), mode: 0o600 };
    assert!(chain.fetch(vec![absent], &|_| ()).await.unwrap_err().to_string().contains("deep/9/a"));
    let third = calls::base(2);
    bucket.damage(&third, |bytes| *bytes.last_mut().unwrap() ^= 1);
    let error = vault.read(None).await.unwrap().verify(&|_| ()).await.unwrap_err().to_string();
    assert!(error.contains("base/0000000000000002 is damaged"), "{error}");
}

#[tokio::test]
async fn reading_waits_for_answers_but_not_for_ever() {
    let (bucket, vault) = journal(&["one"]).await;
    bucket.fail("list", "base/", RequestFault::Before);
    bucket.fail("range", SECOND, RequestFault::After);
    assert_eq!(vault.read(None).await.unwrap().position.seq, 2);
    bucket.before(|bucket, kind, name| {
        if kind == "list" {
            bucket.fail("list", name, RequestFault::Before);
        }
    });
    assert!(matches!(vault.read(None).await, Err(VaultError::Bucket(_))));
}

#[test]
fn kept_states_are_told_as_ranges() {
    let listed = |seqs: &[u64]| -> Vec<(u64, Listed)> {
        let listed = |seq: &u64| Listed {
            name: seq.to_string(),
            generation: 1,
            size: 1,
            created: jiff::Timestamp::UNIX_EPOCH,
            label: String::new(),
        };
        seqs.iter().map(|seq| (*seq, listed(seq))).collect()
    };
    type Case = (&'static [u64], &'static [u64], &'static [(u64, u64)]);
    let cases: [Case; 8] = [
        (&[], &[], &[]),
        (&[], &[1, 2, 3], &[(1, 3)]),
        (&[], &[2, 3], &[]),
        (&[5], &[1, 6, 7], &[(1, 1), (5, 7)]),
        (&[5, 7], &[6, 7, 8], &[(5, 8)]),
        (&[2, 5], &[1, 2, 6], &[(1, 2), (5, 6)]),
        (&[3], &[1, 2], &[(1, 3)]),
        (&[4], &[], &[(4, 4)]),
    ];
    for (bases, journal, expected) in cases {
        assert_eq!(kept(&listed(bases), &listed(journal)), expected, "{bases:?} {journal:?}");
    }
}
