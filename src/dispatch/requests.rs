//! Plans and applies that a program asks for (`/api/plan`, `/api/apply`). Each is one command on an open pull request. It is recorded like
//! a delivery, run by the pull request's actor under the rules for comments, and answered there. The caller can ask for the result.

use super::Handle;
use super::actor::fetch_pull;
use super::decide::{Decision, NOT_ALLOWLISTED};
use super::delivery_outcome::DeliveryOutcome;
use super::inner::Inner;
use super::queues::{Item, Task};
use crate::comment::{checked_narrowing, checked_target};
use crate::domain::command::{Command, CommandName, Target, Trigger};
use crate::domain::outcome::{JobOutcome, Outcome};
use crate::domain::reply::Message;
use crate::domain::state::{Delivery, Job, Run};
use crate::domain::{
    CommentEvent, CommitSha, DeliveryId, Event, JobId, Login, ProjectId, PullId, PullRequest, RepoId, RequestEvent,
    RunId,
};
use crate::execute::permissions::typed;
use crate::execute::{RequestRefused, random_id};
use crate::store::Tx;
use crate::vcs::HostError;
use anyhow::Result;
use jiff::Timestamp;
use std::sync::Arc;

/// User of such commands, in records and on the pull request.
pub(super) const USER: &str = "api";
/// Most targets of one request.
const MAX_TARGETS: usize = 50;

/// Request of a program.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// Name of the host, as Atlantis' API has it: `Github`.
    pub host_type: String,
    /// `owner/name`.
    pub repository: String,
    /// Number of the pull request.
    pub pull: u64,
    /// Its head: the branch, or the whole commit id.
    pub head: String,
    /// Directory, workspace and name of each project; absent parts are not asked for.
    pub targets: Vec<(Option<String>, Option<String>, Option<String>)>,
    /// `--tag` of each command. Without targets, the command is for all projects that the pull request changes.
    pub tag: Option<String>,
    /// `--except` of each command.
    pub except: Vec<String>,
}

/// Commands that are recorded, in order.
#[derive(Debug, Clone)]
pub struct AcceptedRequest {
    pub pull: PullId,
    /// Address of the pull request's page.
    pub url: String,
    /// Delivery and target of each command.
    pub deliveries: Vec<(DeliveryId, Target)>,
    /// The head that they are for.
    head: CommitSha,
    accepted: Timestamp,
}

/// Result of one command.
#[derive(Debug, Clone)]
pub struct RequestEnd {
    /// Its run; absent if it was refused before one began.
    pub run: Option<RunId>,
    /// Results of its projects. Empty if the command was refused as a whole: the pull request has the reason.
    pub results: Vec<RequestResult>,
    /// True if every project succeeded.
    pub succeeded: bool,
}

/// Result of one project.
#[derive(Debug, Clone)]
pub struct RequestResult {
    /// The command; policy checks are results of a plan.
    pub command: CommandName,
    pub project: ProjectId,
    /// Its job; absent if it was refused before one began.
    pub job: Option<JobId>,
    pub succeeded: bool,
    /// One line for people.
    pub text: String,
    /// Full outcome; absent if it was refused before a job began.
    pub outcome: Option<Outcome>,
}

impl Handle {
    /// Records a plan of each target. Returns when all are recorded.
    ///
    /// # Errors
    ///
    /// The reason, if nothing is done.
    pub async fn request_plan(&self, request: Request) -> Result<AcceptedRequest, RequestRefused> {
        let inner = self.inner();
        inner.may(CommandName::Plan)?;
        let (pull, targets) = inner.checked(&request).await?;
        let begun = AcceptedRequest {
            pull: pull.id,
            url: pull.url,
            deliveries: Vec::new(),
            head: pull.head.commit,
            accepted: Timestamp::now(),
        };
        inner.record_commands(begun, CommandName::Plan, targets).await
    }

    /// Records an apply of each of these targets, at the head that was planned.
    ///
    /// # Errors
    ///
    /// The reason, if nothing is done.
    pub async fn request_apply(
        &self,
        planned: &AcceptedRequest,
        targets: Vec<Target>,
    ) -> Result<AcceptedRequest, RequestRefused> {
        let inner = self.inner();
        inner.may(CommandName::Apply)?;
        let begun = AcceptedRequest { deliveries: Vec::new(), accepted: Timestamp::now(), ..planned.clone() };
        inner.record_commands(begun, CommandName::Apply, targets).await
    }

    /// Checks that the settings let a program apply at all.
    ///
    /// # Errors
    ///
    /// The reason, if they do not.
    pub fn may_request_apply(&self) -> Result<(), RequestRefused> {
        self.inner().may(CommandName::Apply)
    }

