//! Forms of the API for runs, jobs, pull requests and projects: what the server returns and `tidelock runs` and its sisters read. Times are in UTC, as
//! RFC 3339 writes them; repositories are `host/owner/name`.

use crate::domain::drift::{DriftFinding, ProjectDrift};
use crate::domain::job_times::{JobTimes, StepTime};
use crate::domain::state::{Job, JobState, ProjectStatus};
use crate::domain::{ProjectId, PullRequest};
use crate::store::{ListedPull, ListedRun};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Runs, the newest first.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct RunsAnswer {
    pub(crate) runs: Vec<RunRecord>,
    /// Address of the next ones, relative to the server's; absent after the last.
    pub(crate) next: Option<String>,
}

/// One run.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct RunRecord {
    pub(crate) run: String,
    pub(crate) repository: String,
    /// Number of the pull request; 0 for a drift run.
    pub(crate) pull: u64,
    pub(crate) command: String,
    /// `comment`, `autoplan`, `api`, …
    pub(crate) trigger: String,
    pub(crate) user: String,
    /// Head commit.
    pub(crate) commit: String,
    /// `running`, `succeeded`, `failed`, `locked`, `stopped` or `ended`, as the filter of that name.
    pub(crate) result: String,
    /// Reason of a failure as a whole.
    pub(crate) fault: Option<String>,
    /// Names of its projects, as comments call them, up to 50.
    pub(crate) projects: Vec<String>,
    pub(crate) started: String,
    pub(crate) finished: Option<String>,
    /// Page of the run.
    pub(crate) url: String,
}

/// Jobs of a run, the oldest first.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct JobsAnswer {
    pub(crate) jobs: Vec<JobRecord>,
    /// True if there are more.
    pub(crate) more: bool,
}

/// One job.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct JobRecord {
    pub(crate) job: String,
    pub(crate) run: String,
    pub(crate) repository: String,
    pub(crate) pull: u64,
    /// `plan`, `apply`, `pre_workflow_hook`, …
    pub(crate) kind: String,
    /// Absent for hooks.
    pub(crate) project: Option<ProjectRecord>,
    pub(crate) commit: String,
    /// `running`, `succeeded`, `failed` or `interrupted`.
    pub(crate) state: String,
    /// One line about the result.
    pub(crate) summary: String,
    pub(crate) started: String,
    pub(crate) finished: Option<String>,
    /// Steps of a job that has ended, in order; empty if they are not known.
    #[serde(default)]
    pub(crate) steps: Vec<StepRecord>,
    /// Page of the job, with its log.
    pub(crate) url: String,
}

/// One step of a job.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct StepRecord {
    /// `init`, `plan`, `apply`, `show`, `import`, `state_rm`, `policy_check` or `run`.
    pub(crate) kind: String,
    /// Milliseconds from the job's beginning to its own.
    pub(crate) began_millis: u64,
    /// Its time, in milliseconds.
    pub(crate) millis: u64,
    /// Number of the log's line with which its output begins; absent if that is not known.
    pub(crate) line: Option<u64>,
    /// Number of lines that it printed.
    pub(crate) lines: u64,
}

/// A project.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ProjectRecord {
    /// Its name, or `directory/workspace`.
    pub(crate) label: String,
    pub(crate) directory: String,
    pub(crate) workspace: String,
    pub(crate) name: Option<String>,
}

/// Open pull requests, the latest activity first.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct PullsAnswer {
    pub(crate) pulls: Vec<PullRecord>,
    /// Address of the next ones, relative to the server's; absent after the last.
    pub(crate) next: Option<String>,
}

/// One pull request.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct PullRecord {
    pub(crate) repository: String,
    pub(crate) pull: u64,
    pub(crate) title: String,
    pub(crate) author: String,
    pub(crate) branch: String,
    pub(crate) base: String,
    pub(crate) commit: String,
    pub(crate) draft: bool,
    /// Its page on the host.
    pub(crate) url: String,
    /// Reason why the last plan of all projects failed as a whole.
    pub(crate) fault: Option<String>,
    pub(crate) projects: Vec<StatusRecord>,
}

/// Known projects, by repository, directory and workspace.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ProjectsAnswer {
    pub(crate) projects: Vec<KnownProjectRecord>,
    /// Address of the next ones, relative to the server's; absent after the last.
    pub(crate) next: Option<String>,
}

/// A project of a repository, under all of its names.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct KnownProjectRecord {
    pub(crate) repository: String,
    pub(crate) project: ProjectRecord,
    /// Number of the pull request that holds its lock; 0 for a drift run.
    pub(crate) locked_by: Option<u64>,
    /// Number of the pull request that owns it.
    pub(crate) owned_by: Option<u64>,
    /// `planned`, `applied_unmerged`, `merged_unapplied`, `closed_applied` or `merged_unknown`.
    pub(crate) owner_state: Option<String>,
    /// The latest drift check.
    pub(crate) drift: Option<DriftRecord>,
    /// The last plan or apply.
    pub(crate) last: Option<LastJobRecord>,
    /// Page of the project.
    pub(crate) url: String,
}

/// The last plan or apply of a project.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct LastJobRecord {
    pub(crate) job: String,
    /// `plan` or `apply`.
    pub(crate) kind: String,
    /// Number of the pull request; 0 for a drift run.
    pub(crate) pull: u64,
    /// `running`, `succeeded`, `failed` or `interrupted`.
    pub(crate) state: String,
    pub(crate) started: String,
}

