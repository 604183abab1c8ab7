//! Tests of pages with made-up data: their words, and that no data becomes markup. If built with `TIDELOCK_PREVIEW_DIR` set to a folder,
//! the pages are also written there, to be opened as files.

use super::dashboard::{Dashboard, DashboardData, DashboardQuery, MAX_ROWS, ServerState};
use super::jobs::{JobPage, JobPageFacts, LogLines, PageQuery};
use super::locks::LockPage;
use super::pages::{PageTemplates, Viewer};
use crate::domain::freeze::Freeze;
use crate::domain::job_times::JobTimes;
use crate::domain::outcome::PlanSummary;
use crate::domain::ownership::{OwnerState, ProjectOwner};
use crate::domain::policies::{PolicyCheckRecord, PolicySetRecord};
use crate::domain::state::*;
use crate::domain::waiting::{WaitCause, WaitingPull};
use crate::domain::*;
use crate::store::{Found, ListedPull, NeedsAttention};
use jiff::{SignedDuration, Timestamp};
use minijinja::value::Serde;
use minijinja::{Value, context};
use std::collections::{BTreeMap, HashMap};

const HOSTILE: &str = "<script>alert('x')</script> \" ' & ```";

fn now() -> Timestamp {
    "2026-08-24T12:00:00Z".parse().unwrap()
}

fn ago(minutes: i64) -> Timestamp {
    now() - SignedDuration::from_mins(minutes)
}

fn pull_id(number: u64) -> PullId {
    PullId { repo: RepoId { host: "github.com".into(), owner: "acme".into(), name: "infra".into() }, number }
}

fn project(name: &str, dir: &str, workspace: &str) -> ProjectId {
    let name = (!name.is_empty()).then(|| name.to_owned());
    ProjectId { dir: dir.into(), workspace: workspace.into(), name }
}

fn url(number: u64) -> String {
    format!("https://github.com/acme/infra/pull/{number}")
}

pub(super) fn lock(name: &str, dir: &str, workspace: &str, number: u64) -> ProjectLock {
    let id = pull_id(number);
    let holder = LockHolder {
        title: "Open SSH through IAP".into(),
        url: url(number),
        user: "alice".into(),
        since: ago(125),
        overdue: None,
        pull: id,
    };
    ProjectLock {
        repo: holder.pull.repo.clone(),
        project: project(name, dir, workspace),
        holder,
        applied: false,
        why: None,
        address: Default::default(),
    }
}

pub(super) fn pull(number: u64, title: &str) -> PullRequest {
    PullRequest {
        id: pull_id(number),
        title: title.into(),
        url: url(number),
        author: "alice".into(),
        head: Head {
            branch: "ssh-through-iap".into(),
            commit: "3f2c1ab0000000000000000000000000000000aa".into(),
            repo_owner: "acme".into(),
            repo_name: "infra".into(),
            clone_url: None,
        },
        base: Base { branch: "main".into(), commit: "9d0e77c".into() },
        draft: number.is_multiple_of(2),
        state: PullState::Open,
        fork: false,
        labels: Vec::new(),
        repo_size_kib: None,
        clone_url: "https://github.com/acme/infra.git".into(),
    }
}

pub(super) fn status(project: ProjectId, state: ProjectState, add: u64, change: u64, destroy: u64) -> ProjectStatus {
    let summary =
        PlanSummary { add, change, destroy, no_changes: add + change + destroy == 0, ..PlanSummary::default() };
    ProjectStatus {
        project,
        state,
        head: "3f2c1ab0000000000000000000000000000000aa".into(),
        summary: Some(summary),
        job: Some("0123456789abcdef0123456789abcdef".into()),
        updated: ago(3),
        waits_for: Vec::new(),
    }
}

pub(super) fn job(id: u8, kind: &str, state: JobState, summary: &str) -> Job {
    Job {
        id: JobId::from_bits(id.into()),
        run: "ff".repeat(16).into(),
        pull: pull_id(41),
        kind: kind.into(),
        project: (kind != "pre_workflow_hook").then(|| project("network", "infra/network", "prod")),
        user: "alice".into(),
        head: "3f2c1ab0000000000000000000000000000000aa".into(),
        state,
        summary: summary.into(),
        outcome: None,
        started: ago(i64::from(id)),
        finished: (state != JobState::Running).then(|| ago(i64::from(id)) + SignedDuration::from_secs(72)),
        state_lock: Default::default(),
        remote: None,
    }
}

