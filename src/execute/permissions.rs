//! Permission checks of commands: the rules of `config::permissions`, with the team memberships that the host reports.

mod asker;
mod planner;
mod team_authz;
mod writer;

pub(crate) use asker::Asker;
pub(crate) use planner::{Planner, applier, planner};
pub(crate) use writer::unanswered_writer;

use super::answer::CommandAnswer;
use super::command_run::CommandRun;
use super::context::Context;
use super::job;
use super::prepare::Stop;
use super::recorder;
use super::status_update::StatusUpdate;
use crate::comment::{command_for, quote};
use crate::config::ProjectConfig;
use crate::config::permissions::{Act, EscapeHatch, Permissions, Permitted};
use crate::domain::command::{Command, CommandName, Trigger};
use crate::domain::outcome::{Failure, Fault, JobOutcome, Outcome, Reason};
use crate::domain::state::{ProjectState, ProjectStatus};
use crate::domain::{ProjectId, PullRequest, RepoId};
use crate::schedule::Schedule;
use crate::vcs::HostError;
use anyhow::Result;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time for which a membership that the host has confirmed is cached. The answer that somebody is no member is not cached.
const BELIEVED: Duration = Duration::from_secs(300);
/// Maximum number of teams that the host is asked about for one command. A pull request may name teams, and the host counts requests.
pub(super) const MAX_ASKED: usize = 50;
/// Maximum number of cached memberships; the cache is cleared when it is full.
const MAX_REMEMBERED: usize = 10_000;

/// Team memberships that hosts have confirmed lately.
#[derive(Default)]
pub struct TeamMembers {
    told: Mutex<HashMap<(RepoOwner, String, String), Instant>>,
}

/// Host and owner of a team.
type RepoOwner = (String, String);

impl TeamMembers {
    /// Returns true if a person is in a team of this repository's owner; `None` if the host has no teams.
    pub(super) async fn is_member(
        &self,
        ctx: &Context,
        repo: &RepoId,
        team: &str,
        login: &str,
    ) -> Result<Option<bool>, HostError> {
        let key = ((repo.host.clone(), repo.owner.clone()), team.to_owned(), login.to_lowercase());
        if self.told().get(&key).is_some_and(|at| at.elapsed() < BELIEVED) {
            return Ok(Some(true));
        }
        let is_member = ctx.hosts.for_repo(repo)?.is_team_member(repo, team, login).await?;
        let mut told = self.told();
        match is_member {
            Some(true) => {
                if told.len() >= MAX_REMEMBERED {
                    told.clear();
                }
                told.insert(key, Instant::now());
            }
            _ => drop(told.remove(&key)),
        }
        Ok(is_member)
    }

    fn told(&self) -> std::sync::MutexGuard<'_, HashMap<(RepoOwner, String, String), Instant>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One person, the rules of one repository, and the person's known team memberships.
pub(crate) struct Gatekeeper<'a> {
    ctx: &'a Context,
    repo: &'a RepoId,
    person: Asker<'a>,
    permissions: Permissions,
    teams: HashMap<String, bool>,
    without_teams: bool,
    too_many_teams: bool,
    /// True if the person administers the repository; absent before the host was asked. The inner value is absent if the host cannot tell.
    is_admin: Option<Option<bool>>,
    /// True if the person may write to the repository; absent in the same cases.
    is_writer: Option<Option<bool>>,
    /// The pull request and the command on it, for the command of `team_authz`; absent if only the repository is known.
    about: Option<(&'a PullRequest, &'a Command)>,
    /// All teams of the person; absent before the host was asked.
    all_teams: Option<Vec<String>>,
    /// True if the command of `team_authz` took too long; it is not asked again.
    authz_is_silent: bool,
}

