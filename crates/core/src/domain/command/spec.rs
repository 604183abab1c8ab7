//! The one table of what is said of each command, and of what holds for it wherever it runs. How it is typed with its flags is in
//! `comment/grammar.rs`.

use super::CommandName;
use crate::domain::outcome::Reason;

/// Properties of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandSpec {
    /// Word in the comment marker and in records.
    pub word: &'static str,
    /// Words after the executable name in a comment.
    pub typed: &'static str,
    /// `COMMAND_NAME` of hooks and of `--gh-team-allowlist`'s program, and key in a file of titles. Atlantis says `state` there.
    pub hook_word: &'static str,
    /// Is allowed by its first word in `allow-commands`. `help` is always allowed, and `policy_check` is part of a plan.
    pub is_in_allow_commands: bool,
    /// Makes a run. All others are answered without one, or are jobs of another command's run.
    pub makes_run: bool,
    /// Changes state or infrastructure. Such a command is not interrupted without being asked for by name, and the server never repeats
    /// it once it has begun.
    pub changes_state: bool,
    /// Runs Terraform with a lock on the state, so that a job that was killed may have left it, and one that succeeded has found it free.
    pub locks_state: bool,
    /// Reason of a project whose step failed.
    pub reason: Reason,
    /// Has a commit status for each project, and one of all.
    pub has_status: bool,
    /// Answers with the results of projects.
    pub has_results: bool,
    /// Beginning of the heading of a result that is refused or failed; the project follows.
    pub heading: &'static str,
    /// Beginning of the heading of a result that succeeded.
    pub heading_of_success: &'static str,
    /// Beginning of the line that counts projects; their number follows.
    pub total: &'static str,
}

impl CommandSpec {
    /// A command that changes nothing, without results and statuses.
    const fn new(word: &'static str, heading: &'static str, total: &'static str) -> CommandSpec {
        CommandSpec {
            word,
            typed: word,
            hook_word: word,
            is_in_allow_commands: true,
            makes_run: false,
            changes_state: false,
            locks_state: false,
            reason: Reason::Internal,
            has_status: false,
            has_results: false,
            heading,
            heading_of_success: "Done for",
            total,
        }
    }

    /// The same with a run and with results.
    const fn of_projects(
        word: &'static str,
        heading: &'static str,
        heading_of_success: &'static str,
        total: &'static str,
    ) -> CommandSpec {
        CommandSpec { has_results: true, heading_of_success, ..CommandSpec::new(word, heading, total) }.with_run()
    }

    /// The same with a run.
    const fn with_run(self) -> CommandSpec {
        CommandSpec { makes_run: true, ..self }
    }

    /// The same for one that `allow-commands` does not name, and that makes no run.
    const fn not_in_allow_commands(self) -> CommandSpec {
        CommandSpec { is_in_allow_commands: false, makes_run: false, ..self }
    }

    /// First word after the executable name.
    pub fn first_word(&self) -> &'static str {
        self.typed.split_once(' ').map_or(self.typed, |(first, _)| first)
    }
}

impl CommandName {
    /// Returns the command with this word in records: [`CommandSpec::word`].
    pub fn of_word(word: &str) -> Option<CommandName> {
        CommandName::ALL.into_iter().find(|name| name.spec().word == word)
    }

    /// Properties of the command.
    pub const fn spec(self) -> CommandSpec {
        match self {
            CommandName::Plan => CommandSpec {
                locks_state: true,
                reason: Reason::Plan,
                has_status: true,
                ..CommandSpec::of_projects("plan", "Plan for", "Plan for", "Planned")
            },
            CommandName::Apply => CommandSpec {
                changes_state: true,
                locks_state: true,
                reason: Reason::Apply,
                has_status: true,
                ..CommandSpec::of_projects("apply", "Apply of", "Applied", "Apply of")
            },
            CommandName::PolicyCheck => CommandSpec {
                reason: Reason::Policy,
                ..CommandSpec::of_projects(
                    "policy_check",
                    "Policy check of",
                    "Policies checked for",
                    "Checked policies of",
                )
                .not_in_allow_commands()
            },
            CommandName::ApprovePolicies => CommandSpec::of_projects(
                "approve_policies",
                "Approval of policies of",
                "Policies approved for",
                "Approved policies of",
            ),
            CommandName::Import => CommandSpec {
                changes_state: true,
                locks_state: true,
                reason: Reason::Import,
                ..CommandSpec::of_projects("import", "Import of", "Imported into", "Ran import for")
            },
            CommandName::StateRm => CommandSpec {
                typed: "state rm",
                hook_word: "state",
                changes_state: true,
                locks_state: true,
                reason: Reason::StateRm,
                ..CommandSpec::of_projects("state_rm", "State rm of", "Removed from the state of", "Ran state rm for")
            },
            CommandName::Version => CommandSpec {
                reason: Reason::Version,
                ..CommandSpec::of_projects("version", "Version of", "Version for", "Ran version for")
            },
            CommandName::ForceUnlock => CommandSpec {
                typed: "force-unlock",
                locks_state: true,
                reason: Reason::ForceUnlock,
                ..CommandSpec::of_projects(
                    "force_unlock",
                    "Force-unlock of",
                    "Freed the state lock of",
                    "Ran force-unlock for",
                )
            },
            CommandName::Unlock => CommandSpec::new("unlock", "Unlock of", "Ran unlock for"),
            CommandName::Cancel => CommandSpec::new("cancel", "Cancel of", "Ran cancel for"),
            CommandName::Help => CommandSpec::new("help", "Help of", "Ran help for").not_in_allow_commands(),
            CommandName::Freeze => CommandSpec::new("freeze", "Freeze of", "Ran freeze for"),
            CommandName::Unfreeze => CommandSpec::new("unfreeze", "Unfreeze of", "Ran unfreeze for"),
            CommandName::Lock => CommandSpec::new("lock", "Lock of", "Ran lock for").with_run(),
        }
    }

    /// Every command.
    pub const ALL: [CommandName; 14] = [
        CommandName::Plan,
        CommandName::Apply,
        CommandName::PolicyCheck,
        CommandName::ApprovePolicies,
        CommandName::Import,
        CommandName::StateRm,
        CommandName::Version,
        CommandName::Unlock,
        CommandName::ForceUnlock,
        CommandName::Cancel,
        CommandName::Help,
        CommandName::Freeze,
        CommandName::Unfreeze,
        CommandName::Lock,
    ];
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::variants_of;
    use std::collections::HashSet;

    #[test]
    fn every_command_is_listed_once_and_has_words_of_its_own() {
        assert_eq!(variants_of::<CommandName>(), CommandName::ALL.map(|name| name.spec().word));
        let unique = |words: Vec<&str>| words.iter().collect::<HashSet<_>>().len() == CommandName::ALL.len();
        assert!(unique(CommandName::ALL.iter().map(|name| name.spec().word).collect()));
        assert!(unique(CommandName::ALL.iter().map(|name| name.spec().typed).collect()));
    }

    #[test]
    fn records_have_the_word_of_the_table() {
        for name in CommandName::ALL {
            assert_eq!(serde_json::to_value(name).unwrap(), name.spec().word);
        }
    }
}
