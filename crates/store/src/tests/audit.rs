//! The audit log: filters, cursors, bounds, and the indexes that answer them.

use super::*;
use rusqlite::Connection;

fn entry(seconds: i64, who: &str, act: &str, result: &str) -> AuditEntry {
    let (subject, result) = (format!("at {seconds}"), result.to_owned());
    AuditEntry { at: at(seconds), who: who.into(), act: act.into(), subject, result, ..AuditEntry::default() }
}

fn on_pull(number: u64, project: &str, entry: AuditEntry) -> AuditEntry {
    AuditEntry { pull: Some(pull_id(number)), project: Some(project.into()), ..entry }
}

fn subjects(found: &AuditFound) -> Vec<&str> {
    found.rows.iter().map(|entry| entry.subject.as_str()).collect()
}

#[tokio::test]
async fn entries_are_filtered_by_everything_that_a_page_offers() {
    let (_dir, store) = open();
    let commit = CommitSha::from("c".repeat(40));
    // A project may be called as other subjects end.
    let label = format!("x of github.com/acme/other at {commit}");
    let of_drift = AuditEntry {
        subject: format!("{label} of github.com/acme/infra at {commit}"),
        project: Some(label.clone()),
        commit: Some(commit),
        request: Some("run".into()),
        ..entry(4, "api", "drift apply", "applied")
    };
    let of_repo = AuditEntry { subject: "github.com/acme/infra".into(), ..entry(5, "server", "end", "gone") };
    let drift_subject = of_drift.subject.clone();
    let fill = move |tx: &Tx<'_>| {
        tx.audit(&on_pull(1, "net/default", entry(1, "alice", "apply", "applied")))?;
        tx.audit(&on_pull(11, "net/default", entry(2, "Bob", "apply", "failed")))?;
        let elsewhere = PullId { repo: repo("github.com", "infra#1"), number: 1 };
        tx.audit(&AuditEntry { pull: Some(elsewhere), ..entry(3, "bob", "unlock", "refused: not permitted") })?;
        tx.audit(&of_drift)?;
        tx.audit(&of_repo)?;
        tx.audit(&entry(6, "bob", "apply lock", "deleted; somebody had it"))
    };
    store.write(fill).await.unwrap();
    let (drift, all) = (drift_subject.as_str(), AuditFilter::default);
    let of_repo = |name: &str| AuditFilter { repos: vec![repo("github.com", name)], ..all() };
    let expected = [
        (all(), vec!["at 6", "github.com/acme/infra", drift, "at 3", "at 2", "at 1"]),
        (AuditFilter { who: Some("BOB".into()), ..all() }, vec!["at 6", "at 3", "at 2"]),
        (AuditFilter { act: Some("apply".into()), ..all() }, vec!["at 2", "at 1"]),
        (AuditFilter { result: Some("refused".into()), ..all() }, vec!["at 3"]),
        (AuditFilter { result: Some("deleted".into()), ..all() }, vec!["at 6"]),
        (AuditFilter { result: Some("ref".into()), ..all() }, vec![]),
        (AuditFilter { request: Some("run".into()), ..all() }, vec![drift]),
        (of_repo("infra"), vec!["github.com/acme/infra", drift, "at 2", "at 1"]),
        (of_repo("infra#1"), vec!["at 3"]),
        (of_repo("other"), vec![]),
        (
            AuditFilter { repos: ["infra", "infra#1"].map(|name| repo("github.com", name)).into(), ..all() },
            vec!["github.com/acme/infra", drift, "at 3", "at 2", "at 1"],
        ),
        (AuditFilter { number: Some(1), ..all() }, vec!["at 3", "at 1"]),
        (AuditFilter { number: Some(1), ..of_repo("infra") }, vec!["at 1"]),
        (AuditFilter { project: Some("net/default".into()), ..all() }, vec!["at 2", "at 1"]),
        (AuditFilter { project: Some(label), ..of_repo("infra") }, vec![drift]),
        (AuditFilter { from: Some(at(3)), until: Some(at(5)), ..all() }, vec![drift, "at 3"]),
        (AuditFilter { who: Some("bob".into()), act: Some("apply".into()), from: Some(at(2)), ..all() }, vec!["at 2"]),
    ];
    let read = |view: &View<'_>| view.audit_words();
    let (acts, results) = store.read(read).await.unwrap();
    assert_eq!(acts, ["apply", "apply lock", "drift apply", "end", "unlock"]);
    assert_eq!(results, ["applied", "deleted", "failed", "gone", "refused"]);
    for (filter, subjects_expected) in expected {
        let asked = filter.clone();
        let found = store.read(move |view| view.list_audit(&asked, None, 9)).await.unwrap();
        assert_eq!((subjects(&found), found.older, found.looked), (subjects_expected, None, None), "{filter:?}");
    }
}

