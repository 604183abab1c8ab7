//! Commit statuses: jobs of pipelines (docs.gitlab.com/ci/ci_cd_for_external_repos/external_commit_statuses).

use super::super::state::{PullState, RepoState, State, StatusState};
use super::super::{Pull, timestamp};
use super::api::{ProjectCall, created};
use super::members::DEVELOPER;
use super::{Refusal, Result, merging, shapes};
use serde_json::{Value, json};

/// Longest name, description and address of a status, in characters (docs.gitlab.com/api/commits, "Set commit pipeline status").
const MAX_TEXT: usize = 255;

/// States of a status that can be set.
const STATES: [&str; 6] = ["pending", "running", "success", "failed", "canceled", "skipped"];

/// Pipelines and their jobs, oldest first.
#[derive(Default)]
pub(super) struct Pipelines {
    all: Vec<Pipeline>,
    jobs: Vec<Job>,
}

struct Pipeline {
    id: u64,
    /// Id of the project.
    project: u64,
    sha: String,
    /// Branch, or ref of a merge request.
    reference: String,
    /// `external`, `push` or `merge_request_event`.
    source: String,
    created_at: String,
}

struct Job {
    id: u64,
    pipeline: u64,
    name: String,
    state: &'static str,
    user: String,
    description: Option<String>,
    target_url: Option<String>,
    created_at: String,
    finished_at: Option<String>,
    /// True if a later job of the same name replaces it.
    is_retried: bool,
}

impl Pipelines {
    /// Newest pipeline of a merge request's head. Pipelines of merge requests win over those of branches
    /// (app/finders/ci/pipelines_for_merge_request_finder.rb), and those of a fork's branch are the fork's.
    fn of_head(&self, state: &State, repo: &RepoState, pull: &PullState) -> Option<&Pipeline> {
        let source = state.repo(&pull.head_repo).map_or(0, |source| source.id);
        let own_ref = state.kind.pull_ref(pull.number).unwrap_or_default();
        let of_head = self.all.iter().filter(|pipeline| pipeline.sha == pull.head_sha);
        let of_branch = |pipeline: &&Pipeline| pipeline.project == source && pipeline.reference == pull.head_ref;
        let of_request = |pipeline: &&Pipeline| pipeline.project == repo.id && pipeline.reference == own_ref;
        let found = of_head.filter(|pipeline| of_branch(pipeline) || of_request(pipeline));
        found.max_by_key(|pipeline| (pipeline.reference == own_ref, pipeline.id))
    }

    pub(super) fn status_of_head(&self, state: &State, repo: &RepoState, pull: &PullState) -> Option<&'static str> {
        self.of_head(state, repo, pull).map(|pipeline| self.status(pipeline.id))
    }

    /// Status of a pipeline, made of its latest jobs (lib/gitlab/ci/status/composite.rb).
    fn status(&self, pipeline: u64) -> &'static str {
        let states: Vec<&str> =
            self.jobs.iter().filter(|job| job.pipeline == pipeline && !job.is_retried).map(|job| job.state).collect();
        let only = |allowed: &[&str]| states.iter().all(|state| allowed.contains(state));
        match () {
            () if states.is_empty() => "created",
            () if only(&["skipped"]) => "skipped",
            () if only(&["success", "skipped"]) => "success",
            () if only(&["success", "skipped", "canceled"]) => "canceled",
            () if only(&["success", "skipped", "canceled", "failed"]) => "failed",
            () if only(&["pending", "skipped"]) => "pending",
            () => "running",
        }
    }

    /// A pipeline in the answer of a merge request.
    pub(super) fn shaped_head(&self, url: &str, state: &State, repo: &RepoState, pull: &PullState) -> Value {
        let Some(pipeline) = self.of_head(state, repo, pull) else { return Value::Null };
        let at = shapes::api_time(&pipeline.created_at);
        json!({
            "id": pipeline.id, "iid": pipeline.id, "project_id": pipeline.project, "sha": pipeline.sha, "ref": pipeline.reference,
            "status": self.status(pipeline.id), "source": pipeline.source, "created_at": at, "updated_at": at,
            "web_url": format!("{}/-/pipelines/{}", shapes::web_url(url, repo), pipeline.id),
        })
    }

    /// Newest pipeline of a commit that a new status joins.
    fn matching(&self, project: u64, sha: &str, reference: Option<&str>, id: Option<&str>) -> Option<&Pipeline> {
        let of_commit = self.all.iter().rev().filter(|pipeline| pipeline.project == project && pipeline.sha == sha);
        let mut of_ref = of_commit.filter(|pipeline| reference.is_none_or(|reference| pipeline.reference == reference));
        of_ref.find(|pipeline| id.is_none_or(|id| pipeline.id.to_string() == id))
    }

    /// Job that a person's status of this name continues: one that has not ended.
    fn unfinished(&mut self, pipeline: u64, name: &str, user: &str) -> Option<&mut Job> {
        self.jobs.iter_mut().find(|job| {
            job.pipeline == pipeline
                && job.name == name
                && job.user == user
                && matches!(job.state, "pending" | "running")
        })
    }
}

