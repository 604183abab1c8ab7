//! Permissions in repositories, and teams of organizations.

use super::Gitea;
use crate::vcs::HostError;
use crate::vcs::http::segment;
use futures::{StreamExt as _, TryStreamExt as _};
use tidelock_core::domain::RepoId;

/// Most pages of teams of one organization.
const TEAM_PAGES: u32 = 10;
/// Most teams in which a person is looked for, with one request each.
const MOST_TEAMS: usize = 200;
/// Most concurrent requests for memberships.
const MAX_CONCURRENT: usize = 4;
/// Refusal of others' permissions to an account that does not administer the repository (routers/api/v1/repo/collaborators.go,
/// `GetRepoPermissions`).
const ADMINS_ONLY: &str = "Only admins can query";

/// Returns true if a person may write to a repository; absent if our account may not ask that.
pub(super) async fn can_write(host: &Gitea, repo: &RepoId, login: &str) -> Result<Option<bool>, HostError> {
    let permission = permission(host, repo, login).await?;
    Ok(permission.map(|word| matches!(word.as_str(), "write" | "admin" | "owner")))
}

/// Returns true if a person administers a repository; absent if our account may not ask that.
pub(super) async fn is_admin(host: &Gitea, repo: &RepoId, login: &str) -> Result<Option<bool>, HostError> {
    let permission = permission(host, repo, login).await?;
    Ok(permission.map(|word| matches!(word.as_str(), "admin" | "owner")))
}

/// Returns the permission of a person in the host's word (models/perm/access_mode.go), `none` for somebody that it does not know; absent if
/// our account may not ask that.
async fn permission(host: &Gitea, repo: &RepoId, login: &str) -> Result<Option<String>, HostError> {
    let none = || Ok(Some("none".to_owned()));
    if !is_name(login) {
        return none();
    }
    let path = format!("{}/collaborators/{}/permission", host.address.repo_path(repo)?, segment(login));
    match host.http.get(&path).await {
        Ok(answer) => Ok(Some(answer.body["permission"].as_str().unwrap_or("none").to_owned())),
        Err(HostError::NotFound { .. }) => none(),
        Err(HostError::Denied { message, .. }) if message.contains(ADMINS_ONLY) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns true if a person is in a team, `team` of the repository's owner or `owner/team`. An account that is no organization has none.
pub(super) async fn is_in_team(host: &Gitea, repo: &RepoId, team: &str, login: &str) -> Result<bool, HostError> {
    let (owner, name) = team.split_once('/').unwrap_or((&repo.owner, team));
    let teams = teams(host, owner).await?;
    match teams.iter().find(|(_, known)| known.eq_ignore_ascii_case(name)) {
        Some((id, _)) => is_member(host, *id, login).await,
        None => Ok(false),
    }
}

/// Returns a person's teams of an organization. Teams have none above them.
pub(super) async fn teams_of(host: &Gitea, owner: &str, login: &str) -> Result<Vec<String>, HostError> {
    let teams = teams(host, owner).await?;
    if teams.len() > MOST_TEAMS {
        let message = format!("{owner} has more than {MOST_TEAMS} teams");
        return Err(HostError::Rejected { what: format!("teams of {login}"), status: 200, message });
    }
    let asked = futures::stream::iter(teams)
        .map(|(id, name)| async move { Ok::<_, HostError>(is_member(host, id, login).await?.then_some(name)) });
    let found: Vec<Option<String>> = asked.buffered(MAX_CONCURRENT).try_collect().await?;
    Ok(found.into_iter().flatten().collect())
}

/// Returns the numbers and names of the teams of an organization; needs the scope `read:organization`, and that our account is a member.
async fn teams(host: &Gitea, owner: &str) -> Result<Vec<(u64, String)>, HostError> {
    if !is_name(owner) {
        return Ok(Vec::new());
    }
    let rows = match host.rows(&format!("/orgs/{}/teams", segment(owner)), TEAM_PAGES).await {
        Err(HostError::NotFound { .. }) => return Ok(Vec::new()),
        rows => rows?,
    };
    Ok(rows.iter().filter_map(|row| Some((row["id"].as_u64()?, row["name"].as_str()?.to_owned()))).collect())
}

/// Returns true if a person is in the team with this number. The host tells that to the team's members and the organization's owners alone
/// (routers/api/v1/api.go, `reqTeamMembership`).
async fn is_member(host: &Gitea, team: u64, login: &str) -> Result<bool, HostError> {
    if !is_name(login) {
        return Ok(false);
    }
    match host.http.get(&format!("/teams/{team}/members/{}", segment(login))).await {
        Ok(_) => Ok(true),
        Err(HostError::NotFound { .. }) => Ok(false),
        Err(HostError::Denied { what, message }) if message.contains("team member") => {
            let message = format!("{message}: the account of `--gitea-token` has to be an owner of the organization");
            Err(HostError::Denied { what, message })
        }
        Err(error) => Err(error),
    }
}

/// Returns true if a text can be a name: dots alone would change the path.
fn is_name(name: &str) -> bool {
    !name.chars().all(|char| char == '.')
}