impl<'a> Gatekeeper<'a> {
    /// Creates one with the server's own rules for this repository and base branch.
    pub(crate) fn new(ctx: &'a Context, repo: &'a RepoId, base_branch: &str, person: Asker<'a>) -> Gatekeeper<'a> {
        let mut permissions = Permissions::default();
        if let Some((name, allowed)) = ctx.settings.team_rules(&repo.host) {
            permissions = permissions.with(&format!("the server's settings (`--{name}`)"), &allowed);
        }
        if let Some(allowed) = &ctx.global.rules(repo, base_branch).allowed {
            permissions = permissions.with("the server's `repos.yaml` (`allowed_users`, `allowed_teams`)", allowed);
        }
        Gatekeeper {
            ctx,
            repo,
            person,
            permissions,
            teams: HashMap::new(),
            without_teams: false,
            too_many_teams: false,
            is_admin: None,
            is_writer: None,
            about: None,
            all_teams: None,
            authz_is_silent: false,
        }
    }

    fn for_command(ctx: &'a Context, work: &'a CommandRun) -> Gatekeeper<'a> {
        let person = Asker::of(&work.command);
        let gatekeeper = Gatekeeper::new(ctx, &work.pull.id.repo, &work.pull.base.branch, person);
        Gatekeeper { about: Some((&work.pull, &work.command)), ..gatekeeper }
    }

    /// Returns true if no rule restricts anybody.
    fn is_idle(&self) -> bool {
        self.permissions.is_empty() && self.ctx.global.team_authz.is_none()
    }

    /// Returns the reason for which the person may not do this, as text for people; `None` if allowed.
    pub(crate) async fn refusal(&mut self, act: Act<'_>) -> Result<Option<String>, HostError> {
        let permissions = self.permissions.clone();
        self.refusal_by(&permissions, act).await
    }

    /// Does the same for a project, whose own rules count as well.
    async fn refusal_for(&mut self, config: &ProjectConfig, command: CommandName) -> Result<Option<String>, HostError> {
        let mut permissions = self.permissions.clone();
        if let Some(own) = &config.allowed {
            permissions =
                permissions.with("its repository's own configuration (`allowed_users`, `allowed_teams`)", own);
        }
        self.refusal_by(&permissions, Act { command, project: Some(&config.id) }).await
    }

    async fn refusal_by(&mut self, permissions: &Permissions, act: Act<'_>) -> Result<Option<String>, HostError> {
        let (Asker::OfHost(name) | Asker::OfPage(name)) = self.person;
        loop {
            let (place, who) = match permissions.decide(name, act, &self.teams) {
                Permitted::Allowed => return self.refusal_by_authz(act).await,
                Permitted::Refused { place, who } => (place, who),
                Permitted::Ask(team) => {
                    self.ask_membership(team).await?;
                    continue;
                }
            };
            return Ok(Some(self.explain(act.command.spoken(), act.project, &self.typed(act), &place, &who)));
        }
    }

    /// Returns the command line for somebody who has the permission.
    fn typed(&self, act: Act<'_>) -> String {
        let executable = &self.ctx.rendering.executable;
        act.project.map_or_else(
            || format!("{executable} {}", act.command.spoken()),
            |project| match act.command {
                CommandName::Unlock => format!("{executable} unlock"),
                name => command_for(executable, name, project, &[]),
            },
        )
    }

    /// Asks the host whether the person is in a team.
    async fn ask_membership(&mut self, team: String) -> Result<(), HostError> {
        let is_member = match self.person {
            Asker::OfHost(_) if self.teams.len() >= MAX_ASKED => {
                self.too_many_teams = true;
                Some(false)
            }
            Asker::OfHost(login) => self.ctx.teams.is_member(self.ctx, self.repo, &team, login).await?,
            Asker::OfPage(_) => Some(false),
        };
        self.without_teams |= is_member.is_none();
        self.teams.insert(team, is_member.unwrap_or_default());
        Ok(())
    }

