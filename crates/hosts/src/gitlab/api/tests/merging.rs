//! Mergeability and merges.

use super::*;

fn unmergeable(status: &str) -> Value {
    with(merge_request(), "detailed_merge_status", status)
}

fn job(name: &str, status: &str, author: &str) -> Value {
    json!({"id": 1, "name": name, "status": status, "allow_failure": false, "author": {"username": author}})
}

const BOT: &str = "project_1_bot_3cca1d02";

#[tokio::test]
async fn the_host_is_asked_again_while_it_checks() {
    let stage = stage(|count, _| match count {
        0 => ok(unmergeable("unchecked")),
        1 => ok(unmergeable("checking")),
        2 => ok(unmergeable("approvals_syncing")),
        _ => ok(merge_request()),
    })
    .await;
    assert!(stage.host.mergeability(&known_pull()).await.unwrap().mergeable);
    let never = answering(vec![("merge_requests", 200, unmergeable("preparing"))]).await;
    let judged = never.host.mergeability(&known_pull()).await.unwrap();
    assert!(!judged.mergeable && judged.detail.contains("not found out yet"), "{judged:?}");
    assert_eq!(never.requests().len(), 10);
}

#[tokio::test]
async fn obstacles_are_worded() {
    for (told, words) in [
        (unmergeable("conflict"), "conflicts with `main`"),
        (with(merge_request(), "has_conflicts", true), "conflicts with `main`"),
        (unmergeable("need_rebase"), "rebased onto `main`"),
        (unmergeable("not_approved"), "approvals are missing"),
        (unmergeable("requested_changes"), "requested changes"),
        (with(merge_request(), "draft", true), "draft"),
        (with(unmergeable("ci_must_pass"), "blocking_discussions_resolved", false), "threads"),
        (with(merge_request(), "state", "merged"), "closed"),
        (with(merge_request(), "sha", FIRST), "moved on"),
        (unmergeable("brand_new`<b>"), "`brand_newb`"),
    ] {
        let stage = answering(vec![("merge_requests/7", 200, told)]).await;
        let judged = stage.host.mergeability(&known_pull()).await.unwrap();
        assert!(!judged.mergeable && judged.detail.contains(words), "{words}: {judged:?}");
    }
}

#[tokio::test]
async fn our_own_statuses_do_not_block_and_hide_nothing() {
    let none = json!({"approvals_required": 0, "approvals_left": 0, "approved_by": []});
    let ours = job("atlantis/apply", "running", BOT);
    let allowed = with(job("lint", "failed", "ann"), "allow_failure", true);
    for (jobs, approvals, want) in [
        (json!([ours, job("build", "success", "ann"), allowed]), none.clone(), ""),
        (json!([ours, job("build", "failed", "ann")]), none.clone(), "`build` is failed"),
        (json!([ours, job("deploy", "manual", "ann")]), none.clone(), "`deploy` is manual"),
        // Somebody else's status with a name of ours.
        (json!([job("atlantis/apply", "running", "eve")]), none.clone(), "`atlantis/apply` is running"),
        // A job of a child pipeline, for example.
        (json!([job("build", "success", "ann")]), none.clone(), "its pipeline is running"),
        (json!([ours]), with(none.clone(), "approvals_left", 2), "GitLab requires 2 more approvals"),
        // As on GitHub: an apply may be tried again, and a plan has to succeed first.
        (json!([job("atlantis/apply: a", "failed", BOT), job("atlantis/plan", "canceled", BOT)]), none.clone(), ""),
        (json!([job("atlantis/plan", "failed", BOT), ours]), none.clone(), "`atlantis/plan` is failed"),
    ] {
        for status in ["ci_must_pass", "ci_still_running"] {
            let stage = answering(vec![
                ("/approvals", 200, approvals.clone()),
                ("/statuses?pipeline_id=77056819", 200, jobs.clone()),
                ("merge_requests/7", 200, unmergeable(status)),
            ])
            .await;
            let judged = stage.host.mergeability(&known_pull()).await.unwrap();
            assert_eq!((judged.mergeable, want.is_empty()), (want.is_empty(), judged.mergeable), "{judged:?}");
            assert!(judged.detail.contains(want), "{want}: {judged:?}");
        }
    }
    let told = with(unmergeable("ci_must_pass"), "head_pipeline", Value::Null);
    let stage = answering(vec![("/approvals", 200, none), ("merge_requests/7", 200, told)]).await;
    assert!(!stage.host.mergeability(&known_pull()).await.unwrap().mergeable);
}

