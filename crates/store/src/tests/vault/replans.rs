//! The upgrade of states of format 7, in which automatic re-plans were deliveries.

use super::super::turns::begin;
use super::buckets::fresh;
use super::*;
use crate::rows::ChangeRecorder;
use rusqlite::Connection;
use tidelock_core::domain::waiting::{ReplanId, ReplanState};
use tidelock_vault::{Changes, Image};

/// Returns a pull request of a repository whose name has the separators of keys in it.
fn odd_pull(number: u64) -> PullId {
    PullId { repo: RepoId { owner: "acme/a:b".into(), ..repo("github.com", "in:fra#1") }, number }
}

/// Returns the identity of a re-plan as format 7 has it.
fn identity(number: u64) -> String {
    format!("replan:{}:170000000000{number}", odd_pull(number))
}

/// A database of format 7 whose changes become commits.
struct OldState {
    connection: Connection,
    recorder: ChangeRecorder,
}

impl OldState {
    fn new(path: &Path) -> OldState {
        let mut connection = schema::open_raw(path).unwrap();
        schema::migrate(&connection, 7).unwrap();
        let recorder = ChangeRecorder::attach(&mut connection).unwrap();
        OldState { connection, recorder }
    }

    fn put_delivery(&self, identity: &str, state: &str, record: &str) {
        self.connection
            .execute(
                "INSERT INTO deliveries (identity, host_id, state, received, record) VALUES (?1, '', ?2, ?3, ?4)",
                (identity, state, micros(at(5)), record),
            )
            .unwrap();
    }

    /// Adds a re-plan of the project `net` of this pull request.
    fn put_replan(&self, number: u64, turn: u64, state: &str) {
        let identity = format!("{}{turn}", identity(number));
        let event = serde_json::json!({"Replan": {"pull": odd_pull(number), "projects": [project("net")]}});
        let record = serde_json::json!({"identity": identity, "host_id": "replan", "received": at(5), "event": event});
        self.put_delivery(&identity, state, &record.to_string());
    }

    fn put_run(&self, id: &str, delivery: Option<String>, finished: Option<Timestamp>) {
        let mut record = serde_json::to_value(run(id, finished)).unwrap();
        assert_eq!((record["delivery"].is_null(), record.get("replan")), (true, None));
        record["delivery"] = serde_json::json!(delivery);
        self.connection
            .execute(
                "INSERT INTO runs (id, pull, started, finished, record) VALUES (?1, ?2, ?3, ?4, ?5)",
                (id, odd_pull(1).to_string(), micros(at(0)), finished.map(micros), record.to_string()),
            )
            .unwrap();
    }

    /// Adds re-plans that are done, queued, running, and running without a run.
    fn fill(&self) {
        self.put_delivery("person", "running", &json(&delivery("person")).unwrap());
        self.put_replan(1, 0, "queued");
        let done = "UPDATE deliveries SET state = 'done', finished = 1, record = NULL WHERE identity = ?1";
        self.connection.execute(done, [format!("{}0", identity(1))]).unwrap();
        self.put_run("ended", Some(format!("{}0", identity(1))), Some(at(1)));
        self.put_run("of person", Some("person".into()), None);
        self.put_run("of nobody", None, None);
        self.put_replan(2, 0, "queued");
        self.put_replan(3, 0, "running");
        self.put_run("cut", Some(format!("{}0", identity(3))), None);
        self.put_replan(4, 0, "running");
    }

    /// Adds a re-plan that a shutdown has queued again, with its run, and a later turn of its pull request.
    fn stop(&self) {
        self.put_replan(5, 0, "queued");
        self.put_run("stopped", Some(format!("{}0", identity(5))), None);
        self.put_replan(5, 1, "queued");
    }

    async fn commit(&self, leader: &Leader) {
        let rows = self.recorder.capture(&self.connection).unwrap().unwrap();
        self.recorder.clear();
        leader.commit(Changes { schema: 7, rows: rows.into(), blobs: vec![] }).await.unwrap();
    }
}

