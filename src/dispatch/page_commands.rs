//! Commands of the pages' buttons. Each is one command on a known pull request: recorded like a delivery before the page answers, run by the
//! pull request's actor under the rules for comments, and answered there.

use super::decide::{Decision, NOT_ALLOWLISTED};
use super::delivery_outcome::DeliveryOutcome;
use super::immediate_commands::entry;
use super::inner::Inner;
use super::requests;
use super::{Handle, PageVisitor};
use crate::comment::{checked_reason, checked_target};
use crate::domain::command::{Command, CommandName, PagePerson, Target, Trigger};
use crate::domain::state::Delivery;
use crate::domain::{CommitSha, DeliveryId, Event, Login, ProjectId, PullId, PullRequest, RequestEvent};
use crate::execute::permissions::{Asker, Gatekeeper};
use crate::execute::{RequestRefused, random_id};
use crate::store::Tx;
use anyhow::Result;
use jiff::Timestamp;
use sha2::{Digest, Sha256};

/// Start of the identities of these commands.
const IDENTITY: &str = "page:";
/// Number of characters of a form's key, which are hexadecimal digits.
const KEY: usize = 32;
/// Number of hexadecimal digits of the digest of a request.
const CONTENT: usize = 16;

/// Commands with a button.
const BUTTONS: [CommandName; 7] = [
    CommandName::Plan,
    CommandName::Apply,
    CommandName::Cancel,
    CommandName::Unlock,
    CommandName::ApprovePolicies,
    CommandName::Freeze,
    CommandName::Unfreeze,
];

/// Command of a person on a page.
#[derive(Debug, Clone)]
pub struct PageCommand {
    /// Name of the person on the pages, which is a proved identity.
    pub person: String,
    /// True if the operator named the person, or the person uses the server's own machine.
    pub is_operator: bool,
    /// The pull request.
    pub pull: PullId,
    /// The command.
    pub name: CommandName,
    /// The only project that it is for.
    pub project: Option<ProjectId>,
    /// Head commit that the person saw.
    pub head: String,
    /// Reason; may be empty.
    pub why: String,
    /// Key of the form. A command that asks for the same as an earlier one with this key is not run.
    pub key: String,
}

/// Returns the command that has a button by this word.
pub(crate) fn button_command(word: &str) -> Option<CommandName> {
    BUTTONS.into_iter().find(|name| name.as_str() == word)
}

/// Returns a key for a form.
pub(crate) fn form_key() -> String {
    random_id()
}

/// Returns the identity of a command by the word that [`Handle::command_from_page`] has returned for it; `None` if it is no such word.
pub(crate) fn page_delivery(request: &str) -> Option<DeliveryId> {
    let is_hex =
        |text: &str, digits| text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let (key, content) = request.split_once('-')?;
    (is_hex(key, KEY) && is_hex(content, CONTENT)).then(|| DeliveryId::new(format!("{IDENTITY}{request}")))
}

impl PageCommand {
    /// Returns the word for this request: the key of its form, and a digest of what it asks for. A form that a browser kept can be sent
    /// again with another choice, which is another request.
    fn word(&self) -> String {
        let PageCommand { person, is_operator: _, pull, name, project, head, why, key } = self;
        let place = project.as_ref().map(|project| (&project.dir, &project.workspace, &project.name));
        let content = format!("{:?}", (person, pull.to_string(), name.as_str(), place, head, why));
        let digest = hex::encode(Sha256::digest(content));
        format!("{key}-{}", &digest[..CONTENT])
    }
}

/// Returns the target that selects one project.
///
/// # Errors
///
/// The reason, if no command can name it.
pub(super) fn target_of(project: &ProjectId) -> Result<Target, String> {
    match project {
        ProjectId { name: Some(name), .. } => checked_target(None, None, Some(name)),
        ProjectId { dir, workspace, .. } => checked_target(Some(dir), Some(workspace), None),
    }
}

/// Returns true if a command is about what the person saw at a head. Others are about the repository, or about what runs.
fn is_of_head(name: CommandName) -> bool {
    !matches!(name, CommandName::Cancel | CommandName::Freeze | CommandName::Unfreeze)
}

