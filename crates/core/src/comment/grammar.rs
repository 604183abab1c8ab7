//! Table of commands and their flags, from which the parser, usage and help are made.

use crate::domain::command::CommandName;

/// Flags, by effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flag {
    Workspace,
    Dir,
    Project,
    Tag,
    Except,
    Verbose,
    AutoMergeDisabled,
    AutoMergeMethod,
    PolicySet,
    ClearPolicyApproval,
    InterruptApply,
    AcceptDrift,
    Force,
    Only,
    Override,
    Why,
}

/// One flag as people type it.
pub(super) struct FlagSpec {
    pub(super) flag: Flag,
    pub(super) long: &'static str,
    pub(super) short: Option<char>,
    /// Name of its value; absent for switches.
    pub(super) value: Option<&'static str>,
    /// True if it may be given several times, and all of its values count.
    pub(super) repeats: bool,
    pub(super) help: &'static str,
}

/// Positional arguments of a command.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Positional {
    None,
    /// `ADDRESS ID`
    AddressAndId,
    /// `rm ADDRESS...`
    RmAddresses,
    /// `LOCK_ID`
    LockId,
    /// `#12 #15`, or nothing.
    Pulls,
}

/// One command as people type it.
pub(super) struct CommandGrammar {
    pub(super) name: CommandName,
    pub(super) positional: Positional,
    /// Form after the executable name, without flags.
    pub(super) form: &'static str,
    pub(super) summary: &'static str,
    pub(super) flags: &'static [&'static FlagSpec],
    /// True if `-d` and `-p` may be given only once.
    pub(super) one_target: bool,
    /// True if arguments after `--` are passed to Terraform.
    pub(super) passes_extra_args: bool,
    /// An example for error messages.
    pub(super) example: &'static str,
    /// Examples of the help text: purpose and command.
    pub(super) examples: &'static [(&'static str, &'static str)],
}

const DIR: FlagSpec = FlagSpec {
    flag: Flag::Dir,
    long: "dir",
    short: Some('d'),
    value: Some("DIR"),
    repeats: true,
    help: "Only this directory, or a glob; repeatable",
};
const WORKSPACE: FlagSpec = FlagSpec {
    flag: Flag::Workspace,
    long: "workspace",
    short: Some('w'),
    value: Some("WORKSPACE"),
    repeats: false,
    help: "Only this Terraform workspace",
};
const PROJECT: FlagSpec = FlagSpec {
    flag: Flag::Project,
    long: "project",
    short: Some('p'),
    value: Some("NAME"),
    repeats: true,
    help: "Project, or glob; repeatable; not with -d, -w",
};
const TAG: FlagSpec = FlagSpec {
    flag: Flag::Tag,
    long: "tag",
    short: None,
    value: Some("QUERY"),
    repeats: false,
    help: "Only those with tags: 'a and not (b or c)'",
};
const EXCEPT: FlagSpec = FlagSpec {
    flag: Flag::Except,
    long: "except",
    short: None,
    value: Some("GLOB"),
    repeats: true,
    help: "Without these names or directories; repeatable",
};
const VERBOSE: FlagSpec = FlagSpec {
    flag: Flag::Verbose,
    long: "verbose",
    short: None,
    value: None,
    repeats: false,
    help: "Has no effect: each result links to its log",
};
const AUTO_MERGE_DISABLED: FlagSpec = FlagSpec {
    flag: Flag::AutoMergeDisabled,
    long: "auto-merge-disabled",
    short: None,
    value: None,
    repeats: false,
    help: "Do not merge the pull request afterwards",
};
const AUTO_MERGE_METHOD: FlagSpec = FlagSpec {
    flag: Flag::AutoMergeMethod,
    long: "auto-merge-method",
    short: None,
    value: Some("METHOD"),
    repeats: false,
    help: "Then merge by merge, rebase or squash",
};
const POLICY_SET: FlagSpec = FlagSpec {
    flag: Flag::PolicySet,
    long: "policy-set",
    short: None,
    value: Some("NAME"),
    repeats: false,
    help: "Approve this policy set only",
};
const CLEAR_POLICY_APPROVAL: FlagSpec = FlagSpec {
    flag: Flag::ClearPolicyApproval,
    long: "clear-policy-approval",
    short: None,
    value: None,
    repeats: false,
    help: "Take given approvals back",
};
const INTERRUPT_APPLY: FlagSpec = FlagSpec {
    flag: Flag::InterruptApply,
    long: "apply",
    short: None,
    value: None,
    repeats: false,
    help: "Interrupt a running apply as well",
};
const FORCE: FlagSpec = FlagSpec {
    flag: Flag::Force,
    long: "force",
    short: None,
    value: None,
    repeats: false,
    help: "Apply past unmet requirements; needs -m",
};
const ONLY: FlagSpec = FlagSpec {
    flag: Flag::Only,
    long: "only",
    short: None,
    value: None,
    repeats: false,
    help: "Apply although other projects have no plan",
};
const OVERRIDE: FlagSpec = FlagSpec {
    flag: Flag::Override,
    long: "override",
    short: None,
    value: Some("GUARD"),
    repeats: true,
    help: "Past this guard; repeatable; needs -m",
};
const WHY: FlagSpec = FlagSpec {
    flag: Flag::Why,
    long: "message",
    short: Some('m'),
    value: Some("WHY"),
    repeats: false,
    help: "Say why; everybody can read it",
};

