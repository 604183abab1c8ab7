//! What a person, or autoplan, can ask for: [`Command`], its [`Target`] and its [`Trigger`].

use super::{CommitSha, Login, ProjectId};
use serde::{Deserialize, Serialize};

/// Name of a command, in the words of comments and of the comment marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are the commands")]
pub enum CommandName {
    Plan,
    Apply,
    PolicyCheck,
    ApprovePolicies,
    Import,
    StateRm,
    Version,
    Unlock,
    ForceUnlock,
    Cancel,
    Help,
    Freeze,
    Unfreeze,
    Lock,
}

impl CommandName {
    /// As in the comment marker and in hooks' `COMMAND_NAME`, except that hooks say `state` for `state rm`.
    pub fn as_str(self) -> &'static str {
        match self {
            CommandName::Plan => "plan",
            CommandName::Apply => "apply",
            CommandName::PolicyCheck => "policy_check",
            CommandName::ApprovePolicies => "approve_policies",
            CommandName::Import => "import",
            CommandName::StateRm => "state_rm",
            CommandName::Version => "version",
            CommandName::Unlock => "unlock",
            CommandName::ForceUnlock => "force_unlock",
            CommandName::Cancel => "cancel",
            CommandName::Help => "help",
            CommandName::Freeze => "freeze",
            CommandName::Unfreeze => "unfreeze",
            CommandName::Lock => "lock",
        }
    }

    /// Whether it changes state or infrastructure. Such a command is not interrupted without being asked for by name, and the server
    /// never repeats it once it has begun.
    pub fn changes_state(self) -> bool {
        matches!(self, CommandName::Apply | CommandName::Import | CommandName::StateRm)
    }

    /// As people type it.
    pub fn spoken(self) -> &'static str {
        match self {
            CommandName::StateRm => "state rm",
            CommandName::ForceUnlock => "force-unlock",
            other => other.as_str(),
        }
    }
}

/// Who asked; nothing after dispatch looks at it but for the wording of the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Trigger {
    Autoplan,
    Comment,
    Api,
    Replan,
    Merge,
    Drift,
}

impl Trigger {
    /// Whether nobody asked for it: it follows the rules of autoplan, and says little where it has nothing to tell.
    pub fn is_unasked(self) -> bool {
        matches!(self, Trigger::Autoplan | Trigger::Replan)
    }
}

/// `-d`, `-w`, `-p` of a command, or projects that the server names. All absent: everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// `-d`, cleaned: relative, `.` for the root; may be a glob (`*?[`).
    pub dir: Option<String>,
    /// `-w`.
    pub workspace: Option<String>,
    /// `-p`.
    pub project: Option<String>,
    /// Exactly these projects, as far as the pull request changes them; nobody can type that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exactly: Vec<ProjectId>,
}

impl Target {
    /// Whether nothing is named: the command is for everything.
    pub fn is_all(&self) -> bool {
        self.dir.is_none() && self.workspace.is_none() && self.project.is_none() && self.exactly.is_empty()
    }
}

/// One command on one pull request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// Which.
    pub name: CommandName,
    /// On what.
    pub target: Target,
    /// Arguments for Terraform after `--`.
    pub extra_args: Vec<String>,
    /// Positional arguments (`import ADDRESS ID`, `state rm ADDRESS...`), passed to Terraform after `extra_args`.
    pub positional: Vec<String>,
    /// `--verbose`: show the log in the reply.
    pub verbose: bool,
    /// `cancel --apply`: interrupt a running apply as well.
    pub interrupt_apply: bool,
    /// `apply --force`: requirements that are not met do not stop it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// `apply --only`: projects without a plan do not stop it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only: bool,
    /// `-m`: why it is wanted; one line, untrusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// `unlock #12`: numbers of other pull requests of the repository, in the order in which they were typed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pulls: Vec<u64>,
    /// `apply --auto-merge-disabled`.
    pub auto_merge_disabled: bool,
    /// `apply --auto-merge-method`.
    pub auto_merge_method: Option<String>,
    /// `approve_policies --policy-set`.
    pub policy_set: Option<String>,
    /// `approve_policies --clear-policy-approval`.
    pub clear_policy_approval: bool,
    /// `unlock --accept-drift`: what is applied and not merged, or merged and not applied, stays so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub accept_drift: bool,
    /// The only head that it is for; absent where it is for the head that there is when it begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<CommitSha>,
    /// Who asked.
    pub trigger: Trigger,
    /// The person.
    pub user: Login,
}

impl Command {
    /// A command without flags.
    pub fn new(name: CommandName, trigger: Trigger, user: impl Into<Login>) -> Command {
        Command {
            name,
            target: Target::default(),
            extra_args: Vec::new(),
            positional: Vec::new(),
            verbose: false,
            interrupt_apply: false,
            force: false,
            only: false,
            why: None,
            pulls: Vec::new(),
            auto_merge_disabled: false,
            auto_merge_method: None,
            policy_set: None,
            clear_policy_approval: false,
            accept_drift: false,
            at: None,
            trigger,
            user: user.into(),
        }
    }
}
