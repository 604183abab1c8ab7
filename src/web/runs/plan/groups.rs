//! Changes of a run by project and module. Projects with the same changes are one group.

use super::block::{self, LinesHtml};
use super::texts::{PlanSource, ProjectText};
use super::{ACTIONS, PlanQuery, ROWS, plan_address, rank};
use crate::domain::RepoId;
use crate::domain::outcome::ResourceAction;
use crate::domain::state::JobState;
use crate::plan_text::{LineSign, PlanSection, PlanText, PlannedChange, SectionKind};
use crate::web::jobs::shows_line;
use crate::web::pages::{ProjectView, StatusMark, shown};
use minijinja::Value;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::collections::HashMap;

/// Maximum number of sections that are kept for one page.
const MAX_KEPT: usize = 60_000;
/// Size of a page's changes in bytes, about; the rest is on the next page.
const PAGE_SIZE: usize = 80_000;
/// Size of what surrounds the lines of a change, or of another part.
const FRAME_SIZE: usize = 250;
/// Maximum number of named projects of a group, and of parts of a plan besides its changes.
const MAX_NAMED: usize = 50;
const MAX_PARTS: usize = 10;
/// Maximum number of remarks of a change, and of characters of a remark or a title, and of an address.
const MAX_REMARKS: usize = 5;
const MAX_REMARK: usize = 200;
const MAX_ADDRESS: usize = 500;

/// A change and its place in the order of the page.
struct PlacedChange<'a> {
    rank: usize,
    section: usize,
    change: PlannedChange<'a>,
}

/// Reason for which a project is named on each page.
const DOUBTFUL: &str = "its text may have changes that are not read";

/// Projects with the same changes.
struct PlanGroup<'a> {
    members: Vec<&'a ProjectText>,
    /// Plan of the first one.
    plan: PlanText<'a>,
    /// Its changes, by module, those with the most dangerous change first.
    changes: Vec<PlacedChange<'a>>,
    /// Number of lines of its log if they are those that the page of the log shows.
    lines: Option<usize>,
    /// True if changes may be missing or forged.
    is_doubtful: bool,
}

/// All changes of a run.
pub(super) struct PlanGroups<'a> {
    groups: Vec<PlanGroup<'a>>,
    /// Number of resources for each of [`ACTIONS`].
    counts: [usize; ACTIONS.len()],
    others: Vec<(&'a ProjectText, String)>,
    /// Number of projects with a plan.
    projects: usize,
}

/// A change that meets a query.
pub(super) struct FoundChange<'s> {
    /// Its place in [`ACTIONS`].
    pub(super) rank: usize,
    pub(super) change: PlannedChange<'s>,
    /// Its lines.
    pub(super) text: &'s str,
    /// The projects that have it.
    pub(super) members: &'s [&'s ProjectText],
}

/// A project whose plan has no changes to show.
#[derive(Serialize)]
pub(super) struct UnreadProject {
    project: Option<ProjectView>,
    mark: StatusMark,
    because: String,
    text: String,
    /// Page of its plan alone, if there was no room for it.
    alone: Option<String>,
}

/// A project of a group, and the address of its text.
#[derive(Serialize)]
struct GroupMember {
    project: Option<ProjectView>,
    mark: StatusMark,
    text: String,
}

/// A group on a page.
#[derive(Serialize)]
pub(super) struct PlanGroupView {
    members: Vec<GroupMember>,
    /// Number of all its projects, and of those of the run.
    count: usize,
    of: usize,
    /// Terraform's sentences with the totals.
    totals: Vec<String>,
    /// True if changes may be missing or forged.
    is_doubtful: bool,
    parts: Vec<PartView>,
    /// True if there are more such parts.
    more_parts: bool,
    modules: Vec<ModuleView>,
}

/// Outputs, a note, or lines that were not understood.
#[derive(Serialize)]
struct PartView {
    title: String,
    html: Value,
    more: usize,
    text: String,
}

/// Changes of a module.
#[derive(Serialize)]
struct ModuleView {
    /// Its address; empty for the root module.
    name: String,
    changes: Vec<ChangeView>,
}

/// A change of a resource.
#[derive(Serialize)]
struct ChangeView {
    address: String,
    word: &'static str,
    tone: &'static str,
    remarks: Vec<String>,
    html: Value,
    more: usize,
    text: String,
}

/// The groups of a page.
pub(super) struct PlanRows {
    pub(super) groups: Vec<PlanGroupView>,
    /// Number of changes on the page, and of all that meet the filter.
    pub(super) rows: usize,
    pub(super) found: usize,
}

