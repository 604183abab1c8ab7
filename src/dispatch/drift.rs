//! Drift runs that a program asks for (`/api/drift/*`): checks of their repository, branch and projects, and their recorded results. Those
//! that the server begins by itself are counted here too (`drift_schedule`). At the start, the applies that an earlier process left unfinished are ended, or followed at their executors.

use super::Handle;
use super::inner::Inner;
use super::interrupted::{How, INTERRUPTED, outcome_of};
use super::recorder::Commit;
use super::take_up::AFTER_BREAK;
use crate::comment::{checked_narrowing, checked_target};
use crate::domain::command::{BranchTargets, CommandName, Target};
use crate::domain::drift::{DriftApplyEnd, DriftDetection, ProjectDrift, Remediation};
use crate::domain::outcome::Outcome;
use crate::domain::state::{JobState, Run};
use crate::domain::{CommitSha, Login, RepoId, RunId};
use crate::execute::abandoned::{self, LostPart};
use crate::execute::drift::{self, DriftRequest, MAX_PROJECTS, Remedy};
use crate::execute::notices::NoticeWriter;
use crate::execute::{Cancel, CancelReason, RequestRefused};
use crate::locks::LockEvent;
use crate::store::is_deposed;
use anyhow::Result;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{oneshot, watch};

/// Limit of runs that are at work or wait for another one of their repository.
const MAX_RUNS: usize = 32;
/// Longest name of a branch or of a project, and longest path.
const MAX_NAME: usize = 1_000;

/// Request of a program.
#[derive(Debug, Clone, Default)]
pub struct DriftQuestion {
    /// Name of the host, as Atlantis' API has it.
    pub host_type: String,
    /// `owner/name`.
    pub repository: String,
    /// A branch, or a commit or a tag of `base_branch`.
    pub reference: String,
    /// The branch; by default `reference` is one.
    pub base_branch: Option<String>,
    /// Names of projects.
    pub projects: Vec<String>,
    /// Directory and workspace of projects.
    pub paths: Vec<(String, Option<String>)>,
    /// Query of tags that projects have to fulfil.
    pub tag: Option<String>,
    /// Names and directories of projects to leave out, or globs of them.
    pub except: Vec<String>,
}

/// State of a remediation's run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemediationRun {
    /// It is at work, or waits for its turn.
    Running,
    /// It has ended, perhaps with an earlier process.
    Ended,
}

/// Drift runs at work.
#[derive(Default)]
pub(super) struct DriftRuns {
    /// Stops their plans; no apply begins any more.
    stop: Cancel,
    /// Interrupts their applies.
    interrupt: Cancel,
    count: watch::Sender<usize>,
    /// Repositories with a scheduled detection at work.
    pub(super) scheduled: Mutex<BTreeSet<RepoId>>,
}

/// Counts a run for as long as it exists. It is counted already when this is made.
pub(super) struct Counted(pub(super) Arc<Inner>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.drift.count.send_modify(|count| *count -= 1);
    }
}

impl Counted {
    /// Counts one more run; `None` if there are too many.
    pub(super) fn one_more(inner: &Arc<Inner>) -> Option<Counted> {
        let one_more = |count: &mut usize| {
            let has_room = *count < MAX_RUNS;
            *count += usize::from(has_room);
            has_room
        };
        inner.drift.count.send_if_modified(one_more).then(|| Counted(Arc::clone(inner)))
    }
}

impl DriftRuns {
    /// Returns what signals that a run begins or has ended.
    pub(super) fn changes(&self) -> watch::Receiver<usize> {
        self.count.subscribe()
    }

    /// Signals as if a run had begun or ended, so that the schedule is read again.
    pub(super) fn wake(&self) {
        self.count.send_modify(|_| ());
    }

    /// Returns true if a run may be at work in this repository. Only those that a schedule begins are known by their repository.
    pub(super) fn may_run_in(&self, repo: &RepoId) -> bool {
        let scheduled = self.scheduled.lock().unwrap_or_else(PoisonError::into_inner);
        self.count() > scheduled.len() || scheduled.contains(repo)
    }

    /// Returns what stops their plans.
    pub(super) fn stopper(&self) -> &Cancel {
        &self.stop
    }

    pub(super) fn count(&self) -> usize {
        *self.count.borrow()
    }

    /// Stops all of them, but for applies that run. Those at executors are left to the next server.
    pub(super) fn stop(&self) {
        self.stop.cancel(CancelReason::Shutdown);
        self.interrupt.leave();
    }

    /// Interrupts applies that run.
    pub(super) fn interrupt(&self) {
        self.interrupt.cancel(CancelReason::Shutdown);
    }

