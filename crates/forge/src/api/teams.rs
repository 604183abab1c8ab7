//! Memberships of teams.

use super::super::Shared;
use super::{NOT_FOUND, Result, ok};
use serde_json::json;

/// The membership of somebody in a team; 404 where there is none, and where there is no such team.
pub(super) fn membership(shared: &Shared, organization: &str, slug: &str, login: &str) -> Result {
    let state = shared.look();
    let members = state.teams.get(&format!("{organization}/{slug}").to_lowercase()).ok_or_else(NOT_FOUND)?;
    let accepted = members.get(&login.to_lowercase()).ok_or_else(NOT_FOUND)?;
    let url = format!("{}/api/v3/orgs/{organization}/teams/{slug}/memberships/{login}", shared.url);
    ok(json!({"url": url, "role": "member", "state": if *accepted { "active" } else { "pending" }}))
}
