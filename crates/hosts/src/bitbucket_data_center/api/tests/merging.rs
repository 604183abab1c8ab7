//! Mergeability and merges.

use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use tidelock_core::domain::state::StatusState;

fn veto(summary: &str, detail: &str) -> Value {
    json!({"summaryMessage": summary, "detailedMessage": detail})
}

fn builds_veto() -> Value {
    veto(
        "Not all required builds are successful yet",
        "You cannot merge this pull request while it has in-progress builds.",
    )
}

fn vetoed(vetoes: &[Value]) -> Value {
    json!({"canMerge": false, "conflicted": false, "outcome": "CLEAN", "vetoes": vetoes})
}

fn build(name: &str, state: &str) -> Value {
    json!({"name": name, "key": name, "state": state, "url": "https://ci.example.com", "description": ""})
}

fn required(kind: &str, id: &str, keys: &[&str]) -> Value {
    json!({"id": 1, "buildParentKeys": keys, "refMatcher": {"id": id, "type": {"id": kind}}, "exemptRefMatcher": null})
}

async fn judged(answers: Vec<(&'static str, Value)>) -> Mergeability {
    let stage = answering(answers).await;
    let pull = read_pull(&answering(Vec::new()).await).await;
    stage.host.mergeability(&pull).await.unwrap()
}

#[tokio::test]
async fn nothing_in_the_way_takes_two_requests() {
    let stage = answering(Vec::new()).await;
    let pull = read_pull(&stage).await;
    let judged = stage.host.mergeability(&pull).await.unwrap();
    assert_eq!(judged, Mergeability { mergeable: true, detail: "Bitbucket Data Center would merge it".into() });
    assert_eq!(stage.requests().len(), 3);
}

#[tokio::test]
async fn obstacles_are_worded() {
    let of_pull = |place: &str, value: Value| vec![("/pull-requests/7", with(pull(), place, value))];
    let of_merge = |told: Value| vec![("/pull-requests/7/merge", told), ("/pull-requests/7", pull())];
    for (answers, want) in [
        (of_pull("/state", json!("DECLINED")), "the pull request is closed"),
        (of_pull("/draft", json!(true)), "it is a draft"),
        (of_pull("/fromRef/latestCommit", json!(OLD)), "its head has moved on"),
        (of_pull("/toRef/id", json!("refs/heads/release")), "its base branch has changed"),
        (
            of_merge(json!({"canMerge": false, "conflicted": true, "outcome": "CONFLICTED", "vetoes": []})),
            "it has conflicts with `main`",
        ),
        (
            of_merge(vetoed(&[veto("Requires approvals", "You need 1 more approval."), veto("Needs work", "")])),
            "Requires approvals: You need 1 more approval.; Needs work",
        ),
        (of_merge(vetoed(&[])), "Bitbucket Data Center gives no reason"),
    ] {
        assert_eq!(judged(answers).await, Mergeability { mergeable: false, detail: want.into() });
    }
}

#[tokio::test]
async fn a_merge_that_is_being_tried_is_waited_for() {
    let tries = AtomicUsize::new(0);
    let stage = stage(move |_, request| match request.ends_with("/merge") {
        true if tries.fetch_add(1, Ordering::SeqCst) < 2 => {
            ok(json!({"canMerge": false, "outcome": "UNKNOWN", "vetoes": []}))
        }
        _ => usual(&[], request),
    })
    .await;
    let pull = read_pull(&stage).await;
    assert!(stage.host.mergeability(&pull).await.unwrap().mergeable);
    assert_eq!(stage.count("/merge"), 3);
}

#[tokio::test]
async fn an_answer_that_is_no_judgement_is_an_obstacle() {
    let undecided = "Bitbucket Data Center has not found out yet; try again in a minute";
    let unknown = json!({"canMerge": true, "conflicted": false, "outcome": "UNKNOWN", "vetoes": []});
    for told in [Value::Null, json!({}), json!("CLEAN"), json!({"canMerge": true, "vetoes": []}), unknown.clone()] {
        let judged = judged(vec![("/pull-requests/7/merge", told)]).await;
        assert_eq!(judged, Mergeability { mergeable: false, detail: undecided.into() });
    }
    for vetoes in [Value::Null, json!({}), json!("none")] {
        let told = json!({"canMerge": true, "conflicted": false, "outcome": "CLEAN", "vetoes": vetoes});
        let stage = answering(vec![("/pull-requests/7/merge", told)]).await;
        let error = stage.host.mergeability(&read_pull(&stage).await).await.unwrap_err();
        assert!(error.is_transient() && error.to_string().contains("no vetoes"), "{error}");
    }
    let stage = stage(move |_, request| match request.starts_with("POST") {
        true => refused(409, "The merge is being tried."),
        false => usual(&[("/pull-requests/7/merge", unknown.clone())], request),
    })
    .await;
    let error = merge(&stage).await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains(undecided), "{error}");
}

