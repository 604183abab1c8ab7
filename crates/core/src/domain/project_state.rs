//! Status of a project of a pull request.

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
    /// Not one of Atlantis': an event elsewhere has invalidated the plan.
    #[serde(rename = "plan_fell")]
    PlanInvalidated,
    /// Not one of Atlantis': the project is planned once its dependencies are applied.
    Deferred,
    /// Not one of Atlantis': the plan is limited to a part of the project (`-target`). It never counts as a plan without changes.
    PlannedInPart,
    /// Not one of Atlantis': a plan of a part was applied. It does not count as an apply of the project.
    AppliedInPart,
}

impl ProjectState {
    /// Returns the text for people.
    pub fn title(self) -> &'static str {
        match self {
            ProjectState::PlanErrored => "plan failed",
            ProjectState::Planned => "planned",
            ProjectState::PlannedNoChanges => "no changes",
            ProjectState::ApplyErrored => "apply failed",
            ProjectState::Applied => "applied",
            ProjectState::PlanDiscarded | ProjectState::PlanInvalidated => "plan discarded",
            ProjectState::Deferred => "waits for another project",
            ProjectState::PlannedInPart => "planned in part",
            ProjectState::AppliedInPart => "applied in part",
        }
    }

    /// Returns the state after an apply that succeeded, of this part of the project or of all of it.
    pub fn after_apply(part: Option<&str>) -> ProjectState {
        if part.is_some() { ProjectState::AppliedInPart } else { ProjectState::Applied }
    }

    /// Returns true if there is nothing left to apply.
    pub fn is_done(self) -> bool {
        matches!(self, ProjectState::Applied | ProjectState::PlannedNoChanges)
    }
}
