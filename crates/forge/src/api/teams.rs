//! Memberships of teams.

use super::super::Shared;
use super::super::state::State;
use super::{NOT_FOUND, Result, ok};
use serde_json::{Value, json};

/// Returns the membership of a person in a team; 404 if there is none, or no such team.
pub(super) fn membership(shared: &Shared, organization: &str, slug: &str, login: &str) -> Result {
    let state = shared.lock();
    let members = state.teams.get(&format!("{organization}/{slug}").to_lowercase()).ok_or_else(NOT_FOUND)?;
    let accepted = members.get(&login.to_lowercase()).ok_or_else(NOT_FOUND)?;
    let url = format!("{}/api/v3/orgs/{organization}/teams/{slug}/memberships/{login}", shared.url);
    ok(json!({"url": url, "role": "member", "state": if *accepted { "active" } else { "pending" }}))
}

/// Teams of a person in an organization in the form of GraphQL, on one page.
pub(super) fn of_person(state: &State, variables: &Value) -> Value {
    let text = |name: &str| variables[name].as_str().unwrap_or_default().to_lowercase();
    let (prefix, login) = (format!("{}/", text("organization")), text("login"));
    let of_organization = state.teams.iter().filter_map(|(name, members)| Some((name.strip_prefix(&prefix)?, members)));
    let nodes: Vec<Value> = of_organization
        .filter(|(_, members)| members.get(&login) == Some(&true))
        .map(|(slug, _)| json!({"slug": slug, "ancestors": {"nodes": []}}))
        .collect();
    let page = json!({"nodes": nodes, "pageInfo": {"hasNextPage": false, "endCursor": null}});
    json!({"organization": {"teams": page}})
}
