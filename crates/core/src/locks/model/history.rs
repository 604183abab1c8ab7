//! Actions of a history, and the truth after them.

use super::super::*;
use super::Numbers;
use super::faults::{self, Fault};
use super::judge;
use super::looks::DuePlan;
use super::merges::UnknownMerge;
use super::names::{Listing, number_of};
use super::plans::Planning;
use super::turns::Replans;
use crate::config::LockScope;
use crate::domain::RepoId;
use crate::domain::outcome::PlanSummary;
use crate::domain::ownership::OwnerState;
use crate::domain::state::{LeftFiles, ProjectState};
use crate::domain::state_address::StateAddress;
use std::collections::{BTreeMap, BTreeSet};

pub(super) const PULLS: u64 = 4;
pub(super) const PROJECTS: u8 = 3;

/// Actions; pull requests and projects by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// A new head that changes these projects, one bit each; `merges_base`: the base branch is merged into it.
    Push {
        pull: u64,
        projects: u8,
        merges_base: bool,
    },
    /// All projects that the pull request changes are planned; projects without changes, and those planned in part, one bit each.
    /// `ends_later`: other actions can come before the plan's end.
    Plan {
        pull: u64,
        empty: u8,
        parts: u8,
        ends_later: bool,
    },
    /// The plan that is being made is recorded.
    Planned {
        pull: u64,
    },
    /// An apply begins with the last plan of the project, in any state.
    ApplyBegins {
        pull: u64,
        project: u8,
        alone: bool,
    },
    /// A look finds the plans that are due for an automatic apply.
    Look {
        pull: u64,
    },
    /// The automatic apply of one of them begins.
    Due {
        pull: u64,
        alone: bool,
    },
    /// The running apply, or other change of the state, ends.
    Ends {
        pull: u64,
        success: bool,
    },
    Import {
        pull: u64,
        project: u8,
    },
    Merge {
        pull: u64,
    },
    Close {
        pull: u64,
    },
    Reopen {
        pull: u64,
    },
    Unlock {
        pull: u64,
        accept_drift: bool,
    },
    /// A person takes all projects that the pull request changes.
    Own {
        pull: u64,
    },
    /// A new head, or a new tip after the merge, gives the project another name.
    Rename {
        pull: u64,
        project: u8,
    },
    /// A new head, or a new tip after the merge, lists the project by a link to its directory, or no longer.
    Link {
        pull: u64,
        project: u8,
    },
    /// The automatic re-plan of the pull request begins; if it has begun, it ends.
    Turn {
        pull: u64,
    },
    /// It is merged into the head branch of the other one.
    Stack {
        pull: u64,
        onto: u64,
    },
    /// It is merged, and its changes are unknown.
    MergeUnseen {
        pull: u64,
    },
    /// The changes of such a merge are known now.
    Known {
        pull: u64,
    },
}

impl Action {
    pub(super) fn random(numbers: &mut Numbers) -> Action {
        let (pull, project) = (1 + numbers.below(PULLS), numbers.below(PROJECTS.into()) as u8);
        match numbers.below(41) {
            0..=1 => {
                let projects = 1 + numbers.below((1 << PROJECTS) - 1) as u8;
                Action::Push { pull, projects, merges_base: numbers.one_in(2) }
            }
            2..=6 => {
                let [empty, parts] = [numbers.below(8), numbers.below(8)].map(|bits| (bits & numbers.below(8)) as u8);
                Action::Plan { pull, empty, parts, ends_later: numbers.one_in(2) }
            }
            7..=12 => Action::ApplyBegins { pull, project, alone: numbers.one_in(4) },
            13..=16 => Action::Ends { pull, success: !numbers.one_in(4) },
            17 => Action::Import { pull, project },
            18..=19 => Action::Merge { pull },
            20 => Action::Close { pull },
            21 => Action::Reopen { pull },
            22 => Action::Unlock { pull, accept_drift: numbers.one_in(2) },
            23 => Action::Own { pull },
            24..=26 => Action::Planned { pull },
            27 | 33..=34 => Action::Turn { pull },
            28 => Action::Stack { pull, onto: 1 + numbers.below(PULLS) },
            29 => Action::MergeUnseen { pull },
            30..=31 => Action::Rename { pull, project },
            32 => Action::Link { pull, project },
            37..=38 => Action::Look { pull },
            39..=40 => Action::Due { pull, alone: numbers.one_in(4) },
            _ => Action::Known { pull },
        }
    }
}