impl<'a> PlanGroups<'a> {
    /// Reads the texts.
    pub(super) fn new(texts: &'a [ProjectText]) -> PlanGroups<'a> {
        let (groups, others) = Default::default();
        let mut all = PlanGroups { groups, others, counts: [0; ACTIONS.len()], projects: texts.len() };
        let mut known: HashMap<[u8; 32], usize> = HashMap::new();
        let mut kept = 0;
        for project in texts {
            let (text, numbered) = match &project.text {
                PlanSource::Log(text, numbered) if kept < MAX_KEPT => (text, *numbered),
                other => {
                    all.others.push((project, why_unread(other).to_owned()));
                    continue;
                }
            };
            let plan = PlanText::read(text);
            let changes = plan.distinct_changes();
            changes.iter().for_each(|(_, change)| all.counts[rank(change.action)] += 1);
            if changes.is_empty() && beside(&plan).is_empty() {
                let totals = totals(&plan);
                let none = || vec!["its output has no plan that can be read".to_owned()];
                all.others.push((project, if totals.is_empty() { none() } else { totals }.join(" ")));
                continue;
            }
            let next = all.groups.len();
            let is_doubtful = plan.is_doubtful() || project.job.state != JobState::Succeeded;
            let same = if is_doubtful { next } else { *known.entry(digest(&plan)).or_insert(next) };
            if same < next {
                all.groups[same].members.push(project);
            } else {
                kept += plan.sections.len();
                all.groups.push(PlanGroup::new(project, plan, numbered, is_doubtful));
            }
        }
        all.groups.sort_by_key(|group| group.changes.iter().map(|placed| placed.rank).min());
        all
    }

    /// Returns the number of resources for each of [`ACTIONS`], in all projects.
    pub(super) fn counts(&self) -> [usize; ACTIONS.len()] {
        self.counts
    }

    /// Returns the projects without changes to show, `whole` being the first page without a filter. All others have those alone whose changes
    /// are not known, or not all of them.
    pub(super) fn others(&self, repo: &RepoId, whole: bool) -> Vec<UnreadProject> {
        let view = |project: &ProjectText, because: &str| {
            let job = &project.job;
            let is_unread = because == why_unread(&PlanSource::TooLong);
            UnreadProject {
                project: job.project.as_ref().map(|project| ProjectView::of(repo, project)),
                mark: StatusMark::from(job.state),
                because: because.to_owned(),
                text: format!("jobs/{}", job.id),
                alone: job.project.as_ref().filter(|_| is_unread).map(|project| plan_address(&job.run, project)),
            }
        };
        let is_shown = |because: &str| whole || !because.starts_with("No changes.");
        let others = self.others.iter().filter(|(_, because)| is_shown(because));
        let doubtful = self.groups.iter().filter(|group| !whole && group.is_doubtful).map(|group| group.members[0]);
        others
            .map(|(project, because)| view(project, because))
            .chain(doubtful.map(|project| view(project, DOUBTFUL)))
            .collect()
    }

    /// Returns the projects whose changes are not known, or not all of them, each with the reason.
    pub(super) fn incomplete(&self) -> impl Iterator<Item = (&ProjectText, &str)> {
        let unread = self.others.iter().filter(|(_, because)| !because.starts_with("No changes."));
        let doubtful = self.groups.iter().filter(|group| group.is_doubtful);
        let unread = unread.map(|(project, because)| (*project, because.as_str()));
        unread.chain(doubtful.map(|group| (group.members[0], DOUBTFUL)))
    }

    /// Returns the changes that meet the filters of a query, in the order of pages.
    pub(super) fn changes<'s>(&'s self, query: &'s PlanQuery) -> impl Iterator<Item = FoundChange<'s>> {
        let of_group = |group: &'s PlanGroup<'a>| {
            let found = group.changes.iter().filter(|placed| query.has(placed));
            found.map(|placed| FoundChange {
                rank: placed.rank,
                change: placed.change,
                text: group.plan.sections[placed.section].text,
                members: &group.members,
            })
        };
        self.groups.iter().flat_map(of_group)
    }

    /// Returns the page that a query asks for.
    pub(super) fn page(&self, query: &PlanQuery, repo: &RepoId) -> PlanRows {
        let mut page = PlanRows { groups: Vec::new(), rows: 0, found: 0 };
        let mut size = 0;
        let whole = !query.has_filter();
        for group in &self.groups {
            let mut view: Option<PlanGroupView> = None;
            if whole && group.changes.is_empty() && query.from == 0 {
                view = Some(group.view(self.projects, repo, true, &mut size));
            }
            let found = group.changes.iter().filter(|placed| query.has(placed));
            for (place, placed) in found.enumerate() {
                page.found += 1;
                if page.found <= query.from || page.rows >= ROWS || (size >= PAGE_SIZE && page.rows > 0) {
                    continue;
                }
                let view = view.get_or_insert_with(|| group.view(self.projects, repo, whole && place == 0, &mut size));
                let row = group.change(placed);
                size += FRAME_SIZE + 2 * row.address.len() + row.html.as_str().map_or(0, str::len);
                view.add(placed.change.module(), row);
                page.rows += 1;
            }
            page.groups.extend(view);
        }
        page
    }
}

impl PlanQuery {
    /// Returns true if a change meets the filters.
    fn has(&self, placed: &PlacedChange<'_>) -> bool {
        let is_named =
            || self.address.is_empty() || placed.change.address.to_lowercase().contains(&self.address.to_lowercase());
        (self.actions.is_empty() || self.actions.contains(&placed.rank)) && is_named()
    }
}

impl<'a> PlanGroup<'a> {
    fn new(project: &'a ProjectText, plan: PlanText<'a>, numbered: bool, is_doubtful: bool) -> PlanGroup<'a> {
        let mut modules: HashMap<&str, (usize, usize)> = HashMap::new();
        let mut changes = Vec::new();
        for (place, change) in plan.distinct_changes() {
            let rank = rank(change.action);
            let seen = modules.len();
            let worst = modules.entry(change.module()).or_insert((rank, seen));
            worst.0 = worst.0.min(rank);
            changes.push(PlacedChange { rank, section: place, change });
        }
        changes.sort_by_key(|placed| (modules.get(placed.change.module()).copied(), placed.rank));
        let last = plan.sections.last().filter(|_| numbered);
        let lines = last.map(|last| last.line + last.text.lines().count());
        PlanGroup { members: vec![project], plan, changes, lines, is_doubtful }
    }

