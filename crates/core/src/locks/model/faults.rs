//! Rules that are wrong on purpose, each in one respect.

use super::super::*;
use super::{merges, names, parts};
use crate::domain::ownership::OwnerState;
use crate::domain::state::ProjectState;

macro_rules! faults {
    ($($(#[doc = $text:literal])* $name:ident,)*) => {
        /// What can be wrong with the rules.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Fault { $($(#[doc = $text])* $name,)* }
        impl Fault { pub(super) const ALL: [Fault; [$(Fault::$name),*].len()] = [$(Fault::$name),*]; }
    };
}

faults! {
    /// An apply owns its own project alone, whatever the scope.
    OwnsOneOfAll,
    /// Owners that are not merged keep nobody out.
    OpenOwnersAreIgnored,
    /// What is merged and not applied keeps nobody out.
    MergedOwnersAreIgnored,
    /// Two pull requests that are merged apply at the same time.
    RunningAppliesAreIgnored,
    /// Who is refused takes what is free all the same.
    RefusedTakesTheRest,
    /// An apply does not make plans of others fall.
    PlansOutliveTheBeginning,
    /// Plans that others made while an apply ran outlive its end.
    PlansOutliveTheEnd,
    /// Plans outlive what others have changed while they were made; played by the history.
    PlansOutliveWhatEndedMeanwhile,
    /// Applies do not ask whether the base branch moved while the plan was made; played by the history.
    AppliesDoNotAskForTheBase,
    /// Plans outlive a base branch that has moved.
    PlansOutliveTheBase,
    /// A plan that was applied can be applied again.
    PlansAreUsedTwice,
    /// Closing frees what was applied.
    ClosingFrees,
    /// Closing keeps what was only planned.
    ClosingKeepsAll,
    /// Merging frees what was not applied.
    MergingFrees,
    /// Merging takes nothing that nobody had taken before.
    MergingTakesNothing,
    /// Merging believes what was applied of an earlier head.
    MergingTakesOldHeads,
    /// Merging takes a failed apply for one that succeeded.
    MergingTakesFailures,
    /// Merging takes a plan for an apply.
    MergingTakesPlans,
    /// Merging takes a discarded plan for an empty one.
    MergingTakesDiscarded,
    /// Merging approves the last plan of any head.
    MergingApprovesOtherHeads,
    /// Merging approves no plan.
    MergingApprovesNothing,
    /// Merging keeps what was applied as merged.
    MergingKeepsAll,
    /// `unlock` frees what was applied.
    UnlockFreesAll,
    /// `unlock --accept-drift` frees no more than `unlock`.
    DriftIsNotAccepted,
    /// `unlock` frees what others own.
    UnlockFreesOthers,
    /// Reopening changes nothing.
    ReopeningIsForgotten,
    /// An apply satisfies all that was merged, whether its commit contains it or not.
    AnyApplySatisfies,
    /// An apply satisfies its own pull request alone.
    ApplySatisfiesItselfAlone,
    /// An apply after the merge satisfies nothing.
    NoApplySatisfies,
    /// An apply that failed satisfies what was merged; played by the history.
    FailedApplySatisfies,
    /// The apply of a part satisfies what was merged; played by the history.
    PartsSatisfy,
    /// Merging takes the apply of a part for one of everything.
    MergingTakesParts,
    /// Merging takes a plan of a part for one without changes.
    MergingTakesPlansOfParts,
    /// `import` and `state rm` leave it applied what was applied before.
    ImportsLeaveItApplied,
    /// An apply is not noted with the owner.
    ApplyIsNotNoted,
    /// A plan owns what it is of.
    PlansOwn,
    /// An owner waits for what was merged after it.
    OwnersWaitForMerged,
    /// Nobody has a turn when a project gets free.
    WaitersAreForgotten,
    /// The turn is given when a merge frees, and not when a person does.
    UnlockForgetsWaiters,
    /// Who is refused does not wait.
    RefusedDoNotWait,
    /// Whose plan fell does not wait.
    FallenDoNotWait,
    /// Who comes last is the first in line.
    LineIsReversed,
    /// Who is closed waits on.
    ClosedStayInLine,
    /// A plan of what is free does not end the wait.
    PlansDoNotEndTheWait,
    /// A plan ends the wait for what others have.
    PreviewsEndTheWait,
    /// A turn that came too late ends the wait.
    LateTurnsEndTheWait,
    /// A merge into the branch of another pull request is owed.
    StackedMergesOwe,
    /// Changes that were applied in it are nobody's.
    StackedAppliesVanish,
    /// A merge of which it is not known what it changes has changed nothing.
    UnknownMergesAreForgotten,
    /// It keeps nobody out.
    UnknownMergesKeepNobodyOut,
    /// It is ended when it is known, and owes nothing.
    KnownMergesOweNothing,
    /// Owners keep out who calls the project as they do, and nobody else.
    OwnersGoByName,
    /// An apply makes plans of others under its own name fall, and no others.
    PlansFallByName,
    /// A link to the directory of a project is another project.
    LinksAreNotFollowed,
    /// What is owned does not get a project's new name.
    NewNamesAreNotFollowed,
    /// What is owned ends with its name.
    NewNamesFree,
    /// Plans outlive the name of their project.
    PlansOutliveTheirName,
    /// Who waits until it is known what was merged waits for the project of its apply, whichever of its projects is kept.
    UnknownMergesAreWaitedForByTheApplied,
    /// An apply satisfies what was merged under its own name alone.
    AppliesSatisfyByName,
    /// Who waits under another name has no turn.
    TurnsGoByName,
}

/// One step of the rules, with the fault.
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
        (Fault::FallenDoNotWait, LockEvent::ApplyBegins { .. }) if !is_refused => {
            after.waiters.retain(|waiter| before.waiters.contains(waiter));
        }
        (Fault::TurnsGoByName, _) => names::turns_go_by_name(follows),
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

/// Takes owners out that the faulty rules do not see.
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
                        matches!(status.state, ProjectState::PlanDiscarded | ProjectState::PlanFell)
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
        follows.fallen.clear();
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
        (Fault::PlansFallByName, LockEvent::ApplyBegins { project, .. }) if follows.refusal.is_none() => {
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
