//! Behaviour of the store through its public functions. `model` compares it with a simple model, `crash` kills it.

mod audit;
mod crash;
mod drift;
mod figures;
mod history;
mod listing;
mod model;
mod overdue;
mod projects;
mod reach;
mod records;
mod turns;
mod vault;

use super::*;
use crate::test_support::wanted;
use anyhow::bail;
use std::sync::mpsc;
use tidelock_core::config::LockMode;
use tidelock_core::domain::command::{CommandName, Trigger};
use tidelock_core::domain::outcome::PlanSummary;
use tidelock_core::domain::state::*;
use tidelock_core::domain::state_address::StateAddress;
use tidelock_core::domain::*;
use tidelock_core::locks::LockEvent;

fn repo(host: &str, name: &str) -> RepoId {
    RepoId { host: host.into(), owner: "acme".into(), name: name.into() }
}

fn pull_id(number: u64) -> PullId {
    PullId { repo: repo("github.com", "infra"), number }
}

fn project(dir: &str) -> ProjectId {
    ProjectId { dir: dir.into(), workspace: "default".into(), name: None }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).unwrap()
}

fn delivery(identity: &str) -> Delivery {
    let comment = CommentEvent {
        pull: pull_id(1),
        clone_url: "https://github.com/acme/infra.git".into(),
        comment_id: 7,
        author: "alice".into(),
        body: "atlantis plan".into(),
    };
    Delivery { identity: identity.into(), host_id: "0-1-2".into(), received: at(0), event: Event::Comment(comment) }
}

fn pull_request(number: u64) -> PullRequest {
    PullRequest {
        id: pull_id(number),
        title: "Add a subnet".into(),
        url: format!("https://github.com/acme/infra/pull/{number}"),
        author: "alice".into(),
        head: Head {
            branch: "x".into(),
            commit: "a".repeat(40).into(),
            repo_owner: "acme".into(),
            repo_name: "infra".into(),
            clone_url: None,
        },
        base: Base { branch: "main".into(), commit: "b".repeat(40).into() },
        draft: false,
        state: PullState::Open,
        fork: false,
        labels: vec![],
        repo_size_kib: None,
        clone_url: "https://github.com/acme/infra.git".into(),
    }
}

fn project_lock(repo: RepoId, project: ProjectId, number: u64, since: i64) -> ProjectLock {
    let pull = PullId { repo: repo.clone(), number };
    let holder = LockHolder {
        url: format!("https://{}/{}/pull/{number}", repo.host, repo.full_name()),
        pull,
        title: "Add a subnet".into(),
        user: "alice".into(),
        since: at(since),
        overdue: None,
    };
    ProjectLock { repo, project, holder, applied: false, why: None, address: StateAddress::default() }
}

/// Single changes of locks and plans through lock events.
impl Tx<'_> {
    fn unlock_project(&self, project: &ProjectId, pull: &PullId) -> Result<bool> {
        let event = LockEvent::NotPlanned { pull: pull.clone(), project: project.clone() };
        Ok(self.record_lock_event(&event)?.freed().next().is_some())
    }

    fn close_pull(&self, pull: &PullId) -> Result<tidelock_core::locks::Consequences> {
        self.record_lock_event(&LockEvent::Closed { pull: pull.clone(), remarks: Vec::new(), merged: None })
    }

    fn unlock_pull(&self, pull: &PullId) -> Result<Vec<ProjectLock>> {
        Ok(self.close_pull(pull)?.freed().cloned().collect())
    }

    fn discard_plans(&self, pull: &PullId) -> Result<Vec<PlanRecord>> {
        Ok(self.close_pull(pull)?.dropped())
    }
}

fn plan(id: &str, number: u64, dir: &str) -> PlanRecord {
    PlanRecord {
        id: id.into(),
        pull: pull_id(number),
        project: project(dir),
        head: "a".repeat(40).into(),
        base: "b".repeat(40).into(),
        base_branch: "main".into(),
        config_digest: "c".repeat(64),
        tool: "terraform 1.11.4".into(),
        path: Some(format!("plans/{id}")),
        sha256: Some("d".repeat(64)),
        summary: PlanSummary { add: 1, ..PlanSummary::default() },
        made: at(0),
        job: "e".repeat(32).into(),
        consumed_by: None,
        left: Default::default(),
        dependencies: Vec::new(),
        may_depend_on_more: false,
        max_age: None,
        inputs: None,
        changes: None,
        incomparable: None,
        part: None,
        guards: Vec::new(),
        tree: None,
        auto_apply: tidelock_core::domain::AutoApply::Never,
        arguments: Vec::new(),
        deleted: false,
    }
}

