//! Issues.

use super::*;

fn issue(number: u64, user: &str) -> Value {
    json!({"number": number, "html_url": format!("https://git.example.com/acme/infra/issues/{number}"), "state": "open",
        "user": {"id": 5, "login": user}, "pull_request": null, "body": "drift"})
}

#[tokio::test]
async fn our_open_issues_are_listed() {
    let rows = json!([
        issue(9, "tidelock"),
        with(issue(8, "tidelock"), "/pull_request", json!({"merged": false})),
        issue(7, "ann")
    ]);
    let stage = answering(vec![("/issues?state=open&type=issues&created_by=tidelock", rows)]).await;
    let own = stage.host.own_issues(&repo()).await.unwrap();
    assert_eq!(own.iter().map(|one| one.number).collect::<Vec<_>>(), [9]);
    assert!(own[0].open && own[0].is_ours && own[0].url.ends_with("/issues/9") && own[0].body == "drift");
}

#[tokio::test]
async fn labels_are_numbers_and_missing_ones_are_made() {
    let stage = stage(|_, request| match request {
        _ if request.starts_with("POST") && request.ends_with("/labels") => {
            (StatusCode::CREATED, axum::Json(json!({"id": 22}))).into_response()
        }
        _ if request.contains("/labels") => page(json!([{"id": 21, "name": "drift"}]), 1),
        _ => (StatusCode::CREATED, axum::Json(issue(9, "tidelock"))).into_response(),
    })
    .await;
    let labels = vec!["drift".to_owned(), "prod".to_owned()];
    let new = NewIssue { title: "Drift".into(), body: "text".into(), labels };
    assert_eq!(stage.host.create_issue(&repo(), &new).await.unwrap().number, 9);
    assert_eq!(stage.body_of("POST"), json!({"title": "Drift", "body": "text", "labels": [21, 22]}));
    let before = stage.requests().len();
    stage.host.create_issue(&repo(), &NewIssue { labels: Vec::new(), ..new }).await.unwrap();
    assert_eq!(stage.requests().len(), before + 1, "labels are not asked for");
}

#[tokio::test]
async fn an_issue_without_the_right_to_make_labels_goes_without() {
    let stage = stage(|_, request| match request {
        _ if request.starts_with("POST") && request.ends_with("/labels") => refused(403, "user should have permission"),
        _ if request.contains("/labels") => page(json!([]), 0),
        _ => (StatusCode::CREATED, axum::Json(issue(9, "tidelock"))).into_response(),
    })
    .await;
    let new = NewIssue { title: "Drift".into(), body: "text".into(), labels: vec!["drift".into()] };
    stage.host.create_issue(&repo(), &new).await.unwrap();
    assert_eq!(stage.body_of("POST")["labels"], json!([]));
}

#[tokio::test]
async fn an_absent_issue_is_told_from_a_hidden_repository() {
    let stage = stage(|_, request| match request.ends_with("/issues/9") {
        true => refused(404, "The target couldn't be found."),
        false => ok(repository("acme/infra")),
    })
    .await;
    assert_eq!(stage.host.issue(&repo(), 9).await.unwrap(), None);
    assert!(!stage.host.edit_issue(&repo(), 9, &IssueEdit::Close).await.unwrap());
    assert!(answering(Vec::new()).await.host.issue(&repo(), 9).await.unwrap_err().is_mendable());
}

#[tokio::test]
async fn an_issue_is_edited_and_closed() {
    let stage = answering(vec![("/issues/9", issue(9, "tidelock"))]).await;
    assert!(stage.host.edit_issue(&repo(), 9, &IssueEdit::Text("now".into())).await.unwrap());
    assert_eq!(stage.body_of("PATCH"), json!({"body": "now"}));
    assert!(stage.host.edit_issue(&repo(), 9, &IssueEdit::Close).await.unwrap());
    assert_eq!(stage.body_of("PATCH"), json!({"state": "closed"}));
    assert!(stage.host.issue(&repo(), 9).await.unwrap().unwrap().is_ours);
}