/// State of a pull request on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Open,
    Closed,
    Merged,
}

/// Result of the last command on a project of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Done {
    Applied,
    Empty,
    Not,
}

#[derive(Debug, Clone)]
pub(super) struct PullTruth {
    pub(super) place: Place,
    pub(super) head: u64,
    pub(super) changes: BTreeSet<u8>,
    /// The head of which the changed projects are recorded.
    pub(super) planned: Option<u64>,
    /// Merges that the head contains.
    pub(super) contains: BTreeSet<u64>,
    /// The project whose state it is changing.
    pub(super) running: Option<(u8, bool)>,
    /// The plan that is being made.
    pub(super) planning: Option<Planning>,
}

impl PullTruth {
    /// Returns true if it has no running command.
    pub(super) fn is_idle(&self) -> bool {
        self.running.is_none() && self.planning.is_none()
    }
}

/// Inputs of a plan.
#[derive(Debug, Clone)]
pub(super) struct PlanTruth {
    pub(super) id: PlanId,
    pub(super) head: u64,
    /// Number of changes until then: of the project's state, and of its code on the base branch.
    pub(super) state: u64,
    pub(super) base: u64,
    /// True if the base branch had moved before it was recorded: that does not invalidate it, and an apply detects it.
    pub(super) late: bool,
    /// True if it was recorded while another pull request changed the state. The end of that change invalidates it, and no apply can begin
    /// before.
    pub(super) beside: bool,
    /// True if it is of a part of the project.
    pub(super) is_part: bool,
}

/// The truth, independent of the rules.
#[derive(Debug, Clone, Default)]
pub(super) struct Truth {
    pub(super) pulls: BTreeMap<u64, PullTruth>,
    /// Number of changes: of the projects' states, and of their code on the base branch.
    pub(super) state: BTreeMap<u8, u64>,
    pub(super) base: BTreeMap<u8, u64>,
    /// Pull requests that were merged.
    pub(super) merges: BTreeSet<u64>,
    /// Applied, and on no base branch.
    pub(super) applied: BTreeSet<(u64, u8)>,
    /// On the base branch, and not applied.
    pub(super) owed: BTreeSet<(u64, u8)>,
    pub(super) done: BTreeMap<(u64, u8), (u64, Done)>,
    /// The last plan of each pull request and project.
    pub(super) plans: BTreeMap<(u64, u8), PlanTruth>,
    /// Plans that an apply has used.
    pub(super) used: BTreeSet<PlanId>,
    /// Pull requests that wait for each project, in order.
    pub(super) lines: BTreeMap<u8, Vec<u64>>,
    /// Merges whose changes are unknown.
    pub(super) unknown: BTreeMap<u64, UnknownMerge>,
    /// The last plan of each head, pull request and project.
    pub(super) of_heads: BTreeMap<(u64, u64, u8), PlanId>,
}

impl Truth {
    pub(super) fn plan_is_stale(&self, project: u8, plan: &PlanTruth) -> bool {
        plan.state != self.state[&project] || self.base_has_moved(project, plan)
    }

    pub(super) fn base_has_moved(&self, project: u8, plan: &PlanTruth) -> bool {
        plan.base != self.base[&project]
    }

    /// Returns true if the state of a project is being changed.
    pub(super) fn is_being_changed(&self, project: u8) -> bool {
        self.pulls.values().any(|of| of.running.is_some_and(|(running, _)| running == project))
    }

    /// Invalidates plans of the project: unused ones count as not made.
    pub(super) fn invalidate_plans(&mut self, project: u8, except: u64) {
        for ((pull, of), plan) in &self.plans {
            if *of == project && *pull != except && !self.used.contains(&plan.id) {
                self.done.insert((*pull, project), (plan.head, Done::Not));
            }
        }
    }
}

/// A history so far.
pub(super) struct Simulation {
    pub(super) fault: Option<Fault>,
    pub(super) world: World,
    pub(super) truth: Truth,
    pub(super) changed: BTreeMap<u64, ChangedProjects>,
    pub(super) seen: BTreeMap<(u64, u8), SeenPlans>,
    pub(super) made: u64,
    pub(super) replans: Replans,
    /// The way in which pull requests list projects, unless by their directory alone.
    pub(super) listings: BTreeMap<(u64, u8), Listing>,
    /// Plans that the last look at each pull request found.
    pub(super) looks: BTreeMap<u64, Vec<DuePlan>>,
}