/// Judges the veto of builds with these builds, required ones and settings.
async fn of_builds(builds: Value, conditions: Value, least: Value) -> String {
    let judged = judged(vec![
        ("/build-status/", builds),
        ("/conditions", conditions),
        ("/settings/pull-requests", least),
        ("/pull-requests/7/merge", vetoed(&[builds_veto()])),
    ])
    .await;
    assert_eq!(judged.mergeable, judged.detail == "Bitbucket Data Center would merge it");
    judged.detail
}

#[tokio::test]
async fn our_own_builds_are_in_nobodys_way() {
    let fine = "Bitbucket Data Center would merge it";
    let one = json!({"requiredSuccessfulBuilds": 1});
    for ours in [
        json!([build("atlantis/apply", "INPROGRESS")]),
        json!([build("atlantis/apply: a", "FAILED"), build("ci", "SUCCESSFUL")]),
        json!([build("atlantis/plan", "INPROGRESS"), build("ci", "CANCELLED")]),
    ] {
        assert_eq!(of_builds(ours, json!([]), one.clone()).await, fine);
    }
    let apply = json!([required("ANY_REF", "x", &["atlantis/apply"])]);
    let settings = json!({"com.atlassian.bitbucket.server.bitbucket-build.requiredBuildsMergeCheck": {"enable": true, "count": 2}});
    let builds = json!([build("atlantis/apply", "INPROGRESS"), build("ci", "SUCCESSFUL")]);
    assert_eq!(of_builds(builds, apply, settings).await, fine);
}

#[tokio::test]
async fn what_our_own_builds_hide_is_asked_for() {
    let one = || json!({"requiredSuccessfulBuilds": {"enabled": true, "count": "1"}});
    let ours = || build("atlantis/apply", "INPROGRESS");
    let any = |keys: &[&str]| json!([required("ANY_REF", "x", keys)]);
    for (builds, conditions, least, want) in [
        (json!([ours(), build("ci", "FAILED")]), json!([]), one(), "`ci` is failed"),
        (json!([ours(), build("ci", "INPROGRESS")]), json!([]), one(), "`ci` is inprogress"),
        (json!([build("atlantis/plan", "FAILED")]), json!([]), one(), "`atlantis/plan` is failed"),
        (json!([ours()]), json!([]), json!({"requiredSuccessfulBuilds": 2}), "0 of 2 builds have succeeded"),
        (json!([ours()]), any(&["ci"]), json!({}), "the required build `ci` is missing"),
        (json!([ours(), build("ci", "FAILED")]), any(&["ci"]), json!({}), "the required build `ci` is failed"),
        (
            json!([ours()]),
            json!([required("PATTERN", "ma*", &["ci"])]),
            json!({}),
            "the required build `ci` is missing",
        ),
        // The veto is about something that is not seen.
        (
            json!([build("atlantis/apply", "SUCCESSFUL")]),
            json!([]),
            json!({}),
            "Not all required builds are successful yet: You cannot merge this pull request while it has in-progress builds.",
        ),
    ] {
        assert_eq!(of_builds(builds, conditions, least).await, want);
    }
    let fine = "Bitbucket Data Center would merge it";
    let elsewhere = json!([required("BRANCH", "refs/heads/release", &["ci"])]);
    assert_eq!(of_builds(json!([ours(), build("x", "FAILED")]), elsewhere, json!({})).await, fine, "not required");
}

