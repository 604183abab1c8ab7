//! Permissions of people in repositories, and their groups. The list of people takes both as filters, and counts permissions that somebody
//! has by a group, by the project or for the whole instance (`GET /rest/api/latest/users`).

use super::{API, BitbucketDataCenter, answers};
use crate::bitbucket_data_center::BitbucketDataCenterAddress;
use crate::vcs::HostError;
use crate::vcs::http::segment;
use serde_json::Value;
use tidelock_core::domain::{Login, RepoId};

/// People on one page (`page.max.users`).
const PER_PAGE: u32 = 1000;
/// Most pages of people whose names contain that of the person.
const MAX_PAGES: u32 = 5;
/// Most pages of groups of one person.
const GROUP_PAGES: u32 = 5;

/// Returns true if a person has a permission in a repository, such as `REPO_WRITE`, or one that includes it.
pub(super) async fn has(
    host: &BitbucketDataCenter,
    repo: &RepoId,
    login: &str,
    permission: &str,
) -> Result<bool, HostError> {
    // Checks the names.
    BitbucketDataCenterAddress::path(repo)?;
    let (key, slug) = (segment(&repo.owner), segment(&repo.name));
    let wanted = format!("permission={permission}&permission.projectKey={key}&permission.repositorySlug={slug}");
    is_listed(host, login, &wanted).await.map_err(|error| named_right(error, "who may write to a repository"))
}

/// Returns true if a person is in a group. Groups belong to the instance; the project's key before one is left out.
pub(super) async fn is_in_group(
    host: &BitbucketDataCenter,
    repo: &RepoId,
    team: &str,
    login: &str,
) -> Result<bool, HostError> {
    let group = match team.split_once('/') {
        Some((owner, group)) if owner.eq_ignore_ascii_case(&repo.owner) => group,
        _ => team,
    };
    if group.trim().is_empty() {
        return Ok(false);
    }
    match is_listed(host, login, &format!("group={}", segment(group))).await {
        // There is no such group.
        Err(HostError::NotFound { .. }) => Ok(false),
        listed => listed.map_err(|error| named_right(error, "who is in a group")),
    }
}

/// Returns true if a person is among those with all that a query wants, and may sign in. The filter by name finds a part of a name as well;
/// somebody who is not among the first people that it finds counts as not listed.
async fn is_listed(host: &BitbucketDataCenter, login: &str, wanted: &str) -> Result<bool, HostError> {
    let person = Login::new(login);
    if login.trim().is_empty() {
        return Ok(false);
    }
    let path = format!("{API}/users?filter={}&{wanted}", segment(login));
    let is_person = |row: &Value| answers::login(row).is(&person);
    let read = host.http.start_pages_until(&path, PER_PAGE, MAX_PAGES, is_person).await?;
    let found = read.rows.iter().find(|row| is_person(row));
    if found.is_none() && !read.is_whole {
        tracing::warn!(
            "GET {path}: `{login}` is not among the first {} people, and counts as not listed",
            read.rows.len()
        );
    }
    Ok(found.is_some_and(answers::is_active))
}

/// Returns the groups of a person (`GET /rest/api/latest/admin/users/more-members`).
pub(super) async fn groups_of(host: &BitbucketDataCenter, login: &str) -> Result<Vec<String>, HostError> {
    if login.trim().is_empty() {
        return Ok(Vec::new());
    }
    let path = format!("{API}/admin/users/more-members?context={}", segment(login));
    let rows = match host.http.start_pages(&path, PER_PAGE, GROUP_PAGES).await {
        // There is no such person.
        Err(HostError::NotFound { .. }) => return Ok(Vec::new()),
        found => found.map_err(|error| named_right(error, "the groups of people"))?.rows,
    };
    Ok(rows.iter().filter_map(|row| row["name"].as_str().map(str::to_owned)).collect())
}

/// Says which right our account lacks.
fn named_right(error: HostError, what: &str) -> HostError {
    match error {
        HostError::Denied { what: request, message } => {
            let message = format!(
                "{message}: the host tells {what} to people with an account alone, so the token has to be one of a person, not of a \
                 project or a repository"
            );
            HostError::Denied { what: request, message }
        }
        error => error,
    }
}
