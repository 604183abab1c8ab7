//! People and teams that a rule names: whether the person who gave a command is one of them.

use super::command_run::CommandRun;
use super::context::Context;
use super::prepare::Stop;
use crate::config::approvers::Approver;
use crate::domain::outcome::{Fault, Reason};

/// Returns true if a list names the person of a command. `question` says what it is asked for, as the beginning of a sentence.
///
/// # Errors
///
/// The host did not respond about a team: nothing of the project is done then.
pub(super) async fn is_one_of(
    ctx: &Context,
    work: &CommandRun,
    list: &[Approver],
    question: &str,
) -> Result<bool, Stop> {
    let user = &work.command.user;
    for one in list {
        let is_it = match one {
            Approver::User(name) => user.as_str().eq_ignore_ascii_case(name) && !user.is_unknown(),
            Approver::Team(team) if !user.is_unknown() && work.command.is_of_host() => {
                let asked = ctx.teams.is_member(ctx, &work.pull.id.repo, team, user.as_str()).await;
                asked.map_err(|error| {
                    let say = format!("{} {}", ctx.rendering.executable, work.command.name.spoken());
                    let message = ctx.redactor.redact(&format!(
                        "{question}, and the host did not say whether {user} is in team {team}, which may do this: {error}. Comment again: \
                         `{say}`"
                    ));
                    Stop::Fault(Fault { reason: Reason::Internal, message, output: String::new() })
                })? == Some(true)
            }
            Approver::Team(_) | Approver::CodeOwners => false,
        };
        if is_it {
            return Ok(true);
        }
    }
    Ok(false)
}
