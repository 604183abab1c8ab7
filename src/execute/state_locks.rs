//! Terraform's own locks on its states, as opposed to project locks: finds the holder of a lock, describes a lock that a killed run of ours
//! may have left, and names the command that releases it.
//!
//! Backends keep a lock until somebody releases it. The lock of the local backend ends with its process. Only a file stays beside the
//! state, which the next run overwrites and removes.

use super::context::Context;
use crate::comment::command_for;
use crate::domain::command::CommandName;
use crate::domain::outcome::{JobOutcome, Outcome};
use crate::domain::state::{Job, StateLock};
use crate::domain::{ProjectId, PullId};
use crate::runner::local::state_lock::LockEvidence;
use crate::terraform::state_lock;
use anyhow::Result;
use jiff::{SignedDuration, Timestamp};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A lock's time may differ from its job's times by this much.
const SLACK: SignedDuration = SignedDuration::from_secs(2);

/// Maximum number of ended jobs of a repository that are searched for the holder of a lock.
pub(super) const LOOKED_AT: usize = 200;

/// Jobs whose Terraform was killed and that were not reported yet, by pull request.
#[derive(Default)]
pub struct OrphanedLocks {
    jobs: Mutex<HashMap<PullId, Vec<Job>>>,
}

impl OrphanedLocks {
    fn jobs(&self) -> MutexGuard<'_, HashMap<PullId, Vec<Job>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a recorded job that is marked as not reported (`state_lock.untold`).
    pub fn add(&self, job: &Job) {
        if job.state_lock.untold {
            let mut jobs = self.jobs();
            let of_pull = jobs.entry(job.pull.clone()).or_default();
            of_pull.retain(|known| known.id != job.id);
            of_pull.push(job.clone());
        }
    }

    /// Removes and returns the jobs of one pull request.
    pub fn take(&self, pull: &PullId) -> Vec<Job> {
        self.jobs().remove(pull).unwrap_or_default()
    }

    /// Returns true if there are jobs of this pull request.
    pub fn any(&self, pull: &PullId) -> bool {
        self.jobs().contains_key(pull)
    }

    /// Returns the pull requests that have such jobs.
    pub fn pulls(&self) -> Vec<PullId> {
        self.jobs().keys().cloned().collect()
    }
}

/// Returns the command, such as `atlantis force-unlock -d a ID`; without an ID, with a placeholder.
pub(crate) fn command(ctx: &Context, project: &ProjectId, id: Option<&str>) -> String {
    let line = command_for(&ctx.rendering.executable, CommandName::ForceUnlock, project, &[]);
    format!("{line} {}", id.unwrap_or("LOCK_ID"))
}

/// Describes the state lock of a killed job and the next command, in sentences.
pub(crate) fn after_kill(ctx: &Context, project: &ProjectId, left: &LockEvidence) -> String {
    let plan = command_for(&ctx.rendering.executable, CommandName::Plan, project, &[]);
    match left {
        LockEvidence::Nothing => "Terraform's state lock is free.".to_owned(),
        LockEvidence::Local(lock) => format!(
            "The state is a local file that still names the state lock `{}` ({}). The lock itself ended with the process: the \
             next `{plan}`, here or on another pull request, takes it over and removes the entry.",
            lock.id, lock.operation
        ),
        LockEvidence::Unknown => format!(
            "Terraform may have left its state lock. If the next `{plan}` says \"Error acquiring the state lock\", release it with \
             the ID shown there: `{}`.",
            command(ctx, project, None)
        ),
    }
}

/// Returns the remark for a command that found the state locked: the holder and the next command. `None` if it found no lock.
pub(super) async fn remark(ctx: &Context, pull: &PullId, outcome: &JobOutcome) -> Option<String> {
    let Outcome::Errored(fault) = &outcome.outcome else { return None };
    let lock = state_lock::find_lock(&fault.output)?;
    // The outcome matters more than this remark: a failed look-up is only logged.
    describe_lock(ctx, pull, outcome, lock).await.unwrap_or_else(|error| {
        tracing::error!(%pull, error = format!("{error:#}"), "whose a state lock is could not be looked up");
        None
    })
}

async fn describe_lock(ctx: &Context, pull: &PullId, outcome: &JobOutcome, lock: StateLock) -> Result<Option<String>> {
    let (repo, own) = (pull.repo.clone(), outcome.job.clone());
    let (broken, running) = ctx
        .store
        .read(move |view| Ok((view.broken_jobs(&repo, Timestamp::now(), LOOKED_AT)?, view.unfinished_jobs()?)))
        .await?;
    let (project, id) = (&outcome.project, &lock.id);
    let label = project.label();
    let may_hold = |job: &&Job| job.locks_state() && own.as_ref() != Some(&job.id);
    let others = running.iter().filter(may_hold).filter(|job| job.pull.repo == pull.repo);
    let log = |job: &Job| format!("{}/jobs/{}", ctx.settings.atlantis_url, job.id);
    if let Some(job) = others.into_iter().find(|job| same_state(job, project)) {
        let (kind, other) = (job.kind.replace('_', " "), ctx.hosts.pull_name(&job.pull));
        return Ok(Some(format!(
            "The state lock `{id}` of `{label}` may be held by the {kind} of {other}, which runs: {} . Wait for its end.",
            log(job)
        )));
    }
    let command = command(ctx, project, Some(id));
    Ok(Some(match holder(&lock, project, &broken) {
        Some(job) => format!(
            "The state lock `{id}` of `{label}` was left by the {} of {} that was interrupted: {} . To release it: `{command}`",
            job.kind.replace('_', " "),
            ctx.hosts.pull_name(&job.pull),
            log(job)
        ),
        None => format!("The state lock `{id}` of `{label}` {}", foreign(&lock)),
    }))
}