fn status(dir: &str, state: ProjectState) -> ProjectStatus {
    ProjectStatus {
        project: project(dir),
        state,
        head: "a".repeat(40).into(),
        summary: None,
        job: None,
        updated: at(0),
        waits_for: Vec::new(),
    }
}

/// Returns a page of the rows with these words.
fn window(words: &str, offset: usize, limit: usize) -> Window {
    Window { search: Search::new(words), offset, limit }
}

fn run(id: &str, finished: Option<Timestamp>) -> Run {
    Run {
        id: id.into(),
        pull: pull_id(1),
        command: CommandName::Plan,
        trigger: Trigger::Comment,
        user: "alice".into(),
        head: "a".repeat(40).into(),
        cause: Cause::None,
        started: at(0),
        everything: true,
        typed: String::new(),
        fault: None,
        answered: false,
        end: None,
        results: Vec::new(),
        automerge: None,
        received: None,
        finished,
    }
}

fn job(id: &str, state: JobState) -> Job {
    Job {
        id: id.into(),
        run: "r".into(),
        pull: pull_id(1),
        kind: "plan".into(),
        project: Some(project(".")),
        user: "alice".into(),
        head: "a".repeat(40).into(),
        state,
        summary: String::new(),
        outcome: None,
        started: at(0),
        finished: None,
        state_lock: Default::default(),
        remote: None,
    }
}

fn comment(number: u64, body: &str) -> NewEffect {
    NewEffect {
        pull: pull_id(number),
        effect: Effect::Comment { run: "r".into(), part: 1, body: body.into(), over: None },
    }
}

fn open() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    (dir, store)
}

async fn identities(store: &Store) -> Vec<String> {
    let deliveries = store.read(|view| view.unfinished_deliveries()).await.unwrap();
    deliveries.into_iter().map(|(delivery, _)| delivery.identity.to_string()).collect()
}

#[tokio::test]
async fn an_error_or_a_panic_undoes_its_own_change_alone() {
    let (_dir, store) = open();
    // The first change blocks the writer until the others are queued, so that all four are one group.
    let (go, wait) = mpsc::channel::<()>();
    let first = store.write(move |tx| {
        wait.recv()?;
        tx.accept_delivery(&delivery("first"))
    });
    let failing = store.write(|tx| -> Result<()> {
        tx.accept_delivery(&delivery("failing"))?;
        bail!("no, after all")
    });
    let panicking = store.write(|tx| -> Result<()> {
        tx.accept_delivery(&delivery("panicking"))?;
        panic!("on purpose")
    });
    let last = store.write(|tx| {
        assert_eq!(tx.unfinished_deliveries()?.len(), 1);
        tx.accept_delivery(&delivery("last"))
    });
    let release = async move { go.send(()).unwrap() };
    let (first, failing, panicking, last, ()) = futures::join!(first, failing, panicking, last, release);
    assert!(first.unwrap() && last.unwrap());
    insta::assert_snapshot!(failing.unwrap_err(), @"no, after all");
    insta::assert_snapshot!(panicking.unwrap_err(), @"a change of state panicked, and was undone: on purpose");
    assert_eq!(identities(&store).await, ["first", "last"]);
}

#[tokio::test]
async fn a_change_is_answered_with_its_error_when_the_group_cannot_be_committed() {
    let (_dir, store) = open();
    let broken = store.write(|tx| {
        tx.accept_delivery(&delivery("lost"))?;
        // SQLite does this by itself if the disk is full.
        tx.connection.execute_batch("ROLLBACK")?;
        Ok(())
    });
    let error = broken.await.unwrap_err().to_string();
    assert!(error.starts_with("the change could not be recorded and was undone"), "{error}");
    assert!(store.write(|tx| tx.accept_delivery(&delivery("next"))).await.unwrap());
    assert_eq!(identities(&store).await, ["next"]);
}

