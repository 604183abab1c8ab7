//! Page templates, and views that several pages share: ages, durations, totals, pull requests.

use super::answer::{Visit, typed};
use super::assets::Assets;
use super::filters::address;
use crate::domain::command::CommandName;
use crate::domain::duration;
use crate::domain::outcome::PlanSummary;
use crate::domain::state::{JobState, PlanRecord, ProjectState, ProjectStatus};
use crate::domain::{ProjectId, PullId, PullRequest, RepoId};
use axum::response::Response;
use jiff::Timestamp;
use minijinja::value::Serde;
use minijinja::{Environment, Value, context};
use serde::Serialize;
use std::collections::BTreeMap;
use url::form_urlencoded;

/// Version of this program.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

const TEMPLATES: [(&str, &str); 19] = [
    ("api.html", include_str!("../../templates/pages/api.html")),
    ("audit.html", include_str!("../../templates/pages/audit.html")),
    ("base.html", include_str!("../../templates/pages/base.html")),
    ("dashboard.html", include_str!("../../templates/pages/dashboard.html")),
    ("drift.html", include_str!("../../templates/pages/drift.html")),
    ("host.html", include_str!("../../templates/pages/host.html")),
    ("job.html", include_str!("../../templates/pages/job.html")),
    ("lock.html", include_str!("../../templates/pages/lock.html")),
    ("login.html", include_str!("../../templates/pages/login.html")),
    ("parts.html", include_str!("../../templates/pages/parts.html")),
    ("plan.html", include_str!("../../templates/pages/plan.html")),
    ("project.html", include_str!("../../templates/pages/project.html")),
    ("projects.html", include_str!("../../templates/pages/projects.html")),
    ("problem.html", include_str!("../../templates/pages/problem.html")),
    ("pull.html", include_str!("../../templates/pages/pull.html")),
    ("pulls.html", include_str!("../../templates/pages/pulls.html")),
    ("run.html", include_str!("../../templates/pages/run.html")),
    ("runs.html", include_str!("../../templates/pages/runs.html")),
    ("search.html", include_str!("../../templates/pages/search.html")),
];

/// The compiled templates.
pub(super) struct PageTemplates {
    environment: Environment<'static>,
    pub(super) assets: Assets,
}

impl PageTemplates {
    /// Compiles the templates. `pull_marks` has the mark in front of a pull request's number, by the host's name.
    pub(super) fn new(pull_marks: BTreeMap<String, char>) -> PageTemplates {
        let mut environment = Environment::new();
        environment.add_function("pull_name", move |host: &str, number: u64| {
            // Records without a pull request belong to a drift run.
            let of_pull = || format!("{}{number}", pull_marks.get(&host.to_ascii_lowercase()).unwrap_or(&'#'));
            if number == 0 { " a drift run".to_owned() } else { of_pull() }
        });
        environment.set_loader(|name| {
            Ok(TEMPLATES.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned()))
        });
        PageTemplates { environment, assets: Assets::new() }
    }

    /// Renders the page as text.
    pub(super) fn html(&self, template: &str, viewer: &Viewer<'_>, facts: Value) -> anyhow::Result<String> {
        let Viewer { root, person, may_change, can_sign_out, revision } = *viewer;
        let Assets { style, script, theme, icon } = &self.assets;
        let ours = |text: &str| Value::from_safe_string(text.to_owned());
        let [root, style, script, theme, icon] = [root, &style.name, &script.name, &theme.name, &icon.name].map(ours);
        let site = context! {
            here => template, root, style, script, theme, icon, person, may_change, can_sign_out, revision, version => VERSION
        };
        Ok(self.environment.get_template(template)?.render(context! { site, ..facts })?)
    }

    /// Renders the page as a response; templates see `view` as `page`.
    pub(super) fn page(&self, template: &str, visit: &Visit, view: &impl Serialize) -> anyhow::Result<Response> {
        self.render(template, visit, context! { page => Value::from(Serde(view)) })
    }

    /// Renders the page of these facts as a response.
    pub(super) fn render(&self, template: &str, visit: &Visit, facts: Value) -> anyhow::Result<Response> {
        let Visit { root, person, may_change, can_sign_out, revision, .. } = visit;
        let viewer = Viewer { root, person, may_change: *may_change, can_sign_out: *can_sign_out, revision };
        Ok(typed("text/html; charset=utf-8", self.html(template, &viewer, facts)?))
    }
}