pub(super) fn pull_id(number: u64) -> PullId {
    PullId { repo: RepoId { host: "h".into(), owner: "acme".into(), name: "infra".into() }, number }
}

pub(super) fn project_id(number: u8) -> ProjectId {
    ProjectId { dir: number.to_string(), workspace: "default".into(), name: None }
}

pub(super) fn holder(pull: u64) -> LockHolder {
    let (title, url, user) = (String::new(), String::new(), "alice".into());
    LockHolder { pull: pull_id(pull), title, url, user, since: Timestamp::UNIX_EPOCH, overdue: None }
}

pub(super) fn head(number: u64) -> CommitSha {
    format!("head-{number}").into()
}

pub(super) fn merge_commit(pull: u64) -> CommitSha {
    format!("merge-{pull}").into()
}

pub(super) fn wanted(pull: u64, project: u8, alone: bool) -> WantedLock {
    let scope = if alone { LockScope::Project } else { LockScope::PullRequest };
    let (repo, project) = (pull_id(pull).repo, project_id(project));
    let lock = ProjectLock {
        repo,
        project,
        holder: holder(pull),
        why: None,
        applied: false,
        address: StateAddress::default(),
    };
    WantedLock { lock, mode: LockMode::Strict(scope) }
}

pub(super) fn plan_record(pull: u64, project: u8, plan: &PlanTruth) -> PlanRecord {
    PlanRecord {
        id: plan.id.clone(),
        pull: pull_id(pull),
        project: project_id(project),
        head: head(plan.head),
        base: "base".into(),
        base_branch: "main".into(),
        config_digest: String::new(),
        tool: String::new(),
        path: None,
        sha256: None,
        summary: PlanSummary::default(),
        made: Timestamp::UNIX_EPOCH,
        job: "planned".into(),
        consumed_by: None,
        left: LeftFiles::default(),
        dependencies: Vec::new(),
        may_depend_on_more: false,
        max_age: None,
        inputs: None,
        changes: None,
        incomparable: None,
        part: plan.is_part.then(|| "-target".to_owned()),
        guards: Vec::new(),
        tree: None,
        auto_apply: crate::domain::AutoApply::Never,
        arguments: Vec::new(),
        // Plans of deleted projects follow the same rules.
        deleted: project % 2 == 1,
    }
}

impl Simulation {
    pub(super) fn new(fault: Option<Fault>) -> Simulation {
        let mut truth = Truth::default();
        for pull in 1..=PULLS {
            // Each of the first heads changes two of the projects.
            let changes = BTreeSet::from([(pull % 3) as u8, ((pull + 1) % 3) as u8]);
            let (place, planned, running, planning) = (Place::Open, None, None, None);
            let (head, contains) = (pull * 1000, BTreeSet::new());
            let one = PullTruth { place, head, changes, planned, contains, running, planning };
            truth.pulls.insert(pull, one);
        }
        for project in 0..PROJECTS {
            truth.state.insert(project, 0);
            truth.base.insert(project, 0);
            truth.lines.insert(project, Vec::new());
        }
        Simulation {
            fault,
            world: World::default(),
            truth,
            changed: BTreeMap::new(),
            seen: BTreeMap::new(),
            made: 0,
            replans: Replans::default(),
            listings: BTreeMap::new(),
            looks: BTreeMap::new(),
        }
    }

