//! Settings of Bitbucket Cloud, its repositories and pull requests that tests choose.

use super::super::state::State;
use super::super::{BOT, Forge, HostKind, Pull, Repo, bitbucket_data_center};
use super::{access, comments, restrictions, shapes};
use anyhow::{Context, bail};
use serde_json::json;

/// Sets the scopes of the token of the server's account.
pub(in super::super) fn set_scopes(state: &mut State, scopes: Vec<String>) {
    state.bitbucket_cloud.scopes = Some(scopes);
}

/// Takes the secret of the webhook away.
pub(in super::super) fn take_secret(state: &mut State) {
    state.bitbucket_cloud.hook.has_no_secret = true;
}

/// Deletes a repository. Pull requests from it stay open, and their source repository is null.
pub(in super::super) fn delete(state: &mut State, full_name: &str) -> anyhow::Result<()> {
    let name = state.repo(full_name)?.full_name();
    state.repos.remove(&name.to_lowercase()).map(drop).context("there is no such repository")
}

impl Forge {
    /// Account id of a person on Bitbucket Cloud, which rules name.
    pub fn account_id(&self, login: &str) -> String {
        shapes::account_id(login)
    }

    /// Unique id of a person on Bitbucket Cloud, in braces.
    pub fn user_uuid(&self, login: &str) -> String {
        shapes::uuid_of(login)
    }

    /// Gives a person of Bitbucket Cloud another nickname and display name; at the beginning both are the login. On Bitbucket Data Center
    /// people have a display name alone.
    pub fn set_person_name(&self, login: &str, nickname: &str, display_name: &str) -> anyhow::Result<()> {
        self.credentials(login)?;
        let names = (nickname.to_owned(), display_name.to_owned());
        self.shared.change(|state| {
            bitbucket_data_center::set_display_name(state, login, display_name);
            state.bitbucket_cloud.names.insert(login.to_lowercase(), names);
        });
        Ok(())
    }

    /// Makes the token of the server's account on Bitbucket Cloud an access token of a repository, which acts as a bot of its own. At the
    /// beginning it is an API token.
    pub fn use_access_token(&self) {
        self.shared.change(|state| state.bitbucket_cloud.has_access_token = true);
    }

    /// Makes each merge on Bitbucket Cloud a task that this number of polls find pending.
    pub fn slow_merges_down(&self, polls: usize) {
        self.shared.change(|state| state.bitbucket_cloud.slow_merges = Some(polls));
    }

    /// Makes answers of Bitbucket Cloud say that less than a fifth of the hour's requests are left.
    pub fn near_rate_limit(&self) {
        self.shared.change(|state| state.bitbucket_cloud.is_near_limit = true);
    }

    /// The setting `--bitbucket-user`: the e-mail address of the account, or the word for access tokens.
    pub(in super::super) fn bitbucket_cloud_user(&self) -> String {
        let state = self.shared.lock();
        match state.bitbucket_cloud.has_access_token {
            true => access::git_user(&state, BOT).to_owned(),
            false => HostKind::BitbucketCloud.unique_name(BOT),
        }
    }
}

impl Repo {
    /// Requires this number of successful builds of pull requests into `main` of a repository on Bitbucket Cloud, and none that has failed
    /// or is in progress.
    pub fn require_builds(&self, count: u64) -> anyhow::Result<()> {
        self.restrict("require_passing_builds_to_merge", Some(count))
    }

    /// Requires that pull requests into `main` of a repository on Bitbucket Cloud have no open tasks.
    pub fn require_tasks(&self) -> anyhow::Result<()> {
        self.restrict("require_tasks_to_be_completed", None)
    }

    /// Requires that nobody requests changes of pull requests into `main` of a repository on Bitbucket Cloud.
    pub fn require_no_changes_requested(&self) -> anyhow::Result<()> {
        self.restrict("require_no_changes_requested", None)
    }

    /// Requires that all comments of pull requests into `main` of a repository on Bitbucket Cloud are resolved. The forge finds that they
    /// never are.
    pub fn require_resolved_comments(&self) -> anyhow::Result<()> {
        self.restrict("require_all_comments_resolved", None)
    }

