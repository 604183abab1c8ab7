//! Merge queues: the commit of an entry gets the statuses of its pull requests. A host that requires `atlantis/plan` or `atlantis/apply` of
//! a branch requires them of the queue's commits as well. Nothing is planned or applied for it.
//!
//! An entry stands for the pull request that it adds and for those of the entries below it, down to the branch. It is answered once, when
//! the commands of its own pull request that came before have ended.

use super::actor::fetch_pull;
use super::inner::Inner;
use super::queues::Item;
use super::recorder::Commit;
use crate::domain::command::CommandName;
use crate::domain::state::{Cause, CommitStatus, Effect, StatusState};
use crate::domain::{CommitSha, MergeGroupEvent, PullId, PullRequest};
use crate::render::statuses::Statuses;
use crate::store::View;
use crate::vcs::HostError;
use crate::webhook::EntryBelow;
use anyhow::Result;
use std::sync::Arc;

/// Most entries below one that are judged; GitHub's queues build up to 100 at a time.
const MAX_ENTRIES: usize = 100;

/// Reasons against an entry, for each status.
#[derive(Default)]
struct QueueVerdict {
    pulls: Vec<PullId>,
    plan: Vec<String>,
    apply: Vec<String>,
}

impl QueueVerdict {
    /// Adds a reason to both statuses.
    fn lacks(&mut self, what: String) {
        self.plan.push(what.clone());
        self.apply.push(what);
    }
}

/// Sets the statuses of an entry's commit.
pub(super) async fn answer(inner: &Arc<Inner>, event: &MergeGroupEvent, item: &Item) -> Result<()> {
    let rules = inner.ctx.global.rules(&event.pull.repo, &event.base_branch);
    if !rules.branch_allowed {
        return inner.answer_delivery(&event.pull, &item.cause, None, None).await;
    }
    let verdict = judge(inner, event).await?;
    record_statuses(inner, event, &item.cause, &verdict, "the merge queue is answered").await
}

/// Sets the statuses of an entry whose judgement broke off to failure, so that nobody waits for them.
pub(super) async fn broke(inner: &Arc<Inner>, event: &MergeGroupEvent, cause: &Cause) -> Result<()> {
    let mut verdict = QueueVerdict { pulls: vec![event.pull.clone()], ..QueueVerdict::default() };
    verdict.lacks("the server had an internal error; queue it again".to_owned());
    record_statuses(inner, event, cause, &verdict, "something broke").await
}

/// Records the statuses of an entry's commit with the end of its delivery.
async fn record_statuses(
    inner: &Arc<Inner>,
    event: &MergeGroupEvent,
    cause: &Cause,
    verdict: &QueueVerdict,
    outcome: &'static str,
) -> Result<()> {
    let mut commands = vec![(CommandName::Plan, &verdict.plan)];
    if inner.ctx.settings.allow_commands.contains(&CommandName::Apply) {
        commands.push((CommandName::Apply, &verdict.apply));
    }
    let told = commands.into_iter().map(|(command, lacking)| {
        let status = inner.ctx.statuses.of_queue(command, &verdict.pulls, lacking);
        Effect::Status { commit: event.commit.clone(), status }
    });
    tracing::info!(pull = %event.pull, commit = event.commit.as_str(), lacking = ?verdict.apply, "answers the merge queue");
    Commit::about(&event.pull).posts(told).done(cause, outcome).record(inner).await
}

