//! A remediation besides its plans: selects its projects, checks that they may be applied, and records progress, so that a killed process
//! leaves a record of the applies that had begun.

use super::super::cancel::Cancel;
use super::super::command_run::CommandRun;
use super::super::context::Context;
use super::super::ids::random_bits;
use super::super::preconditions::{apply_lock_text, frozen_text};
use super::super::recorder;
use super::super::request_refused::RequestRefused;
use super::DriftRequest;
use crate::config::ProjectConfig;
use crate::domain::command::{Command, CommandName, Trigger};
use crate::domain::drift::{
    DriftApplyEnd, DriftDetection, ProjectDrift, RemediatedProject, Remediation, RemediationEnd,
};
use crate::domain::outcome::RunEnd;
use crate::domain::state::{JobState, Run};
use crate::domain::{CommitSha, JobId, Login, RunId};
use crate::store::Tx;
use anyhow::Result;
use jiff::Timestamp;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum size of all texts of plans and applies that are kept of one remediation, in bytes.
pub(super) const MAX_OUTPUT: usize = 512 << 10;

/// Selection of the projects that a remediation plans, and the use of the plans.
#[derive(Debug, Clone, Default)]
pub struct Remedy {
    /// True if the plans are applied. It then selects only projects with known drift at the same commit, which is the tip.
    pub apply: bool,
    /// True if it selects only projects with known drift at the same commit.
    pub drift_only: bool,
    /// Workspaces of the selected projects; empty for all.
    pub workspaces: Vec<String>,
}

/// A running remediation.
pub(super) struct RemedyRun {
    remedy: Remedy,
    /// Drift of the projects that was known before.
    before: Vec<ProjectDrift>,
    /// Progress so far, with texts.
    so_far: Mutex<Remediation>,
    /// The run of its applies; absent if nothing is applied.
    pub(super) applies: Option<CommandRun>,
}

impl Remedy {
    /// Refuses a request that could apply nothing, before anything is planned. Each apply checks again when it begins.
    pub(super) async fn refuse_early(&self, ctx: &Context, request: &DriftRequest) -> Result<(), RequestRefused> {
        if !self.apply {
            return Ok(());
        }
        if ctx.settings.disable_apply_all && request.wanted.named.is_empty() {
            let text = "`--disable-apply-all` is set: name the projects, with `projects` or `paths`";
            return Err(RequestRefused::Forbidden(text.to_owned()));
        }
        let repo = request.repo.clone();
        let found = ctx.store.read(move |view| Ok((view.apply_lock()?, view.freeze_of(&repo)?))).await?;
        let stopped = match &found {
            (Some(lock), _) => Some(apply_lock_text(lock)),
            (None, Some(freeze)) => Some(frozen_text(freeze, &ctx.rendering.executable)),
            (None, None) => None,
        };
        stopped.map_or(Ok(()), |text| Err(RequestRefused::Forbidden(text)))
    }
}

impl RemedyRun {
    /// Records the beginning of a remediation.
    pub(super) async fn begin(
        ctx: &Context,
        work: &CommandRun,
        request: &DriftRequest,
        remedy: &Remedy,
        interrupt: &Cancel,
    ) -> Result<RemedyRun> {
        let before = known_drift(ctx, work, request).await?;
        let so_far = Remediation {
            id: work.run.id.clone(),
            repo: request.repo.clone(),
            reference: request.reference.clone(),
            started: work.run.started,
            applies: remedy.apply,
            begun: Vec::new(),
            ended: None,
        };
        let begun = so_far.clone();
        recorder::facts(ctx, move |tx| tx.put_remediation(&begun)).await?;
        let applies = remedy.apply.then(|| apply_run(work, interrupt));
        Ok(RemedyRun { remedy: remedy.clone(), before, so_far: Mutex::new(so_far), applies })
    }

    /// Returns true if it selects a project.
    pub(super) fn means(&self, config: &ProjectConfig) -> bool {
        let project = &config.id;
        let in_workspace = self.remedy.workspaces.is_empty() || self.remedy.workspaces.contains(&project.workspace);
        let has_drift = |found: &ProjectDrift| found.project == *project && found.finding.has_drift();
        let only_drift = self.remedy.drift_only || self.remedy.apply;
        in_workspace && (!only_drift || self.before.iter().any(has_drift))
    }

    fn so_far(&self) -> MutexGuard<'_, Remediation> {
        self.so_far.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the progress to record: without texts, which the logs have.
    pub(super) fn recorded(&self) -> Remediation {
        let mut recorded = self.so_far().clone();
        for one in &mut recorded.begun {
            one.output.clear();
            if let Some(end) = one.apply.as_mut().and_then(|apply| apply.end.as_mut()) {
                end.output.clear();
            }
        }
        recorded
    }