    /// Takes approvals and requested changes back with each push to pull requests into `main` of a repository on Bitbucket Cloud.
    pub fn reset_reviews_on_push(&self) -> anyhow::Result<()> {
        self.restrict("reset_pullrequest_approvals_on_change", None)?;
        self.restrict("reset_pullrequest_changes_requested_on_change", None)
    }

    /// Enforces the merge checks of `main` of a repository on Bitbucket Cloud, as Premium can. Without that they only warn.
    pub fn enforce_merge_checks(&self) -> anyhow::Result<()> {
        self.restrict("enforce_merge_checks", None)
    }

    fn restrict(&self, kind: &'static str, value: Option<u64>) -> anyhow::Result<()> {
        self.forge.shared.change(|state| restrictions::set(state, &self.full_name, kind, "main", value))
    }

    /// Makes pull requests of a repository on Bitbucket Cloud merge by a queue.
    pub fn enable_merge_queue(&self) -> anyhow::Result<()> {
        self.forge.shared.change(|state| {
            let id = state.repo(&self.full_name)?.id;
            state.bitbucket_cloud.queues.insert(id);
            Ok(())
        })
    }
}

impl Pull {
    /// Sets the number of open tasks of a pull request on Bitbucket Cloud.
    pub fn set_open_tasks(&self, count: u64) -> anyhow::Result<()> {
        self.repo.forge.shared.change(|state| {
            let id = state.pull(&self.repo.full_name, self.number)?.id;
            state.bitbucket_cloud.facts_mut(id).open_tasks = count;
            Ok(())
        })
    }

    /// Makes Bitbucket Cloud tell no commit of the head of a pull request, as it may of one whose repository is gone.
    pub fn lose_head(&self) -> anyhow::Result<()> {
        self.repo.forge.shared.change(|state| {
            let id = state.pull(&self.repo.full_name, self.number)?.id;
            state.bitbucket_cloud.facts_mut(id).has_no_head = true;
            Ok(())
        })
    }

    /// Makes the first digits of the head of a pull request on Bitbucket Cloud those of another commit, too.
    pub fn share_first_digits(&self) -> anyhow::Result<()> {
        let start = shapes::short(&self.head_commit()?).to_owned();
        self.repo.forge.shared.change(|state| state.bitbucket_cloud.shared_starts.insert(start));
        Ok(())
    }

    /// Makes merges of a pull request on Bitbucket Cloud delete its source branch unless they say otherwise.
    pub fn close_source_branch(&self) -> anyhow::Result<()> {
        self.repo.forge.shared.change(|state| {
            let id = state.pull(&self.repo.full_name, self.number)?.id;
            state.bitbucket_cloud.facts_mut(id).closes_branch = true;
            Ok(())
        })
    }

    /// Adds a comment on a line of a file of a pull request on a Bitbucket, and returns its id.
    pub fn comment_on_line(&self, user: &str, path: &str, line: u64, body: &str) -> anyhow::Result<u64> {
        self.repo.forge.credentials(user)?;
        let (shared, full_name) = (&self.repo.forge.shared, &self.repo.full_name);
        if shared.kind == HostKind::BitbucketDataCenter {
            return bitbucket_data_center::comment_on_line(self, user, path, line, body);
        }
        let inline = json!({"path": path, "from": null, "to": line});
        let place = [("inline".to_owned(), inline)].into_iter().collect();
        shared.change(|state| comments::add(state, &shared.url, full_name, self.number, user, body, place))
    }

    /// Deletes a comment of a pull request on a Bitbucket as this person.
    pub fn delete_comment(&self, user: &str, id: u64) -> anyhow::Result<()> {
        self.repo.forge.credentials(user)?;
        let (shared, full_name) = (&self.repo.forge.shared, &self.repo.full_name);
        shared.change(|state| match state.kind {
            HostKind::BitbucketCloud => comments::delete(state, &shared.url, full_name, self.number, id, user),
            HostKind::BitbucketDataCenter => {
                bitbucket_data_center::delete_comment(state, &shared.url, full_name, self.number, id, user)
            }
            _ => bail!("comments of this host are deleted by its API"),
        })
    }
}
