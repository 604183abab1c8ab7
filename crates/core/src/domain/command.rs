//! Commands of people, of autoplan and of the API: [`Command`], its [`Target`] and its [`Trigger`].

mod spec;

use super::tags::TagQuery;
use super::{CommitSha, Login, ProjectId};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

pub use spec::CommandSpec;

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
    /// Its word in the comment marker and in records: [`CommandSpec::word`].
    pub fn as_str(self) -> &'static str {
        self.spec().word
    }

    /// [`CommandSpec::changes_state`].
    pub fn changes_state(self) -> bool {
        self.spec().changes_state
    }

    /// As people type it: [`CommandSpec::typed`].
    pub fn spoken(self) -> &'static str {
        self.spec().typed
    }
}

/// Cause of a command.
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
    Page,
    #[serde(rename = "auto_apply")]
    AutoApply,
}

impl Trigger {
    /// Returns true if the server caused it by itself: it follows the rules of autoplan, and replies little if there is nothing to report.
    pub fn is_unasked(self) -> bool {
        matches!(self, Trigger::Autoplan | Trigger::Replan)
    }
}

/// `-d`, `-w`, `-p`, `--tag` and `--except` of a command, or projects that the server names. All absent: all projects.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// `-d`, cleaned: relative, `.` for the root; each may be a glob (`*?[`).
    #[serde(default, rename = "dir", with = "one_or_several")]
    pub dirs: Vec<String>,
    /// `-w`.
    pub workspace: Option<String>,
    /// `-p`; never together with directories. Each may be a glob (`*?[`).
    #[serde(default, rename = "project", with = "one_or_several")]
    pub projects: Vec<String>,
    /// `--tag`: only the selected projects whose tags fulfil the query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<TagQuery>,
    /// `--except`: without selected projects of these names or directories, which may be globs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<String>,
    /// Exactly these projects, if the pull request changes them. Only the server sets it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exactly: Vec<ProjectId>,
}

impl Target {
    /// Returns true if the command is for all projects: nothing is named, and nothing left out.
    pub fn is_all(&self) -> bool {
        !self.names_some() && self.exactly.is_empty() && self.tag.is_none() && self.except.is_empty()
    }

    /// Returns true if `-d`, `-w` or `-p` name projects. `--tag` and `--except` only leave some out.
    pub fn names_some(&self) -> bool {
        !(self.dirs.is_empty() && self.workspace.is_none() && self.projects.is_empty())
    }

    /// Returns flags and values as they are typed: `-d a`, `-w b`.
    pub fn flags(&self) -> impl Iterator<Item = (&'static str, Cow<'_, str>)> {
        let dirs = self.dirs.iter().map(|dir| ("-d", dir.into()));
        let workspace = self.workspace.iter().map(|workspace| ("-w", workspace.into()));
        let projects = self.projects.iter().map(|name| ("-p", name.into()));
        let tag = self.tag.iter().map(|query| ("--tag", query.to_string().into()));
        let except = self.except.iter().map(|glob| ("--except", glob.into()));
        dirs.chain(workspace).chain(projects).chain(tag).chain(except)
    }
}

/// Projects of a branch; the default is all of them.
#[derive(Debug, Clone, Default)]
pub struct BranchTargets {
    /// Each means one project, by its name, or by its directory and workspace; empty for all projects.
    pub named: Vec<Target>,
    /// Its `tag` and `except` leave some of them out.
    pub narrowing: Target,
}

impl BranchTargets {
    /// Returns true if all projects are meant.
    pub fn is_all(&self) -> bool {
        self.named.is_empty() && self.narrowing.is_all()
    }
}

/// Serializes none or one value as records of earlier versions do, and several as a list.
mod one_or_several {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrSeveral {
        One(String),
        Several(Vec<String>),
    }

