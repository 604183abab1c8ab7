//! Rules that are wrong on purpose, each in one respect.

use super::super::*;
use super::{merges, names, parts};
use crate::domain::ownership::OwnerState;
use crate::domain::state::ProjectState;

macro_rules! faults {
    ($($(#[doc = $text:literal])* $name:ident,)*) => {
        /// Faults of the rules.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Fault { $($(#[doc = $text])* $name,)* }
        impl Fault { pub(super) const ALL: [Fault; [$(Fault::$name),*].len()] = [$(Fault::$name),*]; }
    };
}

faults! {
    /// An apply owns only its own project, with any scope.
    OwnsOneOfAll,
    /// Owners that are not merged do not block others.
    OpenOwnersAreIgnored,
    /// A merged and unapplied change does not block others.
    MergedOwnersAreIgnored,
    /// Two pull requests that are merged apply at the same time.
    RunningAppliesAreIgnored,
    /// A refused pull request still takes the free projects.
    RefusedTakesTheRest,
    /// An apply does not invalidate plans of others.
    PlansOutliveTheBeginning,
    /// The end of an apply does not invalidate plans that others made while it ran.
    PlansOutliveTheEnd,
    /// A change by others does not invalidate plans that are being made; played by the history.
    PlansOutliveWhatEndedMeanwhile,
    /// Applies do not check if the base branch moved while the plan was made; played by the history.
    AppliesDoNotAskForTheBase,
    /// A move of the base branch does not invalidate plans.
    PlansOutliveTheBase,
    /// A plan that was applied can be applied again.
    PlansAreUsedTwice,
    /// An automatic apply uses a plan that was dropped after the look; played by the history.
    LooksOutlivePlans,
    /// Closing releases applied projects.
    ClosingFrees,
    /// Closing keeps projects that were only planned.
    ClosingKeepsAll,
    /// Merging releases unapplied projects.
    MergingFrees,
    /// Merging takes no project that was not owned before.
    MergingTakesNothing,
    /// Merging counts applies of an earlier head.
    MergingTakesOldHeads,
    /// Merging counts a failed apply as a success.
    MergingTakesFailures,
    /// Merging counts a plan as an apply.
    MergingTakesPlans,
    /// Merging counts a discarded plan as one without changes.
    MergingTakesDiscarded,
    /// Merging approves the last plan of any head.
    MergingApprovesOtherHeads,
    /// Merging approves no plan.
    MergingApprovesNothing,
    /// Merging keeps ownership of projects applied as merged.
    MergingKeepsAll,
    /// `unlock` releases applied projects.
    UnlockFreesAll,
    /// `unlock --accept-drift` releases no more than `unlock`.
    DriftIsNotAccepted,
    /// `unlock` releases projects that others own.
    UnlockFreesOthers,
    /// Reopening changes nothing.
    ReopeningIsForgotten,
    /// An apply satisfies all merges, including those that its commit does not contain.
    AnyApplySatisfies,
    /// An apply satisfies only its own pull request.
    ApplySatisfiesItselfAlone,
    /// An apply after the merge satisfies nothing.
    NoApplySatisfies,
    /// A failed apply satisfies merges; played by the history.
    FailedApplySatisfies,
    /// The apply of a part satisfies merges; played by the history.
    PartsSatisfy,
    /// Merging counts the apply of a part as one of the whole project.
    MergingTakesParts,
    /// Merging counts a plan of a part as one without changes.
    MergingTakesPlansOfParts,
    /// After `import` and `state rm` an earlier apply still counts.
    ImportsLeaveItApplied,
    /// An apply is not recorded with the owner.
    ApplyIsNotNoted,
    /// A plan takes ownership of its projects.
    PlansOwn,
    /// An owner waits for a later merge.
    OwnersWaitForMerged,
    /// No pull request has a turn when a project is released.
    WaitersAreForgotten,
    /// A merge gives turns, but `unlock` does not.
    UnlockForgetsWaiters,
    /// A refused pull request does not wait.
    RefusedDoNotWait,
    /// A pull request whose plan was invalidated does not wait.
    InvalidatedDoNotWait,
    /// The last one in line goes first.
    LineIsReversed,
    /// A closed pull request still waits.
    ClosedStayInLine,
    /// A plan of free projects does not end the wait.
    PlansDoNotEndTheWait,
    /// A plan ends the wait for projects that others have.
    PreviewsEndTheWait,
    /// The end of a late turn ends the wait.
    LateTurnsEndTheWait,
    /// A merge into the branch of another pull request has to be applied.
    StackedMergesOwe,
    /// Changes that were applied in it have no owner.
    StackedAppliesVanish,
    /// A merge with unknown changes counts as one without changes.
    UnknownMergesAreForgotten,
    /// A merge with unknown changes does not block others.
    UnknownMergesKeepNobodyOut,
    /// Once its changes are known, such a merge has none to apply.
    KnownMergesOweNothing,
    /// Owners only block projects with the same name.
    OwnersGoByName,
    /// An apply only invalidates plans of others under its own name.
    PlansInvalidatedByName,
    /// A link to the directory of a project is another project.
    LinksAreNotFollowed,
    /// Ownership does not get a project's new name.
    NewNamesAreNotFollowed,
    /// Ownership ends with the name of its project.
    NewNamesFree,
    /// Plans outlive the name of their project.
    PlansOutliveTheirName,
    /// A pull request that waits for an unknown merge waits for the project of its apply, even if another of its projects is blocked.
    UnknownMergesAreWaitedForByTheApplied,
    /// An apply only satisfies merges under its own name.
    AppliesSatisfyByName,
    /// A pull request that waits under another name has no turn.
    TurnsGoByName,
    /// A re-plan begins for all its projects, even those that others hold.
    TurnsAreNotCheckedAgain,
    /// A queued re-plan only keeps the last turns; played by the history, like the next three.
    QueuedReplansForget,
    /// A re-plan that has begun takes up later turns.
    BegunReplansTakeTurns,
    /// The end of a turn ends the wait for one that has come meanwhile.
    RepeatedTurnsEnd,
    /// A turn of another pull request keeps the wait that the end of a turn ends.
    TurnsOfOthersKeepTheWait,
}

/// Runs one step of the rules, with the fault.
pub(super) fn step(fault: Option<Fault>, mut world: World, event: &LockEvent) -> (World, Consequences) {
    let Some(fault) = fault else { return super::super::step(world, event) };
    let before = world.clone();
    let mut event = event.clone();
    let hidden = hide(fault, &mut world, &event);
    change_event(fault, &before, &mut world, &mut event);
    if is_ignored(fault, &event) {
        return (before, Consequences::default());
    }
    let (mut after, mut follows) = super::super::step(world, &event);
    if !hidden.is_empty() {
        after.owners = hidden.into_iter().chain(after.owners).collect();
    }
    if !matches!(fault, Fault::MergingTakesNothing) && matches!(event, LockEvent::Closed { .. }) {
        after.statuses.clone_from(&before.statuses);
    }
    change_result(fault, &before, &mut after, &mut follows, &event);
    change_lines(fault, &before, &mut after, &mut follows, &event);
    (after, follows)
}

fn change_lines(fault: Fault, before: &World, after: &mut World, follows: &mut Consequences, event: &LockEvent) {
    let is_refused = follows.refusal.is_some();
    match (fault, event) {
        (Fault::UnknownMergesAreWaitedForByTheApplied, LockEvent::ApplyBegins { project, .. }) if matches!(&follows.refusal, Some(LockRefusal::OwnedBy(owner)) if owner.is_unknown()) =>
        {
            let is_new = |waiter: &&mut WaitingPull| !before.waiters.contains(waiter);
            after.waiters.iter_mut().filter(is_new).for_each(|waiter| waiter.project = project.lock.project.clone());
        }
        (Fault::WaitersAreForgotten, _) | (Fault::UnlockForgetsWaiters, LockEvent::Unlocked { .. }) => {
            follows.turns.clear()
        }
        (Fault::RefusedDoNotWait, LockEvent::ApplyBegins { .. }) if is_refused => {
            after.waiters.clone_from(&before.waiters)
        }
        (Fault::InvalidatedDoNotWait, LockEvent::ApplyBegins { .. }) if !is_refused => {
            after.waiters.retain(|waiter| before.waiters.contains(waiter));
        }
        (Fault::TurnsGoByName, _) => names::turns_go_by_name(follows),
        (Fault::TurnsAreNotCheckedAgain, LockEvent::TurnBegins { projects, .. }) => {
            follows.due.clone_from(projects);
            follows.passed.clear();
        }
        (Fault::LineIsReversed, _) => after.waiters.sort_by_key(|waiter| before.waiters.contains(waiter)),
        (Fault::ClosedStayInLine, LockEvent::Closed { .. }) => after.waiters.clone_from(&before.waiters),
        (Fault::PlansDoNotEndTheWait, LockEvent::PlanBegins { .. }) => after.waiters.clone_from(&before.waiters),
        (Fault::PreviewsEndTheWait, LockEvent::PlanBegins { pull, .. })
        | (Fault::LateTurnsEndTheWait, LockEvent::TurnEnds { pull, .. }) => {
            after.waiters.retain(|waiter| waiter.pull != *pull);
        }
        _ => {}
    }
}

fn asking(event: &LockEvent) -> Option<&PullId> {
    match event {
        LockEvent::ApplyBegins { project, .. } | LockEvent::StateChangeBegins { project, .. } => {
            Some(&project.lock.holder.pull)
        }
        _ => None,
    }
}

/// Removes owners that the faulty rules ignore.
fn hide(fault: Fault, world: &mut World, event: &LockEvent) -> Vec<ProjectOwner> {
    let Some(pull) = asking(event) else { return Vec::new() };
    let is_hidden = |owner: &ProjectOwner| {
        let is_merged = owner.state == OwnerState::MergedUnapplied;
        match fault {
            Fault::OpenOwnersAreIgnored => owner.holder.pull != *pull && !is_merged,
            Fault::MergedOwnersAreIgnored => owner.holder.pull != *pull && is_merged,
            Fault::UnknownMergesKeepNobodyOut => owner.is_unknown(),
            Fault::OwnersGoByName => names::is_under_another_name(event, owner),
            _ => false,
        }
    };
    if fault == Fault::RunningAppliesAreIgnored {
        for owner in world.owners.iter_mut().filter(|owner| owner.holder.pull != *pull) {
            owner.applied.iter_mut().for_each(|applied| applied.ended = Some(applied.at));
        }
    }
    let (hidden, seen) = std::mem::take(&mut world.owners).into_iter().partition(is_hidden);
    world.owners = seen;
    hidden
}

fn change_event(fault: Fault, before: &World, world: &mut World, event: &mut LockEvent) {
    match event {
        LockEvent::Unlocked { accept_drift, .. } => match fault {
            Fault::UnlockFreesAll => *accept_drift = true,
            Fault::DriftIsNotAccepted => *accept_drift = false,
            _ => {}
        },
        LockEvent::Satisfied { merges, alone, .. } => match fault {
            Fault::AnyApplySatisfies => {
                *merges = before.owners.iter().filter_map(|owner| owner.merged.clone()).collect();
            }
            Fault::ApplySatisfiesItselfAlone => merges.clear(),
            Fault::AppliesSatisfyByName => *alone = false,
            _ => {}
        },
        LockEvent::MergeKnown { .. } if fault == Fault::KnownMergesOweNothing => world.changed = None,
        LockEvent::Closed { merged: Some(merged), .. } => {
            let is_taken = match merged.into {
                MergedInto::Applied => false,
                MergedInto::HeadOf(_) => fault == Fault::StackedMergesOwe,
                MergedInto::Unknown { .. } => fault == Fault::UnknownMergesAreForgotten,
            };
            if is_taken {
                merged.into = MergedInto::Applied;
            }
            for (_, status) in &mut world.statuses {
                let taken = match fault {
                    Fault::MergingTakesFailures => status.state == ProjectState::ApplyErrored,
                    Fault::MergingTakesPlans => status.state == ProjectState::Planned,
                    Fault::MergingTakesParts => status.state == ProjectState::AppliedInPart,
                    Fault::MergingTakesPlansOfParts => status.state == ProjectState::PlannedInPart,
                    Fault::MergingTakesDiscarded => {
                        matches!(status.state, ProjectState::PlanDiscarded | ProjectState::PlanInvalidated)
                    }
                    _ => false,
                };
                if taken {
                    status.state = ProjectState::Applied;
                }
                if fault == Fault::MergingTakesOldHeads {
                    status.head = merged.head.clone();
                }
            }
            if fault == Fault::MergingTakesNothing {
                world.changed = None;
            }
            if fault == Fault::MergingApprovesOtherHeads {
                let plans = world.seen.iter_mut().flat_map(|seen| &mut seen.plans);
                plans.for_each(|plan| plan.head.clone_from(&merged.head));
            }
            if fault == Fault::MergingApprovesNothing {
                world.seen.clear();
            }
            if fault == Fault::MergingKeepsAll {
                world.statuses.clear();
            }
        }
        _ => {}
    }
}

fn is_ignored(fault: Fault, event: &LockEvent) -> bool {
    match event {
        LockEvent::PlansInvalidated { .. } => fault == Fault::PlansOutliveTheBase,
        LockEvent::Reopened { .. } => fault == Fault::ReopeningIsForgotten,
        LockEvent::ProjectsNamed { .. } => fault == Fault::NewNamesAreNotFollowed,
        LockEvent::Satisfied { .. } => fault == Fault::NoApplySatisfies,
        _ => false,
    }
}

fn change_result(fault: Fault, before: &World, after: &mut World, follows: &mut Consequences, event: &LockEvent) {
    let put_back_plans = |after: &mut World, follows: &mut Consequences| {
        after.plans.clone_from(&before.plans);
        after.statuses.clone_from(&before.statuses);
        follows.invalidated.clear();
    };
    match (fault, event) {
        (Fault::OwnsOneOfAll, LockEvent::ApplyBegins { project, .. }) => {
            let own = |owner: &ProjectOwner| before.owners.contains(owner) || owner.project == project.lock.project;
            after.owners.retain(own);
        }
        (Fault::RefusedTakesTheRest, LockEvent::ApplyBegins { project, .. }) if follows.refusal.is_some() => {
            for changed in before.changed.iter().flat_map(|changed| changed.strict()) {
                if !before.owners.iter().any(|owner| owner.project == *changed) {
                    after.owners.push(planned(project, changed));
                }
            }
        }
        (Fault::PlansOutliveTheBeginning, LockEvent::ApplyBegins { project, .. }) if follows.refusal.is_none() => {
            keep_plans_of_others(before, after, &project.lock.holder.pull);
        }
        (Fault::PlansInvalidatedByName, LockEvent::ApplyBegins { project, .. }) if follows.refusal.is_none() => {
            names::keep_plans_of_other_names(before, after, &project.lock);
        }
        (Fault::NewNamesFree, LockEvent::ProjectsNamed { pull, .. }) => {
            after.owners.retain(|owner| owner.holder.pull != *pull || before.owners.contains(owner));
        }
        (Fault::PlansOutliveTheirName, LockEvent::ProjectsNamed { .. }) => after.plans.clone_from(&before.plans),
        (Fault::PlansOutliveTheEnd, LockEvent::StateChanged { .. }) => put_back_plans(after, follows),
        (Fault::PlansAreUsedTwice, LockEvent::ApplyBegins { plan, .. }) if follows.refusal.is_none() => {
            after.plans.extend(before.plans.iter().find(|known| known.id == *plan).cloned());
        }
        (Fault::ClosingFrees, LockEvent::Closed { pull, merged: None, .. })
        | (Fault::MergingFrees, LockEvent::Closed { pull, merged: Some(_), .. }) => {
            after.owners.retain(|owner| owner.holder.pull != *pull);
        }
        (Fault::ClosingKeepsAll, LockEvent::Closed { merged: None, .. }) => {
            for owner in &before.owners {
                if !after.owners.iter().any(|kept| kept.project == owner.project && kept.holder == owner.holder) {
                    after.owners.push(owner.clone());
                }
            }
        }
        (Fault::StackedAppliesVanish, LockEvent::Closed { .. }) => merges::forget_passed(after, follows),
        (Fault::ImportsLeaveItApplied, LockEvent::StateChangeBegins { .. }) if follows.refusal.is_none() => {
            parts::keep_statuses(before, after);
        }
        (Fault::UnlockFreesOthers, LockEvent::Unlocked { accept_drift: true, .. }) => after.owners.clear(),
        (Fault::ApplyIsNotNoted, LockEvent::ApplyBegins { project, .. }) => {
            for owner in after.owners.iter_mut().filter(|owner| owner.holder.pull == project.lock.holder.pull) {
                let was = before.owners.iter().find(|was| was.project == owner.project && was.holder == owner.holder);
                owner.state = was.map_or(OwnerState::Planned, |was| was.state);
                owner.applied = was.and_then(|was| was.applied.clone());
            }
        }
        (Fault::PlansOwn, LockEvent::PlanBegins { projects, .. }) => {
            for wanted in projects {
                if !before.owners.iter().any(|owner| owner.project == wanted.lock.project) {
                    after.owners.push(planned(wanted, &wanted.lock.project));
                }
            }
        }
        (Fault::OwnersWaitForMerged, LockEvent::ApplyBegins { project, .. }) if follows.refusal.is_none() => {
            if let Some(other) = merged_of_another(before, project) {
                *after = before.clone();
                let refusal = Some(LockRefusal::OwnedBy(Box::new(other.clone())));
                *follows = Consequences { refusal, ..Consequences::default() };
            }
        }
        _ => {}
    }
}

fn keep_plans_of_others(before: &World, after: &mut World, own: &PullId) {
    let others = before.plans.iter().filter(|plan| plan.pull != *own && !after.plans.contains(plan));
    let others: Vec<PlanRecord> = others.cloned().collect();
    after.plans.extend(others);
}

fn merged_of_another<'a>(world: &'a World, wanted: &WantedLock) -> Option<&'a ProjectOwner> {
    world.owners.iter().find(|owner| {
        owner.project == wanted.lock.project
            && owner.holder.pull != wanted.lock.holder.pull
            && owner.state == OwnerState::MergedUnapplied
    })
}

fn planned(wanted: &WantedLock, project: &ProjectId) -> ProjectOwner {
    ProjectOwner {
        repo: wanted.lock.repo.clone(),
        project: project.clone(),
        holder: wanted.lock.holder.clone(),
        state: OwnerState::Planned,
        applied: None,
        merged: None,
        told: None,
        reminder_interval: None,
        approved: None,
        reason: String::new(),
    }
}
