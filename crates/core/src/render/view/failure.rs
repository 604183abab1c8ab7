//! Refusals: the blocker, its age and owner, and the next command.

use super::{Maker, Offer};
use crate::domain::ProjectId;
use crate::domain::outcome::{Failure, RequirementCheck};
use crate::domain::ownership::ProjectOwner;
use crate::domain::requirement::Requirement;
use crate::domain::state::LockHolder;
use crate::domain::waiting::PlaceInLine;
use crate::wording;
use serde::Serialize;

/// Maximum number of commands that a refusal lists.
const MAX_COMMANDS: usize = 20;

/// A refusal.
#[derive(Default, Serialize)]
pub(super) struct FailureView {
    kind: &'static str,
    /// The blocker, in a few words.
    pub(super) word: String,
    holder: Option<Holder>,
    owner: Option<OwnerView>,
    /// Place of the pull request in line.
    place: Option<PlaceView>,
    /// Page of the lock.
    lock: String,
    checks: Vec<RequirementCheck>,
    /// Commands that apply its dependencies, or plan unplanned projects.
    missing: Vec<String>,
    /// Number of those left out.
    more: usize,
    /// Command that bypasses the refusal.
    only: String,
    because: String,
}

/// Holder of the lock.
#[derive(Serialize)]
struct Holder {
    number: u64,
    /// `#41 Open SSH through IAP`.
    title: String,
    url: String,
    user: String,
    age: String,
}

/// Place in line: `2nd`, behind the pull request of this number.
#[derive(Serialize)]
struct PlaceView {
    nth: String,
    behind: u64,
}

impl PlaceView {
    fn new(place: &PlaceInLine) -> PlaceView {
        PlaceView { nth: wording::nth(place.number), behind: place.behind.number }
    }
}

/// State of the owner of a project.
#[derive(Serialize)]
struct OwnerView {
    project: ProjectId,
    state: &'static str,
    /// Command to use on its own pull request.
    way_out: String,
}

impl Maker<'_> {
    pub(super) fn failure(&self, failure: &Failure, lock: &str) -> FailureView {
        let simple = |kind, word: &str, because: &str| FailureView {
            kind,
            word: word.to_owned(),
            because: because.to_owned(),
            ..FailureView::default()
        };
        match failure {
            Failure::Locked(holder) => FailureView {
                holder: Some(self.holder(holder)),
                place: holder.place.as_ref().map(PlaceView::new),
                lock: lock.to_owned(),
                ..simple("locked", &format!("locked by {}", self.written(holder)), "")
            },
            Failure::Owned(owner) => {
                let word = format!("owned by {}", self.written(&owner.holder));
                FailureView {
                    holder: Some(self.holder(&owner.holder)),
                    owner: Some(self.owner(owner)),
                    place: owner.place.as_ref().map(PlaceView::new),
                    ..simple("owned", &word, "")
                }
            }
            Failure::Requirements(checks) => {
                let mut unmet: Vec<_> = checks.iter().filter(|c| !c.met).map(|c| wording::unmet(&c.name)).collect();
                unmet.dedup();
                FailureView { checks: checks.clone(), ..simple("requirements", &unmet.join(", "), "") }
            }
            Failure::Dependency { missing } => FailureView {
                missing: missing.iter().map(|label| self.apply_of(label)).collect(),
                ..simple("dependency", "a project that it depends on is not applied", "")
            },
            Failure::NotPlanned { missing } => {
                let command =
                    |project| wording::command_line(&self.options.executable, "plan", Some(project), &[], &[]);
                FailureView {
                    missing: missing.iter().take(MAX_COMMANDS).map(command).collect(),
                    more: missing.len().saturating_sub(MAX_COMMANDS),
                    only: format!("{} apply --only", self.options.executable),
                    ..simple("not_planned", "a changed project has no plan", "")
                }
            }
            Failure::StalePlan { because } => simple("because", "the plan is stale", because),
            Failure::NoPlan { because } if because.is_empty() => {
                simple("because", "there is no plan", "There is no plan that can be applied.")
            }
            Failure::NoPlan { because } => simple("because", "there is no plan", because),
            Failure::Unplanned { because } => simple("because", "it is not planned", because),
            Failure::Cancelled { by } => simple("cancelled", "cancelled", by),
            Failure::EarlierGroupFailed => simple("earlier_group", "an earlier group failed", ""),
            Failure::Refused { reason, because } => simple("because", wording::reason(*reason), because),
        }
    }

    fn apply_of(&self, name: &str) -> String {
        let project = ProjectId { dir: String::new(), workspace: String::new(), name: Some(name.to_owned()) };
        wording::command_line(&self.options.executable, "apply", Some(&project), &[], &[])
    }

    fn owner(&self, owner: &ProjectOwner) -> OwnerView {
        let way_out = owner.state.way_out(&self.options.executable);
        OwnerView { project: owner.project.clone(), state: owner.state.as_str(), way_out }
    }

    /// Formats the pull request as its host does.
    fn written(&self, holder: &LockHolder) -> String {
        if holder.pull.is_branch() {
            return "a drift run".to_owned();
        }
        format!("{}{}", self.options.pull_mark, holder.pull.number)
    }

    fn holder(&self, holder: &LockHolder) -> Holder {
        Holder {
            number: holder.pull.number,
            title: format!("{} {}", self.written(holder), holder.title).trim_end().to_owned(),
            url: holder.url.clone(),
            user: holder.user.to_string(),
            age: wording::age(holder.since, self.options.now),
        }
    }

    /// Returns the commands to use when the blocker is gone.
    pub(super) fn after_failure(&self, failure: &Failure, project: &ProjectId) -> Vec<Offer> {
        match failure {
            Failure::NoPlan { because } if self.names_command(because) => Vec::new(),
            Failure::StalePlan { .. } | Failure::NoPlan { .. } | Failure::Unplanned { .. } => {
                vec![self.offer("Plan first", "plan", Some(project), &[])]
            }
            Failure::Requirements(checks)
                if checks.iter().any(|check| !check.met && check.name == Requirement::Undiverged.name()) =>
            {
                vec![self.offer("After you update the branch", "plan", Some(project), &[])]
            }
            Failure::Cancelled { .. } => {
                self.offer_again("To run it again", &wording::project_flags(project)).into_iter().collect()
            }
            Failure::Locked(blocked) => {
                let when = match blocked.place {
                    // The server plans it by itself.
                    Some(_) => "Or, when the lock is released",
                    None => "When the lock is released",
                };
                self.offer_again(when, &wording::project_flags(project)).into_iter().collect()
            }
            Failure::Owned(blocked) => {
                let when = match blocked.place {
                    Some(_) => "Or, when the project is released",
                    None => "When the project is released",
                };
                self.offer_again(when, &wording::project_flags(project)).into_iter().collect()
            }
            _ => self.offer_again("When this is resolved", &wording::project_flags(project)).into_iter().collect(),
        }
    }
}