/// The viewer of a page.
pub(super) struct Viewer<'a> {
    /// Relative path to `/`.
    pub(super) root: &'a str,
    /// The signed-in person; empty if there is none.
    pub(super) person: &'a str,
    /// True if the page shows buttons for changes.
    pub(super) may_change: bool,
    /// True if the person has a session, which a button ends.
    pub(super) can_sign_out: bool,
    /// Revision of the state that the page shows; empty if it is not kept up to date.
    pub(super) revision: &'a str,
}

/// A time, absolute and relative.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct When {
    pub(super) ago: String,
    pub(super) at: String,
    /// Time in UTC for reading; the script adds the viewer's local time.
    pub(super) utc: String,
}

impl When {
    pub(super) fn new(at: Timestamp, now: Timestamp) -> When {
        When {
            ago: age(now.as_second() - at.as_second()),
            at: at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            utc: at.strftime("%Y-%m-%d %H:%M UTC").to_string(),
        }
    }
}

/// Formats a coarse age: one unit is enough to decide whether something is stale.
pub(super) fn age(seconds: i64) -> String {
    match seconds {
        ..5 => "just now".into(),
        5..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// Formats the duration between two times.
pub(super) fn duration(from: Timestamp, to: Timestamp) -> String {
    match (to.as_second() - from.as_second()).max(0) {
        0 => "under 1 s".into(),
        seconds @ 1..60 => format!("{seconds} s"),
        seconds @ 60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        seconds => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// Formats a number of milliseconds.
pub(super) fn seconds(millis: u64) -> String {
    match millis / 1000 {
        0..60 => format!("{}.{} s", millis / 1000, millis % 1000 / 100),
        seconds => {
            let end = Timestamp::from_second(i64::try_from(seconds).unwrap_or(i64::MAX)).unwrap_or(Timestamp::MAX);
            duration(Timestamp::UNIX_EPOCH, end)
        }
    }
}

/// Formats the time of day, in UTC.
pub(super) fn clock(at: Timestamp) -> String {
    at.strftime("%H:%M:%S").to_string()
}

/// Returns an address for `href`; empty unless it is http(s).
pub(super) fn web_address(url: &str) -> &str {
    if url.starts_with("https://") || url.starts_with("http://") { url } else { "" }
}

/// Drops terminal escapes and characters that change the direction of text.
pub(super) fn shown(text: &str) -> String {
    let plain = |c: &char| {
        !c.is_control() && !matches!(c, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().filter(plain).collect()
}

/// Escapes each part of a path.
fn escaped_path(path: &str) -> String {
    let escaped = |part: &str| {
        let form: String = form_urlencoded::byte_serialize(part.as_bytes()).collect();
        // Only a query has `+` for a space.
        form.replace('+', "%20")
    };
    path.split('/').map(escaped).collect::<Vec<_>>().join("/")
}

/// Returns the address of a pull request's page, relative to `/`.
pub(super) fn pull_address(id: &PullId) -> String {
    format!("pulls/{}", escaped_path(&format!("{}/{}", id.repo, id.number)))
}

/// Returns the address of a project's page, relative to `/`. Names select a project, but its directory and workspace are its state.
pub(super) fn project_address(repo: &RepoId, project: &ProjectId) -> String {
    let path = format!("projects/{}", escaped_path(&repo.to_string()));
    address(&path, &[("dir", &project.dir), ("workspace", &project.workspace)])
}

/// Returns the kind of a job in words.
pub(super) fn kind_words(kind: &str) -> String {
    if kind == CommandName::StateRm.as_str() { "state rm".into() } else { kind.replace('_', " ") }
}

/// A pull request with its link.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct PullView {
    pub(super) host: String,
    pub(super) repo: String,
    pub(super) number: u64,
    pub(super) title: String,
    /// Its page on the host.
    pub(super) url: String,
    /// Its page here, relative to `/`; absent for drift runs.
    pub(super) address: Option<String>,
}

impl PullView {
    pub(super) fn new(id: &PullId, title: &str, url: &str) -> PullView {
        PullView {
            host: id.repo.host.clone(),
            repo: id.repo.full_name(),
            number: id.number,
            title: shown(title),
            url: web_address(url).to_owned(),
            address: (!id.is_branch()).then(|| pull_address(id)),
        }
    }

    /// Builds a view with title and address, if the pull request is known.
    pub(super) fn find(id: &PullId, known: Option<&PullRequest>) -> PullView {
        known.map_or_else(|| PullView::new(id, "", ""), |pull| PullView::new(id, &pull.title, &pull.url))
    }
}

/// A project with its label and location.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ProjectView {
    pub(super) label: String,
    pub(super) dir: String,
    pub(super) workspace: String,
    /// True if the label is the project's name, so that directory and workspace are shown too.
    pub(super) named: bool,
    /// Its page, relative to `/`; absent where the repository is not known.
    pub(super) address: Option<String>,
}

impl ProjectView {
    /// Builds a view with the address of its page.
    pub(super) fn of(repo: &RepoId, project: &ProjectId) -> ProjectView {
        // A merge whose projects are not known yet has no directory.
        let address = (!project.dir.is_empty()).then(|| project_address(repo, project));
        ProjectView { address, ..ProjectView::from(project) }
    }
}

impl From<&ProjectId> for ProjectView {
    fn from(project: &ProjectId) -> ProjectView {
        ProjectView {
            label: shown(&project.label()),
            dir: shown(&project.dir),
            workspace: shown(&project.workspace),
            named: project.name.is_some(),
            address: None,
        }
    }
}

/// A status word with its colour.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct StatusMark {
    pub(super) word: String,
    /// `good`, `bad`, `warn`, `busy` or `quiet`.
    pub(super) tone: &'static str,
    /// Pull request that the word ends with.
    pub(super) pull: Option<PullName>,
}

/// A pull request that is named by its number alone.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct PullName {
    host: String,
    number: u64,
}

impl From<&PullId> for PullName {
    fn from(pull: &PullId) -> PullName {
        PullName { host: pull.repo.host.clone(), number: pull.number }
    }
}

impl StatusMark {
    pub(super) fn new(word: impl Into<String>, tone: &'static str) -> StatusMark {
        StatusMark { word: word.into(), tone, pull: None }
    }
}

impl From<JobState> for StatusMark {
    fn from(state: JobState) -> StatusMark {
        let (word, tone) = match state {
            JobState::Running => ("running", "busy"),
            JobState::Succeeded => ("succeeded", "good"),
            JobState::Failed => ("failed", "bad"),
            JobState::Interrupted => ("interrupted", "warn"),
        };
        StatusMark::new(word, tone)
    }
}

impl From<&ProjectStatus> for StatusMark {
    fn from(status: &ProjectStatus) -> StatusMark {
        if status.was_not_planned() {
            return StatusMark::new("not planned", "warn");
        }
        let tone = match status.state {
            ProjectState::PlanErrored | ProjectState::ApplyErrored => "bad",
            ProjectState::Planned | ProjectState::PlannedInPart => "busy",
            ProjectState::Deferred | ProjectState::AppliedInPart => "warn",
            ProjectState::Applied => "good",
            ProjectState::PlannedNoChanges | ProjectState::PlanDiscarded | ProjectState::PlanInvalidated => "quiet",
        };
        StatusMark::new(status.state.title(), tone)
    }
}

/// A part of a plan's totals: `+1`, and its meaning.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Total {
    pub(super) short: String,
    pub(super) long: String,
    /// `add`, `change`, `destroy` or `other`.
    pub(super) kind: &'static str,
}

/// Returns a plan's totals without zeros.
pub(super) fn totals(summary: &PlanSummary) -> Vec<Total> {
    let parts = [
        (summary.destroy, "−", "to destroy", "destroy"),
        (summary.change, "~", "to change", "change"),
        (summary.add, "+", "to add", "add"),
        (summary.import, "↓", "to import", "other"),
        (summary.forget, "✕", "to forget", "other"),
    ];
    let mut totals: Vec<Total> = parts
        .into_iter()
        .filter(|(count, ..)| *count > 0)
        .map(|(count, sign, words, kind)| Total {
            short: format!("{sign}{count}"),
            long: format!("{count} {words}"),
            kind,
        })
        .collect();
    if totals.is_empty() {
        let words = if summary.outputs_only { "outputs only" } else { "no changes" };
        totals.push(Total { short: words.into(), long: words.into(), kind: "other" });
    }
    totals
}

/// A project of a pull request with its status.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct StatusView {
    pub(super) project: ProjectView,
    pub(super) mark: StatusMark,
    /// Set only if there is a plan that can be applied.
    pub(super) totals: Vec<Total>,
    /// Link of the mark, relative to `/`: a job, or the lock that blocks the project.
    pub(super) link: Option<String>,
    /// Time for which its plan may still be applied, if that is limited.
    pub(super) limit: Option<String>,
}

