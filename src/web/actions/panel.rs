//! The forms of the buttons that a page shows to one person, and what becomes of the command that the person has asked for.

use super::project_field;
use crate::dispatch::{Handle, form_key, page_delivery};
use crate::domain::command::CommandName;
use crate::domain::freeze::Freeze;
use crate::domain::state::{ApplyLock, ProjectState, ProjectStatus};
use crate::domain::{CommitSha, ProjectId, PullId, PullRequest, RunId};
use crate::store::View;
use crate::web::answer::Visit;
use crate::web::pages::{pull_address, shown};
use crate::web::pulls::missing_approvals_of;
use anyhow::Result;
use serde::Serialize;

/// Maximum number of projects that a form lets choose from.
const MAX_CHOICES: usize = 30;

/// What a page is about, of a pull request.
#[derive(Debug, Clone, Copy)]
pub(in crate::web) enum PanelScope<'a> {
    /// All of it.
    Pull,
    /// One project.
    Project(&'a ProjectId),
    /// A job, or a run of an earlier commit: it can be cancelled while it runs.
    Job,
}

/// Number of the latest runs among which the one of a command is looked for.
const RUNS: usize = 20;

/// What the state has of a pull request, as far as buttons depend on it.
pub(in crate::web) struct ActionFacts {
    pull: PullRequest,
    statuses: Vec<ProjectStatus>,
    /// Projects with a plan of the head that changes something.
    planned: Vec<ProjectId>,
    /// True if it has locked, owns, has planned or waits for a project.
    holds: bool,
    /// True if a command of it runs.
    at_work: bool,
    /// Number of projects with policies that lack approvals.
    unapproved: usize,
    freeze: Option<Freeze>,
    apply_lock: Option<ApplyLock>,
}

impl ActionFacts {
    /// Loads them; none for a pull request that is not known.
    pub(in crate::web) fn load(view: &View<'_>, id: &PullId) -> Result<Option<ActionFacts>> {
        let Some(pull) = view.pull(id)? else { return Ok(None) };
        let plans = view.plans(id)?;
        let holds = !(view.locks_of(id)?.is_empty()
            && view.owners_of(id)?.is_empty()
            && plans.is_empty()
            && view.waits_of(id)?.is_empty());
        Ok(Some(ActionFacts {
            statuses: view.project_statuses(id)?,
            planned: plans
                .into_iter()
                .filter(|plan| plan.head == pull.head.commit && !plan.summary.no_changes)
                .map(|plan| plan.project)
                .collect(),
            holds,
            at_work: view.unfinished_runs()?.iter().any(|run| run.pull == *id),
            unapproved: missing_approvals_of(view, id)?,
            freeze: view.freeze_of(&id.repo)?,
            apply_lock: view.apply_lock()?,
            pull,
        }))
    }

    /// Returns true if this is its head commit.
    pub(in crate::web) fn is_head(&self, commit: &CommitSha) -> bool {
        self.pull.head.commit == *commit
    }

    /// Returns what keeps a pull request from being applied, as far as this server knows. What only the host knows, such as reviews, is
    /// checked by the apply.
    fn missing_for_apply(&self) -> Vec<String> {
        let mut missing = Vec::new();
        if let Some(lock) = &self.apply_lock {
            let why = if lock.reason.is_empty() { String::new() } else { format!(" ({})", shown(&lock.reason)) };
            missing.push(format!("all applies are stopped{why}"));
        }
        if let Some(freeze) = &self.freeze {
            missing.push(format!("{} froze the repository ({})", shown(&freeze.user), shown(&freeze.why)));
        }
        if self.at_work {
            missing.push("a command of the pull request runs".to_owned());
        }
        let without_plan = self.statuses.iter().filter(|status| lacks_plan(status)).count();
        match (self.planned.len(), without_plan) {
            (_, 1) => missing.push("one project has no plan that succeeded".to_owned()),
            (_, 2..) => missing.push(format!("{without_plan} projects have no plan that succeeded")),
            (0, _) => missing.push("no project has a plan with changes for this commit".to_owned()),
            _ => {}
        }
        match self.unapproved {
            0 => {}
            1 => missing.push("the policies of one project are not approved".to_owned()),
            count => missing.push(format!("the policies of {count} projects are not approved")),
        }
        missing
    }