/// Takes the step from one state of a job to another (`apply_job_state!` of app/services/ci/create_commit_status_service.rb). The same
/// state again is refused by instances before 18.3.
fn step(from: &str, to: &'static str, refuses_repeated: bool) -> std::result::Result<&'static str, String> {
    let event = match (from, to) {
        ("pending", "pending") | ("running", "running") if !refuses_repeated => return Ok(to),
        ("pending" | "running", "pending") => "enqueue",
        ("running", "running") => "run",
        ("running", "skipped") => "skip",
        _ => return Ok(to),
    };
    Err(format!(
        "Cannot transition status via :{event} from :{from} (Reason(s): Status cannot transition via \"{event}\")"
    ))
}

/// A status as a request sets it.
struct Posted {
    state: &'static str,
    name: String,
    reference: Option<String>,
    pipeline: Option<String>,
    description: Option<String>,
    target_url: Option<String>,
}

impl ProjectCall<'_> {
    /// Lists the statuses of a commit, by default the latest of each name in a pipeline, oldest first.
    pub(super) async fn statuses(&self, sha: &str) -> Result {
        self.check_commit(sha).await?;
        let (all, reference, name) = (self.call.flag("all"), self.call.text("ref"), self.call.text("name"));
        let pipeline = self.call.text("pipeline_id");
        let rows = {
            let state = self.call.shared.lock();
            let repo = state.repo(&self.full_name).map_err(|_| Refusal::not_found("Project"))?;
            let pipelines = &state.gitlab.pipelines;
            let of_commit = pipelines.all.iter().filter(|found| found.project == repo.id && found.sha == sha);
            let of_ref = of_commit.filter(|found| reference.as_ref().is_none_or(|wanted| found.reference == *wanted));
            let wanted = of_ref.filter(|found| pipeline.as_ref().is_none_or(|id| found.id.to_string() == *id));
            let jobs = wanted.flat_map(|found| {
                pipelines.jobs.iter().filter(|job| job.pipeline == found.id).map(move |job| (found, job))
            });
            let jobs = jobs.filter(|(_, job)| all || !job.is_retried);
            let jobs = jobs.filter(|(_, job)| name.as_ref().is_none_or(|wanted| job.name == *wanted));
            let mut jobs: Vec<(&Pipeline, &Job)> = jobs.collect();
            jobs.sort_by_key(|(_, job)| job.id);
            if self.call.text("sort").is_some_and(|sort| sort == "desc") {
                jobs.reverse();
            }
            jobs.into_iter().map(|(found, job)| shaped(self.url(), &state, found, job)).collect()
        };
        self.call.page(rows)
    }

    /// Answers 404 unless the project has the commit.
    async fn check_commit(&self, sha: &str) -> Result<()> {
        let git = self.call.shared.git(&self.full_name).map_err(|_| Refusal::not_found("Project"))?;
        if git.has_commit(sha).await { Ok(()) } else { Err(Refusal::not_found("Commit")) }
    }

    fn posted(&self) -> Result<Posted> {
        let word = self.call.text("state").ok_or_else(|| Refusal::parameter("state", "is missing"))?;
        let state = STATES.into_iter().find(|state| *state == word);
        let state = state.ok_or_else(|| Refusal::parameter("state", "does not have a valid value"))?;
        let limited = |key: &str| match self.call.text(key) {
            Some(text) if text.chars().count() > MAX_TEXT => {
                let problem = format!("is too long (maximum is {MAX_TEXT} characters)");
                Err(Refusal::bad_request(json!({ key: [problem] })))
            }
            found => Ok(found),
        };
        let name = limited("name")?.or(limited("context")?).unwrap_or_else(|| "default".to_owned());
        let target_url = limited("target_url")?;
        if target_url.as_ref().is_some_and(|url| !url.starts_with("https://") && !url.starts_with("http://")) {
            // `validates :target_url, addressable_url: true` of app/models/generic_commit_status.rb.
            let problem = "is blocked: Only allowed schemes are http, https";
            return Err(Refusal::bad_request(json!({ "target_url": [problem] })));
        }
        let (description, pipeline) = (limited("description")?, self.call.text("pipeline_id"));
        Ok(Posted { state, name, reference: self.call.text("ref"), pipeline, description, target_url })
    }

    /// Sets a status: a new job, or a step of one that has not ended.
    pub(super) async fn set_status(&self, sha: &str) -> Result {
        self.check_level(DEVELOPER)?;
        let posted = self.posted()?;
        self.check_commit(sha).await?;
        let git = self.call.shared.git(&self.full_name).map_err(|_| Refusal::not_found("Project"))?;
        let branches = git.branches_with(sha).await.map_err(|error| Refusal::broken(&error))?;
        let body = self.call.shared.change(|state| self.keep(state, sha, posted, branches.into_iter().next()))?;
        merging::follow_auto_merges(self.call.shared).await.map_err(|error| Refusal::broken(&error))?;
        created(body)
    }

    fn keep(&self, state: &mut State, sha: &str, posted: Posted, branch: Option<String>) -> Result<Value> {
        let (fresh, user) = ([state.new_id(), state.new_id(), state.new_id()], &self.call.login);
        let project = state.repo(&self.full_name).map_err(|_| Refusal::not_found("Project"))?.id;
        let refuses_repeated = state.gitlab.refuses_repeated_states;
        let pipelines = &mut state.gitlab.pipelines;
        let found = pipelines.matching(project, sha, posted.reference.as_deref(), posted.pipeline.as_deref());
        let pipeline = match found {
            Some(found) => found.id,
            None if posted.pipeline.is_some() => {
                return Err(Refusal::not_found("Pipeline for pipeline_id, sha and ref"));
            }
            None => {
                let reference = posted.reference.clone().or(branch);
                let reference = reference.ok_or_else(|| Refusal::not_found("References for commit"))?;
                let (sha, source, created_at) = (sha.to_owned(), "external".to_owned(), timestamp());
                pipelines.all.push(Pipeline { id: fresh[0], project, sha, reference, source, created_at });
                fresh[0]
            }
        };
        let from = pipelines.unfinished(pipeline, &posted.name, user).map_or("created", |job| job.state);
        let now = step(from, posted.state, refuses_repeated).map_err(Refusal::bad_request)?;
        if from == "created" {
            for old in pipelines.jobs.iter_mut().filter(|job| job.pipeline == pipeline && job.name == posted.name) {
                old.is_retried = true;
            }
            pipelines.jobs.push(Job {
                id: fresh[1],
                pipeline,
                name: posted.name.clone(),
                state: "pending",
                user: user.clone(),
                description: None,
                target_url: None,
                created_at: timestamp(),
                finished_at: None,
                is_retried: false,
            });
        }
        if let Some(job) = pipelines.unfinished(pipeline, &posted.name, user) {
            job.state = now;
            job.description = posted.description.clone().or(job.description.take());
            job.target_url = posted.target_url.clone().or(job.target_url.take());
            job.finished_at = (!matches!(now, "pending" | "running")).then(timestamp);
        }
        self.show(state, fresh[2], sha, &posted);
        let pipelines = &state.gitlab.pipelines;
        let job = pipelines.jobs.iter().rfind(|job| job.pipeline == pipeline && job.name == posted.name);
        let found = pipelines.all.iter().find(|found| found.id == pipeline);
        Ok(found.zip(job).map(|(found, job)| shaped(self.url(), state, found, job)).unwrap_or_default())
    }

    /// Records the status as every host has it, for tests and pages: in this project, and in those to which it is the fork of a merge
    /// request.
    fn show(&self, state: &mut State, id: u64, sha: &str, posted: &Posted) {
        let word = match posted.state {
            "pending" | "running" => "pending",
            "success" => "success",
            "failed" => "failure",
            _ => "error",
        };
        let is_fork_of = |repo: &RepoState| {
            let of_head =
                |pull: &PullState| pull.head_sha == sha && pull.head_repo.eq_ignore_ascii_case(&self.full_name);
            repo.pulls.iter().any(of_head)
        };
        for repo in state.repos.values_mut() {
            if !repo.full_name().eq_ignore_ascii_case(&self.full_name) && !is_fork_of(repo) {
                continue;
            }
            repo.statuses.push(StatusState {
                id,
                sha: sha.to_owned(),
                creator: self.call.login.clone(),
                state: word.to_owned(),
                context: posted.name.clone(),
                description: posted.description.clone(),
                target_url: posted.target_url.clone(),
                created_at: timestamp(),
                of_push: None,
            });
        }
    }
}

