//! Permissions, teams and reviews.

use super::*;

#[tokio::test]
async fn permissions_are_words() {
    for (word, writes, admin) in [
        ("owner", true, true),
        ("admin", true, true),
        ("write", true, false),
        ("read", false, false),
        ("none", false, false),
    ] {
        let stage = answering(vec![("/collaborators/bob/permission", json!({"permission": word}))]).await;
        assert_eq!(stage.host.can_write(&repo(), "bob").await.unwrap(), Some(writes), "{word}");
        assert_eq!(stage.host.is_admin(&repo(), "bob").await.unwrap(), Some(admin), "{word}");
    }
    let nobody = answering(Vec::new()).await;
    assert_eq!(nobody.host.can_write(&repo(), "eve").await.unwrap(), Some(false));
    assert_eq!(nobody.host.can_write(&repo(), "..").await.unwrap(), Some(false));
    assert_eq!(nobody.requests().len(), 1);
}

#[tokio::test]
async fn permissions_that_we_may_not_ask_for_are_unknown() {
    let text = "Only admins can query all permissions, repo admins can query all repo permissions, collaborators can query only their own";
    let other = stage(move |_, _| refused(403, text)).await;
    assert_eq!(other.host.can_write(&repo(), "bob").await.unwrap(), None);
    let scope =
        stage(|_, _| refused(403, "token does not have at least one of required scope(s), required=[read:repository]"))
            .await;
    assert!(scope.host.is_admin(&repo(), "bob").await.unwrap_err().is_mendable());
}

fn with_teams(request: &str) -> Response {
    match request {
        _ if request.contains("/orgs/acme/teams") => {
            page(json!([{"id": 1, "name": "Owners"}, {"id": 2, "name": "SRE"}]), 2)
        }
        _ if request.contains("/orgs/other/teams") => page(json!([{"id": 3, "name": "sre"}]), 1),
        _ if request.ends_with("/teams/2/members/bob") => ok(json!({"login": "bob"})),
        _ if request.ends_with("/teams/1/members/eve") => refused(403, "Must be a team member"),
        _ => refused(404, "The target couldn't be found."),
    }
}

#[tokio::test]
async fn teams_are_found_by_name() {
    let stage = stage(|_, request| with_teams(request)).await;
    let is_in = async |team: &str, login: &str| stage.host.is_team_member(&repo(), team, login).await.unwrap();
    assert_eq!(is_in("sre", "bob").await, Some(true));
    assert_eq!(is_in("acme/sre", "bob").await, Some(true));
    assert_eq!(is_in("other/sre", "bob").await, Some(false));
    assert_eq!(is_in("owners", "bob").await, Some(false));
    assert_eq!(is_in("ops", "bob").await, Some(false));
    assert_eq!(is_in("nobody/sre", "bob").await, Some(false), "no organization");
    assert_eq!(is_in("../sre", "bob").await, Some(false));
    assert_eq!(stage.host.teams_of(&repo(), "bob").await.unwrap().unwrap(), ["SRE"]);
    let users = RepoId { owner: "ann".into(), ..repo() };
    assert_eq!(stage.host.teams_of(&users, "bob").await.unwrap().unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn a_team_that_we_may_not_read_is_an_error() {
    let stage = stage(|_, request| with_teams(request)).await;
    let error = stage.host.is_team_member(&repo(), "owners", "eve").await.unwrap_err();
    assert!(error.is_mendable() && error.to_string().contains("owner of the organization"), "{error}");
    assert!(stage.host.teams_of(&repo(), "eve").await.is_err());
}

fn review(id: u64, user: &str, state: &str) -> Value {
    json!({"id": id, "user": {"id": 5, "login": user}, "state": state, "commit_id": HEAD, "official": true, "stale": false,
        "dismissed": false, "submitted_at": "2026-11-01T10:00:00Z",
        "pull_request_url": "https://git.example.com/acme/infra/pulls/7"})
}

#[tokio::test]
async fn reviews_of_another_pull_request_are_refused() {
    let other = with(review(1, "bob", "APPROVED"), "/pull_request_url", "https://git.example.com/acme/infra/pulls/17");
    let stage = answering(vec![("/pulls/7/reviews", json!([review(2, "bob", "APPROVED"), other]))]).await;
    assert!(matches!(stage.host.reviews(&known_pull()).await, Err(HostError::Moved { .. })));
}

#[tokio::test]
async fn every_approval_is_dismissed() {
    let stage = stage(|count, request| match request {
        _ if request.starts_with("POST") => ok(json!({})),
        _ if count == 0 => {
            let stale = with(review(2, "cid", "APPROVED"), "/stale", true);
            let gone = with(review(3, "dan", "APPROVED"), "/dismissed", true);
            page(json!([review(1, "bob", "APPROVED"), stale, gone, review(4, "eve", "REQUEST_CHANGES")]), 4)
        }
        _ => page(json!([with(review(1, "bob", "APPROVED"), "/dismissed", true)]), 1),
    })
    .await;
    stage.host.dismiss_approvals(&known_pull(), "planned again").await.unwrap();
    let posts: Vec<String> = stage.requests().into_iter().filter(|request| request.starts_with("POST")).collect();
    assert_eq!(posts, [1, 2].map(|id| format!("POST {AT}/pulls/7/reviews/{id}/dismissals")));
    assert_eq!(stage.body_of("POST"), json!({"message": "planned again", "priors": false}));
}

#[tokio::test]
async fn a_dismissal_that_is_refused_names_the_right() {
    let denied = stage(|_, request| match request.starts_with("POST") {
        true => refused(403, "Must be repo admin"),
        false => page(json!([review(1, "bob", "APPROVED")]), 1),
    })
    .await;
    let error = denied.host.dismiss_approvals(&known_pull(), "x").await.unwrap_err();
    assert!(error.is_mendable() && error.to_string().contains("administrator of the repository"), "{error}");
    let stays = stage(|_, request| match request.starts_with("POST") {
        true => ok(json!({})),
        false => page(json!([review(1, "bob", "APPROVED")]), 1),
    })
    .await;
    let error = stays.host.dismiss_approvals(&known_pull(), "x").await.unwrap_err();
    assert!(error.to_string().contains("an approval is left"), "{error}");
    let none = answering(vec![("/reviews", json!([]))]).await;
    none.host.dismiss_approvals(&known_pull(), "x").await.unwrap();
    assert_eq!(none.requests().len(), 1);
}