    /// Returns the result of a command; absent until it has ended.
    pub async fn request_end(&self, request: &AcceptedRequest, delivery: &DeliveryId) -> Result<Option<RequestEnd>> {
        let inner = self.inner();
        let (pull, accepted, asked) = (request.pull.clone(), request.accepted, delivery.clone());
        let found = inner.ctx.store.read(move |view| {
            if view.outcome_of_delivery(&asked)?.is_none() {
                return Ok(None);
            }
            let run = view.last_run_of(&pull, &asked, accepted)?;
            let jobs = run.as_ref().map(|run| view.jobs_of(&run.id)).transpose()?;
            Ok(Some((run, jobs.unwrap_or_default())))
        });
        Ok(found.await?.map(|(run, jobs)| inner.ended_request(run, jobs)))
    }
}

/// Returns the task of a recorded request.
pub(super) fn task(inner: &Inner, event: &RequestEvent) -> Task {
    let command = event.command.clone();
    let comment = CommentEvent {
        pull: event.pull.clone(),
        clone_url: String::new(),
        comment_id: 0,
        author: command.user.clone(),
        body: typed(&inner.ctx, &command),
    };
    Task::Command { comment, command }
}

/// Returns the answer to a command that is for another head than the present one.
pub(super) fn not_at(command: &Command, pull: &PullRequest) -> Option<Message> {
    let asked_at = command.at.clone().filter(|at| *at != pull.head.commit);
    asked_at.is_some().then(|| Message::Superseded { head: pull.head.commit.clone(), asked_at })
}

impl Inner {
    /// Checks a request; returns its pull request and targets.
    async fn checked(&self, request: &Request) -> Result<(PullRequest, Vec<Target>), RequestRefused> {
        let wrong = |text: String| RequestRefused::Wrong(text);
        let narrowing = checked_narrowing(request.tag.as_deref(), &request.except).map_err(wrong)?;
        if request.targets.is_empty() && narrowing.is_all() {
            let text =
                "Projects and Paths are empty, so nothing is asked for: name projects or paths, or give Tag or Except";
            return Err(wrong(text.to_owned()));
        }
        if request.targets.len() > MAX_TARGETS {
            return Err(wrong(format!("more than {MAX_TARGETS} projects and paths are asked for at once")));
        }
        if request.pull == 0 {
            let text = "PR is missing: here a plan always belongs to an open pull request, so give its number";
            return Err(wrong(text.to_owned()));
        }
        let repo = self.repository(&request.host_type, &request.repository)?;
        let targets = request.targets.iter().map(|(dir, workspace, project)| {
            let given = |part: &Option<String>| part.clone().filter(|part| !part.is_empty());
            let (dir, workspace, project) = (given(dir), given(workspace), given(project));
            // A name determines directory and workspace.
            let (dir, workspace) = if project.is_some() { (None, None) } else { (dir, workspace) };
            checked_target(dir.as_deref(), workspace.as_deref(), project.as_deref()).map_err(wrong)
        });
        let mut targets: Vec<Target> = targets.collect::<Result<_, _>>()?;
        if targets.iter().any(|target| target.dirs.is_empty() && target.projects.is_empty()) {
            return Err(wrong("a path names neither directory nor project".to_owned()));
        }
        for target in &mut targets {
            (target.tag, target.except) = (narrowing.tag.clone(), narrowing.except.clone());
        }
        if targets.is_empty() {
            targets.push(narrowing);
        }
        let id = PullId { repo, number: request.pull };
        let pull = fetch_pull(self, &id).await.map_err(|error| self.unreadable(&error))?;
        let conflict = |text: String| Err(RequestRefused::Conflict(text));
        if !pull.is_open() {
            return conflict(format!("the pull request {} is not open", pull.url));
        }
        if pull.fork && !self.ctx.settings.allow_fork_prs {
            return Err(RequestRefused::Forbidden("the pull request is from a fork (--allow-fork-prs)".to_owned()));
        }
        if request.head != pull.head.commit.as_str() && request.head != pull.head.branch {
            let (branch, commit) = (&pull.head.branch, &pull.head.commit);
            return conflict(format!("Ref is neither the branch nor the head of {}: {branch}, {commit}", pull.url));
        }
        Ok((pull, targets))
    }

