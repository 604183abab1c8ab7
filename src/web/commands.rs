//! `/api/plan` and `/api/apply`: Atlantis' requests and responses. Their commands are recorded and run like those of comments.

use super::Site;
use super::answer::HttpProblem;
use super::locks::{lock_address, target_flags};
use crate::dispatch::{AcceptedRequest, Request, RequestEnd, RequestRefused, RequestResult};
use crate::domain::command::{CommandName, Target};
use crate::domain::outcome::{Outcome, PolicyReport};
use crate::domain::state::lock_id;
use crate::domain::{DeliveryId, JobId, PullId, RunId};
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use utoipa::ToSchema;

/// Largest request, in bytes.
pub(super) const MAX_BODY: usize = 256 * 1024;
/// Maximum number of requests that wait for their end at the same time.
pub(super) const MAX_WAITING: usize = 32;
/// Interval of checking the state for the end of a command.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// What is asked for. Case of the keys does not matter, as in Atlantis.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
pub(super) struct CommandRequest {
    /// `owner/name`.
    #[schema(example = "acme/infra")]
    repository: String,
    /// Head of the pull request: its branch, or its whole commit id.
    #[serde(rename = "Ref")]
    head: String,
    /// Type of the host by Atlantis' name, such as `Github`.
    #[serde(rename = "Type")]
    host: String,
    /// Number of the open pull request.
    #[serde(rename = "PR")]
    #[schema(minimum = 1)]
    pr: u64,
    /// Names of projects.
    #[serde(default)]
    projects: Option<Vec<String>>,
    /// Directories.
    #[serde(default)]
    paths: Option<Vec<CommandPath>>,
    /// Query of tags, as for `--tag`. Without projects and paths, it selects among all projects that the pull request changes.
    #[serde(default)]
    #[schema(example = "env:prod and not legacy")]
    tag: Option<String>,
    /// Names and directories to leave out, or globs of them, as for `--except`.
    #[serde(default)]
    except: Option<Vec<String>>,
}

/// One project by its place.
#[derive(Debug, Deserialize, ToSchema)]
struct CommandPath {
    #[serde(default)]
    directory: String,
    /// `default` where it is left out.
    #[serde(default)]
    workspace: String,
    #[serde(default)]
    project_name: String,
}

/// Keys of requests and of paths.
const KEYS: [&str; 11] =
    ["Repository", "Ref", "Type", "PR", "Projects", "Paths", "Tag", "Except", "directory", "workspace", "project_name"];

/// What came of it.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
pub(super) struct CommandResult {
    /// Where a command was refused as a whole.
    error: Option<ErrorText>,
    failure: String,
    project_results: Vec<ProjectResult>,
    plans_deleted: bool,
    /// Runs, whose results `/api/runs/{id}` has too.
    #[schema(value_type = Vec<String>)]
    runs: Vec<RunId>,
}

/// Something that broke.
#[derive(Debug, Serialize, ToSchema)]
struct ErrorText {
    text: String,
}

/// What one command came to on one project.
#[derive(Debug, Default, Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
struct ProjectResult {
    /// Where something broke.
    error: Option<ErrorText>,
    /// Why it was refused; empty where it was not.
    failure: String,
    plan_success: Option<PlanSuccess>,
    policy_check_results: Option<PolicyResults>,
    apply_success: String,
    version_success: String,
    /// 0: apply, 1: plan, 3: policy check.
    command: u8,
    sub_command: String,
    repo_rel_dir: String,
    workspace: String,
    project_name: String,
    /// Its log, for people; empty where no job began.
    #[serde(rename = "JobURL")]
    job_url: String,
}

/// A plan.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
struct PlanSuccess {
    terraform_output: String,
    /// Empty where a plan locks nothing.
    #[serde(rename = "LockURL")]
    lock_url: String,
    re_plan_cmd: String,
    apply_cmd: String,
    merged_again: bool,
}

/// How a plan stands with the policy sets.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
struct PolicyResults {
    policy_set_results: Vec<PolicySetResult>,
}

/// How a plan stands with one policy set.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
struct PolicySetResult {
    policy_set_name: String,
    policy_output: String,
    passed: bool,
    req_approvals: u32,
    cur_approvals: u32,
}