/// Returns a plan of the project `network`, so many hours old, that may be applied for a day.
fn plan(hours: i64) -> PlanRecord {
    PlanRecord {
        id: "p".into(),
        pull: pull_id(41),
        project: project("network", "infra/network", "prod"),
        head: "4444eeee455ff5aaaaabb66ccccccccc7777cccc".into(),
        base: "5555ffff566aa6bbbbbcc77ddddddd888888dddd".into(),
        base_branch: "main".into(),
        config_digest: String::new(),
        tool: String::new(),
        path: None,
        sha256: None,
        summary: PlanSummary::default(),
        made: ago(60 * hours),
        job: "0123456789abcdef0123456789abcdef".into(),
        consumed_by: None,
        left: LeftFiles::default(),
        dependencies: Vec::new(),
        may_depend_on_more: false,
        max_age: Some(std::time::Duration::from_secs(86_400)),
        inputs: None,
        changes: None,
        incomparable: None,
        part: None,
        guards: Vec::new(),
        tree: None,
        auto_apply: crate::domain::AutoApply::Never,
        arguments: Vec::new(),
        deleted: false,
    }
}

/// Returns one page with all rows.
fn found<T>(rows: Vec<T>) -> Found<T> {
    Found { fitting: rows.len(), all: rows.len(), rows }
}

fn listed(number: u64, title: &str, statuses: Vec<ProjectStatus>) -> ListedPull {
    ListedPull { pull: pull(number, title), statuses, fault: None, blocked_by: Vec::new() }
}

fn busy_facts() -> DashboardData {
    let network = status(project("network", "infra/network", "prod"), ProjectState::Planned, 1, 1, 1);
    let dns = status(project("", "infra/dns", "default"), ProjectState::PlanErrored, 0, 0, 0);
    let storage = project("", "infra/storage", "default");
    let waiting = ProjectStatus { job: None, ..status(storage.clone(), ProjectState::PlanErrored, 0, 0, 0) };
    let change = Some(pull(41, "Open SSH through IAP"));
    let of_change = |job: Job| (job, change.clone());
    let at_work = vec![job(1, "apply", JobState::Running, ""), job(2, "plan", JobState::Running, "")];
    DashboardData {
        running: found(at_work.iter().cloned().map(of_change).collect()),
        locks: found(vec![
            (lock("network", "infra/network", "prod", 41), Some(network.clone())),
            (lock("", "infra/dns", "default", 41), Some(dns.clone())),
        ]),
        owners: found(Vec::new()),
        waiters: vec![WaitingPull {
            project: project("", "infra/dns", "default"),
            pull: pull_id(42),
            since: now(),
            cause: WaitCause::Plan,
            address: Default::default(),
        }],
        pulls: found(vec![
            ListedPull {
                fault: Some("`atlantis.yaml`, line 3: unknown key `projets`".into()),
                ..listed(40, "Split the projects", Vec::new())
            },
            listed(41, "Open SSH through IAP", vec![network, dns, status(storage, ProjectState::Applied, 2, 0, 0)]),
            ListedPull {
                blocked_by: vec![lock("", "infra/storage", "default", 41)],
                ..listed(
                    42,
                    "Move the state of the old project to the new bucket, and rename its service accounts",
                    vec![waiting],
                )
            },
        ]),
        plans: HashMap::new(),
        ended: found(
            [
                job(7, "plan", JobState::Succeeded, "1 to add, 1 to change, 1 to destroy"),
                job(9, "plan", JobState::Failed, "init failed: could not load the backend configuration"),
                job(30, "pre_workflow_hook", JobState::Succeeded, ""),
                job(95, "apply", JobState::Interrupted, "interrupted after 38 s; 2 of 5 changes were made"),
            ]
            .into_iter()
            .map(of_change)
            .collect(),
        ),
        at_work,
        apply_lock: None,
        freezes: Vec::new(),
        failures: 2,
        attention: None,
    }
}

