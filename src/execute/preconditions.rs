//! Preconditions of a job that changes a state: an apply of a pull request or of a drift run, `import` and `state rm`. One function decides
//! on one view of the state: before the job waits for its turn, and again in the commit that it begins with. Events of other pull requests
//! may be recorded in between.

use super::applicable_plans::ApplicablePlans;
use super::auto_apply::{awaited, is_automatic};
use super::cancel::Cancel;
use super::command_run::CommandRun;
use super::context::Context;
use super::merged;
use super::not_run::NotRun;
use super::people::is_one_of;
use super::prepare::Stop;
use crate::config::ProjectConfig;
use crate::config::approvers::Approver;
use crate::config::freeze::FreezeWindow;
use crate::domain::command::CommandName;
use crate::domain::freeze::Freeze;
use crate::domain::outcome::{Failure, Reason};
use crate::domain::state::{ApplyLock, PlanRecord};
use crate::domain::{CommitSha, ProjectId, RepoId, duration};
use crate::store::View;
use anyhow::Result;
use jiff::{SignedDuration, Timestamp};
use std::time::Duration;

/// Preconditions of a change of one project's state.
#[derive(Clone)]
pub(super) struct Preconditions {
    cancel: Cancel,
    repo: RepoId,
    /// Freeze windows that apply to the person who asked, as far as that is known.
    windows: Vec<FreezeWindow>,
    executable: String,
    /// True if the apply lock stops it.
    is_apply: bool,
    /// Refusal of a draft, as the host described the pull request last.
    pub(super) draft: Option<Failure>,
    /// Those of an apply; absent for other changes.
    pub(super) apply: Option<ApplyPreconditions>,
}

/// Preconditions of an apply.
#[derive(Clone)]
pub(super) struct ApplyPreconditions {
    /// The plan, which must still exist.
    pub(super) plan: PlanRecord,
    pub(super) of: PlanOwner,
}

/// Owner of a plan that is applied.
#[derive(Clone)]
pub(super) enum PlanOwner {
    Pull(Box<PullPreconditions>),
    /// A drift run, which applies only projects that no pull request holds.
    DriftRun,
}

/// Preconditions of a pull request that applies a plan.
#[derive(Clone)]
pub(super) struct PullPreconditions {
    pub(super) head: CommitSha,
    pub(super) base_branch: String,
    pub(super) config: ProjectConfig,
    /// Maximum age of the plan; absent for no limit.
    pub(super) max_age: Option<Duration>,
    /// True if it applies unapplied merged changes.
    pub(super) after_merge: bool,
    /// True for an automatic apply, which `cancel` prevents until it begins.
    pub(super) is_automatic: bool,
    /// True if the plan has to change the same as the plan before the merge.
    pub(super) guarded: bool,
    /// True if `undiverged` is among its requirements.
    pub(super) wants_undiverged: bool,
    /// Projects that need no plan, although all others that the pull request changes do: the project itself, and those whose plans this
    /// command has made out of date. Absent if no others need one.
    pub(super) all_planned_but: Option<Vec<ProjectId>>,
    /// Projects that the same command has applied.
    pub(super) applied: Vec<ProjectId>,
    /// The last activity before its requirements were checked; absent before that.
    pub(super) activity: Option<i64>,
}

impl Preconditions {
    /// Loads those of any change of a project's state. Asks the host about teams only during a freeze window.
    ///
    /// # Errors
    ///
    /// The host did not respond: nothing of the project is done then.
    pub(super) async fn load(
        ctx: &Context,
        work: &CommandRun,
        config: &ProjectConfig,
        cancel: &Cancel,
    ) -> Result<Preconditions, Stop> {
        let now = Timestamp::now();
        let mut windows = Vec::new();
        for window in &config.freeze {
            // A person who may apply meanwhile decides to do so: no automatic apply does.
            if window.until(now).is_none()
                || is_automatic(work)
                || !is_one_of(ctx, work, &window.except, "Applies are frozen now (`freeze`)").await?
            {
                windows.push(window.clone());
            }
        }
        let (repo, executable) = (work.pull.id.repo.clone(), ctx.rendering.executable.clone());
        let is_apply = work.command.name == CommandName::Apply;
        Ok(Preconditions { cancel: cancel.clone(), repo, windows, executable, is_apply, draft: None, apply: None })
    }