impl StatusView {
    /// Adds the time limit of the project's plan, if it is among these.
    pub(super) fn with_limit(mut self, status: &ProjectStatus, plans: &[PlanRecord], now: Timestamp) -> StatusView {
        let plan = plans.iter().find(|plan| plan.project == status.project);
        self.limit = plan.filter(|_| !self.totals.is_empty()).and_then(|plan| limit(plan, now));
        self
    }
}

/// Returns the time for which a plan may still be applied, if that is limited.
fn limit(plan: &PlanRecord, now: Timestamp) -> Option<String> {
    let left = plan.max_age?.checked_sub(plan.age(now));
    Some(match left.filter(|left| !left.is_zero()) {
        Some(left) => format!("may be applied for another {}", duration::format(left)),
        None => "too old to be applied: plan again".to_owned(),
    })
}

impl From<&ProjectStatus> for StatusView {
    fn from(status: &ProjectStatus) -> StatusView {
        let open_plan =
            matches!(status.state, ProjectState::Planned | ProjectState::PlannedInPart | ProjectState::ApplyErrored);
        StatusView {
            project: ProjectView::from(&status.project),
            mark: StatusMark::from(status),
            totals: status.summary.as_ref().filter(|_| open_plan).map(totals).unwrap_or_default(),
            link: status.job.as_ref().map(|job| format!("jobs/{job}")),
            limit: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_one_unit() {
        let vectors = [
            (-3, "just now"),
            (0, "just now"),
            (42, "42 s"),
            (60, "1 min"),
            (3599, "59 min"),
            (3600, "1 h"),
            (172_799, "47 h"),
            (172_800, "2 d"),
        ];
        for (seconds, expected) in vectors {
            assert_eq!(age(seconds), expected);
        }
    }

    #[test]
    fn durations_have_two_units_at_most() {
        let start = Timestamp::UNIX_EPOCH;
        for (seconds, expected) in [(0, "under 1 s"), (12, "12 s"), (184, "3 min 4 s"), (7500, "2 h 5 min")] {
            assert_eq!(duration(start, Timestamp::from_second(seconds).unwrap()), expected);
        }
        for (millis, expected) in [(0, "0.0 s"), (3_199, "3.1 s"), (59_999, "59.9 s"), (184_000, "3 min 4 s")] {
            assert_eq!(super::seconds(millis), expected);
        }
    }

    #[test]
    fn totals_name_danger_first_and_leave_zeros_out() {
        let short = |summary: PlanSummary| totals(&summary).into_iter().map(|t| t.short).collect::<Vec<_>>().join(" ");
        assert_eq!(short(PlanSummary { add: 1, destroy: 2, ..PlanSummary::default() }), "−2 +1");
        assert_eq!(short(PlanSummary { change: 3, import: 4, ..PlanSummary::default() }), "~3 ↓4");
        assert_eq!(short(PlanSummary { no_changes: true, ..PlanSummary::default() }), "no changes");
        assert_eq!(short(PlanSummary { outputs_only: true, ..PlanSummary::default() }), "outputs only");
    }

    #[test]
    fn a_pull_request_has_an_address_whatever_its_repository_is_called() {
        let address = |owner: &str, name: &str| {
            let repo = RepoId { host: "dev.azure.com".into(), owner: owner.into(), name: name.into() };
            pull_address(&PullId { repo, number: 7 })
        };
        assert_eq!(address("acme", "infra"), "pulls/dev.azure.com/acme/infra/7");
        assert_eq!(address("acme/Two Words", "a+b#?%"), "pulls/dev.azure.com/acme/Two%20Words/a%2Bb%23%3F%25/7");
    }

    #[test]
    fn only_http_addresses_become_links() {
        assert_eq!(web_address("https://github.com/a/b/pull/1"), "https://github.com/a/b/pull/1");
        assert_eq!(web_address("javascript:alert(1)"), "");
        assert_eq!(web_address("data:text/html,x"), "");
    }
}
