//! Mergeability and merges.

use super::*;
use std::sync::atomic::{AtomicBool, Ordering};

const RULES: &str = "/branch-restrictions";
const FILES: &str = "/diffstat";

fn rule(kind: &str, value: Value) -> Value {
    json!({"kind": kind, "branch_match_kind": "glob", "pattern": "ma*", "value": value, "users": [], "groups": []})
}

fn enforced(rules: &[Value]) -> Value {
    let mut all = vec![rule("enforce_merge_checks", Value::Null)];
    all.extend(rules.iter().cloned());
    json!(all)
}

fn approved(digit: &str) -> Value {
    json!({"user": person(digit), "approved": true, "state": "approved"})
}

/// Judges a pull request by the first answer whose text occurs in a request; without one, nothing is in its way.
async fn judged(mut answers: Vec<(&'static str, Value)>) -> Mergeability {
    answers.extend([(FILES, json!([{"status": "modified"}])), (RULES, json!([])), ("/statuses?", json!([]))]);
    let stage = answering(answers).await;
    stage.host.prepare().await.unwrap();
    stage.host.mergeability(&known_pull()).await.unwrap()
}

#[tokio::test]
async fn nothing_in_the_way_takes_three_requests() {
    let stage = answering(vec![(FILES, json!([])), (RULES, json!([]))]).await;
    let judged = stage.host.mergeability(&known_pull()).await.unwrap();
    assert!(judged.mergeable && judged.detail == "Bitbucket Cloud would merge it");
    assert_eq!(stage.requests().len(), 3);
}

#[tokio::test]
async fn obstacles_are_worded() {
    let needs = |kind: &str, value: u64| (RULES, enforced(&[rule(kind, json!(value))]));
    let people = |rows: Value| ("pullrequests/7", with(pull(), "/participants", rows));
    let rejected = json!([{"user": person("1"), "approved": false, "state": "changes_requested"}]);
    let own = json!([{"user": {"account_id": ANN}, "approved": true, "state": "approved"}]);
    let base = || vec![(FILES, json!([{"status": "modified"}]))];
    let and = |answers: Vec<(&'static str, Value)>| base().into_iter().chain(answers).collect::<Vec<_>>();
    let of_default = ("/effective-default-reviewers", json!([{"type": "default_reviewer", "user": person("2")}]));
    for (answers, words) in [
        (vec![("pullrequests/7", with(pull(), "/state", "DECLINED"))], "closed"),
        (vec![("pullrequests/7", with(pull(), "/source/commit/hash", &OLD[..12]))], "moved on"),
        (vec![("pullrequests/7", with(pull(), "/draft", true))], "draft"),
        (vec![(FILES, json!([{"status": "modified"}, {"status": "merge conflict"}]))], "conflicts with `main`"),
        (and(vec![(RULES, json!([rule("restrict_merges", Value::Null)]))]), "may not merge into `main`"),
        (
            and(vec![needs("require_approvals_to_merge", 2), people(json!([approved("1")]))]),
            "1 more approval is required",
        ),
        (and(vec![needs("require_approvals_to_merge", 2), people(own)]), "2 more approvals are required"),
        (
            and(vec![
                needs("require_default_reviewer_approvals_to_merge", 1),
                of_default.clone(),
                people(json!([approved("1")])),
            ]),
            "1 more approval of default reviewers required",
        ),
        (and(vec![needs("require_no_changes_requested", 0), people(rejected.clone())]), "requested changes"),
        (
            and(vec![needs("require_tasks_to_be_completed", 0), ("pullrequests/7", with(pull(), "/task_count", 2))]),
            "2 tasks are open",
        ),
        (and(vec![needs("require_passing_builds_to_merge", 1)]), "1 more build has to pass"),
    ] {
        let judged = judged(answers).await;
        assert!(!judged.mergeable && judged.detail.contains(words), "{words}: {judged:?}");
    }
    for answers in [
        // The branch warns, and does not insist.
        and(vec![
            (
                RULES,
                json!([
                    rule("require_approvals_to_merge", json!(2)),
                    rule("require_no_changes_requested", Value::Null)
                ]),
            ),
            people(rejected),
        ]),
        // Rules of another branch.
        and(vec![(RULES, with(enforced(&[]), "/0/pattern", "release"))]),
        and(vec![needs("require_approvals_to_merge", 1), people(json!([approved("1")]))]),
        and(vec![needs("require_default_reviewer_approvals_to_merge", 1), of_default, people(json!([approved("2")]))]),
    ] {
        let judged = judged(answers).await;
        assert!(judged.mergeable, "{judged:?}");
    }
}

#[tokio::test]
async fn only_those_on_the_list_may_merge() {
    let restricted = |users: Value, groups: Value| json!([{"kind": "restrict_merges", "branch_match_kind": "glob", "pattern": "main", "users": users, "groups": groups}]);
    for (users, groups, may) in [
        (json!([tidelock()]), json!([]), true),
        (json!([person("1")]), json!([]), false),
        (json!([]), json!([{"slug": "bots"}]), true),
    ] {
        assert_eq!(judged(vec![(RULES, restricted(users, groups))]).await.mergeable, may);
    }
}

#[tokio::test]
async fn rules_of_the_branching_model_apply_to_their_branches() {
    let mut rules = enforced(&[rule("require_approvals_to_merge", json!(1))]);
    for rule in rules.as_array_mut().unwrap() {
        rule["branch_match_kind"] = json!("branching_model");
        rule["branch_type"] = json!("production");
    }
    let model = |name: &str| ("/effective-branching-model", json!({"production": {"name": name}, "branch_types": []}));
    assert!(!judged(vec![(RULES, rules.clone()), model("main")]).await.mergeable);
    assert!(judged(vec![(RULES, rules), model("stable")]).await.mergeable);
}

#[tokio::test]
async fn rules_that_we_may_not_read_are_an_obstacle() {
    let stage = stage(|_, request| match request {
        _ if request.contains(RULES) => refused(403, "You must be an admin"),
        _ => usual(&[(FILES, json!([]))], request),
    })
    .await;
    let judged = stage.host.mergeability(&known_pull()).await.unwrap();
    assert!(!judged.mergeable && judged.detail.contains("administrator of 127.0.0.1/acme/infra"), "{judged:?}");
}

#[tokio::test]
async fn an_enforced_condition_that_is_not_known_is_an_obstacle() {
    for kind in ["require_all_comments_resolved", "require_commits_behind", "require_review_group_approvals_to_merge"] {
        let judged = judged(vec![(RULES, enforced(&[rule(kind, Value::Null)]))]).await;
        let words = format!("the branch restriction `{kind}` cannot be judged");
        assert!(!judged.mergeable && judged.detail == words, "{judged:?}");
    }
    // A warning, and a rule that is no condition of a merge.
    let warns = json!([rule("require_all_comments_resolved", Value::Null)]);
    assert!(judged(vec![(RULES, warns)]).await.mergeable);
    assert!(judged(vec![(RULES, enforced(&[rule("force", Value::Null)]))]).await.mergeable);
}

#[tokio::test]
async fn the_difference_is_behind_a_redirect_below_the_api() {
    let url = Arc::new(Mutex::new(String::new()));
    let told = Arc::clone(&url);
    let stage = stage(move |_, request| match request {
        _ if request.contains(&format!("{PULL}/diffstat")) => moved(&told.lock().unwrap()),
        _ if request.contains("/diffstat/acme/infra:") => ok(page(&[json!({"status": "local deleted"})])),
        _ => usual(&[(RULES, json!([]))], request),
    })
    .await;
    let to = |tail: &str| format!("{}{tail}", stage.url);
    let spec =
        format!("/repositories/acme/infra/diffstat/acme/infra:{}..{}?from_pullrequest_id=7", &HEAD[..12], &BASE[..12]);
    *url.lock().unwrap() = to(&spec);
    assert!(stage.host.mergeability(&known_pull()).await.unwrap().detail.contains("conflicts with `main`"));
    for elsewhere in [
        "https://evil.example/2.0/repositories/acme/infra/diffstat/x".to_owned(),
        to("/repositories/acme/infra/hooks?/diffstat/"),
        to("/repositories/../user/diffstat/x"),
        to("/user"),
    ] {
        url.lock().unwrap().clone_from(&elsewhere);
        let error = stage.host.mergeability(&known_pull()).await.unwrap_err();
        assert!(error.to_string().contains("at another address"), "{elsewhere}: {error}");
    }
}

fn merged() -> Value {
    with(with(pull(), "/state", "MERGED"), "/merge_commit", json!({"hash": &OLD[..12]}))
}

/// A host that answers a merge so, and shows this pull request afterwards.
async fn merging(answer: impl Fn(&str) -> Response + Send + Sync + 'static, after: Value) -> Stage {
    let is_asked = AtomicBool::new(false);
    let url = Arc::new(Mutex::new(String::new()));
    let told = Arc::clone(&url);
    let stage = stage(move |_, request| match request {
        _ if request.starts_with("POST") || request.contains("/task-status/") => {
            is_asked.store(true, Ordering::SeqCst);
            answer(&format!("{} {request}", told.lock().unwrap()))
        }
        _ if is_of_pull(request) && is_asked.load(Ordering::SeqCst) => ok(after.clone()),
        _ => usual(&[(FILES, json!([])), (RULES, json!([]))], request),
    })
    .await;
    url.lock().unwrap().clone_from(&stage.url);
    stage
}

async fn merge(stage: &Stage) -> Result<Merging, HostError> {
    stage.host.merge(&known_pull(), None, SourceBranch::Keep).await
}

fn merged_old() -> Merging {
    Merging::Merged(CommitSha::parse(OLD).ok())
}

#[tokio::test]
async fn a_merge_is_of_the_known_head_and_returns_its_commit() {
    let stage = merging(|_| ok(merged()), merged()).await;
    let done = stage.host.merge(&known_pull(), Some("squash"), SourceBranch::Delete).await.unwrap();
    assert_eq!(done, merged_old());
    let want = json!({"type": "pullrequest_merge_parameters", "merge_strategy": "squash", "close_source_branch": true});
    assert_eq!(stage.body_of("POST"), want);
    assert_eq!(stage.requests().len(), 5);
    merge(&stage).await.unwrap();
    // A word for `keep`: without one, what the pull request was opened with counts.
    let kept = json!({"type": "pullrequest_merge_parameters", "close_source_branch": false});
    let keeps = merging(|_| ok(merged()), merged()).await;
    merge(&keeps).await.unwrap();
    assert_eq!(keeps.body_of("POST"), kept);
    let fork = PullRequest { fork: true, ..known_pull() };
    let keeps = merging(|_| ok(merged()), merged()).await;
    keeps.host.merge(&fork, None, SourceBranch::Delete).await.unwrap();
    assert_eq!(keeps.body_of("POST"), kept);
}

#[tokio::test]
async fn another_head_is_not_merged() {
    let other = with(pull(), "/source/commit/hash", &OLD[..12]);
    let stage = answering(vec![("pullrequests/7", other)]).await;
    let error = merge(&stage).await.unwrap_err();
    assert!(error.to_string().contains("its head has moved on") && !error.is_transient(), "{error}");
    // Another commit with the same first digits.
    let twin = format!("{}{}", &HEAD[..12], &OLD[12..]);
    let stage = answering(vec![("/refs/branches/topic", branch("topic", &twin))]).await;
    assert!(merge(&stage).await.unwrap_err().to_string().contains("its head has moved on"));
    assert_eq!(stage.count("POST"), 0);
}

#[tokio::test]
async fn a_head_that_moves_between_the_check_and_the_merge_is_told() {
    let moved_on = with(merged(), "/source/commit/hash", &OLD[..12]);
    let answer = moved_on.clone();
    let stage = merging(move |_| ok(answer.clone()), moved_on).await;
    let error = merge(&stage).await.unwrap_err();
    assert!(error.to_string().contains("merged with another head than 8e0b450") && !error.is_transient(), "{error}");
}

#[tokio::test]
async fn a_merge_of_another_commit_with_the_same_first_digits_is_told() {
    let twin = format!("{}{}", &HEAD[..12], &OLD[12..]);
    let made = |parent: &str| {
        let mut made = commit(OLD);
        made["parents"] = json!([{"hash": BASE}, {"hash": parent}]);
        made
    };
    let merging_of = async |parent: &str, tip: &str| {
        let (is_asked, made, tip) = (AtomicBool::new(false), made(parent), tip.to_owned());
        stage(move |_, request| match request {
            _ if request.starts_with("POST") => {
                is_asked.store(true, Ordering::SeqCst);
                ok(merged())
            }
            _ if request.contains(&format!("/commit/{}", &OLD[..12])) => ok(made.clone()),
            _ if request.contains("/refs/branches/topic") && is_asked.load(Ordering::SeqCst) => {
                ok(branch("topic", &tip))
            }
            _ => usual(&[], request),
        })
        .await
    };
    assert_eq!(merge(&merging_of(HEAD, &twin).await).await.unwrap(), merged_old());
    let error = merge(&merging_of(&twin, &twin).await).await.unwrap_err();
    assert!(error.to_string().contains("merged with another head"), "{error}");
    // The way to merge made new commits.
    assert_eq!(merge(&merging_of(BASE, HEAD).await).await.unwrap(), merged_old());
}

#[tokio::test]
async fn a_merge_whose_fork_is_deleted_at_once_is_done() {
    for commit in [json!({"hash": &HEAD[..12]}), Value::Null] {
        let gone = with(with(merged(), "/source/repository", Value::Null), "/source/commit", commit);
        let is_asked = AtomicBool::new(false);
        let stage = stage(move |_, request| match request {
            _ if request.starts_with("POST") => {
                is_asked.store(true, Ordering::SeqCst);
                ok(gone.clone())
            }
            _ if is_asked.load(Ordering::SeqCst) && request.contains(&HEAD[..12]) => refused(404, "Commit not found"),
            _ => usual(&[], request),
        })
        .await;
        assert_eq!(merge(&stage).await.unwrap(), merged_old());
    }
}

#[tokio::test]
async fn a_merge_that_takes_longer_is_followed_to_its_end() {
    let polls = Mutex::new(0);
    let accepted = |url: &str| {
        let location =
            format!("{}/repositories/acme/infra/pullrequests/7/merge/task-status/abc", url.split(' ').next().unwrap());
        // The recorded answer is an empty text in JSON (github.com/khipu/khbb, "Merge, async").
        (StatusCode::ACCEPTED, [("location", location)], axum::Json("")).into_response()
    };
    let stage = merging(
        move |request| match request.contains("/task-status/abc") {
            true => {
                let mut polls = polls.lock().unwrap();
                *polls += 1;
                ok(if *polls < 3 {
                    json!({"task_status": "PENDING"})
                } else {
                    json!({"task_status": "SUCCESS", "merge_result": merged()})
                })
            }
            false => accepted(request),
        },
        merged(),
    )
    .await;
    assert_eq!(merge(&stage).await.unwrap(), merged_old());
    assert_eq!(stage.count("/task-status/abc"), 3);
    let never = merging(
        move |request| {
            if request.contains("/task-status/") { ok(json!({"task_status": "PENDING"})) } else { accepted(request) }
        },
        pull(),
    )
    .await;
    let error = merge(&never).await.unwrap_err();
    assert!(error.is_transient() && never.count("/task-status/") < 20, "{error}");
    let failing = merging(
        move |request| match request.contains("/task-status/") {
            true => ok(json!({"type": "error", "error": {"message": "a merge check failed"}})),
            false => accepted(request),
        },
        pull(),
    )
    .await;
    let error = merge(&failing).await.unwrap_err();
    assert!(!error.is_transient() && error.to_string().contains("a merge check failed"), "{error}");
}

#[tokio::test]
async fn the_task_of_a_merge_is_below_its_pull_request() {
    for location in [
        "https://evil.example/2.0/repositories/acme/infra/pullrequests/7/merge/task-status/abc",
        "BASE/repositories/acme/infra/pullrequests/8/merge/task-status/abc",
        "BASE/repositories/acme/infra/pullrequests/7/merge/task-status/../../../../hooks",
        "",
    ] {
        let answer = move |request: &str| {
            let to = location.replace("BASE", request.split(' ').next().unwrap());
            (StatusCode::ACCEPTED, [("location", to)]).into_response()
        };
        let stage = merging(answer, pull()).await;
        let error = merge(&stage).await.unwrap_err();
        assert!(error.is_transient() && error.to_string().contains("no address of a task"), "{location}: {error}");
        assert_eq!(stage.count("hooks") + stage.count("/pullrequests/8"), 0);
    }
}

#[tokio::test]
async fn a_queued_pull_request_is_not_merged_yet() {
    let queued = with(pull(), "/queued", true);
    let answer = queued.clone();
    let stage = merging(move |_| ok(answer.clone()), queued.clone()).await;
    assert_eq!(merge(&stage).await.unwrap(), Merging::Queued);
    let again = answering(vec![("pullrequests/7", queued)]).await;
    assert_eq!(merge(&again).await.unwrap(), Merging::Queued);
    assert_eq!(again.count("POST"), 0);
}

#[tokio::test]
async fn a_merge_that_was_done_counts_as_merged() {
    for status in [409, 555, 500, 400, 404] {
        let stage = merging(move |_| refused(status, "no"), merged()).await;
        assert_eq!(merge(&stage).await.unwrap(), merged_old(), "{status}");
    }
    let before = answering(vec![("pullrequests/7", merged())]).await;
    assert_eq!(merge(&before).await.unwrap(), merged_old());
    assert_eq!(before.count("POST"), 0);
}

#[tokio::test]
async fn a_conflict_of_refs_may_succeed_later_ten_times() {
    let stage = merging(|_| refused(409, "ref changed"), pull()).await;
    for _ in 0..10 {
        let error = merge(&stage).await.unwrap_err();
        assert!(error.is_transient() && error.to_string().contains("changed at the same time"), "{error}");
    }
    assert_eq!(stage.count("POST"), 10);
}

#[tokio::test]
async fn refusals_are_told_apart() {
    let other = with(pull(), "/source/commit/hash", &OLD[..12]);
    for (status, after, is_transient, words) in [
        (555, pull(), true, "555"),
        (429, pull(), true, "rate limit"),
        (403, pull(), false, "refused by the host"),
        (400, pull(), false, "the merge checks failed"),
        (400, with(pull(), "/state", "DECLINED"), false, "closed"),
        (409, other, false, "its head has moved on"),
    ] {
        let stage = merging(move |_| refused(status, "the merge checks failed"), after).await;
        let error = merge(&stage).await.unwrap_err();
        assert_eq!(error.is_transient(), is_transient, "{words}: {error}");
        assert!(error.to_string().contains(words), "{words}: {error}");
    }
}

#[tokio::test]
async fn a_refusal_is_explained_by_what_the_branch_demands() {
    let rules = enforced(&[rule("require_approvals_to_merge", json!(1))]);
    let stage = stage(move |_, request| match request.starts_with("POST") {
        true => refused(400, "1 failed merge check"),
        false => usual(&[(FILES, json!([])), (RULES, rules.clone())], request),
    })
    .await;
    let error = merge(&stage).await.unwrap_err();
    assert!(error.to_string().contains("1 more approval is required"), "{error}");
}

#[tokio::test]
async fn a_method_that_the_branch_does_not_allow_is_not_asked_for() {
    let mut told = pull();
    told["destination"]["branch"]["merge_strategies"] = json!(["merge_commit", "squash"]);
    let stage = answering(vec![("pullrequests/7", told)]).await;
    let error = stage.host.merge(&known_pull(), Some("rebase"), SourceBranch::Keep).await.unwrap_err();
    assert!(error.to_string().contains("allowed: merge_commit, squash"), "{error}");
    assert_eq!(stage.count("POST"), 0);
}

/// The host allows a thousand requests in an hour.
#[tokio::test]
async fn a_pull_request_from_open_to_merge_takes_few_requests() {
    let stage =
        merging(|request| if request.contains("/merge") { ok(merged()) } else { ok(json!({"id": 1})) }, pull()).await;
    let (host, commit) = (&stage.host, CommitSha::parse(HEAD).unwrap());
    let set = async |count: usize| {
        for number in 0..count {
            let context = format!("atlantis/{number}");
            let status = CommitStatus {
                context,
                state: tidelock_core::domain::state::StatusState::Success,
                description: String::new(),
                url: String::new(),
                waits: false,
                details: None,
            };
            host.set_status(&id(), &commit, &status).await.unwrap();
        }
    };
    host.prepare().await.unwrap();
    for of_plan in [true, false] {
        let known = host.pull_request(&id()).await.unwrap();
        set(4).await;
        if !of_plan {
            host.comment(&id(), 1).await.unwrap();
            host.reviews(&known).await.unwrap();
            host.mergeability(&known).await.unwrap();
        }
        // Comments are searched before one is posted; this host has none.
        _ = host.comments(&id(), None).await;
        host.create_comment(&id(), "done").await.unwrap();
    }
    host.pull_request(&id()).await.unwrap();
    merge(&stage).await.unwrap();
    assert!(stage.requests().len() <= 40, "{:#?}", stage.requests());
}
