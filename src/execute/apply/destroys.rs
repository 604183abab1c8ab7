//! Destroys of deleted projects in an apply: one begins only if the command names its project.

use super::super::command_run::CommandRun;
use super::super::context::Context;
use super::super::groups::MAX_NAMED;
use super::super::job;
use super::super::permissions::RefusedProjects;
use crate::comment::command_for;
use crate::config::ProjectConfig;
use crate::domain::ProjectId;
use crate::domain::command::{CommandName, Target};
use crate::domain::outcome::{Failure, Outcome, Reason};
use crate::schedule::Schedule;

/// Takes the destroys that the command does not name out of the schedule. They are refused if nothing else is left to apply. Otherwise,
/// returns a remark on them.
pub(super) fn keep_named(
    ctx: &Context,
    work: &CommandRun,
    schedule: &mut Schedule,
    refused: &mut RefusedProjects,
) -> Option<String> {
    let is_unnamed = |config: &ProjectConfig| config.deleted && !is_named(&work.command.target, &config.id);
    let mut unnamed: Vec<ProjectConfig> = Vec::new();
    for group in &mut schedule.groups {
        unnamed.extend(group.extract_if(.., |config| is_unnamed(config)));
    }
    let command = |id: &ProjectId| command_for(&ctx.rendering.executable, CommandName::Apply, id, &[]);
    if schedule.groups.iter().all(Vec::is_empty) && refused.outcomes.is_empty() {
        refused.outcomes.extend(unnamed.iter().map(|config| {
            let because = format!("a destroy begins only if the command names its project: `{}`", command(&config.id));
            let failure = Failure::Refused { reason: Reason::Dependency, because };
            job::refused_outcome(work, config, Outcome::Failed(failure))
        }));
        return None;
    }
    let commands = unnamed.iter().take(MAX_NAMED).map(|config| format!("`{}`", command(&config.id)));
    let commands: Vec<String> = commands.collect();
    (!commands.is_empty()).then(|| {
        format!("Not destroyed, as a destroy begins only if the command names its project: {}.", commands.join(", "))
    })
}

/// Returns true if a target names this project, not only by a glob.
fn is_named(target: &Target, id: &ProjectId) -> bool {
    target.dirs.contains(&id.dir)
        || id.name.as_ref().is_some_and(|name| target.projects.contains(name))
        || target.exactly.contains(id)
}
