//! Issues.

use super::*;

fn issue_json(number: u64, author: &str) -> Value {
    json!({"number": number, "user": {"login": author}, "state": "open", "body": "text", "html_url": format!("https://localhost/acme/infra/issues/{number}")})
}

#[tokio::test]
async fn own_issues_are_neither_pull_requests_nor_of_others() {
    let fake = fake(|_, _| {
        let mut pull = issue_json(2, "tidelock");
        pull["pull_request"] = json!({"url": "https://localhost/pulls/2"});
        json_response(
            200,
            json!([issue_json(1, "Tidelock"), pull, issue_json(3, "mallory"), {"number": 4, "user": null}]),
        )
    })
    .await;
    let found = fake.github.own_issues(&id().repo).await.unwrap();
    assert_eq!(found.iter().map(|issue| issue.number).collect::<Vec<_>>(), [1]);
    assert_eq!(fake.requests(), ["GET /repos/acme/infra/issues?state=open&creator=Tidelock&per_page=50&page=1"]);
}

#[tokio::test]
async fn an_issue_is_opened_changed_and_closed() {
    let fake = fake(|_, request| {
        json_response(if request.starts_with("POST") { 201 } else { 200 }, issue_json(7, "tidelock"))
    })
    .await;
    let new = NewIssue { title: "T".into(), body: "B".into(), labels: vec!["drift".into()] };
    let opened = fake.github.create_issue(&id().repo, &new).await.unwrap();
    assert_eq!((opened.number, opened.open, opened.body.as_str()), (7, true, "text"));
    assert_eq!(opened.url, "https://localhost/acme/infra/issues/7");
    assert!(fake.github.edit_issue(&id().repo, 7, &IssueEdit::Text("new".into())).await.unwrap());
    assert!(fake.github.edit_issue(&id().repo, 7, &IssueEdit::Close).await.unwrap());
    assert_eq!(
        fake.requests(),
        ["POST /repos/acme/infra/issues", "PATCH /repos/acme/infra/issues/7", "PATCH /repos/acme/infra/issues/7"]
    );
    assert_eq!(fake.body(0), json!({"title": "T", "body": "B", "labels": ["drift"]}));
    assert_eq!(fake.body(1), json!({"body": "new"}));
    assert_eq!(fake.body(2), json!({"state": "closed", "state_reason": "completed"}));
}

#[tokio::test]
async fn an_absent_issue_is_told_from_a_hidden_repository_and_from_disabled_issues() {
    let answered = |status: u16, repository: u16| {
        fake(move |_, request| {
            let status = if request.ends_with("/infra") { repository } else { status };
            let told = json!({
                "message": "Issues are disabled for this repo", "name": "infra", "owner": {"login": "acme"},
                "clone_url": "https://localhost/acme/infra.git",
            });
            with(json_response(status, told), "location", "/elsewhere")
        })
    };
    for status in [301, 404, 410] {
        let fake = answered(status, 200).await;
        assert_eq!(fake.github.issue(&id().repo, 7).await.unwrap(), None, "{status}");
        assert!(!fake.github.edit_issue(&id().repo, 7, &IssueEdit::Close).await.unwrap(), "{status}");
    }
    // Its present name may be allowlisted later, or a proxy redirects for now.
    let moved = answered(301, 301).await;
    assert!(matches!(moved.github.issue(&id().repo, 7).await, Err(HostError::Moved { .. })));
    let hidden = answered(404, 404).await;
    assert!(matches!(hidden.github.issue(&id().repo, 7).await, Err(HostError::NotFound { .. })));
    let disabled = answered(410, 200).await;
    let new = NewIssue { title: "T".into(), body: "B".into(), labels: Vec::new() };
    let refused = disabled.github.create_issue(&id().repo, &new).await.unwrap_err();
    assert!(matches!(refused, HostError::Rejected { status: 410, .. }), "{refused}");
}
