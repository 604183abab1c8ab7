//! Automatic applies: a project is applied without a command once its pull request is approved, or once all requirements of the apply are
//! met.

use super::follow_up::own_delivery;
use super::state::Delivery;
use super::{Event, ProjectId, PullId};
use serde::{Deserialize, Serialize};

/// `auto_apply.when`: the event after which a project is applied without a command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AutoApply {
    /// A person has to apply it.
    #[default]
    Never,
    /// Somebody approved the plan, and all requirements are met.
    Approved,
    /// All requirements are met, whoever caused that.
    Met,
}

impl AutoApply {
    /// Returns true if only a person applies the project.
    pub fn is_never(&self) -> bool {
        *self == AutoApply::Never
    }

    /// Returns the stricter of two values: of the time of the plan, and of the time of the apply.
    #[must_use]
    pub fn and(self, other: AutoApply) -> AutoApply {
        match (self, other) {
            (AutoApply::Never, _) | (_, AutoApply::Never) => AutoApply::Never,
            (AutoApply::Met, AutoApply::Met) => AutoApply::Met,
            _ => AutoApply::Approved,
        }
    }
}

/// A pull request may have plans whose automatic apply is due. No host delivers it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AutoApplyEvent {
    /// The pull request.
    pub pull: PullId,
}

impl AutoApplyEvent {
    /// Returns the delivery that records it. `cause` names the event that it follows from, so that one cause queues it only once.
    pub fn delivery(pull: &PullId, cause: &str) -> Delivery {
        own_delivery(pull, &format!("auto:{cause}"), Event::AutoApply(AutoApplyEvent { pull: pull.clone() }))
    }
}

/// Part of a planned project in automatic applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// It has nothing to apply.
    Done,
    /// It is to be applied automatically, and nothing speaks against that.
    Ready,
    /// A person has to apply it, or something has to happen before.
    Waits,
}

/// A planned project of a pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedProject {
    /// The project.
    pub project: ProjectId,
    /// Position of its order group; groups are applied in ascending order.
    pub group: usize,
    /// Its part.
    pub readiness: Readiness,
}

/// Returns the projects whose automatic apply is due: those that are ready, unless a project of an earlier group waits.
pub fn due(projects: &[PlannedProject]) -> Vec<ProjectId> {
    let waits = projects.iter().filter(|one| one.readiness == Readiness::Waits);
    let first = waits.map(|one| one.group).min();
    let is_due =
        |one: &&PlannedProject| one.readiness == Readiness::Ready && first.is_none_or(|first| one.group <= first);
    projects.iter().filter(is_due).map(|one| one.project.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn planned(dir: usize, group: usize, readiness: Readiness) -> PlannedProject {
        let project = ProjectId { dir: dir.to_string(), workspace: "default".into(), name: None };
        PlannedProject { project, group, readiness }
    }

    proptest! {
        #[test]
        fn what_is_due_is_ready_and_behind_nothing_that_waits(
            listed in proptest::collection::vec((0..4_usize, 0..3_usize), 0..8)
        ) {
            const ALL: [Readiness; 3] = [Readiness::Done, Readiness::Ready, Readiness::Waits];
            let projects: Vec<_> =
                listed.iter().enumerate().map(|(dir, (group, readiness))| planned(dir, *group, ALL[*readiness])).collect();
            let due = due(&projects);
            for one in &projects {
                let is_behind = projects.iter().any(|other| other.readiness == Readiness::Waits && other.group < one.group);
                prop_assert_eq!(due.contains(&one.project), one.readiness == Readiness::Ready && !is_behind);
            }
        }
    }

    #[test]
    fn the_stricter_value_counts() {
        use AutoApply::{Approved, Met, Never};
        for (one, other, both) in [
            (Never, Met, Never),
            (Approved, Never, Never),
            (Met, Approved, Approved),
            (Approved, Approved, Approved),
            (Met, Met, Met),
        ] {
            assert_eq!((one.and(other), other.and(one)), (both, both));
        }
    }
}
