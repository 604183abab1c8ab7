//! Branches (routers/api/v1/repo/branch.go).

use super::super::repo;
use super::api::{RepoCall, no_content, no_route};
use super::{Refusal, Result, access, protection, shapes};
use serde_json::json;

impl RepoCall<'_> {
    pub(super) async fn of_branches(&self, method: &str, branch: &str) -> Result {
        let git = self.call.shared.git(&self.full_name).map_err(|_| Refusal::not_found())?;
        let heads = git.heads().await.map_err(|error| Refusal::broken(&error))?;
        let absent = || match method {
            "DELETE" => Refusal::absent(Some(format!("branch does not exist [name: {branch}]"))),
            _ => Refusal::not_found(),
        };
        let tip = heads.get(branch).ok_or_else(absent)?;
        match method {
            "GET" => self.branch(branch, tip),
            "DELETE" => self.delete_branch(branch).await,
            _ => Err(no_route()),
        }
    }

    /// A branch and some of its rules. Rejections and outdated branches are not among them, and only administrators get the name of the
    /// rule (services/convert/convert.go, `ToBranch`).
    fn branch(&self, branch: &str, tip: &str) -> Result {
        self.read(|state, repo| {
            let rule = protection::rule_of(state, repo, branch);
            let level = access::level(repo, &self.call.login);
            let (is_protected, rule) = (rule.is_some(), rule.unwrap_or_default());
            let name = if is_protected && access::is_admin(level) { branch } else { "" };
            json!({
                "name": branch, "commit": {"id": tip, "url": format!("{}/commit/{tip}", shapes::web(self.url(), repo))},
                "protected": is_protected, "required_approvals": rule.required_approvals,
                "enable_status_check": rule.status_contexts.is_some(),
                "status_check_contexts": rule.status_contexts.unwrap_or_default(),
                "user_can_push": !is_protected && access::is_writer(level), "user_can_merge": access::is_writer(level),
                "effective_branch_protection_name": name,
            })
        })
    }

    /// The default branch and protected ones stay (`DeleteBranch`).
    async fn delete_branch(&self, branch: &str) -> Result {
        self.check_writer()?;
        if branch == "main" {
            return Err(Refusal::forbidden("can not delete default or pull request target branch"));
        }
        let is_protected = {
            let state = self.call.shared.lock();
            let repo = state.repo(&self.full_name).map_err(|_| Refusal::not_found())?;
            protection::rule_of(&state, repo, branch).is_some()
        };
        if is_protected {
            return Err(Refusal::forbidden("branch protected"));
        }
        let deleted = repo::delete_branch(self.call.shared, &self.full_name, branch, &self.call.login).await;
        deleted.map_err(|error| Refusal::broken(&error))?;
        no_content()
    }
}