#[tokio::test]
async fn a_required_build_counts_under_its_parent() {
    let answers = |rows: Value, whole: Value| {
        vec![
            ("/build-status/", rows),
            ("/conditions", json!([required("ANY_REF", "x", &["CI"])])),
            ("/pull-requests/7/merge", vetoed(&[builds_veto()])),
            ("/builds?key=CI-12", whole),
        ]
    };
    let ours = build("atlantis/apply", "INPROGRESS");
    let told = with(build("CI-12", "SUCCESSFUL"), "/parent", "CI");
    assert!(judged(answers(json!([ours, told]), Value::Null)).await.mergeable);
    assert!(judged(answers(json!([ours, build("CI-12", "SUCCESSFUL")]), told.clone())).await.mergeable);
    let other = with(told, "/parent", "OTHER");
    assert!(!judged(answers(json!([ours, build("CI-12", "SUCCESSFUL")]), other)).await.mergeable);
}

#[tokio::test]
async fn a_required_build_is_one_of_the_source_branch() {
    let of = async |branch: &str| {
        let whole = with(build("ci", "SUCCESSFUL"), "/ref", format!("refs/heads/{branch}"));
        let stage = answering(vec![
            ("/build-status/", json!([build("atlantis/apply", "INPROGRESS"), build("ci", "SUCCESSFUL")])),
            ("/conditions", json!([required("ANY_REF", "x", &["atlantis/apply", "ci", "scan"])])),
            ("/pull-requests/7/merge", vetoed(&[builds_veto()])),
            ("/builds?key=ci", whole),
        ])
        .await;
        let judged = stage.host.mergeability(&read_pull(&stage).await).await.unwrap();
        assert_eq!(stage.count("/builds?key="), 1, "each build is asked for once, and ours never");
        judged.detail
    };
    assert_eq!(of("topic").await, "the required build `scan` is missing");
    assert_eq!(of("other").await, "the required build `ci` is missing; the required build `scan` is missing");
}

#[tokio::test]
async fn builds_above_the_limit_are_not_judged() {
    let mut rows: Vec<Value> = (0..25).map(|number| build(&format!("job-{number}"), "SUCCESSFUL")).collect();
    rows.push(build("ci", "SUCCESSFUL"));
    let stage = answering(vec![
        ("/build-status/", Value::Array(rows)),
        ("/conditions", json!([required("ANY_REF", "x", &["scan", "ci"])])),
        ("/pull-requests/7/merge", vetoed(&[builds_veto()])),
    ])
    .await;
    let judged = stage.host.mergeability(&read_pull(&stage).await).await.unwrap();
    assert_eq!(judged.detail, "the required build `scan` cannot be judged: more than 20 builds might be it");
    assert_eq!((stage.count("/builds?key="), stage.count("/builds?key=ci")), (20, 1));
}

/// A host that answers merges so, and tells the pull request as `after` says from the first merge on.
async fn merging(answer: impl Fn(&str) -> Response + Send + Sync + 'static, after: Value) -> Stage {
    let asked = AtomicUsize::new(0);
    stage(move |_, request| match request {
        _ if request.starts_with("POST") && request.contains("/merge?") => {
            asked.fetch_add(1, Ordering::SeqCst);
            answer(request)
        }
        _ if request == format!("GET {PULL}") && asked.load(Ordering::SeqCst) > 0 => ok(after.clone()),
        _ => usual(&[], request),
    })
    .await
}

async fn merge(stage: &Stage) -> Result<Merging, HostError> {
    let pull = read_pull(&answering(Vec::new()).await).await;
    stage.host.merge(&pull, None, SourceBranch::Delete).await
}

