//! Where a project of a pull request stands.

use serde::{Deserialize, Serialize};

/// The status of a project on a pull request; the states are Atlantis'.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are Atlantis'")]
pub enum ProjectState {
    PlanErrored,
    Planned,
    PlannedNoChanges,
    ApplyErrored,
    Applied,
    PlanDiscarded,
    /// Not one of Atlantis': what others did has outdated the plan.
    PlanFell,
    /// Not one of Atlantis': it is planned when what it depends on is applied.
    Deferred,
    /// Not one of Atlantis': the plan is of a part of the project (`-target`). It is no plan without changes, whatever it finds.
    PlannedInPart,
    /// Not one of Atlantis': a plan of a part was applied. That is no apply of the project.
    AppliedInPart,
}

impl ProjectState {
    /// For people.
    pub fn title(self) -> &'static str {
        match self {
            ProjectState::PlanErrored => "plan failed",
            ProjectState::Planned => "planned",
            ProjectState::PlannedNoChanges => "no changes",
            ProjectState::ApplyErrored => "apply failed",
            ProjectState::Applied => "applied",
            ProjectState::PlanDiscarded | ProjectState::PlanFell => "plan discarded",
            ProjectState::Deferred => "waits for another project",
            ProjectState::PlannedInPart => "planned in part",
            ProjectState::AppliedInPart => "applied in part",
        }
    }

    /// Where a project stands after an apply that succeeded; `in_part`: of a plan of a part.
    pub fn after_apply(in_part: bool) -> ProjectState {
        if in_part { ProjectState::AppliedInPart } else { ProjectState::Applied }
    }

    /// Whether nothing is left to apply.
    pub fn is_done(self) -> bool {
        matches!(self, ProjectState::Applied | ProjectState::PlannedNoChanges)
    }
}