fn empty_facts() -> DashboardData {
    DashboardData {
        running: found(Vec::new()),
        locks: found(Vec::new()),
        owners: found(Vec::new()),
        waiters: Vec::new(),
        pulls: found(Vec::new()),
        plans: HashMap::new(),
        ended: found(Vec::new()),
        at_work: Vec::new(),
        apply_lock: None,
        freezes: Vec::new(),
        failures: 0,
        attention: Some(NeedsAttention::default()),
    }
}

fn server() -> ServerState {
    ServerState {
        in_progress: 2,
        draining: false,
        apply_allowed: true,
        apply_switch: true,
        executable: "atlantis".into(),
        configuration: None,
    }
}

fn dashboard(facts: &DashboardData, server: &ServerState) -> String {
    html("dashboard.html", "./", &Dashboard::new(facts, server, &DashboardQuery::default(), None, now()))
}

pub(super) fn html(template: &str, root: &str, view: &impl serde::Serialize) -> String {
    let viewer = Viewer { root, person: "ada@example.com", may_change: true, can_sign_out: true, revision: "" };
    PageTemplates::new(BTreeMap::new()).html(template, &viewer, context! { page => Value::from(Serde(view)) }).unwrap()
}

/// Writes a page to the folder given at build time.
pub(super) fn preview(name: &str, html: &str) {
    let Some(folder) = option_env!("TIDELOCK_PREVIEW_DIR") else { return };
    let folder = std::path::Path::new(folder);
    std::fs::create_dir_all(folder.join("static")).unwrap();
    let assets = PageTemplates::new(BTreeMap::new()).assets;
    for asset in [&assets.style, &assets.script, &assets.theme, &assets.icon] {
        std::fs::write(folder.join("static").join(&asset.name), asset.content).unwrap();
    }
    std::fs::write(folder.join(name), html).unwrap();
}