    /// Performs the action, unless it cannot happen now.
    pub(super) fn act(&mut self, action: &Action) -> Result<(), String> {
        match *action {
            Action::Push { pull, projects, merges_base } => {
                let merges = self.truth.merges.clone();
                let of = self.truth.pulls.get_mut(&pull).unwrap();
                if of.place == Place::Open && of.is_idle() {
                    of.head += 1;
                    of.changes = (0..PROJECTS).filter(|project| projects & (1 << project) != 0).collect();
                    if merges_base {
                        of.contains = merges;
                    }
                }
                Ok(())
            }
            Action::Plan { pull, empty, parts, ends_later } => self.plan(pull, (empty, parts), ends_later),
            Action::Planned { pull } => self.planned(pull),
            Action::ApplyBegins { pull, project, alone } => self.apply_begins(pull, project, alone),
            Action::Import { pull, project } => self.import(pull, project),
            Action::Look { pull } => self.look(pull),
            Action::Due { pull, alone } => self.due(pull, alone),
            Action::Ends { pull, success } => self.ends(pull, success),
            Action::Merge { pull } => self.merge(pull),
            Action::Close { pull } => self.close(pull),
            Action::Reopen { pull } => self.reopen(pull),
            Action::Unlock { pull, accept_drift } => self.unlock(pull, accept_drift),
            Action::Own { pull } => {
                if self.idle(pull, Place::Open) {
                    let taken = LockEvent::OwnershipTaken { holder: holder(pull), reason: "mine".into() };
                    if self.event(pull, &taken)?.refusal.is_none() {
                        let changed: Vec<_> = self.changed[&pull].strict().map(number_of).collect();
                        self.leaves_free(pull, |project| changed.contains(&project));
                    }
                }
                self.judge()
            }
            Action::Rename { pull, project } => self.rename(pull, project),
            Action::Link { pull, project } => self.link(pull, project),
            Action::Turn { pull } => self.turn(pull),
            Action::Stack { pull, onto } => self.stack(pull, onto),
            Action::MergeUnseen { pull } => self.merge_unseen(pull),
            Action::Known { pull } => self.learn_changes(pull),
        }
    }

    pub(super) fn idle(&self, pull: u64, place: Place) -> bool {
        let of = &self.truth.pulls[&pull];
        of.place == place && of.is_idle()
    }

    /// Returns the consequences of an event by the rules or the fault, after the judge has checked them.
    pub(super) fn event(&mut self, pull: u64, event: &LockEvent) -> Result<Consequences, String> {
        let changed = self.changed.get(&pull).cloned();
        let of_pull = self.seen.iter().filter(|((of, _), _)| *of == pull);
        let seen = of_pull.map(|(_, seen)| seen.clone()).collect();
        let before = World { changed, seen, ..self.world.clone() };
        let event = &self.with_names(event);
        judge::needs_no_more(&before, event, self.fault)?;
        let (after, follows) = faults::step(self.fault, before.clone(), event);
        judge::of_step(&before, &after, &follows, event, self.fault)?;
        self.world = after;
        self.give_turns(&follows.turns);
        for invalidated in &follows.invalidated {
            self.waits(invalidated.plan.pull.number, number_of(&invalidated.plan.project));
        }
        Ok(follows)
    }

    /// Adds an open pull request to the end of a project's line.
    pub(super) fn waits(&mut self, pull: u64, project: u8) {
        let line = self.truth.lines.get_mut(&project).unwrap();
        if self.truth.pulls[&pull].place == Place::Open && !line.contains(&pull) {
            line.push(pull);
        }
    }

    /// Removes a pull request from the lines for these projects.
    pub(super) fn leaves(&mut self, pull: u64, is_meant: impl Fn(u8) -> bool) {
        for (project, line) in &mut self.truth.lines {
            line.retain(|of| *of != pull || !is_meant(*project));
        }
    }

    /// Does the same for those of them that no other pull request has.
    pub(super) fn leaves_free(&mut self, pull: u64, is_meant: impl Fn(u8) -> bool) {
        let free: Vec<u8> = (0..PROJECTS).filter(|project| judge::is_free(self, pull, *project)).collect();
        self.leaves(pull, |project| free.contains(&project) && is_meant(project));
    }

    pub(super) fn set_status(&mut self, pull: u64, project: u8, state: ProjectState) {
        let of_head = head(self.truth.pulls[&pull].head);
        let status = ProjectStatus {
            project: self.named(pull, project),
            state,
            head: of_head,
            summary: None,
            job: None,
            updated: Timestamp::UNIX_EPOCH,
            waits_for: Vec::new(),
        };
        let id = pull_id(pull);
        self.world.statuses.retain(|(of, known)| *of != id || known.project != status.project);
        self.world.statuses.push((id, status));
    }

    /// Returns the projects that a plan of the pull request includes: those that it changes; after the merge, those that it has to apply.
    pub(super) fn plannable(&self, pull: u64) -> Vec<u8> {
        let of = &self.truth.pulls[&pull];
        match of.place {
            Place::Open => of.changes.iter().copied().collect(),
            Place::Closed => Vec::new(),
            // Its changes have to be found first.
            Place::Merged if self.truth.unknown.contains_key(&pull) => Vec::new(),
            Place::Merged => {
                let own = self.world.owners.iter().filter(|owner| owner.holder.pull == pull_id(pull));
                own.map(|owner| number_of(&owner.project)).collect()
            }
        }
    }

