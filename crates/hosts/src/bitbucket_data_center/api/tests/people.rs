//! Reviews, permissions, groups and pushes.

use super::*;
use crate::vcs::ReviewVerdict;

fn participant(name: &str, status: &str, commit: &str) -> Value {
    json!({"user": person(name), "role": "REVIEWER", "status": status, "approved": status == "APPROVED", "lastReviewedCommit": commit})
}

/// A pull request with these reviewers and participants.
fn reviewed(reviewers: Value, participants: Value) -> Value {
    with(with(pull(), "/reviewers", reviewers), "/participants", participants)
}

#[tokio::test]
async fn verdicts_count_of_people_who_may_write() {
    let told = reviewed(
        json!([
            participant("ann", "APPROVED", HEAD),
            participant("bob", "APPROVED", HEAD),
            participant("cid", "NEEDS_WORK", OLD)
        ]),
        json!([participant("dan", "APPROVED", OLD), participant("eve", "UNAPPROVED", HEAD)]),
    );
    let stage = stage(move |_, request| match request {
        // A part of a name is found as well.
        _ if request.contains("/users?filter=bob&") => ok(page(&[person("bobby")])),
        _ if request.contains("/users?filter=") => {
            let name = request.split("filter=").nth(1).unwrap().split('&').next().unwrap();
            ok(page(&[person(&name.to_uppercase())]))
        }
        _ if request.contains("/activities") => {
            let done =
                |action: &str, name: &str, at: i64| json!({"action": action, "user": person(name), "createdDate": at});
            let rows =
                [done("APPROVED", "dan", 9_000), done("UNAPPROVED", "bob", 8_000), done("APPROVED", "DAN", 1_000)];
            ok(page(&rows))
        }
        _ => usual(&[("/pull-requests/7", told.clone())], request),
    })
    .await;
    let pull = read_pull(&stage).await;
    let found = stage.host.reviews(&pull).await.unwrap();
    let times: Vec<_> = found.iter().map(|one| one.at.map(|at| at.as_second())).collect();
    assert_eq!(times, [None, None, Some(9)], "the latest approval of the person");
    let is_of_head = |review: &Review| review.commit.as_ref() == Some(&pull.head.commit);
    let facts: Vec<_> =
        found.iter().map(|one| (one.user.as_str(), one.verdict, one.can_write, is_of_head(one))).collect();
    let want = [
        ("bob", ReviewVerdict::Approved, false, true),
        ("cid", ReviewVerdict::ChangesRequested, true, false),
        ("dan", ReviewVerdict::Approved, true, false),
    ];
    assert_eq!(facts, want, "the author's own verdict does not count");
    let asked =
        "/users?filter=dan&permission=REPO_WRITE&permission.projectKey=PRJ&permission.repositorySlug=infra&limit=1000";
    assert_eq!(stage.count(asked), 1, "{:?}", stage.requests());
    assert_eq!(stage.requests().len(), 6);
}

#[tokio::test]
async fn activities_are_read_for_approvals_alone_and_until_each_has_its_time() {
    let read = async |status: &'static str| {
        let told = reviewed(json!([participant("bob", status, HEAD)]), json!([]));
        let stage = stage(move |_, request| match request.contains("/activities") {
            true => {
                let rows = [json!({"action": "APPROVED", "user": person("bob"), "createdDate": 9_000})];
                ok(with(with(page(&rows), "/isLastPage", false), "/nextPageStart", 100))
            }
            false => usual(&[("/pull-requests/7", told.clone())], request),
        })
        .await;
        let found = stage.host.reviews(&read_pull(&stage).await).await.unwrap();
        (found[0].at.map(|at| at.as_second()), stage.count("/activities"))
    };
    assert_eq!(read("NEEDS_WORK").await, (None, 0));
    assert_eq!(read("APPROVED").await, (Some(9), 1));
}

#[tokio::test]
async fn somebody_who_cannot_sign_in_or_is_not_found_may_not_write() {
    let found = async |name: &'static str, active: bool| {
        let stage = stage(move |_, request| {
            let start: u64 = request.rsplit('=').next().unwrap().parse().unwrap();
            let mut rows = vec![person("anna"); 999];
            rows.push(with(person(name), "/active", active));
            ok(with(with(page(&rows), "/isLastPage", false), "/nextPageStart", start + 1000))
        })
        .await;
        (stage.host.can_write(&repo(), "ann").await.unwrap(), stage.requests().len())
    };
    assert_eq!(found("ann", true).await, (Some(true), 1), "the search ends with the person");
    assert_eq!(found("ann", false).await, (Some(false), 1));
    assert_eq!(found("annabel", true).await, (Some(false), 5), "too many people are no error");
}

#[tokio::test]
async fn permissions_are_those_of_the_person_asked_for() {
    let stage = stage(|_, request| match request.contains("permission=REPO_ADMIN") {
        true => ok(page(&[person("annabel")])),
        false => ok(page(&[person("annabel"), person("ANN")])),
    })
    .await;
    assert_eq!(stage.host.can_write(&repo(), "ann").await.unwrap(), Some(true));
    assert_eq!(stage.host.is_admin(&repo(), "ann").await.unwrap(), Some(false));
    assert_eq!(stage.host.can_write(&repo(), " ").await.unwrap(), Some(false));
    assert_eq!(stage.host.can_write(&repo(), "a&b=c/../d").await.unwrap(), Some(false));
    assert!(stage.requests()[2].contains("filter=a%26b%3Dc%2F..%2Fd&permission="), "{:?}", stage.requests());
}