    pub(super) fn serialize<S: Serializer>(values: &[String], to: S) -> Result<S::Ok, S::Error> {
        match values {
            [] => to.serialize_none(),
            [one] => to.serialize_str(one),
            several => several.serialize(to),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
        Ok(match Option::deserialize(from)? {
            None => Vec::new(),
            Some(OneOrSeveral::One(one)) => vec![one],
            Some(OneOrSeveral::Several(several)) => several,
        })
    }
}

/// One command on one pull request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// Its name.
    pub name: CommandName,
    /// Its target.
    pub target: Target,
    /// Arguments for Terraform after `--`.
    pub extra_args: Vec<String>,
    /// Positional arguments (`import ADDRESS ID`, `state rm ADDRESS...`), passed to Terraform after `extra_args`.
    pub positional: Vec<String>,
    /// `--verbose`: show the log in the reply.
    pub verbose: bool,
    /// `cancel --apply`: interrupt a running apply as well.
    pub interrupt_apply: bool,
    /// `apply --force`: requirements that are not met do not prevent it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// `apply --only`: projects without a plan do not prevent it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only: bool,
    /// `--override`: names of guards that do not prevent it, if the person may override them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<String>,
    /// `-m`: the reason, one line, untrusted.
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
    /// `unlock --accept-drift`: unmerged applied changes, and unapplied merged changes, are left as they are.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub accept_drift: bool,
    /// The only head that it is for; absent for the head at the time it begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<CommitSha>,
    /// Cause of the command.
    pub trigger: Trigger,
    /// The person who asked.
    pub user: Login,
    /// The person whose button caused it ([`Trigger::Page`]); `user` is then this person's login, or the same name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub person: Option<PagePerson>,
}

/// Person who asked for a command on a page of the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PagePerson {
    /// Name on the pages, which is a proved identity: an email address, or the user of basic auth.
    pub name: String,
    /// True if `people` has a login of the host for this person; otherwise the host does not know the name.
    pub has_login: bool,
    /// True if the operator named the person (`--admins`), or the person uses the server's own machine.
    #[serde(default)]
    pub is_operator: bool,
}

impl Command {
    /// Creates a command without flags.
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
            overrides: Vec::new(),
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
            person: None,
        }
    }

    /// Returns the person for the audit log: by the name on the pages if a button caused the command.
    pub fn asked_by(&self) -> Login {
        self.person.as_ref().map_or_else(|| self.user.clone(), |person| Login::new(&person.name))
    }

    /// Returns true if only access to the repository, or a rule, gives a right to this command: the person used a page of the server, where
    /// the host lets nobody in.
    pub fn needs_access(&self) -> bool {
        self.trigger == Trigger::Page && !self.person.as_ref().is_some_and(|person| person.is_operator)
    }

    /// Returns true if `user` is an account of the host, whose teams and rights the host knows.
    pub fn is_of_host(&self) -> bool {
        match &self.person {
            Some(person) => person.has_login,
            None => self.trigger != Trigger::Page,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_a_page_is_an_account_of_the_host_only_with_a_login() {
        let command = |trigger, person| Command { person, ..Command::new(CommandName::Plan, trigger, "ada") };
        let person = |has_login| Some(PagePerson { name: "ada@example.com".into(), has_login, is_operator: false });
        for (command, name, is_of_host) in [
            (command(Trigger::Comment, None), "ada", true),
            (command(Trigger::Page, person(true)), "ada@example.com", true),
            (command(Trigger::Page, person(false)), "ada@example.com", false),
            // Its delivery was dropped, and with it the person.
            (command(Trigger::Page, None), "ada", false),
        ] {
            assert_eq!((command.asked_by().as_str(), command.is_of_host()), (name, is_of_host), "{command:?}");
        }
    }

    #[test]
    fn targets_of_earlier_versions_are_read_and_written_as_they_were() {
        for (text, dirs, projects) in [
            (r#"{"dir":null,"workspace":null,"project":null}"#, &[][..], &[][..]),
            (r#"{"dir":"a","workspace":"b","project":null}"#, &["a"], &[]),
            (r#"{"dir":null,"workspace":null,"project":"p"}"#, &[], &["p"]),
            (r#"{"dir":["a","b/*"],"workspace":null,"project":null}"#, &["a", "b/*"], &[]),
            (r#"{"dir":null,"workspace":null,"project":["p","q"]}"#, &[], &["p", "q"]),
        ] {
            let target: Target = serde_json::from_str(text).unwrap();
            assert!(target.dirs == dirs && target.projects == projects, "{text}: {target:?}");
            assert_eq!(serde_json::to_string(&target).unwrap(), text);
        }
        assert_eq!(serde_json::from_str::<Target>("{}").unwrap(), Target::default());
        let narrow = r#"{"dir":null,"workspace":null,"project":null,"tag":"a and not b","except":["c"]}"#;
        let target: Target = serde_json::from_str(narrow).unwrap();
        assert_eq!(serde_json::to_string(&target).unwrap(), narrow);
        let flags: Vec<String> = target.flags().map(|(flag, value)| format!("{flag} {value}")).collect();
        assert_eq!(flags, ["--tag a and not b", "--except c"]);
        assert!(!target.is_all() && !target.names_some());
    }
}
