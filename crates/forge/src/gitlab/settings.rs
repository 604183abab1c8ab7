//! Settings of an instance, its projects and merge requests that tests choose.

use super::super::{Forge, HostKind, Pull, Repo, bitbucket_cloud, bitbucket_data_center, gitea, random_hex};
use super::{MergeState, ProjectSettings};
use base64::Engine;
use secrecy::SecretString;
use serde_json::Value;

impl Forge {
    /// Makes the token of the server's account one of a project or group, whose user is a bot, or a personal one, as at the beginning.
    pub fn set_token_is_of_bot(&self, is_of_bot: bool) {
        self.shared.change(|state| state.gitlab.token.is_of_bot = is_of_bot);
    }

    /// Sets scopes and the day of expiry (`2026-12-31`) of the token of the server's account. At the beginning it has the scope `api` and
    /// no such day.
    pub fn set_token_limits(&self, scopes: &[&str], expires_at: Option<&str>) {
        self.shared.change(|state| {
            state.gitlab.token.scopes = scopes.iter().map(|scope| (*scope).to_owned()).collect();
            state.gitlab.token.expires_at = expires_at.map(str::to_owned);
        });
    }

    /// Makes the instance one before 18.3, which refuses to set a commit status again to the state that it has.
    pub fn set_refuses_repeated_states(&self, refuses: bool) {
        self.shared.change(|state| state.gitlab.refuses_repeated_states = refuses);
    }

    /// Sets the direct members of a group with their levels of access (20 Reporter, 30 Developer, 40 Maintainer, 50 Owner). Groups and
    /// projects below inherit them.
    pub fn set_group(&self, path: &str, members: &[(&str, u64)]) -> anyhow::Result<()> {
        for (login, _) in members {
            self.credentials(login)?;
        }
        let members = members.iter().map(|(login, level)| (login.to_lowercase(), *level)).collect();
        self.shared.change(|state| state.gitlab.groups.insert(path.to_lowercase(), members));
        Ok(())
    }

    /// Gives the webhook a signing token from now on, and returns it: `whsec_` and 32 bytes in Base64.
    pub fn sign_deliveries(&self) -> anyhow::Result<SecretString> {
        let bytes = [random_hex()?, random_hex()?].concat();
        let key = hex::decode(bytes)?;
        let token: SecretString = format!("whsec_{}", base64::prelude::BASE64_STANDARD.encode(key)).into();
        self.shared.change(|state| state.gitlab.signing_token = Some(token.clone()));
        Ok(token)
    }

    /// Lets the webhook switch itself off after failures, as at the beginning, or never
    /// (docs.gitlab.com/user/project/integrations/webhooks, "Auto-disabled webhooks").
    pub fn set_webhook_auto_disabling(&self, enabled: bool) {
        self.shared.change(|state| {
            state.gitlab.hook.never_disabled = !enabled;
            bitbucket_data_center::set_circuit_breaker(state, enabled);
        });
    }
}

impl Repo {
    fn change_settings(&self, act: impl FnOnce(&mut ProjectSettings)) -> anyhow::Result<()> {
        self.forge.shared.change(|state| {
            let id = state.repo(&self.full_name)?.id;
            act(state.gitlab.projects.entry(id).or_default());
            Ok(())
        })
    }

    /// Sets the number of approvals that every merge request of a GitLab project needs, on Bitbucket Data Center every pull request, or on
    /// Gitea and Bitbucket Cloud those into `main`; at the beginning 0.
    pub fn require_approvals(&self, count: usize) -> anyhow::Result<()> {
        match self.forge.shared.kind {
            HostKind::Gitea => return gitea::require_approvals(self, count),
            HostKind::BitbucketCloud => return bitbucket_cloud::require_approvals(self, count),
            HostKind::BitbucketDataCenter => return bitbucket_data_center::require_approvals(self, count),
            HostKind::Github | HostKind::AzureDevOps | HostKind::Gitlab => {}
        }
        self.change_settings(|settings| settings.approvals_required = count)
    }

    /// Sets the rules in `approval_state`, which only an instance with a license has.
    pub fn set_approval_rules(&self, rules: Vec<Value>) -> anyhow::Result<()> {
        self.change_settings(|settings| settings.approval_rules = Some(rules))
    }

    /// Sets `only_allow_merge_if_pipeline_succeeds`.
    pub fn require_successful_pipeline(&self, required: bool) -> anyhow::Result<()> {
        self.change_settings(|settings| settings.needs_successful_pipeline = required)
    }

    /// Makes a push remove all approvals, as projects with a license do
    /// (docs.gitlab.com/user/project/merge_requests/approvals/settings, "Remove all approvals when commits are added").
    pub fn reset_approvals_on_push(&self, resets: bool) -> anyhow::Result<()> {
        self.change_settings(|settings| settings.resets_approvals = resets)
    }

    /// Makes a project merge by trains, or not.
    pub fn enable_merge_trains(&self, enabled: bool) -> anyhow::Result<()> {
        self.change_settings(|settings| settings.has_merge_trains = enabled)
    }

    /// Sets `only_allow_merge_if_all_discussions_are_resolved`.
    pub fn require_resolved_threads(&self, required: bool) -> anyhow::Result<()> {
        self.change_settings(|settings| settings.needs_resolved_threads = required)
    }
}

impl Pull {
    fn change_merge(&self, act: impl FnOnce(&mut MergeState)) -> anyhow::Result<()> {
        self.repo.forge.shared.change(|state| {
            let id = state.pull(&self.repo.full_name, self.number)?.id;
            act(state.gitlab.merges.entry(id).or_default());
            Ok(())
        })
    }

    /// Sets the number of threads of a merge request that nobody has resolved.
    pub fn set_open_threads(&self, count: usize) -> anyhow::Result<()> {
        self.change_merge(|merge| merge.open_threads = count)
    }
}
