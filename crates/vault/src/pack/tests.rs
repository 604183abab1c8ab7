//! A read of an object returns the packed contents, or an error.

use super::build::{Draft, build};
use super::*;
use crate::bucket::Body;
use crate::{Blob, Source, VaultError};
use proptest::prelude::*;

/// Content of an object, read from its bytes.
#[derive(Debug, PartialEq, Eq)]
struct Content {
    header: Header,
    sections: Vec<Bytes>,
}

fn open(bytes: &[u8]) -> Result<Content, Invalid> {
    let head = decode_head(bytes, bytes.len() as u64)?;
    let decoded = head.sections().map(|(offset, section)| {
        let place = |at: u64| usize::try_from(at).unwrap();
        let stored = &bytes[place(offset)..place(offset + section.stored)];
        decode(&section, Bytes::copy_from_slice(stored))
    });
    let sections = decoded.collect::<Result<_, _>>()?;
    Ok(Content { header: head.header, sections })
}

fn header(kind: ObjectKind) -> Header {
    Header {
        kind,
        seq: 7,
        epoch: 3,
        writer: "a".into(),
        counter: 4,
        previous: Hash::of(b"before"),
        schema: 2,
        created: Timestamp::UNIX_EPOCH,
        version: "1.0.0".into(),
        rows: None,
        database: None,
        blobs: Vec::new(),
    }
}

fn blob(bytes: Vec<u8>) -> Blob {
    Blob { hash: Hash::of(&bytes), length: bytes.len() as u64, source: Source::Bytes(bytes.into()) }
}

fn built(draft: Draft) -> Result<(build::Packed, Vec<u8>), VaultError> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let packed = runtime.block_on(build(draft))?;
    let bytes = match &packed.body {
        Body::Bytes(bytes) => bytes.to_vec(),
        Body::File(path) => std::fs::read(path).unwrap(),
    };
    Ok((packed, bytes))
}

fn commit(rows: Vec<u8>, blobs: Vec<Vec<u8>>) -> Vec<u8> {
    let blobs = blobs.into_iter().map(blob).collect();
    built(Draft { header: header(ObjectKind::Commit), rows: rows.into(), database: None, blobs }).unwrap().1
}

/// Returns bytes that zstd cannot compress.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    (0..length).map(next).collect()
}

fn contents() -> impl Strategy<Value = (Vec<u8>, Vec<Vec<u8>>)> {
    let content = || prop_oneof![prop::collection::vec(any::<u8>(), 0..300), (0..5000_usize).prop_map(|n| vec![7; n])];
    (content(), prop::collection::vec(content(), 0..6))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn what_is_packed_comes_back((rows, blobs) in contents()) {
        let bytes = commit(rows.clone(), blobs.clone());
        let content = open(&bytes).unwrap();
        let mut expected: Vec<Vec<u8>> = Vec::new();
        if !rows.is_empty() { expected.push(rows); }
        let mut seen = std::collections::HashSet::new();
        expected.extend(blobs.into_iter().filter(|blob| seen.insert(blob.clone())));
        prop_assert_eq!(content.sections.iter().map(|bytes| bytes.to_vec()).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_flipped_bit_is_never_taken_for_something_else((rows, blobs) in contents(), at in any::<prop::sample::Index>(), bit in 0..8_u32) {
        let bytes = commit(rows, blobs);
        let right = decode_head(&bytes, bytes.len() as u64).unwrap().hash;
        let content = open(&bytes).unwrap();
        let mut flipped = bytes.clone();
        flipped[at.index(bytes.len())] ^= 1_u8 << bit;
        // A flip in the header changes the hash, which the next object names; one behind the header changes a content.
        if let Ok(other) = open(&flipped) {
            let hash = decode_head(&flipped, flipped.len() as u64).unwrap().hash;
            prop_assert!(hash != right || other == content);
        }
    }

    #[test]
    fn a_truncated_object_is_refused((rows, blobs) in contents(), at in any::<prop::sample::Index>()) {
        let bytes = commit(rows, blobs);
        prop_assert!(open(&bytes[..at.index(bytes.len())]).is_err());
    }

    #[test]
    fn no_bytes_whatever_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), length in any::<u32>()) {
        let mut head = MAGIC.to_vec();
        head.extend_from_slice(&FORMAT.to_le_bytes());
        head.extend_from_slice(&length.to_le_bytes());
        head.extend_from_slice(&24_u64.to_le_bytes());
        head.extend_from_slice(&bytes);
        prop_assert!(open(&bytes).is_err());
        prop_assert!(open(&head).is_err());
    }
}