/// Returns the rest of the sentence about a lock that none of our runs left, from the lock's description.
pub(super) fn foreign(lock: &StateLock) -> String {
    let by_hand = format!("release it by hand in the project's directory: `terraform force-unlock {}`", lock.id);
    if lock.who.is_empty() {
        return format!("has a holder that the backend does not name. If nothing runs on this state, {by_hand}");
    }
    let since = lock.created.map_or(String::new(), |at| format!(" since {}", at.strftime("%Y-%m-%d %H:%M:%S UTC")));
    format!(
        "is held by `{}`{since} for `{}`; no run of this server left it. Ask them whether it still runs. If it does not, {by_hand}",
        lock.who, lock.operation
    )
}

/// Returns true if a job has the state of this project. Names do not count: two projects of one directory and workspace share it.
pub(super) fn same_state(job: &Job, project: &ProjectId) -> bool {
    job.project.as_ref().is_some_and(|known| known.dir == project.dir && known.workspace == project.workspace)
}

/// Returns our ended job that held this lock, out of the `broken` ones of the same repository.
pub(crate) fn holder<'a>(lock: &StateLock, project: &ProjectId, broken: &'a [Job]) -> Option<&'a Job> {
    let host = lock.who.rsplit_once('@').map_or(lock.who.as_str(), |(_, host)| host);
    broken.iter().find(|job| {
        let trace = &job.state_lock;
        if trace.left.as_ref().is_some_and(|left| left.id == lock.id) {
            return true;
        }
        let met_itself = trace.met.as_ref().is_some_and(|met| met.id == lock.id);
        let same_machine = trace.machine.as_deref() == Some(host) && !host.is_empty();
        let while_it_ran = lock.created.zip(job.finished).is_some_and(|(created, finished)| {
            created.duration_since(job.started) >= -SLACK && finished.duration_since(created) >= -SLACK
        });
        same_state(job, project) && !met_itself && same_machine && while_it_ran && fits(&job.kind, &lock.operation)
    })
}

/// Returns true if a job of this kind may take locks for this operation. A `run` step may run anything, so only clear contradictions count.
fn fits(kind: &str, operation: &str) -> bool {
    match operation {
        "OperationTypePlan" => kind == "plan",
        "OperationTypeApply" => kind == "apply",
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::RepoId;
    use crate::domain::state::{JobState, StateLockTrace};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn project(dir: &str) -> ProjectId {
        ProjectId { dir: dir.into(), workspace: "default".into(), name: None }
    }

    fn job(kind: &str, dir: &str, machine: &str) -> Job {
        let repo = RepoId { host: "h".into(), owner: "o".into(), name: "n".into() };
        Job {
            id: "1".into(),
            run: "r".into(),
            pull: PullId { repo, number: 1 },
            kind: kind.into(),
            project: Some(project(dir)),
            user: "alice".into(),
            head: "h".into(),
            state: JobState::Interrupted,
            summary: String::new(),
            outcome: None,
            started: at(0),
            finished: Some(at(60)),
            state_lock: StateLockTrace { machine: Some(machine.into()), ..StateLockTrace::default() },
            remote: None,
        }
    }

    fn lock(operation: &str, second: i64) -> StateLock {
        StateLock { id: "x".into(), operation: operation.into(), who: "root@vm".into(), created: Some(at(second)) }
    }

    #[test]
    fn a_lock_is_ours_when_machine_time_operation_and_project_fit() {
        let (plan, apply) = ("OperationTypePlan", "OperationTypeApply");
        for (what, lock, job, ours) in [
            ("all fits", lock(plan, 5), job("plan", "a", "vm"), true),
            ("at the very start", lock(plan, -1), job("plan", "a", "vm"), true),
            ("before it", lock(plan, -10), job("plan", "a", "vm"), false),
            ("after it", lock(plan, 90), job("plan", "a", "vm"), false),
            ("another machine", lock(plan, 5), job("plan", "a", "laptop"), false),
            ("another operation", lock(apply, 5), job("plan", "a", "vm"), false),
            ("another project", lock(plan, 5), job("plan", "b", "vm"), false),
            ("no time", StateLock { created: None, ..lock(plan, 5) }, job("plan", "a", "vm"), false),
            ("no machine", StateLock { who: String::new(), ..lock(plan, 5) }, job("plan", "a", ""), false),
        ] {
            assert_eq!(holder(&lock, &project("a"), &[job]).is_some(), ours, "{what}");
        }
    }

    #[test]
    fn who_met_a_lock_does_not_hold_it_and_who_left_it_does() {
        let met = Some(lock("OperationTypePlan", 5));
        let mut one = job("plan", "a", "vm");
        one.state_lock.met = met.clone();
        assert!(holder(&lock("OperationTypePlan", 5), &project("a"), &[one.clone()]).is_none());
        one.state_lock = StateLockTrace { left: met, ..StateLockTrace::default() };
        assert!(holder(&lock("OperationTypePlan", 500), &project("a"), &[one]).is_some());
    }
}
