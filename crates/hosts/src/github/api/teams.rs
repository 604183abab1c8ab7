//! Teams of organizations, and their members.

use super::{Github, graphql};
use crate::vcs::HostError;
use crate::vcs::http::{Http, segment};
use serde_json::{Value, json};
use tidelock_core::domain::RepoId;

/// Most pages of a person's teams, a hundred each.
const PAGES: usize = 10;
/// Teams of a person, with those above them (docs.github.com/graphql, `Organization.teams`).
const TEAMS: &str = "query($organization: String!, $login: String!, $after: String) { \
    organization(login: $organization) { teams(first: 100, userLogins: [$login], after: $after) { \
    nodes { slug ancestors(first: 20) { nodes { slug } } } pageInfo { hasNextPage endCursor } } } }";

/// Returns true if a person is an active member of a team of an organization, or of a team below it. GitHub answers 404 to a token without
/// `read:org`.
pub(super) async fn is_member(http: &Http, repo: &RepoId, team: &str, login: &str) -> Result<bool, HostError> {
    let (owner, slug) = team.split_once('/').unwrap_or((&repo.owner, team));
    if [owner, slug, login].iter().any(|name| name.chars().all(|c| c == '.')) {
        return Ok(false);
    }
    let path = format!("/orgs/{}/teams/{}/memberships/{}", segment(owner), segment(slug), segment(login));
    match http.get(&path).await {
        Ok(answer) => Ok(answer.body["state"] == "active"),
        Err(HostError::NotFound { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns the teams of a person and those above them, each once. An account that is no organization has none.
pub(super) async fn list(github: &Github, organization: &str, login: &str) -> Result<Vec<String>, HostError> {
    let (mut found, mut after) = (Vec::new(), Value::Null);
    let what = format!("the teams of {login} in {organization}");
    for _ in 0..PAGES {
        let variables = json!({ "organization": organization, "login": login, "after": after });
        let answer = match graphql::send(github, organization, &what, TEAMS, variables).await {
            Ok(answer) => answer,
            Err(HostError::NotFound { .. }) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let page = &answer["organization"]["teams"];
        for team in page["nodes"].as_array().into_iter().flatten() {
            let above = team["ancestors"]["nodes"].as_array().into_iter().flatten();
            for slug in [team].into_iter().chain(above).filter_map(|team| team["slug"].as_str()) {
                if !found.iter().any(|known| known == slug) {
                    found.push(slug.to_owned());
                }
            }
        }
        after = page["pageInfo"]["endCursor"].clone();
        if page["pageInfo"]["hasNextPage"] != true || after.is_null() {
            break;
        }
    }
    Ok(found)
}