    /// Creates those of an apply without freeze windows.
    #[cfg(test)]
    pub(super) fn of_apply(cancel: &Cancel, apply: ApplyPreconditions) -> Preconditions {
        let (repo, executable) = (apply.plan.pull.repo.clone(), "atlantis".into());
        let (windows, apply) = (Vec::new(), Some(apply));
        Preconditions { cancel: cancel.clone(), repo, windows, executable, is_apply: true, draft: None, apply }
    }

    /// Checks them on the present state.
    pub(super) async fn check(&self, ctx: &Context) -> Result<(), NotRun> {
        let looked = self.clone();
        let refusal = ctx.store.read(move |view| looked.refusal(view)).await?;
        refusal.map_or(Ok(()), |failure| Err(failure.into()))
    }

    /// Returns the first one that is not met, as a failure.
    pub(super) fn refusal(&self, view: &View<'_>) -> Result<Option<Failure>> {
        let now = Timestamp::now();
        if self.cancel.token.is_cancelled() {
            return Ok(Some(Failure::Cancelled { by: self.cancel.by() }));
        }
        let refused = |reason: Reason, because: String| Ok(Some(Failure::Refused { reason, because }));
        if let Some(freeze) = view.freeze_of(&self.repo)? {
            return refused(Reason::Frozen, frozen_text(&freeze, &self.executable));
        }
        if let Some((window, end)) = self.windows.iter().find_map(|window| window.until(now).map(|end| (window, end))) {
            return refused(Reason::Frozen, window_text(window, end));
        }
        if self.is_apply
            && let Some(lock) = view.apply_lock()?
        {
            return refused(Reason::NotPermitted, apply_lock_text(&lock));
        }
        if let Some(failure) = &self.draft {
            return Ok(Some(failure.clone()));
        }
        match &self.apply {
            None => Ok(None),
            Some(ApplyPreconditions { plan, of: PlanOwner::Pull(of_pull) }) => of_pull.refusal(plan, view, now),
            Some(ApplyPreconditions { plan, of: PlanOwner::DriftRun }) => {
                match view.drift_block(&self.repo, &plan.project)? {
                    Some(_) => refused(Reason::Locked, "a pull request has locked the project meanwhile".to_owned()),
                    None => Ok(None),
                }
            }
        }
    }
}

impl PullPreconditions {
    fn refusal(&self, plan: &PlanRecord, view: &View<'_>, now: Timestamp) -> Result<Option<Failure>> {
        if let Some(failure) = self.unbound(plan).or_else(|| too_old(plan, self.max_age, now)) {
            return Ok(Some(failure));
        }
        if self.is_automatic && !awaited(view, &plan.pull, &plan.head)?.iter().any(|kept| kept.id == plan.id) {
            return Ok(Some(Failure::Cancelled { by: "the automatic apply was cancelled".to_owned() }));
        }
        let known = ApplicablePlans::read(view, &plan.pull, self.after_merge)?;
        if let Some(but) = &self.all_planned_but {
            let mut missing = known.not_planned(&self.head);
            missing.retain(|project| !but.contains(project));
            if !missing.is_empty() {
                return Ok(Some(Failure::NotPlanned { missing }));
            }
        }
        let missing = known.missing(&self.config, &self.applied);
        if !missing.is_empty() {
            return Ok(Some(Failure::Dependency { missing }));
        }
        let checked = self.activity.filter(|_| self.wants_undiverged);
        if let Some(activity) = checked
            && view.closed_since(&plan.pull.repo, activity)?
        {
            let because = "another pull request was merged or closed after the check of `undiverged`".to_owned();
            return Ok(Some(Failure::StalePlan { because }));
        }
        match self.guarded {
            true => Ok(merged::guard(plan, &view.owners_of(&plan.pull)?)),
            false => Ok(None),
        }
    }

