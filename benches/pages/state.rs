//! All but the audit log, written by the store's own functions.

use crate::records::{
    DIRS, OPEN, REPOS, Sizes, WORKSPACES, delivery_id, digits, job_id, mixed, person, project, projects_of, pull_id,
    pull_of, repo, repo_of, run_id,
};
use anyhow::Result;
use jiff::Timestamp;
use std::path::Path;
use tidelock_core::config::{LockMode, LockScope};
use tidelock_core::domain::command::{CommandName, Trigger};
use tidelock_core::domain::drift::{DriftFinding, ProjectDrift};
use tidelock_core::domain::outcome::{Applied, Failure, JobOutcome, Outcome, PlanSummary, Planned, Reason, RunEnd};
use tidelock_core::domain::policies::{PolicyCheckRecord, PolicySetRecord};
use tidelock_core::domain::state::{
    Delivery, DeliveryState, Job, JobState, LockHolder, ProjectLock, ProjectState, ProjectStatus, Run,
};
use tidelock_core::domain::state_address::StateAddress;
use tidelock_core::domain::{Base, CommentEvent, DeliveryId, Event, Head, Login, ProjectId, PullRequest, PullState};
use tidelock_core::locks::{LockEvent, WantedLock};
use tidelock_core::render::marker;
use tidelock_store::{Store, Tx};

/// Days within which the runs lie; older ones are dropped.
const DAYS: i64 = 29;
/// Records of a commit.
const AT_ONCE: usize = 5_000;
/// Findings of drift runs of each repository but the first, which has one for each of its projects.
const FINDINGS: usize = 100;
/// Repositories in mode `strict`, where a project has an owner and a line: those with these numbers.
const STRICT: std::ops::Range<usize> = 1..6;

/// Makes the state in a data directory.
pub(crate) async fn fill(data: &Path, sizes: &Sizes) -> Result<()> {
    let store = Store::open(data)?;
    in_commits(&store, sizes.pulls, *sizes, put_pull).await?;
    in_commits(&store, sizes.runs, *sizes, put_run).await?;
    in_commits(&store, sizes.jobs, *sizes, put_job).await?;
    in_commits(&store, OPEN.min(sizes.pulls), *sizes, put_open).await?;
    in_commits(&store, REPOS, *sizes, put_drift).await?;
    store.close().await
}