    /// Returns the reason for which the person may not use an escape hatch; `None` if allowed. The server's own rules decide. If none of
    /// them names the hatch, only administrators of the repository may use it. `say` is the command as it was typed.
    pub(crate) async fn escape_hatch_refusal(
        &mut self,
        hatch: EscapeHatch,
        project: Option<&ProjectId>,
        say: &str,
    ) -> Result<Option<String>, HostError> {
        let (Asker::OfHost(name) | Asker::OfPage(name)) = self.person;
        loop {
            match self.permissions.decide_escape_hatch(name, hatch, project, &self.teams) {
                Some(Permitted::Allowed) => return Ok(None),
                Some(Permitted::Ask(team)) => self.ask_membership(team).await?,
                Some(Permitted::Refused { place, who }) => {
                    return Ok(Some(self.explain(hatch.spoken(), project, say, &place, &who)));
                }
                // Everybody who may apply may select projects.
                None if hatch == EscapeHatch::OnlyApply => return Ok(None),
                None => return self.unless_admin(hatch, say).await,
            }
        }
    }

    async fn unless_admin(&mut self, hatch: EscapeHatch, say: &str) -> Result<Option<String>, HostError> {
        let (Asker::OfHost(name) | Asker::OfPage(name)) = self.person;
        let known = match (self.is_admin, self.person) {
            (Some(known), _) => known,
            (None, Asker::OfHost(login)) if !login.is_empty() => {
                self.ctx.hosts.for_repo(self.repo)?.is_admin(self.repo, login).await?
            }
            _ => Some(false),
        };
        self.is_admin = Some(known);
        let (spoken, word) = (hatch.spoken(), hatch.word());
        Ok(match known {
            Some(true) => None,
            Some(false) => Some(format!(
                "{name} may not use `{spoken}`: no rule of the server gives the right `{word}`, so only administrators of the \
                 repository have it. One of them can comment `{say}`"
            )),
            None => Some(format!(
                "{name} may not use `{spoken}`: no rule of the server gives the right `{word}`, and the host does not tell who \
                 administers the repository. An operator can add `\"{name}:{word}\"` to `allowed_users` in `repos.yaml` (if the \
                 list is new, also add `\"*\"` for all other commands); then comment `{say}` again"
            )),
        })
    }

    /// Returns the text of the refusal; `say` is the command for somebody who has the permission.
    fn explain(&self, command: &str, project: Option<&ProjectId>, say: &str, place: &str, who: &[String]) -> String {
        let name = self.described();
        let project = project.map(|project| format!(" on `{}`", project.label())).unwrap_or_default();
        let some = if name.is_empty() { "Somebody with the right" } else { "One of them" };
        let next = if who.is_empty() { "Ask an operator".into() } else { format!("{some} can comment `{say}`") };
        let who = if who.is_empty() { "nobody".to_owned() } else { format!("only {}", who.join(", ")) };
        let teams = match (self.without_teams, self.too_many_teams) {
            (true, _) => "; the host does not report teams".to_owned(),
            (false, true) => format!("; the host is asked about {MAX_ASKED} teams for a command, and there are more"),
            (false, false) => String::new(),
        };
        if name.is_empty() {
            // The command comes first: statuses are short.
            return format!("The server does not know who gave `{command}`{project}. {next} ({place} let {who} do so)");
        }
        format!("{name} may not use `{command}`{project}: {place} let {who} do so{teams}. {next}")
    }
}

/// Returns the text for a command whose permission depends on teams that the host did not report.
pub(crate) fn unanswered(ctx: &Context, command: &Command, error: &HostError) -> String {
    let (user, executable, name) = (&command.user, &ctx.rendering.executable, command.name.spoken());
    ctx.redactor.redact(&format!(
        "The host did not say in which teams {user} is, so nothing was done: {error}. Comment again: `{executable} {name}`"
    ))
}

