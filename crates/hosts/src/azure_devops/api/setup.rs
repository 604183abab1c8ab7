//! Checks of `tidelock doctor` on Azure DevOps: scopes of the token, repositories that it sees, service hooks that deliver to us.

use super::{AzureDevOps, VERSION, repo_path, segments};
use crate::vcs::{HostError, RepoAccess};
use reqwest::Method;
use serde_json::{Value, json};
use tidelock_core::domain::RepoId;

/// Number that no pull request has. The host refuses writes to it, and checks the token's scopes first.
const NO_PULL: u64 = 0;

/// A scope of a token, and its use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scope {
    /// Name on the page of the token.
    pub name: &'static str,
    /// Consequence of its absence.
    pub without: &'static str,
    /// True if the scope is needed only for automatic merges.
    pub for_automerge: bool,
}

impl Scope {
    const fn new(name: &'static str, without: &'static str) -> Scope {
        Scope { name, without, for_automerge: false }
    }
}

/// A service hook as the host has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subscription {
    /// The event, such as `git.pullrequest.created`.
    pub event: String,
    /// Address that it delivers to.
    pub url: String,
    /// `enabled`, `onProbation`, `disabledByUser`, `disabledBySystem` or `disabledByInactiveIdentity`.
    pub status: String,
    /// Id of its project; empty: all projects.
    pub project: String,
    /// Details of the event that are sent: `all`, `minimal` or `none`.
    pub details: String,
    /// User of its basic auth; empty if it has none.
    pub user: String,
}

impl AzureDevOps {
    /// Returns the repositories of an organization that the token sees.
    pub async fn repositories_of(&self, organization: &str) -> Result<Vec<RepoAccess>, HostError> {
        let path = format!("/{}/_apis/git/repositories?{VERSION}", segments(organization));
        let rows = self.rows(&path).await?;
        let read = |row: &Value| {
            let project = row["project"]["name"].as_str()?;
            Some(RepoAccess {
                repo: self.address.repository(organization, project, row["name"].as_str()?)?,
                of_organization: true,
                archived: row["isDisabled"] == true,
                // The host does not report the scopes of a token; `missing_scopes` tries them.
                can_write: true,
            })
        };
        Ok(rows.iter().filter_map(read).collect())
    }

    /// Returns the scopes that the token lacks on a repository. Each is tried by a request that can change nothing.
    pub async fn missing_scopes(&self, repo: &RepoId) -> Result<Vec<Scope>, HostError> {
        let pull = format!("{}/pullRequests/{NO_PULL}", repo_path(repo)?);
        let comment = json!({ "comments": [{ "parentCommentId": 0, "content": "", "commentType": "text" }] });
        let status = json!({ "state": "notSet", "context": { "name": "tidelock doctor" } });
        // Scope `vso.code_write` (learn.microsoft.com/rest/api/azure/devops/git/pull-requests/update, Security).
        let completion = json!({ "status": "completed" });
        let write = Scope { for_automerge: true, ..Scope::new("Code (read & write)", "nothing can be merged") };
        let threads = Scope::new("Pull Request Threads (read & write)", "no comment can be written");
        let tries = [
            (
                Scope::new("Code (read)", "nothing can be planned"),
                Method::GET,
                format!("{}?{VERSION}", repo_path(repo)?),
                None,
            ),
            (threads, Method::POST, format!("{pull}/threads?{VERSION}"), Some(comment)),
            (
                Scope::new("Code (status)", "no status can be set"),
                Method::POST,
                format!("{pull}/statuses?{VERSION}"),
                Some(status),
            ),
            (write, Method::PATCH, format!("{pull}?{VERSION}"), Some(completion)),
        ];
        let mut missing = Vec::new();
        for (scope, method, path, body) in tries {
            match self.http.send(method, &path, body).await {
                Err(HostError::Denied { .. }) => missing.push(scope),
                Err(error) if error.is_transient() => return Err(error),
                // The error is about the pull request, which does not exist: the scope was sufficient.
                Ok(_) | Err(_) => {}
            }
        }
        Ok(missing)
    }

    /// Returns the service hooks of an organization that send to a web address.
    pub async fn subscriptions(&self, organization: &str) -> Result<Vec<Subscription>, HostError> {
        let consumer = "publisherId=tfs&consumerId=webHooks";
        let path = format!("/{}/_apis/hooks/subscriptions?{consumer}&{VERSION}", segments(organization));
        let rows = self.rows(&path).await?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let read = |row: &Value| Subscription {
            event: text(&row["eventType"]),
            url: text(&row["consumerInputs"]["url"]),
            status: text(&row["status"]),
            project: text(&row["publisherInputs"]["projectId"]),
            details: text(&row["consumerInputs"]["resourceDetailsToSend"]),
            user: text(&row["consumerInputs"]["basicAuthUsername"]),
        };
        Ok(rows.iter().map(read).collect())
    }
}