async fn in_commits(
    store: &Store,
    count: usize,
    sizes: Sizes,
    put: fn(&Tx<'_>, usize, &Sizes) -> Result<()>,
) -> Result<()> {
    for from in (0..count).step_by(AT_ONCE) {
        let numbers = from..(from + AT_ONCE).min(count);
        store.write(move |tx| numbers.clone().try_for_each(|number| put(tx, number, &sizes))).await?;
    }
    Ok(())
}

fn head(pull: usize) -> String {
    digits(20, pull, 40)
}

fn url(pull: usize) -> String {
    let id = pull_id(pull);
    format!("https://{}/{}/pull/{}", id.repo.host, id.repo.full_name(), id.number)
}

fn put_pull(tx: &Tx<'_>, pull: usize, sizes: &Sizes) -> Result<()> {
    let id = pull_id(pull);
    let state = if pull >= sizes.first_open() {
        PullState::Open
    } else if pull.is_multiple_of(9) {
        PullState::Closed
    } else {
        PullState::Merged { commit: Some(digits(21, pull, 40).into()) }
    };
    tx.put_pull(&PullRequest {
        title: format!("Raise the limits of service {} in europe-west1", pull % DIRS),
        url: url(pull),
        author: Login::new(person(pull)),
        head: Head {
            branch: format!("limits-{pull}"),
            commit: head(pull).into(),
            repo_owner: id.repo.owner.clone(),
            repo_name: id.repo.name.clone(),
            clone_url: None,
        },
        base: Base { branch: "main".into(), commit: digits(22, pull, 40).into() },
        draft: false,
        state,
        fork: false,
        labels: Vec::new(),
        repo_size_kib: Some(120_000),
        clone_url: format!("https://{}/{}.git", id.repo.host, id.repo.full_name()),
        id,
    })
}

/// Returns the command and the end of a run: one in eight fails, and one in twenty is refused.
fn outcome_of(run: usize) -> (CommandName, RunEnd) {
    let command = if mixed(61, run).is_multiple_of(4) { CommandName::Apply } else { CommandName::Plan };
    match mixed(62, run) % 40 {
        0..5 => (command, RunEnd::Failed),
        5..7 => (command, RunEnd::Locked),
        7 => (command, RunEnd::Stopped),
        _ => (command, RunEnd::Succeeded),
    }
}

fn summary(number: usize) -> PlanSummary {
    PlanSummary { add: 1 + number as u64 % 7, change: number as u64 % 3, ..PlanSummary::default() }
}

fn put_run(tx: &Tx<'_>, run: usize, sizes: &Sizes) -> Result<()> {
    let pull = pull_of(run, sizes);
    let (started, user) = (sizes.time(run, sizes.runs, DAYS), Login::new(person(run)));
    let (command, end) = outcome_of(run);
    let identity = DeliveryId::new(delivery_id(run));
    let comment = CommentEvent {
        pull: pull_id(pull),
        clone_url: format!("https://github.example.com/{}.git", repo(repo_of(pull)).full_name()),
        comment_id: run as u64,
        author: user.clone(),
        body: format!("atlantis {}", command.spoken()),
    };
    let (host_id, event) = (run.to_string(), Event::Comment(comment));
    tx.accept_delivery(&Delivery { identity: identity.clone(), host_id, received: started, event })?;
    tx.set_delivery_state(&identity, DeliveryState::Done, command.spoken())?;
    let outcome = |project: ProjectId| JobOutcome {
        command,
        project,
        job: None,
        millis: 4_000,
        tool: Some("Terraform 1.11.4".into()),
        silenced: false,
        outcome: match (end, command) {
            (RunEnd::Failed | RunEnd::Locked, _) => {
                Outcome::Failed(Failure::Refused { reason: Reason::Requirement, because: "It is not approved.".into() })
            }
            (_, CommandName::Apply) => Outcome::Applied(Applied { added: 1, ..Applied::default() }),
            _ => Outcome::Planned(Planned { summary: summary(run), saved: true, ..Planned::default() }),
        },
    };
    tx.put_run(&Run {
        id: run_id(run),
        pull: pull_id(pull),
        command,
        typed: command.spoken().into(),
        trigger: Trigger::Comment,
        user,
        head: head(pull).into(),
        cause: identity.into(),
        everything: true,
        received: Some(started),
        started,
        finished: Some(started),
        answered: true,
        end: Some(end),
        fault: None,
        results: projects_of(pull).take(2).map(|project| marker::result(&outcome(project), "atlantis")).collect(),
        automerge: None,
    })
}

/// Records a job of one of the latest runs, which have two each.
fn put_job(tx: &Tx<'_>, number: usize, sizes: &Sizes) -> Result<()> {
    let run = sizes.runs - sizes.jobs / 2 + number / 2;
    let pull = pull_of(run, sizes);
    let (command, end) = outcome_of(run);
    let started = sizes.time(run, sizes.runs, DAYS);
    let state = if end == RunEnd::Succeeded { JobState::Succeeded } else { JobState::Failed };
    tx.put_job(&Job {
        id: job_id(number),
        run: run_id(run),
        pull: pull_id(pull),
        kind: command.as_str().into(),
        project: projects_of(pull).nth(number % 2),
        user: Login::new(person(run)),
        head: head(pull).into(),
        state,
        summary: "1 to add, 2 to change, 0 to destroy".into(),
        outcome: None,
        started,
        finished: Some(started),
        state_lock: Default::default(),
        remote: None,
    })
}

fn lock(pull: usize, project: ProjectId, since: Timestamp) -> ProjectLock {
    let holder = LockHolder {
        pull: pull_id(pull),
        title: format!("Raise the limits of service {} in europe-west1", pull % DIRS),
        url: url(pull),
        user: Login::new(person(pull)),
        since,
        overdue: None,
    };
    let (repo, address) = (repo(repo_of(pull)), StateAddress::default());
    ProjectLock { repo, project, holder, applied: false, why: None, address }
}

/// Records statuses, locks or owners, waits and policy checks of an open pull request. The last one of the first repository changes each
/// directory there, so that it has as many projects as a page shows.
fn put_open(tx: &Tx<'_>, number: usize, sizes: &Sizes) -> Result<()> {
    let pull = sizes.first_open() + number;
    let is_wide = repo_of(pull) == 0 && pull + 2 >= sizes.pulls;
    let projects: Vec<ProjectId> =
        if is_wide { (0..DIRS).map(|dir| project(dir, 0)).collect() } else { projects_of(pull).collect() };
    for (place, project) in projects.into_iter().enumerate() {
        let own = lock(pull, project.clone(), sizes.now);
        let is_held = if STRICT.contains(&repo_of(pull)) {
            let mode = LockMode::Strict(LockScope::PullRequest);
            let project = WantedLock { lock: own, mode };
            let (job, head) = (job_id(pull * 1_000 + place), head(pull).into());
            tx.record_lock_event(&LockEvent::StateChangeBegins { project, job, head })?.refusal.is_some()
        } else {
            tx.lock_project(&own)?.is_some()
        };
        let state = if is_held { ProjectState::PlanErrored } else { ProjectState::Planned };
        tx.put_project_status(
            &pull_id(pull),
            &ProjectStatus {
                project: project.clone(),
                state,
                head: head(pull).into(),
                summary: Some(summary(pull)),
                job: (!is_held).then(|| job_id(pull * 1_000 + place)),
                updated: sizes.now,
                waits_for: Vec::new(),
            },
        )?;
        tx.put_policy_check(&PolicyCheckRecord {
            pull: pull_id(pull),
            project,
            plan: tidelock_core::domain::PlanId::from_bits((pull * 1_000 + place) as u128),
            head: head(pull).into(),
            policies_digest: digits(70, 0, 64),
            sets: vec![PolicySetRecord {
                name: "network".into(),
                passed: !number.is_multiple_of(4),
                items: Vec::new(),
                item_regex: None,
                approvals: Vec::new(),
                required: 1,
            }],
            checked: sizes.now,
        })?;
    }
    Ok(())
}

/// Records the findings of drift runs in a repository.
fn put_drift(tx: &Tx<'_>, of: usize, sizes: &Sizes) -> Result<()> {
    let count = if of == 0 { DIRS * WORKSPACES.len() } else { FINDINGS };
    for number in 0..count {
        let finding = match number % 10 {
            0 => DriftFinding::Failed("exit status 1: the provider is not to be reached".into()),
            1..4 => DriftFinding::Planned(summary(number)),
            _ => DriftFinding::Planned(PlanSummary { no_changes: true, ..PlanSummary::default() }),
        };
        tx.put_drift(&ProjectDrift {
            detection: run_id(number),
            repo: repo(of),
            branch: "main".into(),
            reference: "main".into(),
            commit: digits(23, of, 40).into(),
            project: project(number, number / DIRS),
            checked: sizes.now,
            job: None,
            finding,
            since: None,
            planned: None,
        })?;
    }
    Ok(())
}