#[test]
fn a_header_that_claims_too_much_is_refused_without_the_memory() {
    let with = |change: fn(&mut Header)| {
        let mut header = header(ObjectKind::Commit);
        change(&mut header);
        let json = zstd::bulk::compress(&serde_json::to_vec(&header).unwrap(), 1).unwrap();
        let mut bytes = [&MAGIC[..], &FORMAT.to_le_bytes(), &u32::try_from(json.len()).unwrap().to_le_bytes()].concat();
        bytes.extend_from_slice(&((PREFIX + json.len()) as u64).to_le_bytes());
        bytes.extend_from_slice(&json);
        bytes
    };
    let section = |stored, length, coding| Section { hash: Hash::default(), stored, length, coding };
    assert!(open(&with(|_| ())).is_ok());
    let huge = [
        with(|header| {
            header.rows = Some(Section { hash: Hash::default(), stored: 0, length: 1 << 60, coding: Coding::Zstd })
        }),
        with(|header| header.seq = 0),
        with(|header| header.kind = ObjectKind::Base),
        with(|header| header.database = Some(Vec::new())),
        with(|header| {
            let section = Section { hash: Hash::default(), stored: u64::MAX, length: u64::MAX, coding: Coding::Raw };
            header.blobs = vec![section, section];
        }),
    ];
    for bytes in huge {
        assert!(matches!(open(&bytes), Err(Invalid::Damaged(_))));
    }
    // A bomb: few stored bytes that grow beyond the length that the header names.
    let bomb = Bytes::from(zstd::bulk::compress(&vec![0; 1 << 20], 19).unwrap());
    assert!(decode(&section(bomb.len() as u64, 10, Coding::Zstd), bomb).is_err());
}

#[test]
fn formats_newer_and_too_old_are_told_apart() {
    let mut bytes = commit(vec![1], vec![]);
    bytes[8] = 2;
    assert_eq!(open(&bytes).unwrap_err(), Invalid::Newer(2));
    bytes[8] = 0;
    assert_eq!(open(&bytes).unwrap_err(), Invalid::Older(0));
}

#[test]
fn what_cannot_be_compressed_is_stored_as_it_is() {
    let bytes = commit(noise(5000), vec![noise(200_000), vec![0; 200_000]]);
    let header = decode_head(&bytes, bytes.len() as u64).unwrap().header;
    assert_eq!(header.rows.unwrap().coding, Coding::Raw);
    assert_eq!(header.blobs[0].coding, Coding::Raw);
    assert_eq!(header.blobs[1].coding, Coding::Zstd);
    assert!(header.blobs[1].stored < 1000);
    open(&bytes).unwrap();
}

#[test]
fn a_large_base_is_packed_into_a_file_that_goes_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        std::fs::write(dir.path().join(name), bytes).unwrap();
        dir.path().join(name)
    };
    let database = write("database", &noise(600 << 10));
    let contents = [noise(500 << 10), vec![3; 500 << 10], noise(10), Vec::new()];
    let blobs = contents
        .iter()
        .enumerate()
        .map(|(number, bytes)| Blob { source: Source::File(write(&number.to_string(), bytes)), ..blob(bytes.clone()) });
    let blobs = blobs.collect();
    let draft = Draft { header: header(ObjectKind::Base), rows: Bytes::new(), database: Some(database), blobs };
    let (packed, bytes) = built(draft).unwrap();
    assert_eq!(packed.size, bytes.len() as u64);
    assert!(matches!(packed.body, Body::File(_)));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 6);
    let content = open(&bytes).unwrap();
    assert_eq!(content.header.database.as_ref().unwrap().len(), 3);
    assert_eq!(content.sections[..3].concat(), noise(600 << 10));
    assert!(content.sections[3..].iter().eq(contents.iter()));
    assert_eq!(decode_head(&bytes, packed.size).unwrap().hash, packed.hash);
    drop(packed);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 5);
}

#[test]
fn a_file_that_changed_while_it_was_kept_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("plan");
    for (now, then) in [(vec![1; 10], vec![2; 10]), (vec![1; 11], vec![1; 10]), (vec![0; 200_000], vec![0; 199_999])] {
        std::fs::write(&path, &now).unwrap();
        let blob = Blob { source: Source::File(path.clone()), ..blob(then) };
        let header = header(ObjectKind::Commit);
        let error = built(Draft { header, rows: Bytes::new(), database: None, blobs: vec![blob] }).unwrap_err();
        assert!(error.to_string().ends_with("plan changed while it was being kept; try again"), "{error}");
    }
}
