//! Commit statuses: names and wording (atlantis.md §7.10). Pure.

use crate::domain::ProjectId;
use crate::domain::command::CommandName;
use crate::domain::outcome::JobOutcome;
use crate::domain::state::{CommitStatus, ProjectStatus};

/// Makes statuses with our prefix and links.
#[derive(Debug, Clone)]
pub struct Statuses {
    /// `--vcs-status-name`.
    pub prefix: String,
    /// Server's own address; no trailing slash.
    pub url: String,
}

impl Statuses {
    /// `atlantis/plan` pending: "Plan in progress...".
    pub fn pending(&self, _command: CommandName) -> CommitStatus {
        todo!()
    }

    /// `atlantis/plan: label` pending, linked to its job.
    pub fn project_pending(&self, _command: CommandName, _project: &ProjectId, _job: &str) -> CommitStatus {
        todo!()
    }

    /// `atlantis/plan: label` with the outcome's one line, linked to its job.
    pub fn project(&self, _outcome: &JobOutcome) -> CommitStatus {
        todo!()
    }

    /// `atlantis/plan` failed as a whole, with a word on why.
    pub fn failed(&self, _command: CommandName, _because: &str) -> CommitStatus {
        todo!()
    }

    /// `atlantis/plan` after a plan: counts over all projects of the pull request; failure if any plan failed.
    pub fn plan(&self, _statuses: &[ProjectStatus]) -> CommitStatus {
        todo!()
    }

    /// `atlantis/apply` after a plan or an apply: failure if an apply failed; success when all are applied or have no changes;
    /// else pending, `1/2 applied`. Absent after a plan where nothing was applied and something waits (as in Atlantis).
    pub fn apply(&self, _statuses: &[ProjectStatus], _after_apply: bool) -> Option<CommitStatus> {
        todo!()
    }

    /// 0/0 success of plan, policy_check and apply, for an autoplan without projects.
    pub fn nothing_to_do(&self) -> Vec<CommitStatus> {
        todo!()
    }

    /// `atlantis/pre_workflow_hook: description` and its post twin.
    pub fn hook(
        &self,
        _pre: bool,
        _description: &str,
        _state: crate::domain::state::StatusState,
        _text: &str,
        _job: &str,
    ) -> CommitStatus {
        todo!()
    }
}