    pub(super) fn apply_begins(&mut self, pull: u64, project: u8, alone: bool) -> Result<(), String> {
        let of = self.truth.pulls[&pull].clone();
        let Some(plan) = self.truth.plans.get(&(pull, project)).cloned() else { return Ok(()) };
        // The head is compared before the transaction, and the host is asked for the base branch. A merged pull request is planned and
        // applied while it has unapplied changes.
        let owes = self.plannable(pull).contains(&project);
        let is_late = plan.late && self.truth.base_has_moved(project, &plan);
        if !of.is_idle()
            || plan.head != of.head
            || (is_late && self.fault != Some(Fault::AppliesDoNotAskForTheBase))
            || of.place == Place::Closed
            || (of.place == Place::Merged && !owes)
        {
            return Ok(());
        }
        let project_wanted = wanted(pull, project, alone);
        let event = LockEvent::ApplyBegins { plan: plan.id.clone(), job: "job".into(), project: project_wanted };
        let follows = self.event(pull, &event)?;
        if let Some(refusal) = follows.refusal {
            if let LockRefusal::OwnedBy(owner) = &refusal {
                let of =
                    if owner.is_unknown() { self.kept_from(pull, project, alone) } else { number_of(&owner.project) };
                self.waits(pull, of);
            }
            judge::leads_out(self, &refusal, pull)?;
            return self.judge();
        }
        let own = self.world.owners.iter().filter(|owner| owner.holder.pull == pull_id(pull));
        let own: Vec<u8> = own.map(|owner| number_of(&owner.project)).collect();
        self.leaves_free(pull, |of| own.contains(&of));
        judge::may_apply(self, pull, project, Some(&plan))?;
        self.truth.used.insert(plan.id);
        self.begun(pull, project, alone, true)
    }

    /// Returns the project, or the first one that its apply would own too, that is not free.
    fn kept_from(&self, pull: u64, project: u8, alone: bool) -> u8 {
        let changed = self.changed.get(&pull).into_iter().flat_map(|changed| changed.strict());
        let own = self.world.owners.iter().filter(|owner| owner.holder.pull == pull_id(pull));
        let more: BTreeSet<u8> = changed.chain(own.map(|owner| &owner.project)).map(number_of).collect();
        let mut wanted = [project].into_iter().chain(more.into_iter().filter(|_| !alone));
        wanted.find(|project| !judge::is_free(self, pull, *project)).unwrap_or(project)
    }

    fn import(&mut self, pull: u64, project: u8) -> Result<(), String> {
        if !self.idle(pull, Place::Open) || self.truth.pulls[&pull].planned.is_none() {
            return Ok(());
        }
        self.tell_names(pull, &[project])?;
        let of_head = head(self.truth.pulls[&pull].head);
        let event =
            LockEvent::StateChangeBegins { project: wanted(pull, project, true), job: "job".into(), head: of_head };
        let follows = self.event(pull, &event)?;
        if let Some(refusal) = follows.refusal {
            return judge::leads_out(self, &refusal, pull);
        }
        judge::may_apply(self, pull, project, None)?;
        self.begun(pull, project, true, false)
    }

    fn begun(&mut self, pull: u64, project: u8, alone: bool, applies: bool) -> Result<(), String> {
        self.truth.invalidate_plans(project, pull);
        *self.truth.state.get_mut(&project).unwrap() += 1;
        self.truth.pulls.get_mut(&pull).unwrap().running = Some((project, applies));
        if self.truth.pulls[&pull].place == Place::Open {
            self.truth.applied.insert((pull, project));
        }
        let at_head = self.truth.pulls[&pull].head;
        // No earlier apply shows the present infrastructure.
        self.truth.done.insert((pull, project), (at_head, Done::Not));
        if applies {
            self.set_status(pull, project, ProjectState::ApplyErrored);
        }
        judge::owns_all(self, pull, alone)?;
        self.judge()
    }