/// Result of a drift check of a project.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct DriftRecord {
    /// `drift`, `no_drift`, `skipped` or `failed`.
    pub(crate) result: String,
    pub(crate) branch: String,
    pub(crate) commit: String,
    pub(crate) checked: String,
    /// Its job, if there was one.
    pub(crate) job: Option<String>,
}

/// State of a project on a pull request.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct StatusRecord {
    pub(crate) project: ProjectRecord,
    /// `planned`, `plan_errored`, `applied`, …
    pub(crate) state: String,
    /// Job of the state, if there was one.
    pub(crate) job: Option<String>,
    pub(crate) updated: String,
}

/// Maximum number of named projects of a run.
pub(in crate::web) const MAX_IN_RECORD: usize = 50;

/// Returns the word that a value has in JSON.
fn word(value: impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

impl RunRecord {
    /// `server` is the server's address, `projects` the names of the projects.
    pub(in crate::web) fn new(listed: &ListedRun, projects: Vec<String>, server: &str) -> RunRecord {
        let run = &listed.run;
        RunRecord {
            url: format!("{server}/runs/{}", run.id),
            run: run.id.to_string(),
            repository: run.pull.repo.to_string(),
            pull: run.pull.number,
            command: run.command.as_str().to_owned(),
            trigger: word(run.trigger),
            user: run.user.as_str().to_owned(),
            commit: run.head.to_string(),
            result: listed.result.as_str().to_owned(),
            fault: run.fault.clone(),
            projects,
            started: run.started.to_string(),
            finished: run.finished.map(|at| at.to_string()),
        }
    }
}

impl JobRecord {
    pub(in crate::web) fn new(job: &Job, times: &JobTimes, server: &str) -> JobRecord {
        JobRecord {
            url: format!("{server}/jobs/{}", job.id),
            job: job.id.to_string(),
            run: job.run.to_string(),
            repository: job.pull.repo.to_string(),
            pull: job.pull.number,
            kind: job.kind.clone(),
            project: job.project.as_ref().map(ProjectRecord::from),
            commit: job.head.to_string(),
            state: word(job.state),
            summary: job.summary.clone(),
            started: job.started.to_string(),
            finished: job.finished.map(|at| at.to_string()),
            steps: times.steps.iter().map(StepRecord::from).collect(),
        }
    }

    /// Returns true if it runs.
    pub(crate) fn is_running(&self) -> bool {
        self.state == word(JobState::Running)
    }

    /// Returns true if it has succeeded.
    pub(crate) fn has_succeeded(&self) -> bool {
        self.state == word(JobState::Succeeded)
    }
}

impl From<&StepTime> for StepRecord {
    fn from(step: &StepTime) -> StepRecord {
        let StepTime { kind, millis, began, line, lines } = *step;
        let line = Some(line).filter(|line| *line > 0);
        StepRecord { kind: kind.as_str().to_owned(), began_millis: began, millis, line, lines }
    }
}

impl From<&ProjectId> for ProjectRecord {
    fn from(project: &ProjectId) -> ProjectRecord {
        ProjectRecord {
            label: project.label(),
            directory: project.dir.clone(),
            workspace: project.workspace.clone(),
            name: project.name.clone(),
        }
    }
}

impl From<&Job> for LastJobRecord {
    fn from(job: &Job) -> LastJobRecord {
        LastJobRecord {
            job: job.id.to_string(),
            kind: job.kind.clone(),
            pull: job.pull.number,
            state: word(job.state),
            started: job.started.to_string(),
        }
    }
}

impl From<&ProjectDrift> for DriftRecord {
    fn from(drift: &ProjectDrift) -> DriftRecord {
        let result = match &drift.finding {
            DriftFinding::Planned(_) if drift.finding.has_drift() => "drift",
            DriftFinding::Planned(_) => "no_drift",
            DriftFinding::Skipped { .. } => "skipped",
            DriftFinding::Failed(_) => "failed",
        };
        DriftRecord {
            result: result.to_owned(),
            branch: drift.branch.clone(),
            commit: drift.commit.to_string(),
            checked: drift.checked.to_string(),
            job: drift.job.as_ref().map(ToString::to_string),
        }
    }
}

impl From<&ListedPull> for PullRecord {
    fn from(listed: &ListedPull) -> PullRecord {
        let PullRequest { id, title, author, url, draft, head, base, .. } = &listed.pull;
        PullRecord {
            repository: id.repo.to_string(),
            pull: id.number,
            title: title.clone(),
            author: author.as_str().to_owned(),
            branch: head.branch.to_string(),
            base: base.branch.to_string(),
            commit: head.commit.to_string(),
            draft: *draft,
            url: url.clone(),
            fault: listed.fault.clone(),
            projects: listed.statuses.iter().map(StatusRecord::from).collect(),
        }
    }
}

impl From<&ProjectStatus> for StatusRecord {
    fn from(status: &ProjectStatus) -> StatusRecord {
        StatusRecord {
            project: ProjectRecord::from(&status.project),
            state: word(status.state),
            job: status.job.as_ref().map(ToString::to_string),
            updated: status.updated.to_string(),
        }
    }
}
