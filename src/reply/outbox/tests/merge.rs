//! Tests of merges: they follow the effects recorded before them, happen once, and record their consequences in the same commit.

use super::*;
use crate::domain::automerge::Automerge;
use crate::domain::state::{ProjectState, ProjectStatus};
use crate::domain::{Base, Event, Head, ProjectId, PullAction};

fn open() -> PullRequest {
    PullRequest {
        id: pull(1),
        title: "t".into(),
        url: "u".into(),
        author: "ann".into(),
        head: Head {
            branch: "topic".into(),
            commit: "h".into(),
            repo_owner: "o".into(),
            repo_name: "n".into(),
            clone_url: None,
        },
        base: Base { branch: "main".into(), commit: "b".into() },
        draft: false,
        state: PullState::Open,
        fork: false,
        labels: Vec::new(),
        repo_size_kib: None,
        clone_url: "x".into(),
    }
}

fn merge() -> Effect {
    let how = Automerge { base_branch: "main".into(), delete_branch: true, ..Automerge::default() };
    Effect::Merge { head: "h".into(), how, refusal: "r".into(), again: false }
}

/// Returns a bench on which everything is applied.
async fn bench(now: PullRequest) -> Bench {
    let bench = Bench::new(Fake { pull: Mutex::new(Some(now)), ..Fake::default() });
    record_state(&bench, ProjectState::Applied).await;
    bench
}

/// Records the state of its only project.
async fn record_state(bench: &Bench, state: ProjectState) {
    let project = ProjectId { dir: ".".into(), workspace: "default".into(), name: None };
    let updated = Timestamp::now();
    let status =
        ProjectStatus { project, state, head: "h".into(), summary: None, job: None, updated, waits_for: Vec::new() };
    bench.store.write(move |tx| tx.put_project_status(&pull(1), &status)).await.unwrap();
}

/// Processes all effects; returns the deliveries that are recorded then.
async fn worked_off(bench: &Bench) -> Vec<Delivery> {
    let outbox = bench.start().await;
    outbox.idle().await;
    let of = |view: &crate::store::View<'_>| {
        assert_eq!(view.pending_effects(None, 10)?, []);
        view.unfinished_deliveries()
    };
    let recorded: Vec<Delivery> = bench.store.read(of).await.unwrap().into_iter().map(|(one, _)| one).collect();
    let mut told = Vec::new();
    let mut closings = outbox.closings().unwrap();
    while let Ok(delivery) = closings.try_recv() {
        told.push(delivery);
    }
    assert_eq!(told, recorded, "what is recorded is told");
    recorded
}

#[tokio::test]
async fn a_merge_follows_what_was_recorded_before_it_and_is_recorded_as_a_closing() {
    let bench = bench(open()).await;
    bench.record(1, vec![comment("applied"), status("apply", "done"), merge()]).await;
    let closings = worked_off(&bench).await;
    let log = bench.host.log();
    let at = |what: &str| log.iter().position(|one| one.starts_with(what)).unwrap_or_else(|| panic!("{what}: {log:?}"));
    assert!(at("merge") > at("apply done") && at("merge") > at("comment"), "{log:?}");
    assert_eq!(log.iter().filter(|one| one.starts_with("merge")).count(), 1);
    assert_eq!(log.last().unwrap(), "delete the branch");
    let [Delivery { event: Event::Pull(event), .. }] = &closings[..] else { panic!("{closings:?}") };
    assert_eq!(event.action, PullAction::Closed { merged: true });
}

#[tokio::test]
async fn a_merge_whose_answer_was_lost_is_not_tried_again() {
    let bench = bench(open()).await;
    bench.host.fail([Fate::Done, Fate::DoneButLost]);
    bench.record(1, vec![merge()]).await;
    assert_eq!(worked_off(&bench).await.len(), 1);
    assert_eq!(bench.host.log(), ["look", "merge, delete the branch: true", "look", "delete the branch"]);
}

#[tokio::test]
async fn a_refusal_is_told_once_with_its_reason() {
    let moved = PullRequest { head: Head { commit: "newer".into(), ..open().head }, ..open() };
    let rejected = HostError::Rejected { what: "PUT".into(), status: 405, message: "2 reviews are missing".into() };
    for (now, fates, reason) in [
        (moved, vec![], "commit h was applied, and the pull request is at newer now"),
        (
            open(),
            vec![Fate::Done, Fate::Fails(rejected)],
            "The host does not merge this pull request: 2 reviews are missing",
        ),
        (open(), vec![Fate::Done, Fate::Fails(denied())], "`tidelock doctor` says what its token lacks"),
    ] {
        let bench = bench(now).await;
        bench.host.fail(fates);
        bench.record(1, vec![merge()]).await;
        assert_eq!(worked_off(&bench).await, []);
        let comments = lock(&bench.host.comments).clone();
        assert!(comments.len() == 1 && comments[0].body.contains(reason), "{reason}: {comments:?}");
        assert!(comments[0].body.contains("### Automerging failed"));
    }
}

#[tokio::test]
async fn a_host_that_does_not_answer_for_long_is_told_in_the_end() {
    let bench = bench(open()).await;
    bench.host.fail((0..10).map(|_| Fate::Fails(unavailable())));
    bench.record(1, vec![merge()]).await;
    assert_eq!(worked_off(&bench).await, []);
    assert_eq!(bench.host.log().iter().filter(|one| *one == "look").count(), 10);
    assert_eq!(bench.host.comment_titles(), ["### Automerging failed"]);
}

#[tokio::test]
async fn a_pull_request_that_was_closed_meanwhile_is_left_alone() {
    let bench = bench(PullRequest { state: PullState::Closed, ..open() }).await;
    bench.record(1, vec![merge()]).await;
    assert_eq!((worked_off(&bench).await, bench.host.log()), (Vec::new(), vec!["look".to_owned()]));
}

#[tokio::test]
async fn what_was_planned_again_while_the_host_was_away_is_not_merged() {
    let bench = bench(open()).await;
    bench.record(1, vec![merge()]).await;
    record_state(&bench, ProjectState::Planned).await;
    assert_eq!(worked_off(&bench).await, []);
    assert_eq!(bench.host.log().iter().filter(|one| one.starts_with("merge")).count(), 0);
    let comments = lock(&bench.host.comments).clone();
    assert!(comments.len() == 1 && comments[0].body.contains("planned again"), "{comments:?}");
}