    fn ends(&mut self, pull: u64, success: bool) -> Result<(), String> {
        let Some((project, applies)) = self.truth.pulls[&pull].running else { return Ok(()) };
        let at = Timestamp::UNIX_EPOCH;
        self.truth.pulls.get_mut(&pull).unwrap().running = None;
        for planning in self.truth.pulls.values_mut().filter_map(|other| other.planning.as_mut()) {
            planning.meanwhile.push((pull, project));
        }
        // Its own plan of the project is out of date as well.
        if let Some(plan) = self.truth.plans.get(&(pull, project)).filter(|plan| !self.truth.used.contains(&plan.id)) {
            self.truth.done.insert((pull, project), (plan.head, Done::Not));
        }
        self.truth.invalidate_plans(project, pull);
        *self.truth.state.get_mut(&project).unwrap() += 1;
        let (id, of_project) = (pull_id(pull), self.named(pull, project));
        if self.world.plans.iter().any(|plan| plan.pull == id && plan.project == of_project) {
            self.set_status(pull, project, ProjectState::PlanDiscarded);
        }
        self.event(pull, &LockEvent::StateChanged { pull: id, project: of_project, outputs: false, at })?;
        if !applies {
            return self.judge();
        }
        let of = self.truth.pulls[&pull].clone();
        if success && self.applies_part(pull, project) {
            return self.part_is_applied(pull, project);
        }
        if success {
            self.set_status(pull, project, ProjectState::Applied);
            self.truth.done.insert((pull, project), (of.head, Done::Applied));
            let contains = if of.place == Place::Merged { &self.truth.merges } else { &of.contains };
            let is_there = |(other, of): &(u64, u8)| {
                *of == project && (contains.contains(other) || (*other == pull && self.truth.merges.contains(other)))
            };
            let satisfied: Vec<(u64, u8)> = self.truth.owed.iter().copied().filter(is_there).collect();
            let merges: Vec<CommitSha> = contains.iter().map(|merge| merge_commit(*merge)).collect();
            for one in satisfied {
                self.truth.owed.remove(&one);
            }
            let (pull_name, project) = (pull_id(pull), project_id(project));
            self.event(pull, &LockEvent::Satisfied { pull: pull_name, project, merges, alone: true })?;
        } else if self.fault == Some(Fault::FailedApplySatisfies) {
            let merges: Vec<CommitSha> = self.truth.merges.iter().map(|merge| merge_commit(*merge)).collect();
            self.event(
                pull,
                &LockEvent::Satisfied { pull: pull_id(pull), project: project_id(project), merges, alone: true },
            )?;
        }
        self.judge()
    }

    fn merge(&mut self, pull: u64) -> Result<(), String> {
        self.stop_plan(pull);
        if !self.idle(pull, Place::Open) {
            return Ok(());
        }
        let of = self.truth.pulls[&pull].clone();
        let is_done = |project: u8| {
            let done = self.truth.done.get(&(pull, project));
            done.is_some_and(|(at, done)| *at == of.head && *done != Done::Not)
        };
        let mut touched: BTreeSet<u8> =
            (0..PROJECTS).filter(|project| self.truth.applied.contains(&(pull, *project))).collect();
        if of.planned == Some(of.head) {
            touched.extend(&of.changes);
        } else {
            let own = self.world.owners.iter().filter(|owner| owner.holder.pull == pull_id(pull));
            touched.extend(own.map(|owner| number_of(&owner.project)));
        }
        let owed: Vec<u8> = touched.into_iter().filter(|project| !is_done(*project)).collect();
        let merged = Some(self.merged_as(pull, of.head, MergedInto::Applied));
        self.event(pull, &LockEvent::Closed { pull: pull_id(pull), remarks: Vec::new(), merged })?;
        judge::approves_what_was_merged(self, pull, of.head)?;
        self.closed(pull, Place::Merged);
        self.truth.merges.insert(pull);
        self.truth.owed.extend(owed.into_iter().map(|project| (pull, project)));
        self.base_moves(pull, of.changes)
    }

    /// Applies its changes to the base branch.
    pub(super) fn base_moves(&mut self, pull: u64, changes: BTreeSet<u8>) -> Result<(), String> {
        for project in changes {
            self.truth.invalidate_plans(project, 0);
            *self.truth.base.get_mut(&project).unwrap() += 1;
            let of_project = |plan: &&PlanRecord| number_of(&plan.project) == project;
            let plans: Vec<PlanId> = self.world.plans.iter().filter(of_project).map(|plan| plan.id.clone()).collect();
            let cause = InvalidationCause::BaseMoved { branch: "main".into(), commit: merge_commit(pull) };
            self.event(0, &LockEvent::PlansInvalidated { plans, cause, at: Timestamp::UNIX_EPOCH })?;
        }
        // After the merge it runs on the base branch.
        self.truth.pulls.get_mut(&pull).unwrap().head += 500;
        self.judge()
    }