    /// Checks invariant 4: commit, base branch and configuration. The tool is checked once it is known.
    fn unbound(&self, plan: &PlanRecord) -> Option<Failure> {
        let because = if plan.head != self.head {
            format!("it was made for commit {}, and the head is now {}", plan.head.short(), self.head.short())
        } else if !plan.base_branch.is_empty() && plan.base_branch != self.base_branch {
            format!(
                "it was made for the base branch `{}`, and the base branch is now `{}`",
                plan.base_branch, self.base_branch
            )
        } else if plan.config_digest != self.config.digest() {
            "the project's configuration (workflow, requirements or version) has changed since".to_owned()
        } else {
            return None;
        };
        Some(Failure::StalePlan { because })
    }
}

/// Maximum time by which a plan of another server may be ahead of this server's clock.
const CLOCKS_DIFFER: SignedDuration = SignedDuration::from_mins(5);

/// Returns the refusal of a plan that is older than permitted, or whose age the clock does not tell. The plan stays: an operator may raise
/// the limit, and a new plan replaces it.
fn too_old(plan: &PlanRecord, limit: Option<Duration>, now: Timestamp) -> Option<Failure> {
    let (age, limit) = (plan.age(now), limit?);
    let ahead = plan.made.duration_since(now);
    if ahead > CLOCKS_DIFFER {
        let because = format!(
            "its creation time is {} in the future by this server's clock, so its age (`plan_max_age`) is unknown. An operator must \
             correct the clock of this server or of the server that planned",
            duration::format(ahead.unsigned_abs())
        );
        return Some(Failure::StalePlan { because });
    }
    (age > limit).then(|| {
        let (age, limit) = (duration::format(age), duration::format(limit));
        let because = format!("it is {age} old, and the limit is {limit} (`plan_max_age`)");
        Failure::StalePlan { because }
    })
}

/// Returns the text about the apply lock.
pub(super) fn apply_lock_text(lock: &ApplyLock) -> String {
    let who = match lock.user.as_str() {
        "" => "somebody",
        "loopback" => "somebody on the server's own machine",
        user => user,
    };
    let why = if lock.reason.is_empty() { String::new() } else { format!(" ({})", lock.reason) };
    let since = lock.since.strftime("%Y-%m-%d %H:%M UTC");
    format!("The apply lock was set by {who} at {since}{why}. An operator can release it on the server's page")
}

/// Returns the text about a freeze by hand and the command that lifts it.
pub(super) fn frozen_text(freeze: &Freeze, executable: &str) -> String {
    format!("{}. To allow applies again, somebody with the right comments `{executable} unfreeze`", freeze.describe())
}

fn window_text(window: &FreezeWindow, end: Timestamp) -> String {
    let why = if window.reason.is_empty() { String::new() } else { format!(" ({})", window.reason) };
    let except: Vec<String> = window.except.iter().map(Approver::describe).collect();
    let except = match except.is_empty() {
        true => String::new(),
        false => format!("; meanwhile only {} may apply", except.join(", ")),
    };
    format!("a freeze window (`freeze`) stops applies of this project until {}{why}{except}", window.format_time(end))
}

#[cfg(test)]
mod tests {
    use super::super::apply::bound::tests::plan;
    use super::*;

    #[test]
    fn a_plan_is_too_old_once_it_is_older_than_the_limit() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let limit = Some(Duration::from_secs(60));
        for (now, limit, refused) in [
            (60, limit, false),
            (61, limit, true),
            (-5, limit, false),
            (61, None, false),
            (-300, limit, false),
            (-301, limit, true),
            (-301, None, false),
        ] {
            assert_eq!(too_old(&plan(), limit, at(now)).is_some(), refused, "{now} {limit:?}");
        }
        let said = too_old(&plan(), limit, at(-3600));
        assert!(
            matches!(said, Some(Failure::StalePlan { because }) if because.contains("clock") && because.contains("1 h"))
        );
    }
}
