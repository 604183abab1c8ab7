//! Responses for machines: probes, `/status`, `/api/locks` in Atlantis' format, and the complete results of a run.

pub(crate) mod records;

use super::Site;
use super::answer::{HttpProblem, typed};
use crate::dispatch::{ExecutorUse, Handle};
use crate::domain::command::{CommandName, Trigger};
use crate::domain::ownership::ProjectOwner;
use crate::domain::state::ProjectLock;
use crate::domain::state_address::StateAddress;
use crate::domain::waiting::WaitingPull;
use crate::domain::{CommitSha, ProjectId, PullId, RunId};
use crate::server_status::{ConfigurationStatus, Role};
use crate::vault::bucket::{Bucket, Uploading};
use crate::vault::jobs::without_keys;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use utoipa::ToSchema;

/// A probe that is well.
#[derive(Serialize, ToSchema)]
pub(super) struct Probe {
    /// `ok`.
    status: &'static str,
}

/// A probe that is not.
#[derive(Serialize, ToSchema)]
pub(super) struct FailedProbe {
    /// Why.
    error: String,
    /// `error`.
    status: &'static str,
}

/// Duration from which an upload is reported.
const SLOW_UPLOAD: Duration = Duration::from_secs(2);
/// Timeout of the state in a readiness probe.
const READY_TIMEOUT: Duration = Duration::from_secs(2);