/// Checks that each re-plan is a row now, with its runs, and that nothing else has changed.
fn check(view: &View<'_>) -> Result<()> {
    let replans: Vec<_> =
        view.replans()?.into_iter().map(|r| (r.id.0, r.scope.pull.number, r.state, r.queued)).collect();
    let (queued, running) = (ReplanState::Queued, ReplanState::Running);
    let expected = [(3, 2, queued), (4, 3, running), (5, 4, running), (6, 5, running), (7, 5, queued)];
    assert_eq!(replans, expected.map(|(id, pull, state)| (id, pull, state, at(5))));
    for replan in view.replans()? {
        assert_eq!(replan.scope.projects, [project("net")]);
        assert!(view.replans_of(&replan.scope.pull)?.contains(&replan), "{}", replan.scope.pull);
    }
    let deliveries = view.unfinished_deliveries()?;
    assert_eq!(deliveries, [(delivery("person"), DeliveryState::Running)]);
    assert!(view.knows_delivery(&format!("{}0", identity(1)).into())?, "one that is done stays for its time");
    let runs: Vec<_> = view.unfinished_runs()?.into_iter().map(|run| (run.id.to_string(), run.cause)).collect();
    let expected = [
        ("of person", Cause::Delivery("person".into())),
        ("of nobody", Cause::None),
        ("cut", Cause::Replan(ReplanId(4))),
        ("stopped", Cause::Replan(ReplanId(6))),
    ];
    assert_eq!(runs, expected.map(|(id, cause)| (id.to_owned(), cause)));
    let ended = view.run(&"ended".into())?.unwrap();
    assert_eq!(ended, Run { cause: Cause::Delivery(format!("{}0", identity(1)).into()), ..run("ended", Some(at(1))) });
    Ok(())
}

#[tokio::test]
async fn replans_of_format_7_are_moved_and_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let old = OldState::new(&dir.path().join(DATABASE));
    old.fill();
    old.stop();
    drop(old);
    let store = Store::open(dir.path()).unwrap();
    store.read(check).await.unwrap();
    store
        .write(|tx| {
            for id in [4, 6] {
                assert_eq!(begin(tx, ReplanId(id))?, [project("net")], "its run goes on");
            }
            for id in [3, 5, 7] {
                assert_eq!(begin(tx, ReplanId(id))?, [], "nobody waits any more");
            }
            tx.end_replan(ReplanId(6))?;
            let left: Vec<RunId> = tx.unfinished_runs()?.into_iter().map(|run| run.id).collect();
            assert_eq!(left, ["of person", "of nobody", "cut"]);
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_vault_of_format_7_is_restored_with_its_replans_from_base_and_journal() {
    let bucket = fresh();
    let vault = vault(bucket.clone(), no_bases());
    let lease = vault.acquire().await.unwrap();
    let (leader, _) = vault.lead(lease).await.unwrap().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("old.db");
    let old = OldState::new(&path);
    old.fill();
    old.commit(&leader).await;
    let (position, database) = (leader.position(), dir.path().join("base.db"));
    std::fs::copy(&path, &database).unwrap();
    let image = Image { position, schema: 7, database, blobs: vec![] };
    assert!(leader.write_base(image).await.unwrap());
    old.stop();
    old.commit(&leader).await;
    leader.release().await.unwrap();

    let server = Server::start(&bucket).await;
    server.store.read(check).await.unwrap();
    // Rows of the new format on top of the moved ones.
    let change = |tx: &Tx<'_>| -> Result<Vec<i64>> {
        tx.end_replan(ReplanId(5))?;
        let lock = |number| project_lock(repo("github.com", "infra"), project("net"), number, 0);
        for number in [1, 2] {
            tx.lock_project(&lock(number))?;
        }
        tx.close_pull(&pull_id(1))?;
        Ok(tx.replans()?.into_iter().map(|replan| replan.id.0).collect())
    };
    assert_eq!(server.store.write(change).await.unwrap(), [3, 4, 6, 7, 8]);
    let state = server.digest();
    server.stop().await;

    assert_eq!(digest_in(&restored(&bucket, None).await), state);
    let former = restored(&bucket, Some(position.seq)).await;
    let connection = schema::open_reader(&former.path().join(DATABASE)).unwrap();
    assert_eq!(schema::format_of(&connection).unwrap(), 7, "a state from before the upgrade stays as it was");
    for base in bucket.list("base/", "").await.unwrap() {
        assert!(bucket.delete(&base.name, base.generation).await.unwrap());
    }
    assert_eq!(digest_in(&restored(&bucket, None).await), state, "from the journal alone");
}
