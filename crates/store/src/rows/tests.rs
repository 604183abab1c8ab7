use super::*;
use crate::schema::{Durability, open_writer};
use proptest::prelude::*;

/// Returns a database with the store's tables and hook, in a directory with a place for a second one.
fn database() -> (tempfile::TempDir, Connection, ChangeRecorder) {
    let dir = tempfile::tempdir().unwrap();
    let mut connection = open_writer(&dir.path().join("a.db"), Durability::Bucket).unwrap().connection;
    connection
        .execute_batch("CREATE TABLE odd (\"a \"\"b\" INTEGER PRIMARY KEY AUTOINCREMENT, u UNIQUE, v, w)")
        .unwrap();
    let recorder = ChangeRecorder::attach(&mut connection).unwrap();
    (dir, connection, recorder)
}

fn copy_of(dir: &tempfile::TempDir, name: &str, connection: &Connection) -> Connection {
    let path = dir.path().join(name);
    connection.execute("VACUUM INTO ?1", [path.to_str().unwrap()]).unwrap();
    Connection::open(path).unwrap()
}

/// Applies the rows of one commit.
pub(super) fn apply(connection: &Connection, encoded: &[u8]) -> Result<()> {
    let mut merged = Merged::default();
    merged.add(1, encoded)?;
    merged.put(connection).map_err(|(_, error)| error)
}

fn digest(connection: &Connection) -> tidelock_vault::Hash {
    crate::restore::digest_of(connection).unwrap()
}

/// Applies the changes of `connection` to `copy`, which was equal to it before.
fn carried(connection: &Connection, recorder: &ChangeRecorder, copy: &Connection) -> Vec<u8> {
    let encoded = recorder.capture(connection).unwrap().unwrap();
    recorder.clear();
    apply(copy, &encoded).unwrap();
    assert_eq!(digest(copy), digest(connection));
    encoded
}

#[test]
fn rows_that_swap_what_is_unique_among_them_come_over() {
    let (dir, connection, recorder) = database();
    connection.execute_batch("INSERT INTO odd (u) VALUES ('one'), ('two'), ('three')").unwrap();
    let copy = copy_of(&dir, "b.db", &connection);
    recorder.clear();
    connection
        .execute_batch(
            "DELETE FROM odd WHERE u = 'three';
             UPDATE odd SET u = 'x' WHERE u = 'one';
             UPDATE odd SET u = 'one' WHERE u = 'two';
             UPDATE odd SET u = 'two' WHERE u = 'x';
             INSERT INTO odd (u) VALUES ('three')",
        )
        .unwrap();
    carried(&connection, &recorder, &copy);
}

#[test]
fn counters_come_over_also_when_their_rows_are_gone_again() {
    let (dir, connection, recorder) = database();
    let copy = copy_of(&dir, "b.db", &connection);
    connection.execute_batch("INSERT INTO odd (u) VALUES ('a'), ('b'); DELETE FROM odd WHERE u = 'b'").unwrap();
    carried(&connection, &recorder, &copy);
    copy.execute("INSERT INTO odd (u) VALUES ('c')", []).unwrap();
    assert_eq!(copy.last_insert_rowid(), 3);
}

#[test]
fn every_type_keeps_its_bits() {
    let (dir, connection, recorder) = database();
    let copy = copy_of(&dir, "b.db", &connection);
    let add = "INSERT INTO odd (u, v, w) VALUES (?1, ?2, ?3)";
    connection.execute(add, (i64::MIN, f64::MIN_POSITIVE, [0u8, 255])).unwrap();
    connection.execute(add, (i64::MAX, -0.0f64, "é\0\"'")).unwrap();
    connection.execute("INSERT INTO odd (\"a \"\"b\", u, w) VALUES (-5, '', CAST(x'ff00' AS TEXT))", []).unwrap();
    connection.execute("INSERT INTO odd (\"a \"\"b\", w) VALUES (9223372036854775807, x'')", []).unwrap();
    carried(&connection, &recorder, &copy);
}

#[test]
fn a_commit_is_as_small_as_its_change() {
    let (_dir, connection, recorder) = database();
    connection.execute("INSERT INTO odd (u) VALUES (1)", []).unwrap();
    let encoded = recorder.capture(&connection).unwrap().unwrap();
    assert!(encoded.len() < 40, "{}", encoded.len());
}

#[test]
fn nothing_noted_is_nothing_to_carry_and_undone_changes_are_forgotten() {
    let (_dir, connection, recorder) = database();
    assert!(recorder.capture(&connection).unwrap().is_none());
    connection.execute_batch("BEGIN; SAVEPOINT change").unwrap();
    let mark = recorder.mark();
    connection.execute("INSERT INTO odd (u) VALUES (1)", []).unwrap();
    connection.execute_batch("ROLLBACK TO change; RELEASE change; COMMIT").unwrap();
    recorder.rewind(mark);
    assert!(recorder.capture(&connection).unwrap().is_none());
}

#[test]
fn a_note_of_a_change_that_was_undone_does_no_harm() {
    let (dir, connection, recorder) = database();
    connection.execute("INSERT INTO odd (u) VALUES ('stays')", []).unwrap();
    let copy = copy_of(&dir, "b.db", &connection);
    connection
        .execute_batch(
            "BEGIN; SAVEPOINT change;
             UPDATE odd SET u = 'other' WHERE u = 'stays'; INSERT INTO odd (u) VALUES ('never');
             ROLLBACK TO change; RELEASE change; COMMIT",
        )
        .unwrap();
    carried(&connection, &recorder, &copy);
}