/// Plans projects of an open pull request, and responds when all have ended.
pub(super) async fn plan(State(site): State<Arc<Site>>, body: Body) -> Result<Response, HttpProblem> {
    answered(site, body, CommandName::Plan).await
}

/// Plans projects of an open pull request, and applies those whose plan succeeded.
pub(super) async fn apply(State(site): State<Arc<Site>>, body: Body) -> Result<Response, HttpProblem> {
    answered(site, body, CommandName::Apply).await
}

async fn answered(site: Arc<Site>, body: Body, asked: CommandName) -> Result<Response, HttpProblem> {
    let request = read(body).await?;
    let permit = Arc::clone(&site.waiting).try_acquire_owned().map_err(|_| {
        HttpProblem::later(format!("{MAX_WAITING} requests wait for their plans already. Try again in a while."))
    })?;
    // The work continues if the caller disconnects: projects planned for an apply are applied.
    let work = tokio::spawn(async move {
        let _permit = permit;
        work_off(&site, request, asked).await
    });
    let (succeeded, result) = work.await.map_err(anyhow::Error::from)??;
    let status = if succeeded { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
    Ok((status, axum::Json(result)).into_response())
}

async fn read(body: Body) -> Result<Request, HttpProblem> {
    let wrong = |text: String| HttpProblem::new(StatusCode::BAD_REQUEST, "Wrong request", text);
    let too_large = |_| {
        let text = format!("The request is larger than {MAX_BODY} bytes.");
        HttpProblem::new(StatusCode::PAYLOAD_TOO_LARGE, "Too large", text)
    };
    let body = to_bytes(body, MAX_BODY).await.map_err(too_large)?;
    let value: Value = serde_json::from_slice(&body).map_err(|error| wrong(format!("This is not JSON: {error}")))?;
    let CommandRequest { repository, head, host, pr, projects, paths, tag, except } =
        serde_json::from_value(with_keys(value, &KEYS)).map_err(|error| wrong(format!("{error}")))?;
    let by_name = projects.unwrap_or_default().into_iter().map(|name| (None, None, Some(name)));
    let by_place = paths.unwrap_or_default().into_iter();
    let by_place = by_place.map(|path| (Some(path.directory), Some(path.workspace), Some(path.project_name)));
    let targets = by_name.chain(by_place).collect();
    let except = except.unwrap_or_default();
    Ok(Request { host_type: host, repository, pull: pr, head, targets, tag, except })
}

/// Returns the value with these keys in our spelling: Go accepts them in any case.
pub(super) fn with_keys(value: Value, keys: &[&str]) -> Value {
    let ours = |key: String| match keys.iter().find(|known| known.eq_ignore_ascii_case(&key)) {
        Some(known) => (*known).to_owned(),
        None => key,
    };
    match value {
        Value::Object(map) => {
            Value::Object(map.into_iter().map(|(key, value)| (ours(key), with_keys(value, keys))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(|item| with_keys(item, keys)).collect()),
        plain => plain,
    }
}

async fn work_off(site: &Site, request: Request, asked: CommandName) -> Result<(bool, CommandResult), HttpProblem> {
    let dispatch = site.services()?.dispatch.clone();
    if asked == CommandName::Apply {
        dispatch.may_request_apply()?;
    }
    let plans = dispatch.request_plan(request).await?;
    let mut ends = ends(site, &plans).await?;
    let planned = |(target, end): &(Target, RequestEnd)| end.succeeded.then(|| target.clone());
    let targets: Vec<Target> = ends.iter().filter_map(planned).collect();
    if asked == CommandName::Apply && !targets.is_empty() {
        let applies = dispatch.request_apply(&plans, targets).await?;
        ends.extend(self::ends(site, &applies).await?);
    }
    let succeeded = ends.iter().all(|(_, end)| end.succeeded);
    Ok((succeeded, told(site, &plans, ends)))
}

/// Returns the ends of all commands, in their order.
async fn ends(site: &Site, asked: &AcceptedRequest) -> Result<Vec<(Target, RequestEnd)>, HttpProblem> {
    let mut ends = Vec::new();
    for (delivery, target) in &asked.deliveries {
        ends.push((target.clone(), end(site, asked, delivery).await?));
    }
    Ok(ends)
}

async fn end(site: &Site, asked: &AcceptedRequest, delivery: &DeliveryId) -> Result<RequestEnd, HttpProblem> {
    loop {
        if let Some(end) = site.services()?.dispatch.request_end(asked, delivery).await? {
            return Ok(end);
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}

fn told(site: &Site, asked: &AcceptedRequest, ends: Vec<(Target, RequestEnd)>) -> CommandResult {
    let refused = ends.iter().any(|(_, end)| end.results.is_empty());
    let text = || format!("A command was not run, or had nothing to do. The pull request says why: {}", asked.url);
    let runs = ends.iter().filter_map(|(_, end)| end.run.clone()).collect();
    let results = ends.into_iter().flat_map(|(_, end)| end.results);
    CommandResult {
        error: refused.then(|| ErrorText { text: text() }),
        failure: String::new(),
        project_results: results.map(|result| project_result(site, &asked.pull, result)).collect(),
        plans_deleted: false,
        runs,
    }
}

fn project_result(site: &Site, pull: &PullId, result: RequestResult) -> ProjectResult {
    let RequestResult { command, project, job, succeeded, text, outcome } = result;
    let url = |job: &JobId| format!("{}/jobs/{job}", site.state.url);
    let mut told = ProjectResult {
        command: number(command),
        repo_rel_dir: project.dir.clone(),
        workspace: project.workspace.clone(),
        project_name: project.name.clone().unwrap_or_default(),
        job_url: job.as_ref().map(url).unwrap_or_default(),
        ..ProjectResult::default()
    };
    match outcome {
        Some(Outcome::Planned(plan)) => {
            let (executable, flags) = (&site.state.executable_name, target_flags(&project));
            let lock = format!("{}/{}", site.state.url, lock_address(&lock_id(&pull.repo, &project)));
            told.plan_success = Some(PlanSuccess {
                terraform_output: plan.output,
                lock_url: if plan.unlocked { String::new() } else { lock },
                re_plan_cmd: format!("{executable} plan {flags}"),
                apply_cmd: format!("{executable} apply {flags}"),
                merged_again: plan.merged_again,
            });
        }
        Some(Outcome::Applied(applied)) => told.apply_success = applied.output,
        Some(Outcome::PoliciesChecked(report)) => {
            told.policy_check_results = Some(policies(report));
            told.failure = if succeeded { String::new() } else { text };
        }
        Some(Outcome::Errored(_)) => told.error = Some(ErrorText { text }),
        Some(Outcome::Deferred { .. }) => told.failure = text,
        _ if succeeded => {}
        _ => told.failure = text,
    }
    told
}

fn policies(report: PolicyReport) -> PolicyResults {
    let sets = report.sets.into_iter().map(|set| PolicySetResult {
        policy_set_name: set.name,
        policy_output: set.output,
        passed: set.passed,
        req_approvals: set.required,
        cur_approvals: set.approvals,
    });
    PolicyResults { policy_set_results: sets.collect() }
}

/// Returns Atlantis' number of a command.
fn number(command: CommandName) -> u8 {
    match command {
        CommandName::Apply => 0,
        CommandName::PolicyCheck => 3,
        _ => 1,
    }
}

impl From<RequestRefused> for HttpProblem {
    fn from(refused: RequestRefused) -> HttpProblem {
        let (status, title, text) = match refused {
            RequestRefused::Wrong(text) => (StatusCode::BAD_REQUEST, "Wrong request", text),
            RequestRefused::Forbidden(text) => (StatusCode::FORBIDDEN, "Not permitted", text),
            RequestRefused::Conflict(text) => (StatusCode::CONFLICT, "Another pull request than meant", text),
            RequestRefused::NotFound(text) => (StatusCode::NOT_FOUND, "Not found", text),
            RequestRefused::Broken(error) => return error.into(),
            RequestRefused::Busy => {
                return HttpProblem::later("As many drift runs as may be are at work or wait. Try again in a while.");
            }
            RequestRefused::Host(text) => (StatusCode::BAD_GATEWAY, "The host did not answer", text),
            RequestRefused::Stopped => {
                return HttpProblem::later("The request could not be recorded; another server may lead. Try again.");
            }
        };
        HttpProblem::new(status, title, text)
    }
}