    /// Returns the address of the text of a section.
    fn text_of(&self, section: &PlanSection<'_>) -> String {
        let log = format!("jobs/{}", self.members[0].job.id);
        match self.lines {
            Some(lines) if shows_line(section.line, lines) => format!("{log}#L{}", section.line + 1),
            _ => format!("{log}/log"),
        }
    }

    /// Returns the group without changes; its other parts only if they are wanted, as long as there is room.
    fn view(&self, of: usize, repo: &RepoId, with_parts: bool, size: &mut usize) -> PlanGroupView {
        let member = |project: &&ProjectText| GroupMember {
            project: project.job.project.as_ref().map(|project| ProjectView::of(repo, project)),
            mark: StatusMark::from(project.job.state),
            text: format!("jobs/{}", project.job.id),
        };
        let (mut parts, mut more_parts) = (Vec::new(), false);
        let shown = if with_parts { beside(&self.plan) } else { Vec::new() };
        for section in shown.into_iter().map(|place| &self.plan.sections[place]) {
            if parts.len() >= MAX_PARTS || *size >= PAGE_SIZE {
                more_parts = true;
                break;
            }
            // The heading of outputs is the title.
            let LinesHtml { html, more } = block::render(section, usize::from(section.kind == SectionKind::Outputs));
            *size += FRAME_SIZE + html.len();
            parts.push(PartView {
                title: title(section),
                html: Value::from_safe_string(html),
                more,
                text: self.text_of(section),
            });
        }
        PlanGroupView {
            members: self.members.iter().take(MAX_NAMED).map(member).collect(),
            count: self.members.len(),
            of,
            totals: totals(&self.plan),
            is_doubtful: self.is_doubtful,
            parts,
            more_parts,
            modules: Vec::new(),
        }
    }