/// Returns the words of a page in their order, a line for each block.
fn lines(html: &str) -> String {
    let main = html.split_once("<main id=\"main\">").unwrap().1.split_once("</main>").unwrap().0;
    let main = main.split_whitespace().collect::<Vec<_>>().join(" ");
    let blocks =
        regex::Regex::new("</(h1|h2|p|dd|pre|form)>|<li class=\"row|</li>").unwrap().replace_all(&main, "\n$0");
    let text = regex::Regex::new("<[^>]*>").unwrap().replace_all(&blocks, " ");
    let text = text.replace("&#x2f;", "/").replace("&#x27;", "'");
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

/// Returns the words of a page in their order.
fn words_of(html: &str) -> String {
    lines(html).replace('\n', " ")
}

#[test]
fn the_dashboard_says_what_runs_who_holds_what_and_what_happened() {
    let page = dashboard(&busy_facts(), &server());
    preview("dashboard.html", &page);
    insta::assert_snapshot!(lines(&page).replace(super::pages::VERSION, "[version]"), @r##"
    Overview
    Show only what has these words Filter
    ready version [version] 2 commands at work 2 failed Stop all applies… Reason, shown to everyone who tries Yes, stop all applies
    Running now 2
    apply network infra/network · prod acme/infra#41 Open SSH through IAP ↗ running run · alice · 1 min ago
    plan network infra/network · prod acme/infra#41 Open SSH through IAP ↗ running run · alice · 2 min ago
    Locks 2
    network infra/network · prod : its lock acme/infra#41 Open SSH through IAP ↗ applying −1 ~1 +1 alice · 2 h ago Unlock… network Its plan is dropped as well. Yes, unlock
    infra/dns/default : its lock acme/infra#41 Open SSH through IAP ↗ plan failed alice · 2 h ago · waiting: #42 Unlock… infra/dns/default Its plan is dropped as well. Yes, unlock
    Open pull requests 3
    acme/infra#40 Split the projects ↗ alice · ssh-through-iap · draft plan failed `atlantis.yaml`, line 3: unknown key `projets`
    no project planned
    acme/infra#41 Open SSH through IAP ↗ alice · ssh-through-iap infra/dns/default plan failed
    network infra/network · prod applying −1 ~1 +1
    infra/storage/default applied
    acme/infra#42 Move the state of the old project to the new bucket, and rename its service accounts ↗ alice · ssh-through-iap · draft infra/storage/default waits for #41
    Last jobs 4
    plan network infra/network · prod acme/infra#41 Open SSH through IAP ↗ succeeded 1 to add, 1 to change, 1 to destroy run · alice · 7 min ago · took 1 min 12 s
    plan network infra/network · prod acme/infra#41 Open SSH through IAP ↗ failed init failed: could not load the backend configuration run · alice · 9 min ago · took 1 min 12 s
    pre workflow hook acme/infra#41 Open SSH through IAP ↗ succeeded run · alice · 30 min ago · took 1 min 12 s
    apply network infra/network · prod acme/infra#41 Open SSH through IAP ↗ interrupted interrupted after 38 s; 2 of 5 changes were made run · alice · 1 h ago · took 1 min 12 s
    All runs, with filters
    Applies
    allowed Plans can be applied on every pull request that meets its requirements.
    "##);
    let order = [
        "id=\"health\"",
        "id=\"part-attention\"",
        "id=\"running\"",
        "id=\"locks\"",
        "id=\"pulls\"",
        "id=\"runs\"",
        "id=\"applies\"",
    ];
    let places: Vec<usize> = order.iter().map(|id| page.find(id).unwrap()).collect();
    assert!(places.is_sorted(), "{places:?}");
    assert!(page.contains("href=\"./lock?id=github.com%2Facme%2Finfra%2Finfra%2Fnetwork%2Fprod%2Fnetwork\""), "{page}");
    let waits = "href=\"./lock?id=github.com%2Facme%2Finfra%2Finfra%2Fstorage%2Fdefault%2F\"><span class=\"mark warn\">waits for #41</span></a>";
    assert!(page.contains(waits), "{page}");
    let running = "href=\"./jobs/00000000000000000000000000000001\"><span class=\"mark busy\">applying</span></a>";
    assert_eq!(page.replace("&#x2f;", "/").matches(running).count(), 2, "{page}");
}

#[test]
fn what_waits_for_a_person_is_on_top_with_its_next_command() {
    let merged = lock("network", "infra/network", "prod", 39);
    let unknown = ProjectOwner::unknown(&merged.holder, None, "the host lists no changed files");
    let unapplied = ProjectOwner { project: merged.project, state: OwnerState::MergedUnapplied, ..unknown.clone() };
    let unapplied = ProjectOwner { reason: String::new(), ..unapplied };
    let facts = busy_facts();
    let dns = lock("", "infra/dns", "default", 41);
    let failed = status(dns.project.clone(), ProjectState::ApplyErrored, 0, 0, 0);
    let set = |name: &str, passed| PolicySetRecord {
        name: name.into(),
        passed,
        items: Vec::new(),
        item_regex: None,
        approvals: Vec::new(),
        required: 1,
    };
    let check = PolicyCheckRecord {
        pull: pull_id(41),
        project: dns.project.clone(),
        plan: "p".into(),
        head: "a".repeat(40).into(),
        policies_digest: String::new(),
        sets: vec![set("cost", false), set("net", true)],
        checked: dns.holder.since,
    };
    let contested = vec![dns, lock("", "infra/storage", "default", 41)];
    let attention = NeedsAttention {
        owed: vec![unapplied, unknown],
        failed: vec![(pull(41, "Open SSH through IAP"), failed)],
        faults: vec![(pull(40, "Split the projects"), "`atlantis.yaml`, line 3: unknown key `projets`".into())],
        unapproved: vec![(pull(41, "Open SSH through IAP"), check)],
        contested,
    };
    let page = dashboard(&DashboardData { attention: Some(attention), ..facts }, &server());
    let shown = lines(&page);
    let (_, shown) = shown.split_once("Needs attention\n").unwrap();
    insta::assert_snapshot!(shown.split_once("\nRunning now").unwrap().0, @r#"
    network infra/network · prod acme/infra#39 Open SSH through IAP ↗ merged, not applied 2 h ago · next: comment atlantis apply
    not known yet · acme/infra#39 Open SSH through IAP ↗ merged, changes not known yet the host lists no changed files 2 h ago · next: comment atlantis unlock --accept-drift -m &quot;why&quot;
    infra/dns/default acme/infra#41 Open SSH through IAP ↗ apply failed 3 min ago · next: comment atlantis plan -d infra/dns · waiting: #42
    all projects acme/infra#40 Split the projects ↗ plan failed `atlantis.yaml`, line 3: unknown key `projets` next: push a fix
    infra/dns/default acme/infra#41 Open SSH through IAP ↗ waits for approval cost 2 h ago · next: comment atlantis approve_policies -d infra/dns · waiting: #42
    infra/storage/default acme/infra#41 Open SSH through IAP ↗ others wait 2 h ago · next: comment atlantis unlock -d infra/storage
    "#);
}

#[test]
fn an_empty_dashboard_says_how_things_get_there() {
    let page = dashboard(&empty_facts(), &ServerState { in_progress: 0, ..server() });
    preview("empty.html", &page);
    for words in [
        "no open pull request has failed",
        "Nothing runs.",
        "No project is locked.",
        "No open pull request is known.",
        "Nothing has run yet.",
    ] {
        assert!(page.contains(words), "{words}");
    }
}

#[test]
fn a_frozen_repository_is_on_top_with_who_froze_it_and_why() {
    let repo = busy_facts().locks.rows[0].0.repo.clone();
    let freeze = Freeze { repo, user: "carol".into(), why: "release week".into(), since: ago(180), pull: None };
    let page = dashboard(&DashboardData { freezes: vec![freeze], ..busy_facts() }, &server());
    assert!(page.contains("href=\"#applies\">1 repository is frozen</a>"), "{page}");
    assert!(
        words_of(&page).contains("carol froze it 3 h ago. Reason: release week Let applies go on"),
        "{}",
        words_of(&page)
    );
}

#[test]
fn the_apply_lock_is_on_top_and_shows_its_reason() {
    let lock = ApplyLock { user: "bob".into(), reason: "freeze until Monday".into(), since: ago(180) };
    let page = dashboard(&DashboardData { apply_lock: Some(lock), ..busy_facts() }, &server());
    preview("stopped.html", &page);
    assert!(words_of(&page).contains("ready version"));
    assert!(page.contains("href=\"#applies\">applies are stopped</a>"));
    assert!(words_of(&page).contains("applies are stopped Allow applies again"));
    assert!(
        words_of(&page)
            .ends_with("Applies stopped No plan can be applied; stopped by bob 3 h ago. Reason: freeze until Monday")
    );
    let fixed = dashboard(&busy_facts(), &ServerState { apply_allowed: false, ..server() });
    assert!(fixed.contains("--allow-commands") && !fixed.contains("Stop all applies"));
    let without = dashboard(&busy_facts(), &ServerState { apply_switch: false, ..server() });
    assert!(!without.contains("apply/lock"));
}

#[test]
fn long_lists_have_pages_and_count_everything() {
    let row = |n: u64| (lock("", &format!("dir{n}"), "default", n), None);
    let rows = (0..MAX_ROWS as u64).map(row).collect();
    let locks = Found { rows, fitting: 2 * MAX_ROWS + 7, all: 2 * MAX_ROWS + 7 };
    let facts = DashboardData { locks, ..empty_facts() };
    let asked = DashboardQuery { search: "dir default".into(), locks: 2, ..DashboardQuery::default() };
    let page = html("dashboard.html", "./", &Dashboard::new(&facts, &server(), &asked, None, now()));
    let count = format!("Locks {}", 2 * MAX_ROWS + 7);
    assert!(words_of(&page).contains(&count) && words_of(&page).contains("page 2 of 3"), "{page}");
    assert!(page.contains("href=\"./?q=dir+default#locks\">Previous"), "{page}");
    assert!(page.contains("href=\"./?q=dir+default&amp;locks=3#locks\">Next"), "{page}");
    assert_eq!(page.matches("Yes, unlock").count(), MAX_ROWS);
}

#[test]
fn a_filter_that_fits_nothing_says_so_and_how_to_see_all() {
    let none = Found { rows: Vec::new(), fitting: 0, all: 12 };
    let facts = DashboardData { locks: none, ..busy_facts() };
    let asked = DashboardQuery { search: HOSTILE.into(), ..DashboardQuery::default() };
    let page = html("dashboard.html", "./", &Dashboard::new(&facts, &server(), &asked, None, now()));
    assert!(words_of(&page).contains("Locks 0 of 12 No lock has the words &lt;script&gt;"), "{page}");
    assert!(page.contains("<a href=\"./\">Show all</a>") && page.matches("<script").count() == 2);
}

#[test]
fn nothing_that_a_pull_request_says_becomes_markup() {
    let mut facts = busy_facts();
    let hostile = project(HOSTILE, HOSTILE, HOSTILE);
    for (lock, _) in &mut facts.locks.rows {
        lock.project = hostile.clone();
        lock.holder.title = HOSTILE.into();
        lock.holder.user = HOSTILE.into();
        lock.holder.url = format!("javascript:{HOSTILE}");
    }
    facts.pulls.rows[0].fault = Some(HOSTILE.into());
    facts.pulls.rows[1].pull.title = HOSTILE.into();
    facts.pulls.rows[1].pull.head.branch = HOSTILE.into();
    facts.pulls.rows[1].statuses[0].project = hostile.clone();
    facts.ended.rows[1].0.summary = HOSTILE.into();
    facts.ended.rows[1].0.project = Some(hostile);
    facts.apply_lock = Some(ApplyLock { user: HOSTILE.into(), reason: HOSTILE.into(), since: ago(1) });
    let repo = facts.locks.rows[0].0.repo.clone();
    facts.freezes = vec![Freeze { repo, user: HOSTILE.into(), why: HOSTILE.into(), since: ago(1), pull: None }];
    let now = now();
    let pages = [
        dashboard(&facts, &server()),
        html("lock.html", "./", &LockPage::new(&facts.locks.rows[0].0, None, &[], "atlantis", now)),
        html("job.html", "../", &{
            let (job, pull) = (&facts.ended.rows[1].0, &facts.pulls.rows[1].pull);
            job_page(job, Some(pull), None, Some(HOSTILE), now)
        }),
    ];
    for page in pages {
        assert_eq!(page.matches("<script").count(), 2, "only our own: {page}");
        assert!(page.contains("&lt;script&gt;"));
        assert!(!page.contains("href=\"javascript:"));
    }
}

#[test]
fn the_lock_page_names_all_facts_and_the_next_command() {
    let network = project("network", "infra/network", "prod");
    let status = status(network, ProjectState::Planned, 1, 1, 1);
    let view = LockPage::new(&lock("network", "infra/network", "prod", 41), Some(&status), &[], "atlantis", now());
    let page = html("lock.html", "./", &view);
    preview("lock.html", &page);
    insta::assert_snapshot!(lines(&page), @r##"
    Lock of network
    acme/infra#41 Open SSH through IAP ↗ has held this project for 2 h : no other pull request can plan or apply it.
    Repository acme/infra
    Project network
    Directory infra/network
    Workspace prod
    Taken by alice
    Taken at 2026-08-24 09:55 UTC
    Plan planned −1 ~1 +1 commit 3f2c1ab
    Lock id github.com/acme/infra/infra/network/prod/network
    In the audit log
    Unlock
    This deletes the lock and its plan, and posts a comment on the pull request. Others can then plan the project. To plan it again, comment there:
    atlantis plan -p network
    Reason, shown to everyone Delete lock and plan
    "##);
    let command = |dir: &str, workspace: &str| {
        let page = html("lock.html", "./", &LockPage::new(&lock("", dir, workspace, 41), None, &[], "tidelock", now()));
        lines(&page).lines().find(|line| line.starts_with("tidelock")).unwrap().to_owned()
    };
    assert_eq!(command(".", "default"), "tidelock plan -d .");
    assert_eq!(command("a b", "prod"), "tidelock plan -d 'a b' -w prod");
}

fn commits() -> CommitAddress {
    CommitAddress::below("https://github.com")
}

const LOG: &str = include_str!("preview_log.txt");

fn job_page(
    job: &Job,
    pull: Option<&PullRequest>,
    commits: Option<&CommitAddress>,
    text: Option<&str>,
    now: Timestamp,
) -> JobPage {
    let log = text.as_ref().map(|text| text as &dyn LogLines);
    let (times, query) = (&JobTimes::default(), &PageQuery::default());
    JobPage::new(&JobPageFacts { job, pull, commits, times, log, query, now }).unwrap()
}

#[test]
fn the_job_page_has_the_result_on_top_and_the_log_below() {
    let now = now();
    let pull = pull(41, "Open SSH through IAP");
    let done = job(7, "plan", JobState::Succeeded, "1 to add, 1 to change, 1 to destroy");
    let page = html("job.html", "./", &job_page(&done, Some(&pull), Some(&commits()), Some(LOG), now));
    preview("job.html", &page);
    assert!(words_of(&page).starts_with(
        "plan network succeeded 1 to add, 1 to change, 1 to destroy acme/infra#41 Open SSH through IAP ↗ dir infra/network"
    ));
    let commit = format!("https://github.com/acme/infra/commit/{}", done.head).replace('/', "&#x2f;");
    assert!(page.contains(&commit), "{page}");
    assert!(page.contains("id=\"L1\"") && !page.contains("data-stream"));
    let running = job(1, "apply", JobState::Running, "");
    let page = job_page(&running, Some(&pull), Some(&commits()), Some("one\ntwo\n"), now).following();
    let page = html("job.html", "./", &page);
    preview("running.html", &page);
    assert!(page.contains("data-lines=\"2\" data-stream=\"./jobs/00000000000000000000000000000001/stream\""), "{page}");
    let gone = html("job.html", "./", &job_page(&done, None, Some(&commits()), None, now));
    assert!(gone.contains("The log is gone"));
}

#[test]
fn a_job_at_an_executor_says_so_and_its_key_is_not_shown() {
    let remote = RemoteJob { executor: "plans".into(), key: "0b57".repeat(8) };
    let done = job(7, "plan", JobState::Succeeded, "1 to add, 1 to change, 1 to destroy");
    let done = Job { remote: Some(remote), ..done };
    let page = html("job.html", "./", &job_page(&done, None, Some(&commits()), Some(LOG), now()));
    assert!(words_of(&page).starts_with("plan network succeeded at the executor plans 1 to add,"), "{page}");
    let facts = DashboardData { running: found(vec![(done, None)]), ..busy_facts() };
    let list = dashboard(&facts, &server());
    assert_eq!(words_of(&list).matches("succeeded at the executor plans 1 to add,").count(), 1, "{list}");
    assert_eq!(list.matches("at the executor").count(), 1, "{list}");
    assert!(!page.contains("0b57") && !list.contains("0b57"));
}

#[test]
fn a_problem_names_the_next_step() {
    let next = ["--web-basic-auth", "--allow-unauthenticated-pages"].map(str::to_owned).to_vec();
    let facts =
        context! { title => "Pages are closed", text => "No login is configured.", next, code => 403, request => "00" };
    let page = PageTemplates::new(BTreeMap::new())
        .html(
            "problem.html",
            &Viewer { root: "./", person: "", may_change: false, can_sign_out: false, revision: "" },
            facts,
        )
        .unwrap();
    preview("closed.html", &page);
    assert_eq!(
        words_of(&page),
        "Pages are closed 403 No login is configured. --web-basic-auth --allow-unauthenticated-pages Request 00"
    );
}

#[test]
fn a_plan_with_a_limit_says_how_long_it_may_be_applied() {
    let plans = HashMap::from([(pull_id(41), vec![plan(3)])]);
    let page = dashboard(&DashboardData { plans, ..busy_facts() }, &server());
    assert_eq!(page.matches("may be applied for another 21 h<").count(), 2, "{page}");
    let status = status(project("network", "infra/network", "prod"), ProjectState::Planned, 1, 1, 1);
    let lock = lock("network", "infra/network", "prod", 41);
    for (hours, says) in [(23, "another 1 h<"), (24, "too old to be applied"), (100, "too old to be applied")] {
        let page = html("lock.html", "./", &LockPage::new(&lock, Some(&status), &[plan(hours)], "atlantis", now()));
        assert!(page.contains(says), "{hours}: {page}");
    }
}