/// A status (docs.gitlab.com/api/commits, "List commit statuses").
fn shaped(url: &str, state: &State, pipeline: &Pipeline, job: &Job) -> Value {
    let created_at = shapes::api_time(&job.created_at);
    json!({
        "id": job.id, "sha": pipeline.sha, "ref": pipeline.reference, "status": job.state, "name": job.name,
        "target_url": job.target_url, "description": job.description, "created_at": created_at, "started_at": null,
        "finished_at": job.finished_at.as_deref().map(shapes::api_time), "allow_failure": false, "coverage": null,
        "pipeline_id": pipeline.id, "author": shapes::person(url, state, &job.user),
    })
}

impl Pull {
    /// Starts a pipeline of the head with one running job `build`, as the project's own CI does: of the branch, or of the merge request.
    /// Returns its id.
    pub fn start_pipeline(&self, of_merge_request: bool) -> anyhow::Result<u64> {
        let shared = &self.repo.forge.shared;
        shared.change(|state| {
            let (id, job) = (state.new_id(), state.new_id());
            let (repo, pull) = (state.repo(&self.repo.full_name)?, state.pull(&self.repo.full_name, self.number)?);
            let source = state.repo(&pull.head_repo)?.id;
            let (project, reference, source, sha, user) = match of_merge_request {
                true => {
                    let own_ref = state.kind.pull_ref(self.number).unwrap_or_default();
                    (repo.id, own_ref, "merge_request_event", &pull.head_sha, &pull.author)
                }
                false => (source, pull.head_ref.clone(), "push", &pull.head_sha, &pull.author),
            };
            let (sha, user, source) = (sha.clone(), user.clone(), source.to_owned());
            let pipelines = &mut state.gitlab.pipelines;
            pipelines.all.push(Pipeline { id, project, sha, reference, source, created_at: timestamp() });
            pipelines.jobs.push(Job {
                id: job,
                pipeline: id,
                name: "build".to_owned(),
                state: "running",
                user,
                description: None,
                target_url: None,
                created_at: timestamp(),
                finished_at: None,
                is_retried: false,
            });
            Ok(id)
        })
    }

    /// Ends the job `build` of a pipeline. What waits for the pipeline is merged.
    pub async fn end_pipeline(&self, id: u64, succeeds: bool) -> anyhow::Result<()> {
        let shared = &self.repo.forge.shared;
        shared.change(|state| {
            for job in state.gitlab.pipelines.jobs.iter_mut().filter(|job| job.pipeline == id && job.name == "build") {
                job.state = if succeeds { "success" } else { "failed" };
                job.finished_at = Some(timestamp());
            }
        });
        merging::follow_auto_merges(shared).await
    }

    /// Status of the pipeline that the merge request shows; absent if it has none.
    pub fn head_pipeline(&self) -> anyhow::Result<Option<&'static str>> {
        let state = self.repo.forge.shared.lock();
        let (repo, pull) = (state.repo(&self.repo.full_name)?, state.pull(&self.repo.full_name, self.number)?);
        Ok(state.gitlab.pipelines.status_of_head(&state, repo, pull))
    }
}