/// Returns the text for an escape hatch whose permission the host did not report.
pub(crate) fn unanswered_hatch(ctx: &Context, command: &Command, hatch: EscapeHatch, error: &HostError) -> String {
    let (user, say) = (&command.user, typed(ctx, command));
    ctx.redactor.redact(&format!(
        "The host did not say whether {user} may use `{}`, so nothing was done: {error}. Comment again: `{say}`",
        hatch.spoken()
    ))
}

/// Returns a command as it is typed, with the flags that make it an escape hatch.
pub(crate) fn typed(ctx: &Context, command: &Command) -> String {
    let mut line = format!("{} {}", ctx.rendering.executable, command.name.spoken());
    for number in &command.pulls {
        line.push_str(&format!(" {number}"));
    }
    line.extend(command.target.flags().map(|(flag, value)| format!(" {flag} {}", quote(&value))));
    let switches = [(command.only, " --only"), (command.force, " --force"), (command.accept_drift, " --accept-drift")];
    line.extend(switches.iter().filter(|(is_on, _)| *is_on).map(|(_, flag)| *flag));
    line.extend(command.overrides.iter().map(|name| format!(" --override {}", quote(name))));
    if let Some(why) = &command.why {
        line.push_str(&format!(" -m {}", quote(why)));
    }
    line
}

/// Returns the escape hatches that a command uses.
fn used_escape_hatches(command: &Command) -> impl Iterator<Item = EscapeHatch> {
    let own = EscapeHatch::for_command(command.name);
    let forced = command.force.then_some(EscapeHatch::ForceApply);
    let only = command.only.then_some(EscapeHatch::OnlyApply);
    own.into_iter().chain(forced).chain(only)
}

fn unanswered_fault(ctx: &Context, work: &CommandRun, error: &HostError) -> Fault {
    let message = unanswered(ctx, &work.command, error);
    Fault { reason: Reason::Internal, message, output: String::new() }
}

/// Returns the answer to a command that its person may use on no project at all; the command is not run. `None` if permitted.
pub(super) async fn refused_everywhere(ctx: &Context, work: &CommandRun) -> Option<CommandAnswer> {
    let mut gatekeeper = Gatekeeper::for_command(ctx, work);
    if gatekeeper.is_idle() && !work.command.needs_access() && used_escape_hatches(&work.command).next().is_none() {
        return None;
    }
    let message = match may(&mut gatekeeper, ctx, work, None).await {
        Ok(message) => message?,
        Err(fault) => return Some(CommandAnswer::error(fault)),
    };
    Some(match work.command.trigger {
        // The person who pushed gave no command: the refusal is in the status, without a comment.
        Trigger::Autoplan | Trigger::Replan => CommandAnswer::new(None, StatusUpdate::Failed(message)),
        _ => CommandAnswer::refusal(Fault { reason: Reason::NotPermitted, message, output: String::new() }),
    })
}

/// Projects that were removed from a schedule because the person may not use the command there.
#[derive(Default)]
pub(super) struct RefusedProjects {
    /// Refusals, one for each project.
    pub(super) outcomes: Vec<JobOutcome>,
    /// The lowest `execution_order_group` of them.
    pub(super) first_group: Option<i64>,
}