/// Reports that the process responds; checks nothing else.
pub(super) async fn healthz() -> Response {
    typed("application/json", r#"{"status":"ok"}"#)
}

/// Reports that this server is ready: it leads and its state responds, or it only accepts deliveries.
pub(super) async fn readyz(State(site): State<Arc<Site>>) -> Response {
    if site.state.events_only {
        // It never leads, and accepts deliveries from the start.
        return typed("application/json", r#"{"status":"ok"}"#);
    }
    let server_status = site.server_status();
    if server_status.role == Role::Asleep && server_status.leader.is_none() && !server_status.mismatch {
        // It leads as soon as it is asked to, unlike a standby that sleeps.
        return typed("application/json", r#"{"status":"ok"}"#);
    }
    let Some(services) = server_status.services.as_ref().filter(|_| server_status.role == Role::Leading) else {
        return unready(format!("{}: {}", server_status.role.name(), server_status.why));
    };
    let question = services.store.read(|view| view.apply_lock().map(|_| ()));
    match tokio::time::timeout(READY_TIMEOUT, question).await {
        Ok(Ok(())) => typed("application/json", r#"{"status":"ok"}"#),
        Ok(Err(error)) => {
            tracing::error!("readiness: {error:#}");
            unready("state does not answer".into())
        }
        Err(_) => unready("state does not answer in time".into()),
    }
}

fn unready(error: String) -> Response {
    let body = axum::Json(FailedProbe { status: "error", error });
    (StatusCode::SERVICE_UNAVAILABLE, body).into_response()
}

/// How this server is.
#[derive(Serialize, ToSchema)]
pub(super) struct Status<'a> {
    shutting_down: bool,
    in_progress_operations: usize,
    /// Executors and their jobs; absent where all jobs run in the server.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    executors: Vec<ExecutorView>,
    version: &'static str,
    #[schema(value_type = String)]
    role: Role,
    since: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    why: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    leader: Option<LeaderView<'a>>,
    fingerprint_mismatch: bool,
    /// What keeps steps away from what is not theirs; absent where none run.
    #[serde(skip_serializing_if = "Option::is_none")]
    steps: Option<String>,
    /// Readings of the configuration; absent where it is read only at the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    configuration: Option<ConfigurationView>,
    /// Number of stored deliveries that this leader cannot verify and of unreadable objects; absent if zero.
    #[serde(skip_serializing_if = "Option::is_none")]
    inbox_unusable: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused_by_host: Option<RefusedView>,
    /// Long uploads to the bucket: the connection is slow.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    uploading: Vec<UploadView>,
}

/// State of the configuration. This page is open to everyone, so only the log and the overview contain the mistake.
#[derive(Serialize, ToSchema)]
struct ConfigurationView {
    /// Time of the last reading without a mistake.
    read: String,
    /// Time since which the files have a mistake, and an earlier version stays in effect; absent if they have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    faulty_since: Option<String>,
    /// Names of settings whose change takes effect at the next start.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    needs_restart: Vec<String>,
}

impl ConfigurationView {
    fn of(status: &ConfigurationStatus) -> ConfigurationView {
        ConfigurationView {
            read: status.read.to_string(),
            faulty_since: status.fault.as_ref().map(|fault| fault.since.to_string()),
            needs_restart: status.needs_restart.clone(),
        }
    }
}

/// An executor's jobs. Its name is the operator's, and names no repository.
#[derive(Serialize, ToSchema)]
struct ExecutorView {
    name: String,
    /// Number of jobs that run there.
    running: usize,
    /// Number of jobs that wait for others to end.
    waiting: usize,
    /// Most jobs that may run at once.
    limit: usize,
}

impl From<ExecutorUse> for ExecutorView {
    fn from(ExecutorUse { name, running, waiting, limit }: ExecutorUse) -> ExecutorView {
        ExecutorView { name, running, waiting, limit }
    }
}

/// An object that is being uploaded; its name contains no repository, and no key of a job.
#[derive(Serialize, ToSchema)]
struct UploadView {
    object: String,
    bytes: u64,
    arrived: u64,
    seconds: u64,
}

/// Posts that the host refuses. This page is open, so it does not name repositories; the log does.
#[derive(Serialize, ToSchema)]
struct RefusedView {
    since: String,
    /// Number of comments, statuses and reactions that wait until the token or its rights are fixed.
    waiting: usize,
}

/// Who leads.
#[derive(Serialize, ToSchema)]
struct LeaderView<'a> {
    url: &'a str,
    machine: &'a str,
    version: &'a str,
}

/// Reports the status of this server. This page is public, so it contains nothing about repositories or people.
pub(super) async fn status(State(site): State<Arc<Site>>) -> Response {
    let server_status = site.server_status();
    let leader = server_status.leader.as_ref();
    let dispatch = server_status.services.as_ref().map(|services| &services.dispatch);
    let refused = dispatch.and_then(Handle::refused_posts);
    let executors = dispatch.map(Handle::executors).unwrap_or_default();
    let unusable = site.state.meters.unusable.load(Ordering::Relaxed);
    let status = Status {
        shutting_down: server_status.role == Role::Draining,
        in_progress_operations: dispatch.map_or(0, Handle::in_progress),
        executors: executors.into_iter().map(ExecutorView::from).collect(),
        version: super::pages::VERSION,
        role: server_status.role,
        since: server_status.since.to_string(),
        why: &server_status.why,
        epoch: server_status.epoch,
        leader: leader.map(|who| LeaderView { url: &who.url, machine: &who.machine, version: &who.version }),
        fingerprint_mismatch: server_status.mismatch,
        steps: site.state.protection.clone(),
        configuration: site.configuration().as_deref().map(ConfigurationView::of),
        inbox_unusable: (unusable > 0).then_some(unusable),
        refused_by_host: refused.map(|all| RefusedView { since: all.since.to_string(), waiting: all.waiting }),
        uploading: uploading(&*site.state.vault.bucket),
    };
    axum::Json(status).into_response()
}

/// Returns the uploads that take longer than [`SLOW_UPLOAD`].
fn uploading(bucket: &dyn Bucket) -> Vec<UploadView> {
    let slow = bucket.uploads().into_iter().filter(|upload| upload.took >= SLOW_UPLOAD);
    let view = |Uploading { name, size, arrived, took }| UploadView {
        object: without_keys(&name),
        bytes: size,
        arrived,
        seconds: took.as_secs(),
    };
    slow.map(view).collect()
}

/// All locks.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Locks {
    /// `null` if there are none, as Go encodes an empty slice.
    locks: Option<Vec<Lock>>,
}

/// One lock, or one owner.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
struct Lock {
    name: String,
    project_name: String,
    project_repo: String,
    project_repo_path: String,
    #[serde(rename = "PullID")]
    pull_id: String,
    #[serde(rename = "PullURL")]
    pull_url: String,
    user: String,
    workspace: String,
    time: String,
    /// `planned`, `applied`, or where an owner in mode `strict` stands.
    state: &'static str,
    /// Numbers of the pull requests that wait for it, in order.
    waiting: Vec<String>,
}

impl From<ProjectOwner> for Lock {
    fn from(owner: ProjectOwner) -> Lock {
        let state = owner.state.as_str();
        let ProjectOwner { repo, project, holder, .. } = owner;
        Lock {
            state,
            ..Lock::from(ProjectLock {
                repo,
                project,
                holder,
                why: None,
                applied: false,
                address: StateAddress::default(),
            })
        }
    }
}

impl From<ProjectLock> for Lock {
    fn from(lock: ProjectLock) -> Lock {
        Lock {
            name: lock.key(),
            project_name: lock.project.name.unwrap_or_default(),
            project_repo: lock.repo.full_name(),
            project_repo_path: lock.project.dir,
            pull_id: lock.holder.pull.number.to_string(),
            pull_url: lock.holder.url,
            user: lock.holder.user.as_str().to_owned(),
            workspace: lock.project.workspace,
            time: lock.holder.since.to_string(),
            state: if lock.applied { "applied" } else { "planned" },
            waiting: Vec::new(),
        }
    }
}

fn answer(locks: Vec<ProjectLock>, owners: Vec<ProjectOwner>, waiters: &[WaitingPull]) -> Locks {
    let waiting = |holder: &PullId, project: &ProjectId, address: &StateAddress| {
        let behind = waiters.iter().filter(|waiter| waiter.is_behind(holder, project, address));
        behind.map(|waiter| waiter.pull.number.to_string()).collect::<Vec<_>>()
    };
    let of_lock = |lock: ProjectLock| Lock {
        waiting: waiting(&lock.holder.pull, &lock.project, &lock.address),
        ..Lock::from(lock)
    };
    let of_owner = |owner: ProjectOwner| Lock {
        waiting: waiting(&owner.holder.pull, &owner.project, &StateAddress::default()),
        ..Lock::from(owner)
    };
    let all: Vec<Lock> = locks.into_iter().map(of_lock).chain(owners.into_iter().map(of_owner)).collect();
    Locks { locks: (!all.is_empty()).then_some(all) }
}

/// Returns all project locks, then all owners of projects in mode `strict`, each with the pull requests that wait for it.
pub(super) async fn locks(State(site): State<Arc<Site>>) -> Result<Response, HttpProblem> {
    let services = site.services()?;
    let known = services.store.read(|view| Ok((view.locks()?, view.owners()?, view.waiters()?)));
    let (locks, owners, waiters) = known.await?;
    Ok(axum::Json(answer(locks, owners, &waiters)).into_response())
}

/// A run and its results.
#[derive(Serialize, ToSchema)]
pub(super) struct RunAnswer {
    #[schema(value_type = String)]
    run: RunId,
    repo: String,
    pull: u64,
    #[schema(value_type = String)]
    command: CommandName,
    #[schema(value_type = String)]
    trigger: Trigger,
    user: String,
    #[schema(value_type = String)]
    head: CommitSha,
    started: String,
    finished: Option<String>,
    /// As in the list of runs.
    result: &'static str,
    /// Reason of a failure as a whole.
    fault: Option<String>,
    /// In the form of the comment marker (docs/comment-marker.md).
    #[schema(value_type = Vec<Object>)]
    results: Vec<serde_json::Value>,
}

/// Returns a run with all results, including those that did not fit into the marker of its comment.
pub(super) async fn run(State(site): State<Arc<Site>>, Path(id): Path<String>) -> Result<Response, HttpProblem> {
    let none = || HttpProblem::not_found("There is no such run, or it is so old that it was dropped.");
    let id = RunId::parse(&id).ok_or_else(none)?;
    let listed = site.services()?.store.read(move |view| view.run_with_result(&id)).await?.ok_or_else(none)?;
    let (run, result) = (listed.run, listed.result.as_str());
    let parsed = |row: &String| serde_json::from_str(row).map_err(anyhow::Error::from);
    let results: Vec<serde_json::Value> = run.results.iter().map(parsed).collect::<anyhow::Result<_>>()?;
    let answer = RunAnswer {
        run: run.id,
        repo: run.pull.repo.full_name(),
        pull: run.pull.number,
        command: run.command,
        trigger: run.trigger,
        user: run.user.as_str().to_owned(),
        head: run.head,
        started: run.started.to_string(),
        finished: run.finished.map(|at| at.to_string()),
        result,
        fault: run.fault,
        results,
    };
    Ok(axum::Json(answer).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::web::preview_tests::lock;
    use insta::assert_snapshot;

    #[test]
    fn locks_have_the_shape_that_atlantis_gives_them() {
        let locks = vec![lock("network", "infra/network", "prod", 41), {
            let mut unnamed = lock("", ".", "default", 7);
            unnamed.project.name = None;
            unnamed
        }];
        let waiter = |number: u64, project: &ProjectId| WaitingPull {
            project: project.clone(),
            pull: PullId { number, ..locks[0].holder.pull.clone() },
            since: locks[0].holder.since,
            cause: crate::domain::waiting::WaitCause::Plan,
            address: StateAddress::default(),
        };
        // The holder itself may be about to plan again.
        let waiters = [41, 7, 12].map(|number| waiter(number, &locks[0].project));
        assert_snapshot!(serde_json::to_string_pretty(&answer(locks, Vec::new(), &waiters)).unwrap(), @r##"
    {
      "Locks": [
        {
          "Name": "acme/infra/infra/network/prod/network",
          "ProjectName": "network",
          "ProjectRepo": "acme/infra",
          "ProjectRepoPath": "infra/network",
          "PullID": "41",
          "PullURL": "https://github.com/acme/infra/pull/41",
          "User": "alice",
          "Workspace": "prod",
          "Time": "2026-08-24T09:55:00Z",
          "State": "planned",
          "Waiting": [
            "7",
            "12"
          ]
        },
        {
          "Name": "acme/infra/./default/",
          "ProjectName": "",
          "ProjectRepo": "acme/infra",
          "ProjectRepoPath": ".",
          "PullID": "7",
          "PullURL": "https://github.com/acme/infra/pull/7",
          "User": "alice",
          "Workspace": "default",
          "Time": "2026-08-24T09:55:00Z",
          "State": "planned",
          "Waiting": []
        }
      ]
    }
    "##);
        assert_eq!(serde_json::to_string(&answer(Vec::new(), Vec::new(), &[])).unwrap(), r#"{"Locks":null}"#);
    }
}
