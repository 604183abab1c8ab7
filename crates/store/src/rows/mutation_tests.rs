//! Changed bytes of commits lead to an error or to valid rows, never to a panic or an unsound database.

use super::tests::apply;
use super::*;
use crate::schema::{Durability, open_writer};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Mutation {
    Flip(usize, u8),
    Cut(usize),
    Insert(usize, Vec<u8>),
    Copy(usize, usize, usize),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let at = || prop_oneof![0..100_usize, any::<usize>()];
    let bytes = prop::collection::vec(prop_oneof![any::<u8>(), Just(0xff), Just(0)], 1..12);
    prop_oneof![
        4 => (at(), 0..8_u8).prop_map(|(at, bit)| Mutation::Flip(at, bit)),
        1 => at().prop_map(Mutation::Cut),
        2 => (at(), bytes).prop_map(|(at, bytes)| Mutation::Insert(at, bytes)),
        2 => (at(), at(), 1..60_usize).prop_map(|(from, to, length)| Mutation::Copy(from, to, length)),
    ]
}

impl Mutation {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let length = bytes.len().max(1);
        match self {
            Mutation::Flip(at, bit) => bytes.iter_mut().skip(at % length).take(1).for_each(|byte| *byte ^= 1 << bit),
            Mutation::Cut(at) => bytes.truncate(at % length),
            Mutation::Insert(at, new) => {
                let at = at % (bytes.len() + 1);
                bytes.splice(at..at, new.iter().copied());
            }
            Mutation::Copy(from, to, count) => {
                let piece: Vec<u8> = bytes.iter().skip(from % length).take(*count).copied().collect();
                for (place, byte) in bytes.iter_mut().skip(to % length).zip(piece) {
                    *place = byte;
                }
            }
        }
    }
}

/// Returns a database with some rows, and a commit of all of them.
fn sound() -> (tempfile::TempDir, Connection, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    let mut connection = open_writer(&dir.path().join("a.db"), Durability::Bucket).unwrap().connection;
    let recorder = ChangeRecorder::attach(&mut connection).unwrap();
    let put = "INSERT INTO audit (at, record) VALUES (?1, ?2)";
    for number in 0..5_i64 {
        connection.execute(put, (number * 1_000_000_007, format!("{{\"who\":\"{number}\"}}"))).unwrap();
    }
    let put = "INSERT INTO effects (pull, attempts, done, note, record) VALUES (?1, 3, NULL, '', ?2)";
    for number in 0..3 {
        connection.execute(put, (format!("pull {number}"), "{}")).unwrap();
    }
    connection.execute("DELETE FROM effects WHERE pull = 'pull 1'", []).unwrap();
    let encoded = recorder.capture(&connection).unwrap().unwrap();
    (dir, connection, encoded)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn changed_rows_are_refused_or_leave_a_sound_database(mutations in prop::collection::vec(mutation(), 1..4)) {
        thread_local! {
            static SOUND: (tempfile::TempDir, Connection, Vec<u8>) = sound();
        }
        SOUND.with(|(_dir, connection, encoded)| {
            let mut changed = encoded.clone();
            mutations.iter().for_each(|mutation| mutation.apply(&mut changed));
            connection.execute_batch("BEGIN").unwrap();
            if apply(connection, &changed).is_ok() {
                let check: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).unwrap();
                prop_assert!(check == "ok" || check.contains("NULL") || check.contains("NUMERIC") , "{}", check);
            }
            connection.execute_batch("ROLLBACK").unwrap();
            Ok(())
        })?;
    }

    #[test]
    fn any_bytes_are_refused_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 1..200)) {
        thread_local! {
            static SOUND: (tempfile::TempDir, Connection, Vec<u8>) = sound();
        }
        SOUND.with(|(_dir, connection, _)| {
            let mut bytes = bytes;
            bytes[0] = FORMAT;
            connection.execute_batch("BEGIN").unwrap();
            let _ = apply(connection, &bytes);
            connection.execute_batch("ROLLBACK").unwrap();
        });
    }
}
