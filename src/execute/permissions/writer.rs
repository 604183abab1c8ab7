//! Checks that somebody may end work that others rely on: by a rule, or with write access to the repository.

use super::super::context::Context;
use super::{Asker, Gatekeeper, typed};
use crate::config::permissions::{Act, Permitted};
use crate::domain::command::Command;
use crate::vcs::HostError;

impl Gatekeeper<'_> {
    /// Returns the reason for which a person who may use this command may not end work that others rely on; `None` if allowed. Allowed are
    /// people with write access to the repository, those with a rule that names the command, the person or a team, and all if `team_authz`
    /// decides. `what`: the command as people type it, `because`: reason for the additional check, `say`: the whole command.
    pub(crate) async fn writer_refusal(
        &mut self,
        act: Act<'_>,
        what: &str,
        because: &str,
        say: &str,
    ) -> Result<Option<String>, HostError> {
        let (Asker::OfHost(name) | Asker::OfPage(name)) = self.person;
        if self.ctx.global.team_authz.is_some() {
            return Ok(None);
        }
        loop {
            match self.permissions.decide_by_name(name, act, &self.teams) {
                Permitted::Allowed => return Ok(None),
                Permitted::Ask(team) => self.ask_membership(team).await?,
                Permitted::Refused { .. } => break,
            }
        }
        let known = match (self.is_writer, self.person) {
            (Some(known), _) => known,
            (None, Asker::OfHost(login)) if !login.is_empty() => {
                self.ctx.hosts.for_repo(self.repo)?.can_write(self.repo, login).await?
            }
            _ => Some(false),
        };
        self.is_writer = Some(known);
        let word = act.command.spoken();
        let no_rule = format!("{name} may not use `{what}`: {because}no rule of the server gives {name} `{word}`");
        Ok(match known {
            Some(true) => None,
            Some(false) => Some(format!(
                "{no_rule}, so only those who may write to the repository have that right. One of them can comment `{say}`"
            )),
            None => Some(format!(
                "{no_rule}, and the host does not tell who may write to the repository. An operator can add `\"{name}:{word}\"` to \
                 `allowed_users` in `repos.yaml` (if the list is new, also add `\"*\"` for all other commands); then comment `{say}` again"
            )),
        })
    }
}

/// Returns the text for a command whose write access the host did not report. `what`: the command as people type it.
pub(crate) fn unanswered_writer(ctx: &Context, command: &Command, what: &str, error: &HostError) -> String {
    let (user, say) = (&command.user, typed(ctx, command));
    ctx.redactor.redact(&format!(
        "The host did not say whether {user} may use `{what}`, so nothing was done: {error}. Comment again: `{say}`"
    ))
}