    fn change(&self, placed: &PlacedChange<'_>) -> ChangeView {
        let section = &self.plan.sections[placed.section];
        let PlannedChange { address, action, deposed, said } = placed.change;
        let tells_more =
            matches!(action, None | Some(ResourceAction::Replace | ResourceAction::Forget | ResourceAction::Move));
        let order = match section.sign().filter(|_| action == Some(ResourceAction::Replace)) {
            Some(LineSign::DestroyCreate) => Some("the old one is destroyed first"),
            Some(LineSign::CreateDestroy) => Some("the new one is created first"),
            _ => None,
        };
        let deposed = deposed.map(|id| format!("deposed object {id}"));
        let told = [tells_more.then_some(said), order].into_iter().flatten().map(str::to_owned);
        let remarks = told.chain(deposed).chain(section.remarks().take(MAX_REMARKS).map(str::to_owned));
        let LinesHtml { html, more } = block::render(section, 1 + section.remarks().count().min(MAX_REMARKS));
        let (_, word, tone) = ACTIONS[placed.rank];
        ChangeView {
            address: cut(address, MAX_ADDRESS),
            word,
            tone,
            remarks: remarks.map(|remark| cut(&remark, MAX_REMARK)).collect(),
            html: Value::from_safe_string(html),
            more,
            text: self.text_of(section),
        }
    }
}

impl PlanGroupView {
    fn add(&mut self, module: &str, change: ChangeView) {
        let name = cut(module, MAX_ADDRESS);
        match self.modules.last_mut().filter(|last| last.name == name) {
            Some(last) => last.changes.push(change),
            None => self.modules.push(ModuleView { name, changes: vec![change] }),
        }
    }
}

/// Returns the places of the sections that are shown besides the changes: outputs, notes, and lines within the plan that were not understood.
fn beside(plan: &PlanText<'_>) -> Vec<usize> {
    let is_legend = |section: &PlanSection<'_>| section.kind == SectionKind::Legend;
    let begin = plan.sections.iter().position(is_legend).unwrap_or(usize::MAX);
    let end = plan.sections.iter().rposition(|section| section.kind == SectionKind::Totals).unwrap_or(usize::MAX);
    let is_part = |place: &usize| {
        let section = &plan.sections[*place];
        match section.kind {
            SectionKind::Outputs | SectionKind::Note => true,
            SectionKind::Text => *place > begin && *place < end && section.text.contains(|c: char| c.is_alphanumeric()),
            SectionKind::Change(_) | SectionKind::Legend | SectionKind::Totals => false,
        }
    };
    (0..plan.sections.len()).filter(is_part).collect()
}

/// Returns the reason for which there is nothing to read.
fn why_unread(source: &PlanSource) -> &'static str {
    match source {
        PlanSource::Running => "it still runs; reload in a moment",
        PlanSource::Gone => "its log is gone: logs of old jobs are dropped",
        PlanSource::Log(..) | PlanSource::TooLong => "the plans before it are too long for one page",
    }
}

fn totals(plan: &PlanText<'_>) -> Vec<String> {
    plan.totals().into_iter().map(|line| cut(line, MAX_REMARK)).collect()
}

/// Returns the title of a part: its first line, without the box around a warning or an error.
fn title(section: &PlanSection<'_>) -> String {
    let lines = section.text.lines().map(|line| line.trim_matches(|c| matches!(c, '╷' | '│' | '╵' | ' ')));
    cut(lines.into_iter().find(|line| !line.is_empty()).unwrap_or_default().trim_end_matches(':'), MAX_REMARK)
}

fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", shown(&text[..end])),
        None => shown(text),
    }
}

