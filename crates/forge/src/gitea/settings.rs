//! Settings of an instance, its repositories and pull requests that tests choose.

use super::super::{Forge, HostKind, Pull, Repo, bitbucket_cloud, bitbucket_data_center, repo};
use super::{BranchProtection, hooks, merging};

impl Forge {
    /// Sets the scopes of the token of the server's account (`write:repository`, …); at the beginning it has the scope `all`, or on Bitbucket
    /// Cloud every one (`read:pullrequest:bitbucket`, …).
    pub fn set_token_scopes(&self, scopes: &[&str]) {
        let scopes = scopes.iter().map(|scope| (*scope).to_owned()).collect();
        self.shared.change(|state| match state.kind {
            HostKind::BitbucketCloud => bitbucket_cloud::set_scopes(state, scopes),
            _ => state.gitea.scopes = Some(scopes),
        });
    }

    /// Makes the server's account an owner of every organization, as at the beginning, or a member of the teams alone that name it.
    pub fn set_bot_owns_organizations(&self, owns: bool) {
        self.shared.change(|state| state.gitea.owns_no_organization = !owns);
    }

    /// Sets the offset of the instance's times from UTC, in hours.
    pub fn set_utc_offset(&self, hours: i8) {
        self.shared.change(|state| state.gitea.offset_hours = hours);
    }

    /// Sends deliveries of Gitea as forms (`payload=…`), or as JSON, as at the beginning.
    pub fn set_webhook_form(&self, is_form: bool) {
        self.shared.change(|state| state.gitea.hook.is_form = is_form);
    }

    /// Takes the secret of the webhook away: signatures of Gitea are empty from now on, and neither Bitbucket sends one.
    pub fn unsign_deliveries(&self) {
        self.shared.change(|state| {
            state.gitea.hook.has_no_secret = true;
            bitbucket_cloud::take_secret(state);
            bitbucket_data_center::take_secret(state);
        });
    }
}

impl Repo {
    /// Protects a branch of a repository on Gitea by these rules. Mergeability into it is checked again.
    pub fn protect(&self, branch: &str, rules: BranchProtection) -> anyhow::Result<()> {
        self.forge.shared.change(|state| {
            let id = state.repo(&self.full_name)?.id;
            state.gitea.protections.insert((id, branch.to_owned()), rules);
            merging::recheck_all(state, &self.full_name, branch)
        })
    }

    /// Deletes a repository on Gitea as its owner. Pull requests from it are closed (services/repository/delete.go), and their heads stay. On
    /// Bitbucket Cloud they stay open. What Bitbucket Data Center does is in no source; the forge
    /// declines them.
    pub fn delete(&self) -> anyhow::Result<()> {
        let shared = &self.forge.shared;
        shared.change(|state| {
            if state.kind == HostKind::BitbucketCloud {
                return bitbucket_cloud::delete(state, &self.full_name);
            }
            let gone = state.repo(&self.full_name)?;
            let (name, owner) = (gone.full_name(), gone.owner.clone());
            let all = state.repos.values().flat_map(|repo| repo.pulls.iter().map(move |pull| (repo, pull)));
            let from_it = all.filter(|(repo, pull)| {
                pull.open && pull.head_repo.eq_ignore_ascii_case(&name) && repo.full_name() != name
            });
            let closed: Vec<(String, u64)> = from_it.map(|(repo, pull)| (repo.full_name(), pull.number)).collect();
            for (full_name, number) in closed {
                repo::close(state, &shared.url, &full_name, number, &owner)?;
            }
            state.repos.remove(&name.to_lowercase());
            Ok(())
        })
    }

    /// Takes the rules of a branch away.
    pub fn unprotect(&self, branch: &str) -> anyhow::Result<()> {
        self.forge.shared.change(|state| {
            let id = state.repo(&self.full_name)?.id;
            state.gitea.protections.remove(&(id, branch.to_owned()));
            merging::recheck_all(state, &self.full_name, branch)
        })
    }
}

/// Requires this number of approvals of pull requests into `main`.
pub(in super::super) fn require_approvals(repo: &Repo, count: usize) -> anyhow::Result<()> {
    repo.forge.shared.change(|state| {
        let key = (state.repo(&repo.full_name)?.id, "main".to_owned());
        state.gitea.protections.entry(key).or_default().required_approvals = count;
        merging::recheck_all(state, &repo.full_name, "main")
    })
}

impl Pull {
    /// Sets the title of a pull request on Gitea or a Bitbucket as alice. On Gitea, `WIP:` or `[WIP]` at its beginning makes it a draft.
    pub fn set_title(&self, title: &str) -> anyhow::Result<()> {
        let shared = &self.repo.forge.shared;
        let full_name = &self.repo.full_name;
        if matches!(shared.kind, HostKind::BitbucketCloud | HostKind::BitbucketDataCenter) {
            return self.alter("edited", |pull| {
                title.clone_into(&mut pull.title);
                Ok(serde_json::Value::Null)
            });
        }
        shared.change(|state| hooks::rename(state, &shared.url, full_name, self.number, title, "alice"))
    }

    /// Sets the labels of a pull request on Gitea as alice.
    pub fn set_labels(&self, labels: &[&str]) -> anyhow::Result<()> {
        let (shared, full_name) = (&self.repo.forge.shared, &self.repo.full_name);
        shared.change(|state| {
            state.pull_mut(full_name, self.number)?.labels = labels.iter().map(|label| (*label).to_owned()).collect();
            super::emit_pull(state, &shared.url, full_name, self.number, "labeled", "alice", &serde_json::Value::Null)
        })
    }
}