/// Judges the entry's own pull request and those below.
async fn judge(inner: &Arc<Inner>, event: &MergeGroupEvent) -> Result<QueueVerdict> {
    let mut verdict = QueueVerdict::default();
    let (mut number, mut base) = (event.pull.number, event.base.clone());
    for _ in 0..MAX_ENTRIES {
        let id = PullId { repo: event.pull.repo.clone(), number };
        match fetch_pull(inner, &id).await {
            // Merged by now, and all below it. If the first one is closed, it has left the queue.
            Ok(pull) if !pull.is_open() && !verdict.pulls.is_empty() => return Ok(verdict),
            Ok(pull) => one(inner, &pull, &event.pull, &mut verdict).await?,
            Err(error) => unknown(inner, &inner.ctx.hosts.pull_name(&id), &error, &mut verdict),
        }
        verdict.pulls.push(id);
        let (start, below) = (inner.intake.entry_identities(&event.pull.repo, &base), base.clone());
        let Some(start) = start else {
            verdict.lacks("the host is not configured on this server".to_owned());
            return Ok(verdict);
        };
        let found = inner.ctx.store.read(move |view| view.delivery_beginning(&start)).await?;
        match found.as_ref().and_then(EntryBelow::parse) {
            Some(entry) => (number, base) = (entry.number, entry.base),
            None => {
                bottom(inner, event, &below, &mut verdict).await;
                return Ok(verdict);
            }
        }
    }
    verdict.lacks(format!("more than {MAX_ENTRIES} entries are ahead in the queue"));
    Ok(verdict)
}

fn unknown(inner: &Inner, what: &str, error: &HostError, verdict: &mut QueueVerdict) {
    tracing::warn!("a merge queue is answered without {what}: {error}");
    verdict.lacks(inner.ctx.redactor.redact(&format!("{what} could not be read: {error}")));
}

/// Checks that the lowest entry is built on the branch. Otherwise there is an entry below it that the host did not report.
async fn bottom(inner: &Inner, event: &MergeGroupEvent, commit: &CommitSha, verdict: &mut QueueVerdict) {
    let short = commit.short();
    let asked = async {
        let host = inner.ctx.hosts.for_repo(&event.pull.repo)?;
        host.is_on_branch(&event.pull.repo, commit, &event.base_branch).await
    };
    match asked.await {
        Ok(true) => {}
        Ok(false) => {
            let branch = &event.base_branch;
            verdict.lacks(format!("built on {short}, neither on {branch} nor a known entry; queue it again"));
        }
        Err(error) => unknown(inner, short, &error, verdict),
    }
}

/// Judges one pull request, by the statuses that were decided on its head.
async fn one(inner: &Arc<Inner>, pull: &PullRequest, own: &PullId, verdict: &mut QueueVerdict) -> Result<()> {
    let name = inner.ctx.hosts.pull_name(&pull.id);
    if !pull.is_open() {
        verdict.lacks(format!("{name} is closed"));
        return Ok(());
    }
    if pull.fork && !inner.ctx.settings.allow_fork_prs {
        verdict.lacks(format!("{name} comes from a fork"));
        return Ok(());
    }
    if pull.id != *own && inner.actors.has_command(&pull.id) {
        verdict.lacks(format!("a command of {name} runs; queue it again"));
        return Ok(());
    }
    let (id, head, statuses) = (pull.id.clone(), pull.head.commit.clone(), inner.ctx.statuses.clone());
    let found = inner.ctx.store.read(move |view| {
        let of = |command| decided(view, &statuses, &id, &head, command);
        Ok((of(CommandName::Plan)?, of(CommandName::Apply)?))
    });
    let (plan, apply) = found.await?;
    let short = pull.head.commit.short();
    let lacking = |status: Option<CommitStatus>, done: &str| match status {
        Some(status) if status.state == StatusState::Success => None,
        Some(status) => Some(format!("{name}: {}", status.description)),
        None => Some(format!("{name} is not {done} at {short}")),
    };
    verdict.plan.extend(lacking(plan, "planned"));
    verdict.apply.extend(lacking(apply, "applied"));
    Ok(())
}

/// Returns the status last decided on a head; if none is kept any more, the combined status of the projects.
fn decided(
    view: &View<'_>,
    statuses: &Statuses,
    pull: &PullId,
    head: &CommitSha,
    command: CommandName,
) -> Result<Option<CommitStatus>> {
    let context = statuses.pending(command).context;
    if let Some(decided) = view.decided_statuses(pull, head)?.into_iter().find(|status| status.context == context) {
        return Ok(Some(decided));
    }
    let projects = view.project_statuses(pull)?;
    if projects.is_empty() || projects.iter().any(|project| project.head != *head) {
        return Ok(None);
    }
    Ok(Some(match command {
        CommandName::Apply => statuses.apply(&projects),
        _ => statuses.plan(&projects),
    }))
}