#[tokio::test]
async fn cursors_lead_to_every_entry_once_also_where_times_are_the_same() {
    let (_dir, store) = open();
    let fill = |tx: &Tx<'_>| {
        for number in 0..7 {
            tx.audit(&AuditEntry { at: at(number / 4), ..entry(number, "alice", "apply", "applied") })?;
        }
        Ok(())
    };
    store.write(fill).await.unwrap();
    for who in [None, Some("alice".to_owned())] {
        let filter = AuditFilter { who, ..AuditFilter::default() };
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let asked = filter.clone();
            let found = store.read(move |view| view.list_audit(&asked, after, 3)).await.unwrap();
            seen.extend(found.rows.into_iter().map(|entry| entry.subject));
            after = found.older;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(seen, (0..7).rev().map(|number| format!("at {number}")).collect::<Vec<_>>());
    }
}

/// Returns a state with 15,000 entries: one in 5,000 failed, and one in 7,500 is of `rare`.
fn many(dir: &tempfile::TempDir) -> Connection {
    let connection = schema::open_writer(&dir.path().join("tidelock.db"), Durability::Disk).unwrap().connection;
    let record = json(&on_pull(7, "net/default", entry(0, "alice", "apply", "applied"))).unwrap();
    let fill = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 15000)
        INSERT INTO audit (at, record) SELECT n, json_set(?1, '$.subject', 'entry ' || n, '$.request', 'request ' || n,
          '$.result', iif(n % 5000 = 0, 'failed', 'applied'), '$.who', iif(n % 7500 = 0, 'rare', 'alice')) FROM n";
    assert_eq!(connection.execute(fill, [record]).unwrap(), 15_000);
    connection
}

#[test]
fn every_filter_walks_an_index_in_the_order_of_the_list() {
    let dir = tempfile::tempdir().unwrap();
    let connection = many(&dir);
    for bits in 0..512_u32 {
        let is_set = |bit: u32| ((bits >> bit) & 1 == 1).then_some(());
        let filter = AuditFilter {
            repos: is_set(0).map(|()| repo("github.com", "infra")).into_iter().collect(),
            number: is_set(1).map(|()| 7),
            project: is_set(2).map(|()| "net/default".into()),
            who: is_set(3).map(|()| "Alice".into()),
            act: is_set(4).map(|()| "apply".into()),
            result: is_set(5).map(|()| "applied".into()),
            request: is_set(6).map(|()| "request 14999".into()),
            from: is_set(7).map(|()| Timestamp::UNIX_EPOCH),
            until: is_set(8).map(|()| at(0)),
        };
        let after = AuditCursor { at: 15_000, seq: 15_000 };
        for walk in filter.walks(Some(after)) {
            let steps = history::steps(&connection, &walk.sql("at, seq, record"));
            let [step] = steps.as_slice() else { panic!("{filter:?}: {steps:?}") };
            assert!(step.starts_with("SEARCH audit USING INDEX audit_"), "{filter:?}: {step}");
        }
        let view = View { connection: &connection };
        assert_eq!(subjects(&view.list_audit(&filter, Some(after), 1).unwrap()), ["entry 14999"], "{filter:?}");
    }
}

#[test]
fn a_search_that_finds_little_ends_and_goes_on_from_there() {
    let dir = tempfile::tempdir().unwrap();
    let connection = many(&dir);
    let view = View { connection: &connection };
    let of = |who: &str, result: &str| AuditFilter {
        act: Some("apply".into()),
        who: Some(who.into()),
        result: Some(result.into()),
        ..AuditFilter::default()
    };
    // The filter with the fewest entries is walked, so the rare ones are complete.
    let rare = view.list_audit(&of("rare", "failed"), None, 9).unwrap();
    assert_eq!((subjects(&rare), rare.older, rare.looked), (vec!["entry 15000"], None, None));
    // No index has results and requests.
    let failed = view.list_audit(&of("alice", "failed"), None, 9).unwrap();
    assert_eq!((subjects(&failed), failed.looked), (vec!["entry 10000"], Some(5_000)));
    let failed = view.list_audit(&of("alice", "failed"), failed.older, 9).unwrap();
    assert_eq!((subjects(&failed), failed.looked), (vec!["entry 5000"], Some(5_000)));
    let of_request = AuditFilter { request: Some("request 7".into()), ..AuditFilter::default() };
    let newest = view.list_audit(&of_request, None, 9).unwrap();
    assert_eq!((newest.rows.len(), newest.looked), (0, Some(5_000)));
    let until = Timestamp::from_microsecond(100).ok();
    let found = view.list_audit(&AuditFilter { until, ..of_request }, None, 9).unwrap();
    assert_eq!((subjects(&found), found.older, found.looked), (vec!["entry 7"], None, None));
    let several = ["infra", "none"].map(|name| repo("github.com", name)).into();
    let common = AuditFilter { repos: several, until: Some(at(1)), ..of("alice", "applied") };
    let first = view.list_audit(&common, None, 9).unwrap();
    assert_eq!((first.rows.len(), first.looked), (9, None));
    let nothing = AuditFilter { repos: vec![repo("h", "a"), repo("h", "b")], ..AuditFilter::default() };
    let (mut after, mut looks) = (None, Vec::new());
    loop {
        let found = view.list_audit(&nothing, after, 9).unwrap();
        assert!(found.rows.is_empty());
        looks.push((found.looked, found.older.map(|older| older.at)));
        after = found.older;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(looks, [(Some(5_000), Some(10_001)), (Some(5_000), Some(5_001)), (None, None)]);
}
