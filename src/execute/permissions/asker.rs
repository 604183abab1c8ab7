//! The person who wants to do something, as far as a host or only the pages know the name.

use super::super::context::Context;
use super::{Gatekeeper, typed};
use crate::config::permissions::{Act, EscapeHatch, Permitted};
use crate::domain::command::{Command, CommandName};
use crate::domain::{Login, RepoId};
use crate::vcs::HostError;

/// Person who wants to do something.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Asker<'a> {
    /// A person with this login of the host.
    OfHost(&'a str),
    /// A person with this name on a page, whose teams no host reports.
    OfPage(&'a str),
}

impl<'a> Asker<'a> {
    /// Returns the person who asked for a command.
    pub(crate) fn of(command: &'a Command) -> Asker<'a> {
        let user = command.user.as_str();
        if command.is_of_host() { Asker::OfHost(user) } else { Asker::OfPage(user) }
    }

    /// Returns the person whom pages show by this name: with the login that `people` has for the repository's host, if it has one.
    pub(crate) fn of_page(ctx: &'a Context, repo: &RepoId, name: &'a str) -> Asker<'a> {
        match ctx.global.people.login_of(name, &repo.host) {
            Some(login) => Asker::OfHost(login),
            None => Asker::OfPage(name),
        }
    }
}

impl Gatekeeper<'_> {
    /// Returns the person for people: with the shown name, if the host tells one besides the login.
    pub(super) fn described(&self) -> String {
        let (Asker::OfHost(name) | Asker::OfPage(name)) = self.person;
        let asked = self.about.map(|(_, command)| &command.user).filter(|user| user.as_str() == name);
        asked.map_or_else(|| name.to_owned(), Login::described)
    }

    /// Returns the reason for which a person may not use a command on a page; `None` if allowed, or if it was not given on a page. The host
    /// lets nobody comment who has no access to the repository; a page of the server does.
    pub(crate) async fn page_refusal(&mut self, command: &Command, act: Act<'_>) -> Result<Option<String>, HostError> {
        if !command.needs_access() {
            return Ok(None);
        }
        let say = typed(self.ctx, command);
        self.writer_refusal(act, command.name.spoken(), "", &say).await
    }

    /// Returns false if [`Gatekeeper::page_refusal`] refuses a command, whatever the host would report. Asks nobody.
    pub(crate) fn may_have_access(&mut self, command: CommandName) -> bool {
        let Asker::OfPage(name) = self.person else { return true };
        if self.ctx.global.team_authz.is_some() || EscapeHatch::for_command(command).is_some() {
            return true;
        }
        loop {
            match self.permissions.decide_by_name(name, Act { command, project: None }, &self.teams) {
                Permitted::Allowed => return true,
                Permitted::Refused { .. } => return false,
                Permitted::Ask(team) => drop(self.teams.insert(team, false)),
            }
        }
    }

    /// Returns false if a rule refuses a command on every project, whatever the host would report. Asks nobody: pages show buttons by it.
    pub(crate) fn may_be_permitted(&mut self, command: CommandName) -> bool {
        let (Asker::OfHost(name) | Asker::OfPage(name)) = self.person;
        loop {
            let decided = match EscapeHatch::for_command(command) {
                Some(hatch) => self.permissions.decide_escape_hatch(name, hatch, None, &self.teams),
                None => Some(self.permissions.decide(name, Act { command, project: None }, &self.teams)),
            };
            match (decided, self.person) {
                (Some(Permitted::Allowed), _) => return true,
                (Some(Permitted::Refused { .. }), _) => return false,
                (Some(Permitted::Ask(_)) | None, Asker::OfHost(_)) => return true,
                // Only administrators have the right.
                (None, Asker::OfPage(_)) => return false,
                (Some(Permitted::Ask(team)), Asker::OfPage(_)) => drop(self.teams.insert(team, false)),
            }
        }
    }
}