    pub(super) fn closed(&mut self, pull: u64, place: Place) {
        self.leaves(pull, |_| true);
        self.truth.pulls.get_mut(&pull).unwrap().place = place;
        self.truth.pulls.get_mut(&pull).unwrap().planned = None;
        self.changed.remove(&pull);
        self.world.statuses.retain(|(of, _)| *of != pull_id(pull));
        for project in 0..PROJECTS {
            self.truth.done.remove(&(pull, project));
            self.truth.plans.remove(&(pull, project));
            if place == Place::Merged {
                self.truth.applied.remove(&(pull, project));
            }
        }
    }

    fn close(&mut self, pull: u64) -> Result<(), String> {
        self.stop_plan(pull);
        if self.idle(pull, Place::Open) {
            self.event(pull, &LockEvent::Closed { pull: pull_id(pull), remarks: Vec::new(), merged: None })?;
            self.closed(pull, Place::Closed);
        }
        self.judge()
    }

    fn reopen(&mut self, pull: u64) -> Result<(), String> {
        if self.idle(pull, Place::Closed) {
            self.event(pull, &LockEvent::Reopened { pull: pull_id(pull) })?;
            self.truth.pulls.get_mut(&pull).unwrap().place = Place::Open;
        }
        self.judge()
    }

    fn unlock(&mut self, pull: u64, accept_drift: bool) -> Result<(), String> {
        if !self.truth.pulls[&pull].is_idle() {
            return Ok(());
        }
        let by = AuditEntry { who: "bob".into(), act: "unlock".into(), ..AuditEntry::default() };
        self.event(pull, &LockEvent::Unlocked { pull: pull_id(pull), only: None, accept_drift, by })?;
        self.leaves(pull, |_| true);
        for project in 0..PROJECTS {
            if let Some(plan) =
                self.truth.plans.remove(&(pull, project)).filter(|plan| !self.truth.used.contains(&plan.id))
            {
                self.truth.done.insert((pull, project), (plan.head, Done::Not));
            }
            if accept_drift {
                self.truth.unknown.remove(&pull);
                self.truth.applied.remove(&(pull, project));
                self.truth.owed.remove(&(pull, project));
            }
        }
        self.judge()
    }

    pub(super) fn judge(&self) -> Result<(), String> {
        judge::of_state(self)
    }
}

/// Returns the state of an owner that the truth requires.
pub(super) fn state_of(truth: &Truth, pull: u64, project: u8) -> Option<OwnerState> {
    if truth.owed.contains(&(pull, project)) {
        return Some(OwnerState::MergedUnapplied);
    }
    let is_applied = truth.applied.contains(&(pull, project));
    match truth.pulls[&pull].place {
        Place::Open if is_applied => Some(OwnerState::AppliedUnmerged),
        Place::Closed if is_applied => Some(OwnerState::ClosedApplied),
        _ => None,
    }
}

impl Simulation {
    pub(super) fn fault(&self) -> Option<Fault> {
        self.fault
    }

    /// Returns the owner that would refuse a change of this project by this pull request now.
    pub(super) fn refused_alone(&self, pull: u64, project: u8) -> Option<ProjectOwner> {
        let head = self.truth.pulls[&pull].head;
        let (id, late, beside, is_part) = ("trial".into(), false, false, false);
        let plan = PlanTruth { id, head, state: 0, base: 0, late, beside, is_part };
        let mut world = World { changed: self.changed.get(&pull).cloned(), ..self.world.clone() };
        let named = self.named(pull, project);
        world.plans = vec![PlanRecord { project: named, ..plan_record(pull, project, &plan) }];
        let event = LockEvent::ApplyBegins { plan: plan.id, job: "job".into(), project: wanted(pull, project, true) };
        match faults::step(self.fault, world, &self.with_names(&event)).1.refusal {
            Some(LockRefusal::OwnedBy(owner)) => Some(*owner),
            _ => None,
        }
    }
}
