//! Teams of organizations (routers/api/v1/org/team.go). They are flat.

use super::super::BOT;
use super::super::state::State;
use super::api::{Call, ok};
use super::{Refusal, Result, shapes};
use axum::response::IntoResponse;
use serde_json::{Value, json};

/// Teams of an organization that a person is in: name and number.
fn teams_of(state: &State, organization: &str, of: impl Fn(&str) -> bool) -> Vec<(String, u64)> {
    let prefix = format!("{}/", organization.to_lowercase());
    let all = state.teams.keys().filter_map(|key| Some((key.strip_prefix(&prefix)?.to_owned(), key)));
    all.filter(|(_, key)| of(key)).map(|(name, key)| (name, shapes::number_of(key))).collect()
}

/// Checks for an owner of every organization: the server's account, unless a test says otherwise.
fn is_owner(state: &State, login: &str) -> bool {
    login == BOT && !state.gitea.owns_no_organization
}

fn is_in(state: &State, key: &str, login: &str) -> bool {
    state.teams.get(key).and_then(|members| members.get(&login.to_lowercase())) == Some(&true)
}

/// Fails for an unknown organization, and for people outside of it: `reqOrgMembership` of routers/api/v1/api.go.
fn check_organization(state: &State, organization: &str, login: &str) -> Result<()> {
    let name = organization.to_lowercase();
    let prefix = format!("{name}/");
    if !state.repos.keys().any(|key| key.starts_with(&prefix)) && teams_of(state, organization, |_| true).is_empty() {
        let errors = [format!("user redirect does not exist [name: {organization}]")];
        return Err(Refusal::named("GetOrgByName", &errors));
    }
    match is_owner(state, login) || !teams_of(state, organization, |key| is_in(state, key, login)).is_empty() {
        true => Ok(()),
        false => Err(Refusal::forbidden("Must be an organization member")),
    }
}

/// A team: `ToTeams` of services/convert/convert.go.
fn shaped((name, id): &(String, u64)) -> Value {
    json!({"id": id, "name": name, "description": "", "organization": null, "includes_all_repositories": false,
        "can_create_org_repo": false})
}

/// Lists all teams of an organization.
pub(super) fn list(call: &Call<'_>, organization: &str) -> Result {
    let rows = {
        let state = call.shared.lock();
        check_organization(&state, organization, &call.login)?;
        teams_of(&state, organization, |_| true).iter().map(shaped).collect()
    };
    call.page(rows)
}

/// Searches the names of the teams that the caller is in; owners are not in them (`SearchTeam`).
pub(super) fn search(call: &Call<'_>, organization: &str) -> Result {
    let wanted = call.asked("q").unwrap_or_default().to_lowercase();
    let rows: Vec<Value> = {
        let state = call.shared.lock();
        check_organization(&state, organization, &call.login)?;
        let found = teams_of(&state, organization, |key| is_in(&state, key, &call.login));
        found.iter().filter(|(name, _)| name.contains(&wanted)).map(shaped).collect()
    };
    let total = rows.len();
    let body = json!({"ok": true, "data": rows});
    Ok((call.links(total), super::api::total_count(total), axum::Json(body)).into_response())
}

/// Answers with a member of a team; 404 for others. Teams that the caller does not own or is not in are refused
/// (routers/api/v1/api.go, `reqTeamMembership`).
pub(super) fn member(call: &Call<'_>, id: &str, user: &str) -> Result {
    let state = call.shared.lock();
    let key = state.teams.keys().find(|key| shapes::number_of(key).to_string() == id).ok_or_else(Refusal::not_found)?;
    let organization = key.split('/').next().unwrap_or_default();
    if !is_owner(&state, &call.login) && !is_in(&state, key, &call.login) {
        let is_member = !teams_of(&state, organization, |key| is_in(&state, key, &call.login)).is_empty();
        return Err(if is_member { Refusal::forbidden("Must be a team member") } else { Refusal::not_found() });
    }
    if !state.users.contains_key(&user.to_lowercase()) {
        let errors = [format!("user does not exist [uid: 0, name: {user}]")];
        return Err(Refusal::named("GetUserByName", &errors));
    }
    match is_in(&state, key, user) {
        true => ok(shapes::viewed(&call.shared.url, &state, user, &call.login)),
        false => Err(Refusal::not_found()),
    }
}