fn merged_old() -> Merging {
    Merging::Merged(CommitSha::parse(OLD).ok())
}

#[tokio::test]
async fn a_merge_names_the_version_and_returns_its_commit() {
    let stage = merging(|_| ok(merged_pull()), Value::Null).await;
    assert_eq!(merge(&stage).await.unwrap(), merged_old());
    assert_eq!(stage.requests(), [format!("GET {PULL}"), format!("POST {PULL}/merge?version=3")]);
    assert_eq!(stage.body_of("POST"), json!({"version": 3}));
}

#[tokio::test]
async fn a_method_is_one_that_the_repository_allows() {
    let strategies =
        json!({"mergeConfig": {"strategies": [{"id": "squash", "enabled": true}, {"id": "no-ff", "enabled": false}]}});
    let stage = stage(move |_, request| match request.starts_with("POST") {
        true => ok(merged_pull()),
        false => usual(&[("/settings/pull-requests", strategies.clone())], request),
    })
    .await;
    let pull = read_pull(&stage).await;
    assert_eq!(stage.host.merge(&pull, Some("squash"), SourceBranch::Keep).await.unwrap(), merged_old());
    assert_eq!(stage.body_of("POST"), json!({"version": 3, "strategyId": "squash"}));
    let error = stage.host.merge(&pull, Some("merge"), SourceBranch::Keep).await.unwrap_err();
    assert!(error.to_string().contains("merge method `merge` is not allowed here; allowed: squash"), "{error}");
    assert_eq!(stage.count("POST"), 1);
}

#[tokio::test]
async fn another_head_is_not_merged() {
    for (told, want) in [
        (with(pull(), "/fromRef/latestCommit", OLD), "its head has moved on"),
        (with(pull(), "/toRef/id", "refs/heads/release"), "its base branch has changed"),
        (with(pull(), "/state", "DECLINED"), "the pull request is closed"),
        (with(pull(), "/draft", true), "it is a draft"),
    ] {
        let stage = answering(vec![("/pull-requests/7", told)]).await;
        let error = merge(&stage).await.unwrap_err();
        assert!(matches!(&error, HostError::Rejected { status: 405, message, .. } if message == want), "{error}");
        assert_eq!(stage.count("POST"), 0);
    }
}

#[tokio::test]
async fn a_head_that_moves_between_the_check_and_the_merge_is_told() {
    let stage = merging(|_| ok(with(merged_pull(), "/fromRef/latestCommit", BASE)), Value::Null).await;
    let error = merge(&stage).await.unwrap_err();
    assert!(error.to_string().contains("merged with another head"), "{error}");
    assert!(!error.is_transient());
}

#[tokio::test]
async fn a_base_branch_that_changes_during_a_merge_is_told() {
    let elsewhere = |body: Value| with(body, "/toRef/id", "refs/heads/release");
    // Changed between the check and the merge, and merged by somebody else before.
    let stage = merging(move |_| ok(elsewhere(merged_pull())), Value::Null).await;
    let error = merge(&stage).await.unwrap_err();
    assert!(error.to_string().contains("merged into another branch than `main`") && !error.is_transient(), "{error}");
    // Another version after the refusal, which has another base branch.
    let stage = merging(|_| refused(409, "out-of-date"), with(elsewhere(pull()), "/version", 4)).await;
    let error = merge(&stage).await.unwrap_err();
    assert!(error.to_string().contains("its base branch has changed") && !error.is_transient(), "{error}");
    assert_eq!(stage.count("POST"), 1);
}

#[tokio::test]
async fn a_merge_that_was_done_counts_as_merged() {
    for answer in [409, 500] {
        let stage = merging(move |_| refused(answer, "no answer"), merged_pull()).await;
        assert_eq!(merge(&stage).await.unwrap(), merged_old(), "{answer}");
    }
    let stage = answering(vec![("/pull-requests/7", merged_pull())]).await;
    assert_eq!(merge(&stage).await.unwrap(), merged_old());
    assert_eq!(stage.count("POST"), 0);
}