#[tokio::test]
async fn the_pipeline_of_an_earlier_head_is_not_believed() {
    let none = json!({"approvals_required": 0, "approvals_left": 0, "approved_by": []});
    for (sha, reference, is_believed) in [
        (HEAD, "topic", true),
        (FIRST, "refs/merge-requests/7/merge", true),
        (FIRST, "refs/merge-requests/7/train", true),
        (FIRST, "topic", false),
        (FIRST, "refs/merge-requests/7/head", false),
        (FIRST, "refs/merge-requests/70/merge", false),
    ] {
        let pipeline = json!({"id": 5, "project_id": 278964, "sha": sha, "ref": reference, "status": "running"});
        let stage = answering(vec![
            ("/approvals", 200, none.clone()),
            ("/statuses?pipeline_id=5", 200, json!([job("atlantis/apply", "running", BOT)])),
            ("merge_requests/7", 200, with(unmergeable("ci_still_running"), "head_pipeline", pipeline)),
        ])
        .await;
        let judged = stage.host.mergeability(&known_pull()).await.unwrap();
        assert_eq!(judged.mergeable, is_believed, "{sha} {reference}: {judged:?}");
        assert_eq!(judged.detail.contains("its pipeline has not started"), !is_believed, "{judged:?}");
    }
}

fn project(trains: bool) -> Value {
    json!({"id": 278964, "path_with_namespace": "acme/platform/infra", "merge_trains_enabled": trains})
}

async fn merging(told: Value, answer: (u16, Value), trains: bool) -> Stage {
    let (status, body) = answer;
    stage(move |_, request| match request {
        _ if request.starts_with("PUT") || request.starts_with("POST") => refused(status, body.clone()),
        _ if request.contains("merge_requests") => ok(told.clone()),
        _ => ok(project(trains)),
    })
    .await
}

#[tokio::test]
async fn a_merge_names_the_head_and_leaves_the_rest_to_the_project() {
    let merged = with(with(merge_request(), "state", "merged"), "merge_commit_sha", FIRST);
    let stage = merging(merge_request(), (200, merged), false).await;
    let done = stage.host.merge(&known_pull(), None, SourceBranch::Delete).await.unwrap();
    assert_eq!(done, Merging::Merged(Some(FIRST.into())));
    assert_eq!(stage.requests().last().unwrap(), &format!("PUT {AT}/merge_requests/7/merge"));
    assert_eq!(stage.body_of("PUT"), json!({"sha": HEAD, "should_remove_source_branch": true}));

    let merged = with(merge_request(), "state", "merged");
    let stage = merging(merge_request(), (200, merged), false).await;
    stage.host.merge(&PullRequest { fork: true, ..known_pull() }, Some("squash"), SourceBranch::Delete).await.unwrap();
    assert_eq!(stage.body_of("PUT"), json!({"sha": HEAD, "squash": true}));
}

#[tokio::test]
async fn a_merge_that_goes_on_is_waited_for() {
    let locked = with(merge_request(), "state", "locked");
    let merged = with(with(merge_request(), "state", "merged"), "squash_commit_sha", BASE);
    let stage = stage(move |count, request| match request {
        _ if request.starts_with("PUT") => ok(locked.clone()),
        _ if !request.contains("merge_requests") => ok(project(false)),
        _ if count < 3 => ok(merge_request()),
        _ if count < 5 => ok(locked.clone()),
        _ => ok(merged.clone()),
    })
    .await;
    let done = stage.host.merge(&known_pull(), None, SourceBranch::Keep).await.unwrap();
    assert_eq!(done, Merging::Merged(Some(BASE.into())));

    let locked = with(merge_request(), "state", "locked");
    let stage = merging(merge_request(), (200, locked), false).await;
    let error = stage.host.merge(&known_pull(), None, SourceBranch::Keep).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    let all = stage.requests().len();
    let last = last_poll(all).await;
    assert_eq!(
        last.host.merge(&known_pull(), None, SourceBranch::Keep).await.unwrap(),
        Merging::Merged(Some(BASE.into()))
    );
    assert_eq!(last.requests().len(), all);
}

