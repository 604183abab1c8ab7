//! Teams of a person.

use super::*;

fn page(slugs: &[&str], above: &[&str], next: Option<&str>) -> Value {
    let above: Vec<Value> = above.iter().map(|slug| json!({"slug": slug})).collect();
    let team = |slug: &&str| json!({"slug": slug, "ancestors": {"nodes": above}});
    let nodes: Vec<Value> = slugs.iter().map(team).collect();
    let info = json!({"hasNextPage": next.is_some(), "endCursor": next});
    json!({"data": {"organization": {"teams": {"nodes": nodes, "pageInfo": info}}}})
}

#[tokio::test]
async fn all_teams_and_those_above_them_are_told_page_by_page() {
    let pages = [page(&["sre", "devs"], &["all"], Some("c1")), page(&["ops"], &[], None)];
    let fake = fake(move |count, _| json_response(200, pages[count].clone())).await;
    let teams = fake.github.teams_of(&id().repo, "bob").await.unwrap();
    assert_eq!(teams.unwrap(), ["sre", "all", "devs", "ops"]);
    assert_eq!(fake.requests(), ["POST /graphql", "POST /graphql"]);
    assert_eq!(fake.body(1)["variables"], json!({"organization": "acme", "login": "bob", "after": "c1"}));
}

#[tokio::test]
async fn an_account_without_teams_has_none_and_a_refusal_is_no_answer() {
    let no_organization = json!({"data": {"organization": null}, "errors": [{"type": "NOT_FOUND", "message": "x"}]});
    let told = fake(move |_, _| json_response(200, no_organization.clone())).await;
    assert_eq!(told.github.teams_of(&id().repo, "bob").await.unwrap(), Some(Vec::new()));
    let scopes = json!({"errors": [{"type": "INSUFFICIENT_SCOPES", "message": "needs read:org"}]});
    let refused = fake(move |_, _| json_response(200, scopes.clone())).await;
    assert!(refused.github.teams_of(&id().repo, "bob").await.unwrap_err().to_string().contains("read:org"));
}
