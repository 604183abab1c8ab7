//! Chooses the person in whose name the server plans again, or applies automatically: somebody who caused it, if the rules let that person
//! do so.

use super::super::context::Context;
use super::{Asker, Gatekeeper, unanswered};
use crate::config::permissions::Act;
use crate::domain::command::{Command, CommandName, Trigger};
use crate::domain::{Login, ProjectId, PullRequest};

/// The answer of [`planner`] and [`applier`].
pub(crate) enum Planner {
    /// This person may do so; unknown only if the rules need no name.
    Person(Login),
    /// None of them may do so; the text is the reason.
    Nobody(String),
}

/// Returns the first of these people who may plan all of the projects by the server's own rules, or else the first who may plan at all.
/// Rules of the repository itself are checked for each project when it is planned.
pub(crate) async fn planner(ctx: &Context, pull: &PullRequest, projects: &[ProjectId], people: Vec<Login>) -> Planner {
    first_permitted(ctx, pull, Command::new(CommandName::Plan, Trigger::Replan, Login::unknown()), projects, people)
        .await
}

/// Does the same for an automatic apply.
pub(crate) async fn applier(ctx: &Context, pull: &PullRequest, projects: &[ProjectId], people: Vec<Login>) -> Planner {
    let apply = Command::new(CommandName::Apply, Trigger::AutoApply, Login::unknown());
    first_permitted(ctx, pull, apply, projects, people).await
}

async fn first_permitted(
    ctx: &Context,
    pull: &PullRequest,
    command: Command,
    projects: &[ProjectId],
    mut people: Vec<Login>,
) -> Planner {
    if people.is_empty() {
        people.push(Login::unknown());
    }
    let (mut partly, mut refused) = (None, None);
    for person in people {
        let command = Command { user: person.clone(), ..command.clone() };
        let gatekeeper = Gatekeeper::new(ctx, &pull.id.repo, &pull.base.branch, Asker::OfHost(person.as_str()));
        let mut gatekeeper = Gatekeeper { about: Some((pull, &command)), ..gatekeeper };
        let refusal = match gatekeeper.refusal(Act { command: command.name, project: None }).await {
            Ok(refusal) => refusal,
            Err(error) => Some(unanswered(ctx, &command, &error)),
        };
        if let Some(because) = refusal {
            refused.get_or_insert(because);
            continue;
        }
        if may_all(&mut gatekeeper, command.name, projects).await {
            return Planner::Person(person);
        }
        partly.get_or_insert(person);
    }
    match partly {
        Some(person) => Planner::Person(person),
        None => Planner::Nobody(refused.unwrap_or_default()),
    }
}

/// Returns true if the rules let the person use the command on each of these. The command of `team_authz` decides on projects later, in their checkout.
async fn may_all(gatekeeper: &mut Gatekeeper<'_>, command: CommandName, projects: &[ProjectId]) -> bool {
    if gatekeeper.ctx.global.team_authz.is_some() {
        return true;
    }
    for project in projects {
        if !matches!(gatekeeper.refusal(Act { command, project: Some(project) }).await, Ok(None)) {
            return false;
        }
    }
    true
}