/// Returns the reason for which the person may not use the command as it was typed; `None` if allowed.
async fn may(
    gatekeeper: &mut Gatekeeper<'_>,
    ctx: &Context,
    work: &CommandRun,
    config: Option<&ProjectConfig>,
) -> Result<Option<String>, Fault> {
    // Callers with the secret of the API count as operators of the server.
    if work.command.trigger == Trigger::Api {
        return Ok(None);
    }
    let command = work.command.name;
    // For a hatch that is a command of its own, the right to the hatch is enough.
    if EscapeHatch::for_command(command).is_none() {
        let refusal = match config {
            Some(config) => gatekeeper.refusal_for(config, command).await,
            None => gatekeeper.refusal(Act { command, project: None }).await,
        };
        let refusal = refusal.map_err(|error| unanswered_fault(ctx, work, &error))?;
        if refusal.is_some() {
            return Ok(refusal);
        }
        let act = Act { command, project: config.map(|config| &config.id) };
        let refusal = gatekeeper.page_refusal(&work.command, act).await.map_err(|error| {
            let message = unanswered_writer(ctx, &work.command, command.spoken(), &error);
            Fault { reason: Reason::Internal, message, output: String::new() }
        })?;
        if refusal.is_some() {
            return Ok(refusal);
        }
    }
    let say = typed(ctx, &work.command);
    for hatch in used_escape_hatches(&work.command) {
        let refusal =
            gatekeeper.escape_hatch_refusal(hatch, config.map(|config| &config.id), &say).await.map_err(|error| {
                let message = unanswered_hatch(ctx, &work.command, hatch, &error);
                Fault { reason: Reason::Internal, message, output: String::new() }
            })?;
        if refusal.is_some() {
            return Ok(refusal);
        }
    }
    Ok(None)
}

/// Returns the schedule without the projects on which the person may not use the command, and the outcomes of those.
pub(super) async fn split(
    ctx: &Context,
    work: &CommandRun,
    mut schedule: Schedule,
) -> Result<(Schedule, RefusedProjects), Stop> {
    let mut gatekeeper = Gatekeeper::for_command(ctx, work);
    let mut refused = RefusedProjects::default();
    for group in &mut schedule.groups {
        let mut left = Vec::new();
        for config in group.drain(..) {
            match failure(&mut gatekeeper, ctx, work, &config).await? {
                None => left.push(config),
                Some(failure) => {
                    // Nothing but deleted projects comes after a deleted one.
                    let order = (!config.deleted).then_some(config.execution_order_group);
                    refused.first_group = order.into_iter().chain(refused.first_group).min();
                    refused.outcomes.push(job::refused_outcome(work, &config, Outcome::Failed(failure)));
                }
            }
        }
        *group = left;
    }
    Ok((schedule, refused))
}

/// Returns the failure of a person who may not use the command on this project; `None` if allowed.
pub(super) async fn denial(ctx: &Context, work: &CommandRun, config: &ProjectConfig) -> Result<Option<Failure>, Stop> {
    failure(&mut Gatekeeper::for_command(ctx, work), ctx, work, config).await
}

async fn failure(
    gatekeeper: &mut Gatekeeper<'_>,
    ctx: &Context,
    work: &CommandRun,
    config: &ProjectConfig,
) -> Result<Option<Failure>, Stop> {
    match may(gatekeeper, ctx, work, Some(config)).await {
        Ok(because) => Ok(because.map(|because| Failure::Refused { reason: Reason::NotPermitted, because })),
        Err(fault) => Err(Stop::Fault(fault)),
    }
}

/// Records refused projects as not planned. A project that already has a status for this head keeps it.
pub(super) async fn record_unplanned(
    ctx: &Context,
    work: &CommandRun,
    refused: Vec<JobOutcome>,
) -> Result<Vec<JobOutcome>> {
    if refused.is_empty() {
        return Ok(refused);
    }
    let (pull, head) = (work.pull.id.clone(), work.pull.head.commit.clone());
    let statuses = ctx.store.read(move |view| view.project_statuses(&pull)).await?;
    let known: Vec<&ProjectId> =
        statuses.iter().filter(|status| status.head == head).map(|status| &status.project).collect();
    let mut outcomes = Vec::new();
    for outcome in refused {
        if known.contains(&&outcome.project) {
            outcomes.push(outcome);
            continue;
        }
        let (pull, project, head) = (work.pull.id.clone(), outcome.project.clone(), head.clone());
        let status = ProjectStatus::without_job(project, ProjectState::PlanErrored, head);
        let recorded = recorder::refusal(ctx, work, outcome, move |tx| tx.put_project_status(&pull, &status));
        outcomes.push(recorded.await?);
    }
    Ok(outcomes)
}