impl Handle {
    /// Records the command of a button, and returns the word for it. One that asks for the same with the same key does nothing.
    ///
    /// # Errors
    ///
    /// The reason, if nothing is recorded.
    pub async fn command_from_page(&self, asked: PageCommand) -> Result<String, RequestRefused> {
        let inner = &self.inner();
        inner.may(asked.name)?;
        let word = asked.word();
        let identity = page_delivery(&word)
            .ok_or_else(|| RequestRefused::Wrong("the form has no key; reload the page".to_owned()))?;
        if !inner.allowlist.allows(&asked.pull.repo) {
            return Err(RequestRefused::Forbidden(NOT_ALLOWLISTED.to_owned()));
        }
        let id = asked.pull.clone();
        let known = inner.ctx.store.read(move |view| view.pull(&id)).await?;
        if known.is_none() || inner.ctx.hosts.for_repo(&asked.pull.repo).is_err() {
            return Err(RequestRefused::NotFound("This server knows no such pull request.".to_owned()));
        }
        let command = inner.command_of_button(&asked)?;
        let (cause, what) = (identity.clone().into(), command.name.spoken());
        let asked_for = entry(&command.asked_by(), what, &asked.pull, &cause, "asked for on a page");
        let event = RequestEvent { pull: asked.pull.clone(), command: Box::new(command) };
        let task = requests::task(inner, &event);
        let (host_id, received) = (String::new(), Timestamp::now());
        let delivery = Delivery { identity, host_id, received, event: Event::Request(event) };
        let audit = move |tx: &Tx<'_>| tx.audit(&asked_for).map(|()| true);
        match inner.record(delivery, asked.pull, Decision::Queue(task), audit).await {
            DeliveryOutcome::Queued | DeliveryOutcome::Known => Ok(word),
            _ => Err(RequestRefused::Stopped),
        }
    }

    /// Returns the commands whose buttons a person gets on a pull request: those that no rule refuses for which no host has to be asked.
    pub fn buttons_for(&self, pull: &PullRequest, person: &str, visitor: PageVisitor) -> Vec<CommandName> {
        let inner = self.inner();
        let ctx = &inner.ctx;
        let is_served = inner.allowlist.allows(&pull.id.repo)
            && ctx.hosts.for_repo(&pull.id.repo).is_ok()
            && (ctx.settings.allow_fork_prs || !pull.fork);
        if !is_served {
            return Vec::new();
        }
        let asker = Asker::of_page(ctx, &pull.id.repo, person);
        let mut gatekeeper = Gatekeeper::new(ctx, &pull.id.repo, &pull.base.branch, asker);
        let may = |name: &CommandName| {
            inner.may(*name).is_ok()
                && gatekeeper.may_be_permitted(*name)
                && (visitor == PageVisitor::Operator || gatekeeper.may_have_access(*name))
        };
        BUTTONS.into_iter().filter(may).collect()
    }
}

impl Inner {
    fn command_of_button(&self, asked: &PageCommand) -> Result<Command, RequestRefused> {
        let PageCommand { person, pull, name, project, head, why, .. } = asked;
        let wrong = RequestRefused::Wrong;
        let target = project.as_ref().map(target_of).transpose().map_err(wrong)?.unwrap_or_default();
        let why = checked_reason(why).map_err(|problem| wrong(format!("the reason {problem}")))?;
        if why.is_none() && *name == CommandName::Freeze {
            return Err(wrong("a freeze needs a reason: go back and fill it in".to_owned()));
        }
        let at = is_of_head(*name).then(|| CommitSha::parse(head)).transpose();
        let at = at.map_err(|_| wrong("the form names no commit; reload the page".to_owned()))?;
        let login = self.ctx.global.people.login_of(person, &pull.repo.host);
        let user = Login::new(login.unwrap_or(person));
        let is_operator = asked.is_operator;
        let person = Some(PagePerson { name: person.clone(), has_login: login.is_some(), is_operator });
        let why = why.filter(|_| matches!(name, CommandName::Unlock | CommandName::Freeze | CommandName::Unfreeze));
        Ok(Command { target, why, at, person, ..Command::new(*name, Trigger::Page, user) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_random_key_identifies_a_command() {
        let repo = crate::domain::RepoId { host: "h".into(), owner: "o".into(), name: "r".into() };
        let asked = |key: &str, head: &str| PageCommand {
            person: "ada".into(),
            is_operator: false,
            pull: PullId { repo: repo.clone(), number: 1 },
            name: CommandName::Apply,
            project: None,
            head: head.into(),
            why: String::new(),
            key: key.into(),
        };
        let key = form_key();
        let word = asked(&key, "a").word();
        assert_eq!(page_delivery(&word), Some(DeliveryId::new(format!("page:{word}"))));
        assert_ne!(word, asked(&key, "b").word(), "another request with the same key");
        for key in ["", "0", &"g".repeat(KEY), &"A".repeat(KEY), &format!("{key}0"), &key.replace(&key[..1], "\n")] {
            assert_eq!(page_delivery(&asked(key, "a").word()), None, "{key}");
        }
    }

    #[test]
    fn a_button_has_the_word_of_its_command() {
        assert_eq!(button_command("approve_policies"), Some(CommandName::ApprovePolicies));
        for word in ["import", "state_rm", "force_unlock", "lock", "help", ""] {
            assert_eq!(button_command(word), None, "{word}");
        }
    }
}
