//! Requests of the doctor.

use super::*;

#[tokio::test]
async fn a_repository_tells_of_our_token() {
    let stage = stage(|_, request| match request {
        _ if request.contains("/user/workspaces/acme/permissions/repositories") => ok(page(&[
            json!({"permission": "write", "repository": repository("acme/other")}),
            json!({"permission": "admin", "repository": repository("Acme/infra")}),
        ])),
        _ => (
            [("x-oauth-scopes", "read:repository:bitbucket, write:pullrequest:bitbucket")],
            axum::Json(repository("acme/infra")),
        )
            .into_response(),
    })
    .await;
    let told = stage.host.repository(&repo()).await.unwrap();
    let scopes = ["read:repository:bitbucket", "write:pullrequest:bitbucket"].map(str::to_owned).to_vec();
    let want = BitbucketCloudRepository { permission: Some("admin".into()), scopes: Some(scopes), private: true };
    assert_eq!(told, want);
    assert_eq!(stage.count("q=repository.full_name%3D%22acme%2Finfra%22"), 1);
}

#[tokio::test]
async fn what_the_host_does_not_tell_is_absent() {
    let stage = stage(|_, request| match request.contains("/user/") {
        true => refused(403, "Your credentials lack one or more required privilege scopes."),
        false => ok(repository("acme/infra")),
    })
    .await;
    let told = stage.host.repository(&repo()).await.unwrap();
    assert_eq!((told.permission, told.scopes), (None, None));
    let token = stage_with_access_token(|_, _| ok(repository("acme/infra"))).await;
    assert_eq!(token.host.repository(&repo()).await.unwrap().permission, None);
    assert_eq!(token.requests(), [format!("GET {AT}")]);
    let other = answering(vec![("/repositories/acme/infra", repository("acme/other"))]).await;
    assert!(matches!(other.host.repository(&repo()).await, Err(HostError::Moved { .. })));
}

#[tokio::test]
async fn webhooks_are_read() {
    let full = json!({"uuid": "{d536}", "url": "https://t/events", "active": true, "secret_set": true, "skip_cert_verification": false,
        "events": ["pullrequest:created", "repo:push"]});
    let bare = json!({"uuid": "{d537}", "url": "https://t/events", "active": false, "skip_cert_verification": true, "events": []});
    let stage = answering(vec![("/hooks?pagelen=100", json!([full, bare, {"uuid": "{d538}"}]))]).await;
    let hooks = stage.host.repository_hooks(&repo()).await.unwrap();
    let want = BitbucketCloudHook {
        uuid: "{d536}".into(),
        url: "https://t/events".into(),
        active: true,
        has_secret: Some(true),
        verifies_tls: true,
        events: vec!["pullrequest:created".into(), "repo:push".into()],
    };
    assert_eq!(hooks[0], want);
    assert_eq!((hooks.len(), hooks[1].active, hooks[1].has_secret, hooks[1].verifies_tls), (2, false, None, false));
    assert_eq!(stage.host.workspace_hooks("ac/me").await.unwrap().len(), 2);
    assert_eq!(stage.count("/2.0/workspaces/ac%2Fme/hooks"), 1);
}

#[tokio::test]
async fn a_missing_scope_is_named() {
    let error = json!({"type": "error", "error": {"message": "Your credentials lack one or more required privilege scopes.",
        "detail": {"granted": ["read:repository:bitbucket"], "required": ["read:webhook:bitbucket"]}}});
    let stage = stage(move |_, _| (StatusCode::FORBIDDEN, axum::Json(error.clone())).into_response()).await;
    let words = stage.host.repository_hooks(&repo()).await.unwrap_err().to_string();
    assert!(words.contains("required scopes: read:webhook:bitbucket"), "{words}");
}