/// Returns the digest of what a plan changes. Lines in the block of a resource that tell of no change, such as the id of one that stays,
/// are not in it, where all changes have a sign.
fn digest(plan: &PlanText<'_>) -> [u8; 32] {
    use ResourceAction::{Create, Destroy, Replace, Update};
    let mut hash = Sha256::new();
    let shown = beside(plan).into_iter().map(|place| (place, None));
    let changes = plan.distinct_changes().into_iter().map(|(place, change)| (place, change.action));
    let mut told: Vec<(usize, Option<ResourceAction>)> = shown.chain(changes).collect();
    told.sort_by_key(|(place, _)| *place);
    for (place, action) in told {
        let section = &plan.sections[place];
        let mut is_signed = matches!(action, Some(Create | Update | Replace | Destroy));
        let heading = 1 + section.remarks().count();
        for (number, line) in section.lines().enumerate() {
            is_signed &= line.text.trim_end() != "    }";
            let changes = line.sign.is_some() || line.is_value || line.text.contains(" -> ") || line.pieces().len() > 1;
            if !is_signed || number < heading || changes {
                hash.update(line.text);
                hash.update("\n");
            }
        }
        // No line has this character.
        hash.update("\0");
    }
    plan.totals().into_iter().for_each(|line| hash.update(line));
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ProjectId;
    use crate::web::preview_tests::job;

    fn texts(plans: &[(&str, &str)]) -> Vec<ProjectText> {
        let text = |(number, (dir, plan)): (usize, &(&str, &str))| {
            let project = Some(ProjectId { dir: (*dir).into(), workspace: "default".into(), name: None });
            let job = crate::domain::state::Job { project, ..job(number as u8, "plan", JobState::Succeeded, "") };
            ProjectText { job, text: PlanSource::Log((*plan).to_owned(), true) }
        };
        plans.iter().enumerate().map(text).collect()
    }

    fn plan(id: &str, input: &str) -> String {
        format!(
            "Terraform will perform the following actions:\n\n  # a.b will be updated in-place\n  ~ resource \"a\" \"b\" {{\n        id    \
             = \"{id}\"\n      ~ input = \"1\" -> \"{input}\"\n    }}\n\nPlan: 0 to add, 1 to change, 0 to destroy.\n"
        )
    }

    #[test]
    fn projects_with_the_same_changes_are_one_group() {
        let [one, same, other] = [plan("i-1", "2"), plan("i-2", "2"), plan("i-3", "3")];
        let texts = texts(&[("a", &one), ("b", &same), ("c", &other), ("d", "No changes.\n"), ("e", "nothing\n")]);
        let repo = texts[0].job.pull.repo.clone();
        let groups = PlanGroups::new(&texts);
        assert_eq!(groups.groups.iter().map(|group| group.members.len()).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(groups.counts()[rank(Some(ResourceAction::Update))], 3);
        let others: Vec<_> = groups.others.iter().map(|(_, because)| because.as_str()).collect();
        assert_eq!(others, ["No changes.", "its output has no plan that can be read"]);
        assert_eq!(groups.others(&repo, false).len(), 1, "one is not known");
    }

    #[test]
    fn what_is_imported_from_elsewhere_or_may_have_more_is_not_the_same() {
        let import = |id: &str| {
            format!(
                "Terraform will perform the following actions:\n\n  # a.b will be imported\n    resource \"a\" \"b\" {{\n        id = \
                 \"{id}\"\n    }}\n\nPlan: 1 to import, 0 to add, 0 to change, 0 to destroy.\n"
            )
        };
        let [one, other, cut] = [import("i-1"), import("i-2"), plan("i-1", "2").replace("Plan: ", "")];
        let texts = texts(&[("a", &one), ("b", &other), ("c", &one), ("d", &cut), ("e", &cut)]);
        let groups = PlanGroups::new(&texts).groups;
        let doubts: Vec<_> = groups.iter().map(|group| (group.members.len(), group.is_doubtful)).collect();
        assert_eq!(doubts, [(1, true), (1, true), (2, false), (1, false)]);
    }

    #[test]
    fn pages_follow_each_other_and_long_ones_have_fewer_rows() {
        let repo = texts(&[("a", "")])[0].job.pull.repo.clone();
        for (lines, least) in [(0, ROWS), (39, 2)] {
            let block = format!(
                "  + resource \"x\" \"y\" {{\n{}    }}\n",
                format!("      + x = \"{}\"\n", "v".repeat(500)).repeat(lines)
            );
            let changes: String =
                (0..450).map(|n| format!("\n  # module.m{}.x.y[{n}] will be created\n{block}", n % 3)).collect();
            let texts = texts(&[("a", &format!("Terraform will perform the following actions:\n{changes}"))]);
            let groups = PlanGroups::new(&texts);
            let (mut seen, mut query) = (Vec::new(), PlanQuery::default());
            loop {
                let page = groups.page(&query, &repo);
                let modules = page.groups.iter().flat_map(|group| &group.modules);
                let changes: Vec<_> = modules.flat_map(|module| &module.changes).collect();
                let size: usize =
                    changes.iter().map(|change| FRAME_SIZE + change.html.as_str().map_or(0, str::len)).sum();
                assert!(size < PAGE_SIZE + 20_000, "{size}");
                seen.extend(changes.iter().map(|change| change.address.clone()));
                assert!(
                    page.found == 450 && page.rows <= ROWS && (page.rows >= least || seen.len() == 450),
                    "{}",
                    page.rows
                );
                query.from += page.rows;
                if query.from == page.found {
                    break;
                }
            }
            assert_eq!(seen.len(), 450);
            assert_eq!(seen.iter().collect::<std::collections::HashSet<_>>().len(), 450);
            assert!(seen[..150].iter().all(|address| address.starts_with("module.m0.")), "modules stay together");
        }
    }
}