    /// Notes that the apply of a project has begun.
    pub(super) fn apply_begun(&self, project: RemediatedProject) {
        self.so_far().begun.push(project);
    }

    /// Notes the end of an apply, and returns the known drift of its project after that.
    pub(super) fn apply_ended(&self, job: &JobId, end: DriftApplyEnd) -> Option<ProjectDrift> {
        let mut so_far = self.so_far();
        let project = so_far.applied_by(job)?;
        project.end_apply(end);
        Some(project.found.clone())
    }

    /// Returns a project with the drift that was known before, and without an apply.
    pub(super) fn project(&self, found: &ProjectDrift, output: String) -> RemediatedProject {
        let before = self.before.iter().find(|known| known.project == found.project);
        let before = before.and_then(|known| known.finding.summary().copied());
        RemediatedProject { found: found.clone(), before, output, apply: None }
    }

    /// Returns the remediation as it is recorded at its end: with texts, up to [`MAX_OUTPUT`].
    pub(super) fn ended(&self, ctx: &Context, found: &Result<DriftDetection, RequestRefused>) -> Remediation {
        let so_far = self.so_far().clone();
        let (at, mut projects, refused) = match found {
            Ok(found) => {
                let of = |(row, output): &(ProjectDrift, Option<String>)| {
                    let applied = so_far.begun.iter().find(|one| one.found.project == row.project);
                    applied.cloned().unwrap_or_else(|| self.project(row, output.clone().unwrap_or_default()))
                };
                (found.at, found.projects.iter().map(of).collect(), None)
            }
            Err(refused) => (Timestamp::now(), so_far.begun.clone(), Some(ctx.redactor.redact(&refused.describe()))),
        };
        let mut room = MAX_OUTPUT;
        let mut keep = |text: &mut String| match text.len() <= room {
            true => room -= text.len(),
            false => text.clear(),
        };
        for one in &mut projects {
            let RemediatedProject { output, apply, .. } = one;
            apply.iter_mut().filter_map(|apply| apply.end.as_mut()).for_each(|end| keep(&mut end.output));
            keep(output);
        }
        let ended = Some(RemediationEnd { at, projects, refused });
        Remediation { begun: Vec::new(), ended, ..so_far }
    }

    /// Returns true if an apply goes on at its executor: the next server records its end.
    pub(super) fn has_left(&self) -> bool {
        let is_open = |one: &RemediatedProject| one.apply.as_ref().is_some_and(|apply| apply.end.is_none());
        self.so_far().begun.iter().any(is_open)
    }
}

/// Returns the change that records the end of a run of applies.
pub(super) fn end_of_run(work: &CommandRun) -> impl FnOnce(&Tx<'_>) -> Result<()> + Send + 'static {
    let id = work.run.id.clone();
    move |tx| {
        // The run was recorded with its first job, if there was one.
        let Some(run) = tx.run(&id)? else { return Ok(()) };
        let has_succeeded = tx.jobs_of(&id)?.iter().all(|job| job.state == JobState::Succeeded);
        let end = Some(if has_succeeded { RunEnd::Succeeded } else { RunEnd::Failed });
        tx.put_run(&Run { finished: Some(Timestamp::now()), answered: true, end, ..run })
    }
}

/// Returns the known drift of the projects at the commit to plan.
async fn known_drift(ctx: &Context, work: &CommandRun, request: &DriftRequest) -> Result<Vec<ProjectDrift>> {
    let repo = request.repo.clone();
    let mut known = ctx.store.read(move |view| view.drift_in(&repo)).await?;
    let commit = &work.pull.head.commit;
    known.retain(|found| {
        found.branch == request.branch && found.reference == request.reference && found.commit == *commit
    });
    Ok(known)
}

/// Returns the run of the applies of a remediation, besides that of its plans: a run has only one job for a project.
fn apply_run(work: &CommandRun, interrupt: &Cancel) -> CommandRun {
    let command = apply_command(&work.command.user, &work.pull.head.commit);
    let run = Run { id: RunId::from_bits(random_bits()), command: command.name, ..work.run.clone() };
    CommandRun::new(run, work.pull.clone(), command, work.rules.clone(), interrupt.clone())
}

/// Returns the command of the applies of a remediation.
pub(super) fn apply_command(user: &Login, commit: &CommitSha) -> Command {
    Command { at: Some(commit.clone()), ..Command::new(CommandName::Apply, Trigger::Drift, user.clone()) }
}