#[tokio::test]
async fn reads_see_committed_state_only_and_one_moment_of_it() {
    let (_dir, store) = open();
    let (written, seen) = mpsc::channel::<()>();
    let (go, wait) = mpsc::channel::<()>();
    let (durable, answered) = mpsc::channel::<()>();
    let writing = tokio::spawn({
        let store = store.clone();
        async move {
            let change = store.write(move |tx| {
                tx.accept_delivery(&delivery("one"))?;
                written.send(())?;
                Ok(wait.recv()?)
            });
            change.await.unwrap();
            durable.send(()).unwrap();
        }
    });
    let reading = store.read(move |view| {
        seen.recv()?;
        let before = view.unfinished_deliveries()?.len();
        go.send(())?;
        answered.recv()?;
        assert_eq!(view.unfinished_deliveries()?.len(), before, "a query stays at the moment where it began");
        Ok(before)
    });
    assert_eq!(reading.await.unwrap(), 0);
    writing.await.unwrap();
    assert_eq!(identities(&store).await, ["one"]);
}

#[tokio::test]
async fn a_panicking_query_is_an_error_and_reading_goes_on() {
    let (_dir, store) = open();
    for _ in 0..5 {
        let result = store.read(|_| -> Result<()> { panic!("on purpose") }).await;
        assert!(result.is_err());
    }
    assert!(identities(&store).await.is_empty());
}

#[tokio::test]
async fn closing_keeps_all_accepted_writes_and_refuses_later_ones() {
    let (dir, store) = open();
    let writes: Vec<_> =
        (0..100).map(|number| store.write(move |tx| tx.accept_delivery(&delivery(&number.to_string())))).collect();
    let writing = futures::future::join_all(writes);
    let (written, first, second) = futures::join!(writing, store.close(), store.close());
    first.unwrap();
    second.unwrap();
    assert!(written.into_iter().all(|result| result.unwrap()));
    let refused = store.write(|tx| tx.accept_delivery(&delivery("late"))).await.unwrap_err().to_string();
    insta::assert_snapshot!(refused, @"the server is stopping: its state is closed, nothing more is read or recorded; try again when it is back");
    assert_eq!(store.read(|view| view.locks()).await.unwrap_err().to_string(), refused);
    store.close().await.unwrap();
    assert!(!dir.path().join("tidelock.db-wal").exists(), "a closed database is one file");
    assert_eq!(identities(&Store::open(dir.path()).unwrap()).await.len(), 100);
}

#[tokio::test]
async fn a_store_that_is_dropped_without_closing_can_be_opened_again_with_its_writes() {
    let (dir, store) = open();
    store.write(|tx| tx.accept_delivery(&delivery("one"))).await.unwrap();
    drop(store);
    assert_eq!(identities(&Store::open(dir.path()).unwrap()).await, ["one"]);
}

#[tokio::test]
async fn a_snapshot_taken_while_writes_go_on_opens_as_the_state_of_one_moment() {
    let (dir, store) = open();
    let copy = tempfile::tempdir().unwrap();
    let to = copy.path().join(DATABASE);
    let writing = tokio::spawn({
        let store = store.clone();
        async move {
            for number in 0..200 {
                store.write(move |tx| tx.accept_delivery(&delivery(&format!("{number:03}")))).await.unwrap();
            }
        }
    });
    while identities(&store).await.is_empty() {
        tokio::task::yield_now().await;
    }
    let reader = schema::open_reader(&dir.path().join(DATABASE)).unwrap();
    tokio::task::spawn_blocking(move || reader.execute("VACUUM INTO ?1", [to.to_str().unwrap()]).unwrap())
        .await
        .unwrap();
    writing.await.unwrap();
    let copied = identities(&Store::open(copy.path()).unwrap()).await;
    let all = identities(&store).await;
    assert!(!copied.is_empty());
    assert_eq!(copied, all[..copied.len()]);
}

#[tokio::test]
async fn whoever_waits_for_the_end_of_a_delivery_is_told_when_it_is_committed() {
    let (_dir, store) = open();
    let mut ends = store.deliveries_finished();
    store.write(|tx| tx.accept_delivery(&delivery("a"))).await.unwrap();
    store.write(|tx| tx.set_delivery_state(&"a".into(), DeliveryState::Running, "")).await.unwrap();
    assert!(!ends.has_changed().unwrap());
    store.write(|tx| tx.set_delivery_state(&"a".into(), DeliveryState::Done, "")).await.unwrap();
    ends.changed().await.unwrap();
}