    /// Returns the repository, if it is served.
    pub(super) fn repository(&self, host_type: &str, repository: &str) -> Result<RepoId, RequestRefused> {
        let mut known = self.ctx.hosts.iter();
        let host = known.find(|host| host.profile().api_type.eq_ignore_ascii_case(host_type));
        let Some(host) = host else {
            let types: Vec<&str> = self.ctx.hosts.iter().map(|host| host.profile().api_type).collect();
            return Err(RequestRefused::Wrong(format!("Type is none of {}", types.join(", "))));
        };
        let Some((owner, name)) =
            repository.rsplit_once('/').filter(|(owner, name)| !owner.is_empty() && !name.is_empty())
        else {
            return Err(RequestRefused::Wrong("Repository is not of the form owner/name".to_owned()));
        };
        let repo = RepoId { host: host.hostname().to_owned(), owner: owner.to_owned(), name: name.to_owned() };
        if !self.allowlist.allows(&repo) {
            return Err(RequestRefused::Forbidden(NOT_ALLOWLISTED.to_owned()));
        }
        Ok(repo)
    }

    pub(super) fn may(&self, name: CommandName) -> Result<(), RequestRefused> {
        match self.names.allowed.contains(&name) {
            true => Ok(()),
            false => Err(RequestRefused::Forbidden(format!("`{}` is not one of --allow-commands", name.as_str()))),
        }
    }

    fn unreadable(&self, error: &HostError) -> RequestRefused {
        RequestRefused::Host(self.ctx.redactor.redact(&format!("the pull request could not be read: {error}")))
    }

    /// Records one delivery for each command.
    async fn record_commands(
        self: &Arc<Self>,
        mut request: AcceptedRequest,
        name: CommandName,
        targets: Vec<Target>,
    ) -> Result<AcceptedRequest, RequestRefused> {
        let mut accepted = Vec::new();
        for target in targets {
            let identity = DeliveryId::new(format!("api:{}", random_id()));
            let at = Some(request.head.clone());
            let command = Command { target: target.clone(), at, ..Command::new(name, Trigger::Api, Login::new(USER)) };
            let event = RequestEvent { pull: request.pull.clone(), command: Box::new(command) };
            let task = task(self, &event);
            let (received, event) = (request.accepted, Event::Request(event));
            request.deliveries.push((identity.clone(), target));
            accepted.push((Delivery { identity, host_id: String::new(), received, event }, task));
        }
        // All in one commit: who is refused has nothing that runs.
        let mut accepted = accepted.into_iter();
        let Some((first, task)) = accepted.next() else { return Ok(request) };
        let (others, tasks): (Vec<_>, Vec<_>) = accepted.unzip();
        let items: Vec<_> = std::iter::zip(others.iter().map(|other| other.identity.clone()), tasks).collect();
        let also =
            move |tx: &Tx<'_>| others.iter().try_for_each(|other| tx.accept_delivery(other).map(drop)).map(|()| true);
        match self.record(first, request.pull.clone(), Decision::Queue(task), also).await {
            DeliveryOutcome::Queued => {}
            _ => return Err(RequestRefused::Stopped),
        }
        for (delivery, task) in items {
            self.route(request.pull.clone(), Item { cause: delivery.into(), received: request.accepted, task }).await;
        }
        Ok(request)
    }

    fn ended_request(&self, run: Option<Run>, jobs: Vec<Job>) -> RequestEnd {
        let Some(run) = run else { return RequestEnd { run: None, results: Vec::new(), succeeded: false } };
        let of_jobs: Vec<(JobId, JobOutcome)> =
            jobs.into_iter().filter_map(|job| Some((job.id, job.outcome?))).collect();
        let mut results: Vec<RequestResult> = of_jobs.iter().map(|(job, outcome)| self.of_job(job, outcome)).collect();
        let rows = run.results.iter().filter_map(|row| serde_json::from_str::<serde_json::Value>(row).ok());
        for row in rows {
            let text = |key: &str| row[key].as_str().map(str::to_owned);
            let project = ProjectId {
                dir: text("dir").unwrap_or_default(),
                workspace: text("workspace").unwrap_or_default(),
                name: text("project"),
            };
            let is_known = |result: &RequestResult| {
                result.project == project && Some(result.command.as_str()) == row["cmd"].as_str()
            };
            if !results.iter().any(is_known) {
                let reason = text("reason").unwrap_or_default();
                let holder = row["owner"].as_u64().map(|number| format!(", pull request {number}")).unwrap_or_default();
                results.push(RequestResult {
                    command: run.command,
                    project,
                    job: None,
                    succeeded: row["outcome"] == "success",
                    text: format!("{reason}{holder}"),
                    outcome: None,
                });
            }
        }
        let succeeded = run.answered && !results.is_empty() && results.iter().all(|result| result.succeeded);
        RequestEnd { run: Some(run.id), results, succeeded }
    }

    fn of_job(&self, job: &JobId, outcome: &JobOutcome) -> RequestResult {
        RequestResult {
            command: outcome.command,
            project: outcome.project.clone(),
            job: Some(job.clone()),
            succeeded: outcome.outcome.is_success(),
            text: self.ctx.statuses.one_line(outcome),
            outcome: Some(outcome.outcome.clone()),
        }
    }
}
