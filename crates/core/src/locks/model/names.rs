//! Names of projects in histories: each pull request lists its projects by its own configuration, by their directory or by a link to it,
//! and changes that. The truth has neither names nor links, as they change nothing real.

use super::super::*;
use super::faults::Fault;
use super::history::{PROJECTS, Place, Simulation, pull_id};
use crate::config::global::GlobalConfig;
use crate::config::repo::{NamedDirectories, parse};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Prefix of a link to a project's directory.
const LINK: &str = "link-";

/// The way in which the configuration of a pull request lists a project.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Listing {
    has_name: bool,
    is_linked: bool,
}

/// A tree in which `link-N` leads to the directory `N`.
struct LinkedTree {
    follows: bool,
}

impl NamedDirectories for LinkedTree {
    fn matching(&self, _: &str) -> Vec<String> {
        Vec::new()
    }

    fn real(&self, dir: &str) -> Option<String> {
        let target = if self.follows { dir.strip_prefix(LINK) } else { None };
        Some(target.unwrap_or(dir).to_owned())
    }
}

type ListedProjects = BTreeMap<(Listing, u8), ProjectId>;

static LISTED: LazyLock<ListedProjects> = LazyLock::new(|| listed(&LinkedTree { follows: true }));
static UNFOLLOWED: LazyLock<ListedProjects> = LazyLock::new(|| listed(&LinkedTree { follows: false }));

/// Returns the projects that the repo config results in for each way to list them.
fn listed(tree: &LinkedTree) -> ListedProjects {
    let rules = GlobalConfig::parse("repos: []", "repos.yaml").unwrap().rules(&pull_id(1).repo, "main");
    let mut all = ListedProjects::new();
    for (has_name, is_linked) in [(false, false), (false, true), (true, false), (true, true)] {
        for project in 0..PROJECTS {
            let dir = if is_linked { format!("{LINK}{project}") } else { project.to_string() };
            let name = if has_name { ", name: other" } else { "" };
            let text = format!("version: 3\nprojects:\n- {{dir: {dir}{name}}}\n");
            let config = parse(&text, "atlantis.yaml", &rules, "main", tree).unwrap();
            all.insert((Listing { has_name, is_linked }, project), config.projects[0].id.clone());
        }
    }
    all
}

/// Returns the number of a project. Returns a number that no project has for the id that stands for unknown projects.
pub(super) fn number_of(project: &ProjectId) -> u8 {
    let dir = project.dir.strip_prefix(LINK).unwrap_or(&project.dir);
    if dir.is_empty() { u8::MAX } else { dir.parse().unwrap() }
}

/// Returns true if another pull request owns the state that an event is about to change, under another name.
pub(super) fn is_under_another_name(event: &LockEvent, owner: &ProjectOwner) -> bool {
    let (LockEvent::ApplyBegins { project, .. } | LockEvent::StateChangeBegins { project, .. }) = event else {
        return false;
    };
    let is_other = owner.holder.pull != project.lock.holder.pull;
    is_other && owner.project.is_same_state(&project.lock.project) && owner.project != project.lock.project
}

/// Removes turns of those who wait for a released project under another name than its owner's.
pub(super) fn turns_go_by_name(follows: &mut Consequences) {
    let freed = follows.changes.iter().filter_map(|change| match change {
        LockChange::Disown(owner) => Some(&owner.project),
        _ => None,
    });
    let freed: Vec<&ProjectId> = freed.collect();
    follows.turns.retain(|(_, project)| freed.is_empty() || freed.contains(&project));
}

/// Keeps the plans of others that an apply invalidates, if their name is another one.
pub(super) fn keep_plans_of_other_names(before: &World, after: &mut World, applied: &ProjectLock) {
    let is_kept = |plan: &&PlanRecord| plan.pull != applied.holder.pull && plan.project != applied.project;
    let gone = before.plans.iter().filter(is_kept).filter(|plan| !after.plans.contains(plan));
    let gone: Vec<PlanRecord> = gone.cloned().collect();
    after.plans.extend(gone);
}

impl Simulation {
    /// Returns a project under the name that the pull request gives it.
    pub(super) fn named(&self, pull: u64, project: u8) -> ProjectId {
        let all = if self.fault == Some(Fault::LinksAreNotFollowed) { &UNFOLLOWED } else { &LISTED };
        let listing = self.listings.get(&(pull, project)).copied().unwrap_or_default();
        all[&(listing, project)].clone()
    }

    /// Changes the name of the project by a new head, or after the merge by a new tip of the base branch.
    pub(super) fn rename(&mut self, pull: u64, project: u8) -> Result<(), String> {
        self.list(pull, project, |listing| listing.has_name = !listing.has_name)
    }

    /// Lists the project by a link, or no longer, in the same way.
    pub(super) fn link(&mut self, pull: u64, project: u8) -> Result<(), String> {
        self.list(pull, project, |listing| listing.is_linked = !listing.is_linked)
    }

    fn list(&mut self, pull: u64, project: u8, change: impl FnOnce(&mut Listing)) -> Result<(), String> {
        let of = self.truth.pulls.get_mut(&pull).unwrap();
        if of.place != Place::Closed && of.is_idle() {
            of.head += 1;
            change(self.listings.entry((pull, project)).or_default());
        }
        self.judge()
    }

    /// Reports names as a plan does before it begins.
    pub(super) fn tell_names(&mut self, pull: u64, projects: &[u8]) -> Result<(), String> {
        let projects = projects.iter().map(|project| self.named(pull, *project)).collect();
        self.event(pull, &LockEvent::ProjectsNamed { pull: pull_id(pull), projects }).map(drop)
    }

    /// Returns the event with its projects under the names that the pull request gives them. Turns keep the name under which it waits.
    pub(super) fn with_names(&self, event: &LockEvent) -> LockEvent {
        let mut event = event.clone();
        let name = |pull: &PullId, project: &mut ProjectId| *project = self.named(pull.number, number_of(project));
        match &mut event {
            LockEvent::PlanBegins { projects, .. } | LockEvent::PlanGoesOn { projects } => {
                for wanted in projects {
                    name(&wanted.lock.holder.pull, &mut wanted.lock.project);
                }
            }
            LockEvent::ApplyBegins { project, .. } | LockEvent::StateChangeBegins { project, .. } => {
                name(&project.lock.holder.pull, &mut project.lock.project);
            }
            LockEvent::NotPlanned { pull, project }
            | LockEvent::StateChanged { pull, project, .. }
            | LockEvent::Satisfied { pull, project, .. } => name(pull, project),
            _ => {}
        }
        event
    }
}