    fn form(&self, name: CommandName, scope: PanelScope<'_>) -> ActionForm {
        let (title, effect) = match name {
            CommandName::Plan => (if self.statuses.is_empty() { "Plan" } else { "Plan again" }, ""),
            CommandName::Apply => ("Apply", "Terraform changes the infrastructure as planned."),
            CommandName::Cancel => ("Cancel", "What waits is dropped, and a plan is stopped. An apply goes on."),
            CommandName::Unlock => ("Unlock", "Locks, plans and places in line are dropped."),
            CommandName::ApprovePolicies => ("Approve policies", "What the policies found is approved in your name."),
            CommandName::Freeze => ("Freeze the repository", "Nothing is applied in it until it is unfrozen."),
            _ => ("Unfreeze the repository", "Its applies go on."),
        };
        let is_of_project = matches!(name, CommandName::Plan | CommandName::Apply | CommandName::Unlock);
        let chosen = self.statuses.iter().map(|status| &status.project);
        let chosen = chosen.filter(|project| name != CommandName::Apply || self.planned.contains(project));
        let only = match scope {
            PanelScope::Project(project) => Some(project),
            PanelScope::Pull | PanelScope::Job => None,
        };
        let chosen = chosen.filter(|_| is_of_project && only.is_none()).take(MAX_CHOICES);
        let projects: Vec<ProjectChoice> = chosen.map(ProjectChoice::new).collect();
        ActionForm {
            action: name.as_str(),
            title,
            key: form_key(),
            effect,
            has_reason: matches!(name, CommandName::Unlock | CommandName::Freeze | CommandName::Unfreeze),
            needs_reason: name == CommandName::Freeze,
            // A choice of one is none.
            projects: if projects.len() > 1 { projects } else { Vec::new() },
            project: only.filter(|_| is_of_project).map(project_field),
        }
    }
}

fn lacks_plan(status: &ProjectStatus) -> bool {
    matches!(status.state, ProjectState::PlanErrored | ProjectState::PlanDiscarded | ProjectState::PlanInvalidated)
}

/// A project in the list of a form.
#[derive(Serialize)]
struct ProjectChoice {
    label: String,
    value: String,
}

impl ProjectChoice {
    fn new(project: &ProjectId) -> ProjectChoice {
        ProjectChoice { label: shown(&project.label()), value: project_field(project) }
    }
}

/// The form of a button.
#[derive(Serialize)]
struct ActionForm {
    action: &'static str,
    title: &'static str,
    key: String,
    /// Effect of a command that asks for a confirmation; empty for one that does not.
    effect: &'static str,
    has_reason: bool,
    needs_reason: bool,
    /// Projects to choose from; empty if there is no choice.
    projects: Vec<ProjectChoice>,
    /// The only project.
    project: Option<String>,
}

/// The buttons of a page for the commands on one pull request.
#[derive(Serialize)]
pub(in crate::web) struct ActionPanel {
    /// `host/owner/name/number`.
    pull: String,
    head: String,
    commit: String,
    /// The person whom the comment names.
    person: String,
    forms: Vec<ActionForm>,
    /// What is missing for an apply.
    missing: Vec<String>,
    /// Page of the pull request, relative to `/`.
    address: String,
}

impl ActionPanel {
    /// Returns the buttons of the person who looks; none if there are none.
    pub(in crate::web) fn new(
        facts: &ActionFacts,
        dispatch: &Handle,
        visit: &Visit,
        scope: PanelScope<'_>,
    ) -> Option<ActionPanel> {
        let (pull, person) = (&facts.pull, visit.actor()?);
        let permitted = dispatch.buttons_for(pull, person, visit.visitor);
        let missing = facts.missing_for_apply();
        let (is_open, is_frozen) = (pull.is_open(), facts.freeze.is_some());
        let is_pull = matches!(scope, PanelScope::Pull);
        let is_offered = |name: &CommandName| match name {
            CommandName::Cancel => facts.at_work,
            _ if matches!(scope, PanelScope::Job) => false,
            CommandName::Plan => is_open,
            CommandName::Apply => is_open && missing.is_empty(),
            CommandName::Unlock => facts.holds && !facts.at_work,
            CommandName::ApprovePolicies => is_open && facts.unapproved > 0,
            CommandName::Freeze => is_pull && is_open && !is_frozen,
            CommandName::Unfreeze => is_pull && is_open && is_frozen,
            _ => false,
        };
        let may_apply = is_open && !matches!(scope, PanelScope::Job) && permitted.contains(&CommandName::Apply);
        let offered = permitted.into_iter().filter(is_offered);
        let forms: Vec<ActionForm> = offered.map(|name| facts.form(name, scope)).collect();
        (!forms.is_empty()).then(|| ActionPanel {
            pull: format!("{}/{}", pull.id.repo, pull.id.number),
            head: pull.head.commit.to_string(),
            commit: pull.head.commit.short().to_owned(),
            person: shown(person),
            missing: if may_apply { missing } else { Vec::new() },
            address: pull_address(&pull.id),
            forms,
        })
    }
}

/// What became of the command that the address of the page names by its key.
#[derive(Serialize)]
pub(in crate::web) struct RequestNotice {
    has_ended: bool,
    run: Option<RunId>,
}

impl RequestNotice {
    /// Finds it; none if no command has this key.
    pub(in crate::web) fn find(view: &View<'_>, pull: &PullId, key: &str) -> Result<Option<RequestNotice>> {
        let Some(delivery) = page_delivery(key) else { return Ok(None) };
        if !view.knows_delivery(&delivery)? {
            return Ok(None);
        }
        let runs = view.runs_of_pull(pull, RUNS)?;
        let run = runs.into_iter().find(|listed| listed.run.cause.delivery() == Some(&delivery));
        let has_ended = view.outcome_of_delivery(&delivery)?.is_some();
        Ok(Some(RequestNotice { has_ended, run: run.map(|listed| listed.run.id) }))
    }
}