#[test]
fn what_is_not_ours_is_refused() {
    let (_dir, connection, _) = database();
    let encoded = |name: &str, rest: &[u8]| {
        let mut out = vec![FORMAT, 1];
        put_bytes(&mut out, name.as_bytes());
        out.extend_from_slice(rest);
        out
    };
    let says = |bytes: &[u8]| format!("{:#}", apply(&connection, bytes).unwrap_err());
    insta::assert_snapshot!(says(&[2, 0]), @"they are of format 2, and this version knows 1 only");
    insta::assert_snapshot!(says(&encoded("nowhere", &[0, 0, 0])), @r#"there is no table "nowhere""#);
    insta::assert_snapshot!(says(&encoded("sqlite_schema", &[0, 0, 0])), @r#"there is no table "sqlite_schema""#);
    insta::assert_snapshot!(says(&encoded("sqlite_sequence", &[0, 0, 0])), @r#"there is no table "sqlite_sequence""#);
    insta::assert_snapshot!(says(&encoded("odd", &[2])), @"2 is neither yes nor no");
    insta::assert_snapshot!(says(&encoded("odd", &[0, 0, 0, 7])), @"1 bytes are left over");
    insta::assert_snapshot!(says(&encoded("odd", &[0, 0, 200])), @"they end too early");
    insta::assert_snapshot!(says(&[FORMAT, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2]), @"a number is too large");
}

#[test]
fn rows_that_cannot_be_put_back_are_told_of_the_commit_that_has_them() {
    let (_dir, connection, recorder) = database();
    let mut commits = Vec::new();
    for statement in
        ["INSERT INTO odd (u) VALUES ('a')", "INSERT INTO odd (u) VALUES ('b')", "UPDATE odd SET v = 1 WHERE u = 'b'"]
    {
        connection.execute(statement, []).unwrap();
        commits.push(recorder.capture(&connection).unwrap().unwrap());
        recorder.clear();
    }
    let mut merged = Merged::default();
    for (commit, encoded) in [(7, &commits[0]), (8, &commits[1]), (9, &commits[2])] {
        merged.add(commit, encoded).unwrap();
    }
    // Another row has the unique value of the row in the commits 8 and 9.
    connection.execute_batch("DELETE FROM odd WHERE u IS NOT NULL; INSERT INTO odd VALUES (40, 'b', 0, 0)").unwrap();
    let (commit, error) = merged.put(&connection).unwrap_err();
    insta::assert_snapshot!(format!("{commit}: {error:#}"), @"9: rows of the table odd cannot be put back: UNIQUE constraint failed: odd.u: Error code 2067: constraint failed");
}

#[derive(Debug, Clone)]
enum Change {
    Put(i64, Option<i64>, Vec<u8>),
    Move(i64, i64),
    Remove(i64),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (0..12i64, prop::option::of(any::<i64>()), prop::collection::vec(any::<u8>(), 0..20))
            .prop_map(|(unique, number, bytes)| Change::Put(unique, number, bytes)),
        (0..12i64, 0..12i64).prop_map(|(from, to)| Change::Move(from, to)),
        (0..12i64).prop_map(Change::Remove),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn groups_of_changes_make_a_copy_like_the_original(groups in prop::collection::vec(prop::collection::vec(change(), 1..12), 1..6)) {
        let (dir, connection, recorder) = database();
        let (copy, at_once) = (copy_of(&dir, "b.db", &connection), copy_of(&dir, "c.db", &connection));
        let mut commits = Vec::new();
        for group in groups {
            for change in group {
                // A change that a constraint refuses has no effect.
                let _ = match change {
                    Change::Put(unique, number, bytes) => connection.execute(
                        "INSERT INTO odd (u, v, w) VALUES (?1, ?2, ?3)
                         ON CONFLICT (u) DO UPDATE SET v = excluded.v, w = excluded.w",
                        (unique, number, bytes),
                    ),
                    Change::Move(from, to) => connection.execute("UPDATE odd SET u = ?2 WHERE u = ?1", [from, to]),
                    Change::Remove(unique) => connection.execute("DELETE FROM odd WHERE u = ?1", [unique]),
                };
            }
            if let Some(encoded) = recorder.capture(&connection).unwrap() {
                recorder.clear();
                apply(&copy, &encoded).unwrap();
                commits.push(encoded);
            }
            prop_assert_eq!(digest(&copy), digest(&connection));
        }
        let mut merged = Merged::default();
        for (commit, encoded) in (1..).zip(&commits) {
            merged.add(commit, encoded).unwrap();
        }
        merged.put(&at_once).unwrap();
        prop_assert_eq!(digest(&at_once), digest(&connection));
    }

    #[test]
    fn bytes_from_anywhere_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = decode(&bytes);
        let _ = decode(&[&[FORMAT, 1][..], &bytes].concat());
    }

    #[test]
    fn damaged_bytes_never_panic(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>()) {
        let (_dir, connection, recorder) = database();
        connection.execute_batch("INSERT INTO odd (u, v, w) VALUES (1, 2.5, 'x'), ('y', NULL, x'00'); DELETE FROM odd WHERE u = 1").unwrap();
        let mut encoded = recorder.capture(&connection).unwrap().unwrap();
        let at = at.index(encoded.len());
        encoded[at] = byte;
        let _ = decode(&encoded);
        let _ = decode(&encoded[..cut.index(encoded.len())]);
    }
}