const ACCEPT_DRIFT: FlagSpec = FlagSpec {
    flag: Flag::AcceptDrift,
    long: "accept-drift",
    short: None,
    value: None,
    repeats: false,
    help: "Also unapplied or unmerged changes; needs -m",
};
const TARGET: &[&FlagSpec] = &[&DIR, &WORKSPACE, &PROJECT, &TAG, &EXCEPT, &VERBOSE];

impl CommandGrammar {
    /// The second word of the comment.
    pub(super) fn word(&self) -> &'static str {
        self.name.spec().first_word()
    }
}

/// All commands, in the order in which they are listed.
pub(super) static COMMANDS: [CommandGrammar; 12] = [
    CommandGrammar {
        name: CommandName::Version,
        positional: Positional::None,
        form: "version",
        summary: "Shows the Terraform version of each planned project.",
        flags: TARGET,
        one_target: false,
        passes_extra_args: false,
        example: "version",
        examples: &[],
    },
    CommandGrammar {
        name: CommandName::Plan,
        positional: Positional::None,
        form: "plan",
        summary: "Runs 'terraform plan' for what this pull request changes.",
        flags: &[&DIR, &WORKSPACE, &PROJECT, &TAG, &EXCEPT, &OVERRIDE, &WHY, &VERBOSE],
        one_target: false,
        passes_extra_args: true,
        example: "plan -d child/dir",
        examples: &[
            ("plan everything that this pull request changes", "plan"),
            ("plan one directory in one workspace", "plan -d child/dir -w staging"),
            ("plan one resource of the root directory", "plan -d . -- -target=null_resource.a"),
        ],
    },
    CommandGrammar {
        name: CommandName::Apply,
        positional: Positional::None,
        form: "apply",
        summary: "Runs 'terraform apply' on the plans of this pull request.",
        flags: &[
            &DIR,
            &WORKSPACE,
            &PROJECT,
            &TAG,
            &EXCEPT,
            &ONLY,
            &FORCE,
            &OVERRIDE,
            &WHY,
            &AUTO_MERGE_DISABLED,
            &AUTO_MERGE_METHOD,
            &VERBOSE,
        ],
        one_target: false,
        passes_extra_args: true,
        example: "apply -d child/dir",
        examples: &[
            ("apply all plans that are not applied yet", "apply"),
            ("apply the plan of one project", "apply -p network"),
        ],
    },
    CommandGrammar {
        name: CommandName::Cancel,
        positional: Positional::None,
        form: "cancel",
        summary: "Stops running plans; with --apply a running apply too.",
        flags: &[&INTERRUPT_APPLY],
        one_target: false,
        passes_extra_args: false,
        example: "cancel",
        examples: &[],
    },
    CommandGrammar {
        name: CommandName::Unlock,
        positional: Positional::Pulls,
        form: "unlock",
        summary: "Drops plans and locks of this or other pull requests.",
        flags: &[&DIR, &WORKSPACE, &PROJECT, &TAG, &EXCEPT, &ACCEPT_DRIFT, &WHY],
        one_target: false,
        passes_extra_args: false,
        example: "unlock",
        examples: &[],
    },
    CommandGrammar {
        name: CommandName::Lock,
        positional: Positional::None,
        form: "lock",
        summary: "Locks what this pull request changes; needs -m.",
        flags: &[&WHY],
        one_target: false,
        passes_extra_args: false,
        example: "lock -m 'why'",
        examples: &[],
    },
    CommandGrammar {
        name: CommandName::Freeze,
        positional: Positional::None,
        form: "freeze",
        summary: "Stops applies in this repository; needs -m.",
        flags: &[&WHY],
        one_target: false,
        passes_extra_args: false,
        example: "freeze -m 'why'",
        examples: &[],
    },
    CommandGrammar {
        name: CommandName::Unfreeze,
        positional: Positional::None,
        form: "unfreeze",
        summary: "Allows applies in this repository again.",
        flags: &[&WHY],
        one_target: false,
        passes_extra_args: false,
        example: "unfreeze",
        examples: &[],
    },
    CommandGrammar {
        name: CommandName::ForceUnlock,
        positional: Positional::LockId,
        form: "force-unlock ID",
        summary: "Releases a state lock that an interrupted run left.",
        flags: TARGET,
        one_target: true,
        passes_extra_args: false,
        example: "force-unlock -d child/dir LOCK_ID",
        examples: &[],
    },
    CommandGrammar {
        name: CommandName::ApprovePolicies,
        positional: Positional::None,
        form: "approve_policies",
        summary: "Approves failed policy checks of this pull request.",
        flags: &[&DIR, &WORKSPACE, &PROJECT, &TAG, &EXCEPT, &POLICY_SET, &CLEAR_POLICY_APPROVAL, &VERBOSE],
        one_target: false,
        passes_extra_args: false,
        example: "approve_policies",
        examples: &[],
    },
    CommandGrammar {
        name: CommandName::Import,
        positional: Positional::AddressAndId,
        form: "import ADDRESS ID",
        summary: "Runs 'terraform import' in one project.",
        flags: TARGET,
        one_target: true,
        passes_extra_args: true,
        example: "import -d child/dir ADDRESS ID",
        examples: &[("import an existing resource", "import -d child/dir null_resource.a ID")],
    },
    CommandGrammar {
        name: CommandName::StateRm,
        positional: Positional::RmAddresses,
        form: "state rm ADDRESS...",
        summary: "Runs 'terraform state rm' in the projects.",
        flags: TARGET,
        one_target: true,
        passes_extra_args: true,
        example: "state -d child/dir rm ADDRESS",
        examples: &[],
    },
];

impl FlagSpec {
    /// Returns `-d/--dir`, as in messages.
    pub(super) fn spoken(&self) -> String {
        let short = self.short.map_or(String::new(), |short| format!("-{short}/"));
        format!("{short}--{}", self.long)
    }

    /// Returns `-d, --dir DIR`, as in usages.
    pub(super) fn form(&self) -> String {
        let short = self.short.map_or("    ".to_owned(), |short| format!("-{short}, "));
        let value = self.value.map_or(String::new(), |value| format!(" {value}"));
        format!("{short}--{}{value}", self.long)
    }
}
