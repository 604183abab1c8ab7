//! Roles, groups, pushes and reviews.

use super::*;
use crate::vcs::ReviewVerdict;
use tidelock_core::domain::Login;

fn member(id: u64, level: u64) -> Value {
    json!({"id": id, "username": "ann", "state": "active", "access_level": level, "expires_at": null})
}

fn push(author: &str, branch: &str, commit: &str) -> Value {
    // As in `events_test.go`.
    json!({
        "id": 4, "action_name": "pushed", "author_username": author,
        "push_data": {"action": "pushed", "ref_type": "branch", "commit_to": commit, "ref": branch},
    })
}

fn versions() -> Value {
    // As in docs.gitlab.com/api/merge_requests, newest first.
    json!([
        {"id": 110, "head_commit_sha": HEAD, "created_at": "2026-07-26T14:44:48.926Z"},
        {"id": 108, "head_commit_sha": FIRST, "created_at": "2026-07-25T14:21:33.028Z"},
    ])
}

#[tokio::test]
async fn roles_are_those_of_active_members_with_exactly_this_login() {
    let blocked = with(member(4, 50), "state", "blocked");
    let awaiting = with(member(5, 50), "membership_state", "awaiting");
    let stage = answering(vec![
        ("username=ann", 200, json!([{"id": 1, "username": "Ann"}])),
        ("username=bob", 200, json!([{"id": 9, "username": "bobby"}, {"id": 3, "username": "bob"}])),
        // Anybody may choose a name that is somebody's login.
        ("username=eve", 200, json!([{"id": 9, "username": "eve2", "name": "eve"}])),
        ("username=cid", 200, json!([{"id": 4, "username": "cid"}])),
        ("username=dan", 200, json!([{"id": 5, "username": "dan"}])),
        ("members/all/1", 200, member(1, 30)),
        ("members/all/3", 200, member(3, 40)),
        ("members/all/4", 200, blocked),
        ("members/all/5", 200, awaiting),
        ("members/all/9", 200, member(9, 50)),
    ])
    .await;
    let repo = id().repo;
    for (login, writes, administers) in
        [("ann", true, false), ("bob", true, true), ("eve", false, false), ("cid", false, false), ("dan", false, false)]
    {
        assert_eq!(stage.host.can_write(&repo, login).await.unwrap(), Some(writes), "{login}");
        assert_eq!(stage.host.is_admin(&repo, login).await.unwrap(), Some(administers), "{login}");
    }
    let asked = stage.requests();
    assert_eq!(asked.iter().filter(|request| request.contains("username=ann")).count(), 1, "ids are cached");
    assert!(asked.contains(&format!("GET {AT}/members/all/1")));
    let broken = answering(vec![("/users", 500, Value::Null)]).await;
    assert!(broken.host.can_write(&repo, "ann").await.is_err());
}

#[tokio::test]
async fn groups_are_named_by_their_whole_path_and_include_inherited_members() {
    let stage = answering(vec![
        ("/users", 200, json!([{"id": 1, "username": "ann"}])),
        ("/groups/acme%2Fplatform/members/all/1", 200, member(1, 10)),
        ("/groups/acme/members/all/1", 200, member(1, 5)),
        ("%2Fg19%2Fg20/members/all/1", 200, member(1, 30)),
        // Of the project alone, whose name a rule may have.
        ("/projects/acme%2Fplatform%2Finfra/members", 200, member(1, 50)),
    ])
    .await;
    let repo = id().repo;
    let deep: Vec<String> = (1..=20).map(|group| format!("g{group}")).collect();
    for (group, is_member) in [
        ("acme/platform", true),
        (deep.join("/").as_str(), true),
        ("acme", false),
        ("acme/others", false),
        ("acme/platform/infra", false),
        ("..", false),
        ("", false),
        ("a//b", false),
    ] {
        assert_eq!(stage.host.is_team_member(&repo, group, "ann").await.unwrap(), Some(is_member), "{group}");
    }
    assert_eq!(stage.host.teams_of(&repo, "ann").await.unwrap().unwrap(), ["acme/platform"]);
    assert!(!stage.requests().iter().any(|request| request.contains("..")));
}

#[tokio::test]
async fn who_pushed_the_head_is_told_by_events() {
    let rows = json!([
        push("eve", "other", HEAD),
        with(push("eve", "topic", HEAD), "push_data", json!({"ref_type": "tag", "ref": "topic", "commit_to": HEAD})),
        push("bob", "topic", HEAD),
        push("ann", "topic", FIRST),
    ]);
    let stage = answering(vec![("/events?action=pushed", 200, rows)]).await;
    assert_eq!(stage.host.pusher(&known_pull()).await.unwrap().as_str(), "bob");
    let none = answering(vec![("/events", 200, json!([]))]).await;
    assert!(none.host.pusher(&known_pull()).await.unwrap().is_unknown());
    let broken = answering(vec![("/events", 500, Value::Null)]).await;
    assert!(broken.host.pusher(&known_pull()).await.is_err());
}