#[tokio::test]
async fn another_version_is_tried_again_a_bounded_number_of_times() {
    let version = Arc::new(AtomicUsize::new(3));
    let stage = stage(move |_, request| match request {
        _ if request.starts_with("POST") && request.contains("version=5") => ok(merged_pull()),
        _ if request.starts_with("POST") => {
            version.fetch_add(1, Ordering::SeqCst);
            refused(409, "You are attempting to modify a pull request based on out-of-date information.")
        }
        _ if request == format!("GET {PULL}") => ok(with(pull(), "/version", version.load(Ordering::SeqCst))),
        _ => usual(&[], request),
    })
    .await;
    assert_eq!(merge(&stage).await.unwrap(), merged_old());
    assert_eq!(stage.count("POST"), 3);
    let stage = super::stage(|count, request| match request.starts_with("POST") {
        true => refused(409, "out-of-date"),
        false => ok(with(pull(), "/version", count)),
    })
    .await;
    let error = merge(&stage).await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("all the time"), "{error}");
    assert_eq!(stage.count("POST"), 3);
}

#[tokio::test]
async fn a_refusal_is_explained_by_the_checks() {
    let vetoes = vetoed(&[veto("Requires approvals", "You need 1 more approval.")]);
    let stage = stage(move |_, request| match request.starts_with("POST") {
        true => refused(409, "Merging the pull request has been vetoed."),
        false => usual(
            &[("GET /bb/rest/api/latest/projects/PRJ/repos/infra/pull-requests/7/merge", vetoes.clone())],
            request,
        ),
    })
    .await;
    let error = merge(&stage).await.unwrap_err();
    let want = "Requires approvals: You need 1 more approval.";
    assert!(matches!(&error, HostError::Rejected { status: 405, message, .. } if message == want), "{error}");
    assert_eq!(stage.count("POST"), 1);
}

#[tokio::test]
async fn a_refusal_without_a_check_is_final_the_second_time() {
    let stage =
        merging(|_| refused(409, "This repository is configured to require fast-forward merges."), pull()).await;
    let error = merge(&stage).await.unwrap_err();
    assert!(error.to_string().contains("require fast-forward merges") && !error.is_transient(), "{error}");
    assert_eq!(stage.count("POST"), 2);
    let once = AtomicUsize::new(0);
    let stage = merging(
        move |_| match once.fetch_add(1, Ordering::SeqCst) {
            0 => refused(409, "The branch was updated at the same time."),
            _ => ok(merged_pull()),
        },
        pull(),
    )
    .await;
    assert_eq!(merge(&stage).await.unwrap(), merged_old());
}

#[tokio::test]
async fn refusals_are_told_apart() {
    for (status, is) in [
        (401, (|error| matches!(error, HostError::Denied { .. })) as fn(&HostError) -> bool),
        (429, |error| matches!(error, HostError::RateLimited { .. })),
        (503, |error| matches!(error, HostError::Unavailable { .. })),
        (400, |error| matches!(error, HostError::Rejected { status: 400, .. })),
    ] {
        let stage = merging(move |_| refused(status, "no"), pull()).await;
        let error = merge(&stage).await.unwrap_err();
        assert!(is(&error), "{status}: {error:?}");
        assert_eq!(stage.count("POST"), 1, "{status}");
    }
}

