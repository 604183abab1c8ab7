//! Requests of the doctor.

use super::*;

#[tokio::test]
async fn the_account_is_requested_once() {
    let stage = answering(vec![("/user", json!({"id": 4, "login": "TideLock", "is_admin": true}))]).await;
    let want = GiteaAccount { login: Login::new("TideLock"), is_admin: true };
    assert_eq!(stage.host.account().await.unwrap(), &want);
    stage.host.prepare().await.unwrap();
    assert_eq!(stage.requests().len(), 1);
    assert_eq!(stage.host.bot_login().as_str(), "TideLock");
}

#[tokio::test]
async fn the_login_of_the_settings_does_without_the_scope() {
    let refusal =
        "token does not have at least one of required scope(s), required=[read:user], token scope=write:issue";
    let mut stage = stage(move |_, _| refused(403, refusal)).await;
    stage.host.prepare().await.unwrap();
    assert_eq!(stage.host.bot_login().as_str(), "tidelock");
    stage.host.user = Login::unknown();
    let error = stage.host.prepare().await.unwrap_err();
    assert_eq!(scopes_in(&error).unwrap().required, ["read:user"]);
    assert_eq!(stage.host.git_credentials("").await.unwrap().username, "oauth2");
}

#[tokio::test]
async fn versions_tell_the_two_apart() {
    let gitea = answering(vec![("/version", json!({"version": "1.26.0"}))]).await;
    let want = GiteaVersion { version: "1.26.0".into(), is_forgejo: false };
    assert_eq!(gitea.host.version().await.unwrap(), want);
    let forgejo = answering(vec![("/version", json!({"version": "12.0.0+gitea-1.22.0"}))]).await;
    assert!(forgejo.host.version().await.unwrap().is_forgejo);
}

#[tokio::test]
async fn scopes_are_what_the_host_refuses_with() {
    let text = "token does not have at least one of required scope(s), required=[read:admin], token scope=read:user,write:issue";
    let some = stage(move |_, _| refused(403, text)).await;
    assert_eq!(some.host.token_scopes().await.unwrap().unwrap(), ["read:user", "write:issue"]);
    let all = stage(|_, _| refused(403, "user should be the site admin")).await;
    assert_eq!(all.host.token_scopes().await.unwrap(), None);
    let wrong = stage(|_, _| refused(401, "user does not exist [uid: 0, name: ]")).await;
    assert!(wrong.host.token_scopes().await.unwrap_err().is_mendable());
}

#[tokio::test]
async fn a_repository_is_read_with_our_permissions() {
    let stage = answering(vec![("/repos/acme/infra", repository("acme/infra"))]).await;
    let read = stage.host.repository(&repo()).await.unwrap();
    assert!(read.admin && read.push && read.pull && !read.archived && read.has_issues && read.has_pull_requests);
    assert_eq!(read.merge_styles, ["merge", "rebase", "squash"]);
    assert_eq!(read.default_merge_style, "merge");
    let other = answering(vec![("/repos/acme/infra", repository("acme/other"))]).await;
    assert!(matches!(other.host.repository(&repo()).await, Err(HostError::Moved { .. })));
}

#[tokio::test]
async fn webhooks_are_read() {
    let hook = json!({"id": 3, "type": "gitea", "active": true, "branch_filter": "*", "authorization_header": "s3cret",
        "config": {"url": "https://t.example.com/events", "content_type": "json"}, "events": ["push", "pull_request"]});
    let odd = json!({"id": 4, "type": "slack", "config": {}});
    let stage = answering(vec![("/repos/acme/infra/hooks", json!([hook, odd])), ("/orgs/acme/hooks", json!([]))]).await;
    let hooks = stage.host.repository_hooks(&repo()).await.unwrap();
    assert_eq!(hooks.len(), 1);
    let want = GiteaHook {
        id: 3,
        kind: "gitea".into(),
        url: "https://t.example.com/events".into(),
        active: true,
        json: true,
        events: vec!["push".into(), "pull_request".into()],
        branch_filter: "*".into(),
    };
    assert_eq!(hooks[0], want);
    assert_eq!(stage.host.organization_hooks("acme").await.unwrap(), []);
}