#[tokio::test]
async fn a_token_that_may_not_read_people_is_told_so() {
    let stage = stage(|_, _| refused(401, "You are not permitted to access this resource")).await;
    for error in [
        stage.host.can_write(&repo(), "ann").await.unwrap_err(),
        stage.host.is_team_member(&repo(), "ops", "ann").await.unwrap_err(),
        stage.host.teams_of(&repo(), "ann").await.unwrap_err(),
    ] {
        assert!(matches!(error, HostError::Denied { .. }));
        assert!(error.to_string().contains("not of a project or a repository"), "{error}");
    }
}

#[tokio::test]
async fn groups_belong_to_the_instance() {
    let stage = stage(|_, request| match request {
        _ if request.contains("group=ops%2Fall") => ok(page(&[person("bob")])),
        _ if request.contains("group=ops") => ok(page(&[person("Ann")])),
        _ if request.contains("/admin/users/more-members?context=ann") => {
            ok(page(&[json!({"name": "ops"}), json!({"name": "stash-users"})]))
        }
        _ => ok(page(&[])),
    })
    .await;
    let is_in = async |team: &str, login: &str| stage.host.is_team_member(&repo(), team, login).await.unwrap();
    assert_eq!((is_in("ops", "ann").await, is_in("prj/ops", "ann").await), (Some(true), Some(true)));
    assert_eq!(is_in("ops/all", "ann").await, Some(false), "another group, whose name has a slash");
    assert_eq!((is_in("ops", "bob").await, is_in("", "ann").await), (Some(false), Some(false)));
    let groups = stage.host.teams_of(&repo(), "ann").await.unwrap().unwrap();
    assert_eq!(groups, ["ops", "stash-users"]);
}

#[tokio::test]
async fn nobody_takes_back_an_approval_of_others() {
    let with_status = async |status: &str| {
        let stage =
            answering(vec![("/pull-requests/7", reviewed(json!([]), json!([participant("bob", status, HEAD)])))]).await;
        stage.host.dismiss_approvals(&read_pull(&stage).await, "changed").await
    };
    with_status("UNAPPROVED").await.unwrap();
    with_status("NEEDS_WORK").await.unwrap();
    let error = with_status("APPROVED").await.unwrap_err();
    assert!(error.to_string().contains("--discard-approval-on-plan"), "{error}");
}

fn push(user: &str, before: &str, after: &str) -> Value {
    json!({"action": "RESCOPED", "user": person(user), "previousFromHash": before, "fromHash": after})
}

fn change(user: &str, kind: &str, after: &str) -> Value {
    json!({"user": person(user), "refChange": {"refId": "refs/heads/topic", "type": kind, "fromHash": OLD, "toHash": after}})
}

#[tokio::test]
async fn who_pushed_is_in_the_activities_or_in_the_changes_of_the_branch() {
    let asked = async |activities: Value, changes: Option<Value>| {
        let mut answers = vec![("/pull-requests/7/commits", json!([])), ("/activities", activities)];
        answers.extend(changes.map(|rows| ("/ref-change-activities?ref=refs%2Fheads%2Ftopic", rows)));
        // The first part is found in the address of the second.
        answers.reverse();
        let stage = answering(answers).await;
        let pull = read_pull(&stage).await;
        let people = stage.host.contributors(&pull).await.unwrap();
        let people: Vec<String> = people.iter().map(|one| one.as_str().to_owned()).collect();
        (stage.host.pusher(&pull).await.unwrap().as_str().to_owned(), people)
    };
    let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<String>>();
    // The base branch was pushed to last.
    let rows =
        json!([push("cid", HEAD, HEAD), push("bob", OLD, HEAD), json!({"action": "OPENED", "user": person("ann")})]);
    assert_eq!(asked(rows.clone(), None).await, ("bob".to_owned(), names(&["bob", ""])));
    let changes = json!([change("bob", "UPDATE", HEAD), change("dan", "ADD", OLD)]);
    assert_eq!(asked(rows, Some(changes.clone())).await, ("bob".to_owned(), names(&["bob", "dan"])));
    assert_eq!(asked(json!([]), Some(changes)).await, ("bob".to_owned(), names(&["bob", "dan"])));
    let cut = json!([change("bob", "UPDATE", HEAD)]);
    assert_eq!(asked(json!([]), Some(cut)).await, ("bob".to_owned(), names(&["bob", ""])));
    assert_eq!(asked(json!([]), None).await, (String::new(), names(&[""])));
    let gap = json!([change("bob", "UPDATE", HEAD), change("dan", "ADD", BASE)]);
    assert_eq!(asked(json!([]), Some(gap)).await, ("bob".to_owned(), names(&["bob", "dan", ""])));
}

#[tokio::test]
async fn authors_and_committers_with_an_account_are_contributors() {
    let account = |name: &str| with(person(name), "/id", 101);
    let commits = json!([
        {"id": HEAD, "author": account("eve"), "committer": account("fay")},
        {"id": OLD, "author": {"name": "gus", "emailAddress": "gus@example.com"}, "committer": {"name": "hal"}},
    ]);
    let stage = answering(vec![
        ("/pull-requests/7/commits", commits),
        ("/ref-change-activities?", json!([change("bob", "UPDATE", HEAD), change("dan", "ADD", OLD)])),
    ])
    .await;
    let people = stage.host.contributors(&read_pull(&stage).await).await.unwrap();
    let people: Vec<&str> = people.iter().map(Login::as_str).collect();
    assert_eq!(people, ["bob", "dan", "eve", "fay"], "a name without an account is any text");
}