#[tokio::test]
async fn a_merge_waits_for_builds_that_are_in_progress() {
    let asked_of = async |builds: Value, later: fn() -> Response, hash: &'static str, base: Value| {
        let posts = AtomicUsize::new(0);
        let stage = stage(move |_, request| match request {
            _ if request.starts_with("POST") => match posts.fetch_add(1, Ordering::SeqCst) {
                0 => refused(409, "Merging the pull request has been vetoed."),
                _ => later(),
            },
            _ if request.starts_with("DELETE") => no_content(),
            _ if request.ends_with("/auto-merge") => ok(json!({"fromHash": hash, "toRefId": base})),
            _ => usual(
                &[
                    ("/build-status/", builds.clone()),
                    ("/settings/pull-requests", json!({"requiredSuccessfulBuilds": 1})),
                    ("/merge", vetoed(&[builds_veto()])),
                ],
                request,
            ),
        })
        .await;
        (merge(&stage).await, stage)
    };
    let asked = async |builds: Value, later: fn() -> Response, hash: &'static str| {
        asked_of(builds, later, hash, json!("refs/heads/main")).await
    };
    let running = || json!([build("ci", "INPROGRESS"), build("atlantis/apply", "SUCCESSFUL")]);
    let (queued, stage) = asked(running(), || ok(pull()), HEAD).await;
    assert_eq!((queued.unwrap(), stage.body_of("POST")), (Merging::Queued, json!({"version": 3, "autoMerge": true})));
    let (again, _) = asked(running(), || refused(409, "An auto-merge request was submitted before."), HEAD).await;
    assert_eq!(again.unwrap(), Merging::Queued);
    let (done, _) = asked(running(), || ok(merged_pull()), HEAD).await;
    assert_eq!(done.unwrap(), merged_old());
    let (moved, stage) = asked(running(), || ok(pull()), OLD).await;
    assert!(moved.unwrap_err().to_string().contains("`ci` is inprogress"));
    assert_eq!(stage.count("DELETE"), 1, "a merge of another head is taken back");
    for base in [json!("refs/heads/release"), Value::Null] {
        let before = || refused(409, "An auto-merge request was submitted before.");
        let (moved, stage) = asked_of(running(), before, HEAD, base).await;
        assert!(moved.unwrap_err().to_string().contains("`ci` is inprogress"));
        assert_eq!(stage.count("DELETE"), 1, "one into another branch is taken back");
    }
    let off = || refused(403, "The auto-merge setting is not enabled for this repository.");
    let (refusal, _) = asked(running(), off, HEAD).await;
    assert!(
        matches!(refusal, Err(HostError::Rejected { status: 405, message, .. }) if message == "`ci` is inprogress")
    );
    let (ours, _) = asked(json!([build("atlantis/apply", "INPROGRESS")]), off, HEAD).await;
    assert!(ours.unwrap_err().is_transient(), "our own builds end soon");
    let (unseen, stage) = asked(json!([build("ci", "SUCCESSFUL")]), || ok(pull()), HEAD).await;
    assert!(unseen.unwrap_err().to_string().contains("Not all required builds"), "nothing is in progress");
    assert_eq!(stage.count("POST"), 1);
    let (failed, stage) = asked(json!([build("ci", "FAILED")]), || ok(pull()), HEAD).await;
    assert!(failed.unwrap_err().to_string().contains("`ci` is failed"));
    assert_eq!(stage.count("POST"), 1);
}

#[tokio::test]
async fn the_source_branch_is_deleted_at_the_known_commit() {
    let stage = stage(|_, request| match request.starts_with("DELETE") {
        true => no_content(),
        false => usual(&[("/default-branch", json!({"id": "refs/heads/main"}))], request),
    })
    .await;
    let pull = read_pull(&stage).await;
    stage.host.delete_source_branch(&pull).await.unwrap();
    assert_eq!(stage.body_of("DELETE"), json!({"name": "refs/heads/topic", "dryRun": false, "endPoint": HEAD}));
    assert_eq!(stage.count("DELETE /bb/rest/branch-utils/latest/projects/PRJ/repos/infra/branches"), 1);
    let deleting = async |status: u16, default: Value, fork: bool| {
        let stage = super::stage(move |_, request| match request.starts_with("DELETE") {
            true => refused(status, "no"),
            false => usual(&[("/default-branch", default.clone())], request),
        })
        .await;
        let pull = PullRequest { fork, ..read_pull(&stage).await };
        (stage.host.delete_source_branch(&pull).await, stage.count("DELETE"))
    };
    let named = |branch: &str| json!({"id": format!("refs/heads/{branch}")});
    assert!(matches!(deleting(400, named("main"), false).await, (Ok(()), 1)), "it points to another commit");
    assert!(matches!(deleting(400, named("topic"), false).await, (Ok(()), 0)), "the default branch");
    assert!(matches!(deleting(400, named("main"), true).await, (Ok(()), 0)), "a fork's");
    assert!(matches!(deleting(401, named("main"), false).await, (Err(HostError::Denied { .. }), 1)));
    for untold in [Value::Null, json!({}), json!({"id": null})] {
        assert!(matches!(deleting(400, untold, false).await, (Ok(()), 0)), "it may be the default branch");
    }
    let without = answering(Vec::new()).await;
    without.host.delete_source_branch(&pull).await.unwrap();
    assert_eq!((without.count("/default-branch"), without.count("DELETE")), (1, 0), "the host tells none");
}

