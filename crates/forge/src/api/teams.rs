//! Memberships of teams.

use super::super::{Shared, server};
use super::{NOT_FOUND, Refusal, Result, invalid, ok};
use axum::body::Bytes;
use http::{StatusCode, request};
use serde_json::{Value, json};

/// The membership of somebody in a team; 404 where there is none, and where there is no such team.
pub(super) fn membership(shared: &Shared, organization: &str, slug: &str, login: &str) -> Result {
    let state = shared.look();
    let members = state.teams.get(&format!("{organization}/{slug}").to_lowercase()).ok_or_else(NOT_FOUND)?;
    let accepted = members.get(&login.to_lowercase()).ok_or_else(NOT_FOUND)?;
    let url = format!("{}/api/v3/orgs/{organization}/teams/{slug}/memberships/{login}", shared.url);
    ok(json!({"url": url, "role": "member", "state": if *accepted { "active" } else { "pending" }}))
}

/// The teams of an organization that somebody is in: the only thing that GraphQL is asked for here, in one page.
pub(super) fn by_graphql(shared: &Shared, parts: &request::Parts, body: &Bytes) -> Result {
    server::principal(shared, &parts.headers)
        .ok()
        .flatten()
        .ok_or_else(|| Refusal(StatusCode::UNAUTHORIZED, "Bad credentials".to_owned()))?;
    let asked: Value = serde_json::from_slice(body).map_err(|_| invalid("Problems parsing JSON"))?;
    let variables = &asked["variables"];
    let (Some(organization), Some(login)) = (variables["organization"].as_str(), variables["login"].as_str()) else {
        return Err(invalid("no variables `organization` and `login`"));
    };
    let (prefix, login) = (format!("{organization}/").to_lowercase(), login.to_lowercase());
    let state = shared.look();
    let of_organization = state.teams.iter().filter_map(|(name, members)| Some((name.strip_prefix(&prefix)?, members)));
    let nodes: Vec<Value> = of_organization
        .filter(|(_, members)| members.get(&login) == Some(&true))
        .map(|(slug, _)| json!({"slug": slug, "ancestors": {"nodes": []}}))
        .collect();
    let page = json!({"nodes": nodes, "pageInfo": {"hasNextPage": false, "endCursor": null}});
    ok(json!({"data": {"organization": {"teams": page}}}))
}