    /// Returns when none is at work.
    pub(super) async fn ended(&self) {
        // The sender is a field of `self`, so the channel stays open.
        let _ = self.count.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl Handle {
    /// Detects drift; returns when the result is recorded. The run continues if the caller stops waiting.
    ///
    /// # Errors
    ///
    /// The reason, if the detection was refused or failed.
    pub async fn detect_drift(&self, question: DriftQuestion) -> Result<DriftDetection, RequestRefused> {
        let inner = self.inner();
        let request = inner.drift_request(question)?;
        run_drift(inner, move |inner| {
            async move { drift::detect(&inner.ctx, &request, &inner.drift.stop).await }.boxed()
        })
        .await
    }

    /// Plans the remediation of drift, and applies it if that is asked for; returns when the result is recorded.
    ///
    /// # Errors
    ///
    /// The reason, if nothing was planned, or the error that broke the run as a whole.
    pub async fn remediate_drift(
        &self,
        question: DriftQuestion,
        remedy: Remedy,
    ) -> Result<Remediation, RequestRefused> {
        let inner = self.inner();
        if remedy.apply {
            inner.may(CommandName::Apply)?;
        }
        let request = inner.drift_request(question)?;
        run_drift(inner, move |inner| {
            let runs = &inner.drift;
            async move { drift::remediate(&inner.ctx, &request, (&remedy, &runs.interrupt), &runs.stop).await }.boxed()
        })
        .await
    }

    /// Returns the recorded drift of all projects of a repository.
    ///
    /// # Errors
    ///
    /// The reason, if the state is not shown or cannot be read.
    pub async fn drift_status(&self, host_type: &str, repository: &str) -> Result<Vec<ProjectDrift>, RequestRefused> {
        let inner = self.inner();
        let repo = inner.repository(host_type, repository)?;
        Ok(inner.ctx.store.read(move |view| view.drift_in(&repo)).await?)
    }
}

impl Handle {
    /// Returns one remediation of a repository, or the latest of them, each with true if it runs.
    ///
    /// # Errors
    ///
    /// The reason, if the state is not shown or cannot be read.
    pub async fn remediations(
        &self,
        host_type: &str,
        repository: &str,
        id: Option<RunId>,
    ) -> Result<Vec<(Remediation, RemediationRun)>, RequestRefused> {
        let inner = self.inner();
        let repo = inner.repository(host_type, repository)?;
        let read = inner.ctx.store.read(move |view| {
            let found = match &id {
                Some(id) => view.remediation(&repo, id)?.into_iter().collect(),
                None => view.remediations(&repo)?,
            };
            // A start ends the runs that an earlier process left, but for applies that go on at executors.
            let run_of = |one: &Remediation| {
                let mut runs = view.run(&one.id)?.is_some_and(|run| run.finished.is_none());
                let applies = one.projects().iter().filter_map(|project| project.apply.as_ref());
                for apply in applies.filter(|apply| apply.end.is_none()) {
                    runs |= view.job(&apply.job)?.is_some_and(|job| job.finished.is_none());
                }
                Ok(if runs { RemediationRun::Running } else { RemediationRun::Ended })
            };
            found.into_iter().map(|one| run_of(&one).map(|run| (one, run))).collect::<Result<Vec<_>>>()
        });
        Ok(read.await?)
    }
}

/// Runs it with this configuration in the background, so that it continues if the caller stops waiting.
async fn run_drift<T: Send + 'static, F>(inner: Arc<Inner>, run: F) -> Result<T, RequestRefused>
where
    F: for<'a> FnOnce(&'a Inner) -> BoxFuture<'a, Result<T, RequestRefused>> + Send + 'static,
{
    let (tell, told) = oneshot::channel();
    let counted = Counted::one_more(&inner).ok_or(RequestRefused::Busy)?;
    inner.tasks.spawn(async move {
        // A caller that has stopped waiting logs nothing.
        if let Err(Err(RequestRefused::Broken(error))) = tell.send(run(&counted.0).await) {
            tracing::error!(error = format!("{error:#}"), "a drift run broke");
        }
    });
    // A task that was stopped sends nothing.
    let ended = told.await.unwrap_or(Err(RequestRefused::Stopped));
    let masked = |text: String| inner.ctx.redactor.redact(&text);
    ended.map_err(|refused| match refused {
        RequestRefused::Wrong(text) => RequestRefused::Wrong(masked(text)),
        RequestRefused::Host(text) => RequestRefused::Host(masked(format!("the code could not be fetched: {text}"))),
        other => other,
    })
}

impl Inner {
    fn drift_request(&self, question: DriftQuestion) -> Result<DriftRequest, RequestRefused> {
        let wrong = |text: &str| Err(RequestRefused::Wrong(text.to_owned()));
        let DriftQuestion { host_type, repository, reference, base_branch, projects, paths, tag: query, except } =
            question;
        if !projects.is_empty() && !paths.is_empty() {
            return wrong("give projects or paths, not both");
        }
        if projects.len() + paths.len() > MAX_PROJECTS {
            return Err(RequestRefused::Wrong(format!(
                "more than {MAX_PROJECTS} projects and paths are asked for at once"
            )));
        }
        let names = projects.iter().chain(paths.iter().map(|(dir, _)| dir)).chain([&reference]).chain(&base_branch);
        if names.map(String::len).any(|length| length > MAX_NAME) {
            return wrong("a name is too long");
        }
        let repo = self.repository(&host_type, &repository)?;
        let base_branch = base_branch.filter(|branch| !branch.is_empty());
        let (branch, commit) = match (base_branch, CommitSha::parse(&reference)) {
            (None, Ok(_)) => return wrong("ref is a commit: base_branch has to say of which branch"),
            (Some(branch), Ok(commit)) => (branch, Some(commit)),
            (_, Err(_)) if reference.is_empty() => return wrong("ref is empty"),
            (Some(branch), Err(_)) => (branch, None),
            (None, Err(_)) => (reference.clone(), None),
        };
        let tag = (branch != reference && commit.is_none()).then(|| reference.clone());
        let by_name = projects.iter().map(|name| (None, None, Some(name.as_str())));
        let by_path = paths.iter().map(|(dir, workspace)| (Some(dir.as_str()), workspace.as_deref(), None));
        let wanted = by_name.chain(by_path).map(|(dir, workspace, name)| {
            let given = |part: Option<&'_ str>| part.filter(|part| !part.is_empty()).map(str::to_owned);
            let (dir, workspace, name) = (given(dir), given(workspace), given(name));
            let target = checked_target(dir.as_deref(), workspace.as_deref(), name.as_deref());
            let target = target.map_err(RequestRefused::Wrong)?;
            if target.dirs.is_empty() && target.projects.is_empty() {
                return Err(RequestRefused::Wrong("a path names no directory, or a project has no name".to_owned()));
            }
            Ok(target)
        });
        let named: Vec<Target> = wanted.collect::<Result<_, _>>()?;
        let narrowing = checked_narrowing(query.as_deref(), &except).map_err(RequestRefused::Wrong)?;
        let wanted = BranchTargets { named, narrowing };
        let user = Login::new(super::requests::USER);
        Ok(DriftRequest { repo, branch, commit, tag, reference, wanted, user, scheduled: None })
    }
}

/// Ends the applies of a drift run that another process began. None is repeated: the remediation reports each as possibly applied, and
/// the hold on its project is released. One that goes on at an executor is followed to its end.
pub(super) async fn end_cut_applies(inner: &Arc<Inner>, run: &Run) -> Result<()> {
    let id = run.id.clone();
    let mut jobs = inner.ctx.store.read(move |view| view.jobs_of(&id)).await?;
    jobs.retain(|job| job.finished.is_none());
    if jobs.iter().any(|job| job.remote.is_some()) {
        // A run has one apply at a time.
        follow(inner, run.clone());
        return Ok(());
    }
    let (mut cut, mut kept) = (Vec::new(), Vec::new());
    for mut job in jobs {
        let outcome = outcome_of(inner, run, &mut job, How::Killed, &mut kept).await;
        cut.push((job, outcome));
    }
    let (ended, statuses, notices) = (run.clone(), inner.ctx.statuses.clone(), NoticeWriter::new(&inner.ctx));
    let writer = notices.clone();
    let recorded = Commit::about(&run.pull).record_with(inner, move |tx| {
        let at = Timestamp::now();
        for (mut job, outcome) in cut {
            let (pull, project) = (job.pull.clone(), outcome.project.clone());
            writer.record(tx, &LockEvent::StateChanged { pull, project, outputs: true, at })?;
            tx.end_remedy(&job.pull.repo, &job.id, cut_end(&outcome.outcome))?;
            (job.state, job.finished, job.summary) = (JobState::Interrupted, Some(at), INTERRUPTED.to_owned());
            job.outcome = Some(outcome);
            tx.put_job(&job)?;
        }
        abandoned::end(tx, &statuses, INTERRUPTED, LostPart::Process, |job| job.run == ended.id)?;
        kept.iter().try_for_each(|file| tx.keep_file(file))?;
        tx.put_run(&Run { finished: Some(at), ..ended.clone() })
    });
    recorded.await?;
    notices.after_commit(&inner.ctx).await;
    Ok(())
}

/// Follows the applies of a run that go on at executors, in the background.
fn follow(inner: &Arc<Inner>, run: Run) {
    inner.drift.count.send_modify(|count| *count += 1);
    let counted = Counted(Arc::clone(inner));
    inner.tasks.spawn(async move {
        let (ctx, cancel) = (&counted.0.ctx, &counted.0.drift.interrupt);
        while let Err(error) = drift::follow(ctx, &run, cancel).await {
            if is_deposed(&error) {
                return;
            }
            tracing::error!(
                run = run.id.as_str(),
                error = format!("{error:#}"),
                "following an apply of a drift run broke off"
            );
            tokio::select! {
                () = tokio::time::sleep(AFTER_BREAK) => {}
                () = cancel.leave.cancelled() => return,
            }
        }
    });
}

fn cut_end(outcome: &Outcome) -> DriftApplyEnd {
    let said = match outcome {
        Outcome::Errored(fault) => fault.message.as_str(),
        _ => INTERRUPTED,
    };
    DriftApplyEnd { output: String::new(), error: Some(format!("it may have been applied. {said}")) }
}