#[tokio::test]
async fn contributors_are_those_who_pushed_its_commits() {
    let other = "2222eeee455ff5aaaaabb66ccccccccc7777cccc";
    let answers = |events: Value| {
        vec![
            ("/versions", 200, versions()),
            ("/commits", 200, json!([{"id": HEAD}, {"id": FIRST}, {"id": other}])),
            ("/events", 200, events),
        ]
    };
    let all = json!([
        push("bob", "topic", HEAD),
        push("ann", "topic", FIRST),
        push("cid", "topic", other),
        push("eve", "topic", BASE)
    ]);
    let stage = answering(answers(all)).await;
    let told = stage.host.contributors(&known_pull()).await.unwrap();
    assert_eq!(told, ["bob", "ann", "cid"].map(Login::new));
    let stage = answering(answers(json!([push("bob", "topic", HEAD)]))).await;
    assert_eq!(stage.host.contributors(&known_pull()).await.unwrap(), [Login::new("bob"), Login::unknown()]);
}

/// As in `get_merge_request_approvals.json`.
fn approvals(by: &[(u64, &str, &str)]) -> Value {
    let by: Vec<Value> =
        by.iter().map(|(id, login, at)| json!({"user": {"id": id, "username": login}, "approved_at": at})).collect();
    json!({"approved": true, "approvals_required": 0, "approvals_left": 0, "approved_by": by})
}

#[tokio::test]
async fn reviews_are_approvals_of_the_head_at_their_time_and_requested_changes() {
    let by = approvals(&[
        (1, "ann", "2026-07-26T15:00:00.000Z"),
        (3, "bob", "2026-07-26T10:00:00.000Z"),
        (4, "cid", "2026-07-26T15:00:00.000Z"),
        (5, "dan", ""),
    ]);
    let reviewers = json!([
        {"user": {"id": 4, "username": "cid"}, "state": "requested_changes"},
        {"user": {"id": 1, "username": "ann"}, "state": "approved"},
    ]);
    let stage = answering(vec![
        ("/reviewers", 200, reviewers),
        ("/approvals", 200, by),
        ("/versions", 200, versions()),
        ("members/all/1", 200, member(1, 30)),
        ("members/all/3", 200, member(3, 20)),
        ("members/all/4", 200, member(4, 40)),
    ])
    .await;
    let reviews = stage.host.reviews(&known_pull()).await.unwrap();
    let told: Vec<_> = reviews
        .iter()
        .map(|r| (r.user.as_str(), r.verdict, r.can_write, r.commit.as_ref().map(|c| c.as_str())))
        .collect();
    use ReviewVerdict::{Approved, ChangesRequested};
    assert_eq!(
        told,
        [
            ("cid", ChangesRequested, true, None),
            ("ann", Approved, true, Some(HEAD)),
            ("bob", Approved, false, Some(FIRST)),
            ("dan", Approved, false, None),
        ]
    );
    // The author may add twenty reviewers, as many as a page has by default.
    assert!(stage.requests().iter().any(|request| request.contains("/reviewers?per_page=100")));
}

#[tokio::test]
async fn where_no_approval_is_required_nobody_has_approved() {
    let stage = answering(vec![("/reviewers", 200, json!([])), ("/approvals", 200, approvals(&[]))]).await;
    assert_eq!(stage.host.reviews(&known_pull()).await.unwrap(), []);
}

#[tokio::test]
async fn approvals_that_the_projects_rules_require_are_missing() {
    for (answer, want) in [
        (json!({"approved": false, "approvals_left": 1, "approved_by": []}), Some("GitLab requires 1 more approval")),
        (json!({"approved": false, "approvals_left": 3, "approved_by": []}), Some("GitLab requires 3 more approvals")),
        (approvals(&[(1, "ann", "2026-07-26T15:00:00.000Z")]), None),
        // As without a license.
        (json!({"approved": true, "approved_by": []}), None),
    ] {
        let stage = answering(vec![("/approvals", 200, answer)]).await;
        assert_eq!(stage.host.missing_approvals(&known_pull()).await.unwrap().as_deref(), want);
    }
    let broken = answering(vec![("/approvals", 500, Value::Null)]).await;
    assert!(broken.host.missing_approvals(&known_pull()).await.is_err());
}

#[tokio::test]
async fn approvals_are_reset_by_a_bot_and_looked_at_again() {
    let one = || approvals(&[(1, "ann", "2026-07-26T15:00:00.000Z")]);
    let works = stage(move |count, request| match request {
        _ if request.starts_with("PUT") => ok(Value::Null),
        _ if count == 0 => ok(one()),
        _ => ok(approvals(&[])),
    })
    .await;
    works.host.dismiss_approvals(&known_pull(), "a new plan").await.unwrap();
    assert_eq!(works.requests()[1], format!("PUT {AT}/merge_requests/7/reset_approvals"));

    let remains = answering(vec![("PUT", 200, Value::Null), ("/approvals", 200, one())]).await;
    let error = remains.host.dismiss_approvals(&known_pull(), "").await.unwrap_err();
    assert!(error.to_string().contains("an approval is left"), "{error}");

    let refused =
        answering(vec![("PUT", 401, json!({"message": "401 Unauthorized"})), ("/approvals", 200, one())]).await;
    let error = refused.host.dismiss_approvals(&known_pull(), "").await.unwrap_err();
    assert!(
        matches!(&error, HostError::Denied { message, .. } if message.contains("project or group access token")),
        "{error}"
    );

    let none = answering(vec![("/approvals", 200, approvals(&[]))]).await;
    none.host.dismiss_approvals(&known_pull(), "").await.unwrap();
    assert_eq!(none.requests().len(), 1);
}