#[tokio::test]
async fn a_pull_request_from_open_to_merge_takes_few_requests() {
    let stage = stage(|_, request| match request {
        _ if request.contains("/merge?") => ok(merged_pull()),
        _ if request.ends_with("/comments") => ok(json!({"id": 5, "version": 0, "author": person("tidelock")})),
        _ if request.starts_with("POST") || request.starts_with("PUT") || request.starts_with("DELETE") => no_content(),
        _ => {
            let comment = json!({"id": 5, "version": 0, "text": "atlantis apply", "author": person("ann"), "createdDate": 1, "updatedDate": 1});
            let approved = json!([{"user": person("bob"), "status": "APPROVED", "lastReviewedCommit": HEAD}]);
            usual(
                &[
                    ("/comments/5", comment),
                    ("/default-branch", json!({"id": "refs/heads/main"})),
                    ("/users?", json!([person("bob")])),
                    ("/pull-requests/7/merge", json!({"canMerge": true, "outcome": "CLEAN", "vetoes": []})),
                    ("/pull-requests/7/activities", json!([])),
                    ("/pull-requests/7", with(pull(), "/reviewers", approved)),
                ],
                request,
            )
        }
    })
    .await;
    let host = &stage.host;
    host.prepare().await.unwrap();
    let pull = read_pull(&stage).await;
    let status = |context: &str, state| CommitStatus {
        context: context.into(),
        state,
        description: String::new(),
        url: String::new(),
        waits: false,
        details: None,
    };
    // Opened: a plan with two statuses, each before and after, and a comment, before which ours are searched.
    for context in ["atlantis/plan", "atlantis/plan: a"] {
        for state in [StatusState::Pending, StatusState::Success] {
            host.set_status(&id(), &HEAD.into(), &status(context, state)).await.unwrap();
        }
    }
    host.comments(&id(), None).await.unwrap();
    host.create_comment(&id(), "plan").await.unwrap();
    // A comment asks for the apply: it is read, and people and checks are asked about.
    host.react(&id(), 5, "eyes").await.unwrap();
    host.comment(&id(), 5).await.unwrap().unwrap();
    host.pull_request(&id()).await.unwrap();
    host.can_write(&repo(), "ann").await.unwrap();
    assert_eq!(host.reviews(&pull).await.unwrap().len(), 1);
    assert!(host.mergeability(&pull).await.unwrap().mergeable);
    for context in ["atlantis/apply", "atlantis/apply: a"] {
        for state in [StatusState::Pending, StatusState::Success] {
            host.set_status(&id(), &HEAD.into(), &status(context, state)).await.unwrap();
        }
    }
    host.comments(&id(), None).await.unwrap();
    host.create_comment(&id(), "applied").await.unwrap();
    host.merge(&pull, None, SourceBranch::Delete).await.unwrap();
    host.delete_source_branch(&pull).await.unwrap();
    let count = stage.requests().len();
    assert!(count <= 40, "{count} requests: {:#?}", stage.requests());
    assert_eq!(count, 27, "{:#?}", stage.requests());
}