/// Merges at last: at this request.
async fn last_poll(at: usize) -> Stage {
    let locked = with(merge_request(), "state", "locked");
    let merged = with(with(merge_request(), "state", "merged"), "squash_commit_sha", BASE);
    stage(move |count, request| match request {
        _ if request.starts_with("PUT") => ok(locked.clone()),
        _ if !request.contains("merge_requests") => ok(project(false)),
        _ if count < 2 => ok(merge_request()),
        _ if count + 1 < at => ok(locked.clone()),
        _ => ok(merged.clone()),
    })
    .await
}

#[tokio::test]
async fn a_running_pipeline_or_a_train_queues_the_merge() {
    let waits = with(merge_request(), "merge_when_pipeline_succeeds", true);
    let stage = merging(unmergeable("ci_still_running"), (200, waits), false).await;
    assert_eq!(stage.host.merge(&known_pull(), None, SourceBranch::Keep).await.unwrap(), Merging::Queued);
    assert_eq!(stage.body_of("PUT"), json!({"sha": HEAD, "auto_merge": true, "merge_when_pipeline_succeeds": true}));

    // As in `add_merge_request_in_merge_train.json`.
    let cars = json!([{"id": 267, "status": "idle", "merge_request": {"iid": 7}}]);
    let stage = merging(merge_request(), (201, cars), true).await;
    assert_eq!(stage.host.merge(&known_pull(), None, SourceBranch::Keep).await.unwrap(), Merging::Queued);
    assert_eq!(stage.requests().last().unwrap(), &format!("POST {AT}/merge_trains/merge_requests/7"));
    assert_eq!(stage.body_of("POST")["sha"], HEAD);
}

#[tokio::test]
async fn a_merge_request_that_is_on_the_train_already_is_queued() {
    // As in `get_merge_request_in_merge_train.json`; 404 if it is on none.
    let car = |status: &str| (200, json!({"id": 267, "status": status, "merge_request": {"iid": 7}}));
    let none = (404, json!({"message": "404 Not Found"}));
    let moved = with(merge_request(), "sha", FIRST);
    for (refusal, (status, body), told, is_queued) in [
        (400, car("idle"), merge_request(), true),
        (403, car("fresh"), merge_request(), true),
        (409, car("stale"), merge_request(), true),
        (422, car("merging"), merge_request(), true),
        (400, car("skip_merged"), merge_request(), false),
        (400, none, merge_request(), false),
        (409, car("fresh"), moved, false),
    ] {
        let stage = stage(move |count, request| match request {
            _ if request.starts_with("POST") => refused(refusal, json!({"message": "Failed to merge"})),
            _ if request.contains("merge_trains") => refused(status, body.clone()),
            _ if request.contains("merge_requests") && count > 2 => ok(told.clone()),
            _ if request.contains("merge_requests") => ok(merge_request()),
            _ => ok(project(true)),
        })
        .await;
        let done = stage.host.merge(&known_pull(), None, SourceBranch::Keep).await;
        match is_queued {
            true => assert_eq!(done.unwrap(), Merging::Queued),
            false => {
                assert!(matches!(&done, Err(HostError::Rejected { status, .. }) if *status == refusal), "{done:?}")
            }
        }
        assert!(stage.requests().contains(&format!("GET {AT}/merge_trains/merge_requests/7")));
    }
}

#[tokio::test]
async fn a_refused_merge_says_why() {
    for (told, status, message, words) in [
        (merge_request(), 409, "SHA does not match HEAD of source branch: x", "its head has moved on"),
        (unmergeable("not_approved"), 405, "405 Method Not Allowed", "required approvals are missing"),
        (unmergeable("conflict"), 422, "Branch cannot be merged", "conflicts with `main`"),
        (merge_request(), 405, "405 Method Not Allowed", "405 Method Not Allowed"),
    ] {
        let stage = merging(told, (status, json!({ "message": message })), false).await;
        let error = stage.host.merge(&known_pull(), None, SourceBranch::Keep).await.unwrap_err();
        assert!(matches!(&error, HostError::Rejected { message, .. } if message.contains(words)), "{error}");
    }
    let stage = merging(merge_request(), (401, json!({"message": "401 Unauthorized"})), false).await;
    let error = stage.host.merge(&known_pull(), None, SourceBranch::Keep).await.unwrap_err();
    assert!(matches!(error, HostError::Denied { .. }), "{error}");
}
