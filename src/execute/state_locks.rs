//! Terraform's own locks on its states, which are no project locks: what a killed run of ours may have left, whose a lock is, and
//! what to type.
//!
//! Backends keep a lock until somebody frees it. The local backend's ends with its process; only a file stays beside the state
//! that the next run overwrites and removes.

use super::Context;
use crate::checkout::folder::Folder;
use crate::checkout::inside;
use crate::comment::command_for;
use crate::domain::command::CommandName;
use crate::domain::outcome::{JobOutcome, Outcome};
use crate::domain::state::{Job, StateLock};
use crate::domain::{ProjectId, PullId};
use crate::process::Redactor;
use crate::terraform::state_lock;
use anyhow::Result;
use jiff::{SignedDuration, Timestamp};
use rustix::fs::FileType;
use serde_json::Value;
use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::{Component, Path};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Largest file of the local backend that is read, in bytes.
const MAX_FILE: u64 = 256 << 10;
/// A lock's time may differ from its job's times by this much.
const SLACK: SignedDuration = SignedDuration::from_secs(2);

/// Ended jobs of a repository that are looked at for whose a lock is.
pub(super) const LOOKED_AT: usize = 200;

/// Jobs whose Terraform was killed and of whom nobody was told yet, by pull request.
#[derive(Default)]
pub struct Doubts {
    jobs: Mutex<HashMap<PullId, Vec<Job>>>,
}

impl Doubts {
    fn jobs(&self) -> MutexGuard<'_, HashMap<PullId, Vec<Job>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a recorded job that says so of itself.
    pub fn note(&self, job: &Job) {
        if job.state_lock.untold {
            let mut jobs = self.jobs();
            let of_pull = jobs.entry(job.pull.clone()).or_default();
            of_pull.retain(|known| known.id != job.id);
            of_pull.push(job.clone());
        }
    }

    /// Takes those of one pull request.
    pub fn take(&self, pull: &PullId) -> Vec<Job> {
        self.jobs().remove(pull).unwrap_or_default()
    }

    /// Whether there are any of this pull request.
    pub fn any(&self, pull: &PullId) -> bool {
        self.jobs().contains_key(pull)
    }

    /// Pull requests that have any.
    pub fn pulls(&self) -> Vec<PullId> {
        self.jobs().keys().cloned().collect()
    }
}

/// What the working tree of a killed job says about its lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Left {
    /// The state is a local file, and none is held or was left.
    Nothing,
    /// The state is a local file with the sign of a lock beside it.
    Local(StateLock),
    /// It lies elsewhere, or nothing is known.
    Unknown,
}

/// Looks at what a killed job left in its project's directory.
pub async fn look(ctx: &Context, job: &Job) -> Left {
    let Some(project) = &job.project else { return Left::Unknown };
    let roots = ctx.checkouts.tree_paths(&job.pull, &project.workspace);
    let (dir, workspace) = (project.dir.clone(), project.workspace.clone());
    let looking = tokio::task::spawn_blocking(move || {
        let found = roots.iter().map(|root| local_lock(root, &dir, &workspace));
        // The job was at work in one of them.
        found.fold(Left::Unknown, |best, left| match (&best, &left) {
            (Left::Local(_), _) | (Left::Nothing, Left::Unknown) => best,
            _ => left,
        })
    });
    match looking.await.unwrap_or(Left::Unknown) {
        Left::Local(lock) => Left::Local(shown(lock, &ctx.redactor)),
        other => other,
    }
}

/// What a step may have written, for people.
fn shown(lock: StateLock, redactor: &Redactor) -> StateLock {
    let StateLock { id, operation, who, created } = lock;
    StateLock { id: redactor.redact(&id), operation: redactor.redact(&operation), who: redactor.redact(&who), created }
}

fn local_lock(root: &Path, dir: &str, workspace: &str) -> Left {
    let Ok(dir) = inside(root, dir) else { return Left::Unknown };
    let Ok(folder) = Folder::below(root, &dir) else { return Left::Unknown };
    if !matches!(folder.kind(Path::new(".terraform")), Ok(Some(FileType::Directory))) {
        return Left::Unknown;
    }
    let config = match folder.read_text(Path::new(".terraform/terraform.tfstate"), MAX_FILE) {
        Ok(Some(text)) => {
            let Ok(value) = serde_json::from_str::<Value>(&text) else { return Left::Unknown };
            if value["backend"]["type"] != "local" {
                return Left::Unknown;
            }
            value["backend"]["config"].clone()
        }
        Ok(None) => Value::Null,
        Err(_) => return Left::Unknown,
    };
    let path = if workspace == "default" {
        config["path"].as_str().unwrap_or("terraform.tfstate").to_owned()
    } else {
        format!("{}/{workspace}/terraform.tfstate", config["workspace_dir"].as_str().unwrap_or("terraform.tfstate.d"))
    };
    let state = dir.join(path);
    let (Some(Component::Normal(name)), Some(parent)) = (state.components().next_back(), state.parent()) else {
        return Left::Unknown;
    };
    let file = format!(".{}.lock.info", name.to_string_lossy());
    match beside_state(root, &folder, parent).map(|held| held.read_text(Path::new(&file), MAX_FILE)) {
        Ok(Ok(Some(text))) => state_lock::in_file(&text).map_or(Left::Unknown, Left::Local),
        Ok(Ok(None)) => Left::Nothing,
        Err(error) if error.kind() == ErrorKind::NotFound => Left::Nothing,
        _ => Left::Unknown,
    }
}

/// The directory of a state. Outside of the tree too, only what belongs to the user that steps run as is read in it.
fn beside_state(root: &Path, project: &Folder, dir: &Path) -> std::io::Result<Folder> {
    let dir = dir.canonicalize()?;
    match dir.starts_with(root.canonicalize()?) {
        true => Folder::below(root, &dir),
        false => Ok(Folder::open(&dir)?.owned_like(project)),
    }
}

/// `atlantis force-unlock -d a ID`; without an ID a word in its place.
pub fn command(ctx: &Context, project: &ProjectId, id: Option<&str>) -> String {
    let line = command_for(&ctx.rendering.executable, CommandName::ForceUnlock, project, &[]);
    format!("{line} {}", id.unwrap_or("LOCK_ID"))
}

/// What to know of the state lock of a killed job, and what to do, in sentences.
pub fn after_kill(ctx: &Context, project: &ProjectId, left: &Left) -> String {
    let plan = command_for(&ctx.rendering.executable, CommandName::Plan, project, &[]);
    match left {
        Left::Nothing => "Terraform's state lock is free.".to_owned(),
        Left::Local(lock) => format!(
            "Its state is a local file, where the sign of the state lock `{}` ({}) is left. The lock itself ended with the \
             process: the next `{plan}`, here or on another pull request, takes it over and clears it away.",
            lock.id, lock.operation
        ),
        Left::Unknown => format!(
            "Terraform may have left its state lock behind. If the next `{plan}`, here or on another pull request, says \
             \"Error acquiring the state lock\", free it there with the ID that it shows: `{}`.",
            command(ctx, project, None)
        ),
    }
}

/// For people whose command met a lock: whose it is, and what to type. Absent when it met none.
pub(super) async fn remark(ctx: &Context, pull: &PullId, outcome: &JobOutcome) -> Option<String> {
    let Outcome::Errored(fault) = &outcome.outcome else { return None };
    let lock = state_lock::met(&fault.output)?;
    // The outcome counts more than what can be said about it.
    words(ctx, pull, outcome, lock).await.unwrap_or_else(|error| {
        tracing::error!(%pull, error = format!("{error:#}"), "whose a state lock is could not be looked up");
        None
    })
}

async fn words(ctx: &Context, pull: &PullId, outcome: &JobOutcome, lock: StateLock) -> Result<Option<String>> {
    let (repo, own) = (pull.repo.clone(), outcome.job.clone());
    let (broken, running) = ctx
        .store
        .read(move |view| Ok((view.broken_jobs(&repo, Timestamp::now(), LOOKED_AT)?, view.unfinished_jobs()?)))
        .await?;
    let (project, id) = (&outcome.project, &lock.id);
    let label = project.label();
    let others = running.iter().filter(|job| own.as_ref() != Some(&job.id) && job.pull.repo == pull.repo);
    let log = |job: &Job| format!("{}/jobs/{}", ctx.settings.atlantis_url, job.id);
    if let Some(job) = others.into_iter().find(|job| same_state(job, project)) {
        let (kind, other) = (job.kind.replace('_', " "), ctx.written(&job.pull));
        return Ok(Some(format!(
            "The state lock `{id}` of `{label}` may be held by the {kind} of {other}, which runs: {} . Wait for its end.",
            log(job)
        )));
    }
    let command = command(ctx, project, Some(id));
    Ok(Some(match holder(&lock, project, &broken) {
        Some(job) => format!(
            "The state lock `{id}` of `{label}` was left by the {} of {} that was interrupted: {} . To free it: `{command}`",
            job.kind.replace('_', " "),
            ctx.written(&job.pull),
            log(job)
        ),
        None => format!("The state lock `{id}` of `{label}` {}", foreign(&lock)),
    }))
}

/// How the sentence about a lock goes on that no run of ours left, as far as its description tells.
pub(super) fn foreign(lock: &StateLock) -> String {
    let by_hand = format!("free it by hand in the project's directory: `terraform force-unlock {}`", lock.id);
    if lock.who.is_empty() {
        return format!(
            "is held by somebody whom the backend does not name, so that nobody can tell whether it is a dead run's. If you know \
             that nothing runs on this state, {by_hand}"
        );
    }
    let since = lock.created.map_or(String::new(), |at| format!(" since {}", at.strftime("%Y-%m-%d %H:%M:%S UTC")));
    format!(
        "is held by `{}`{since} for `{}`; no run of this server left it. Ask them whether it still runs. If it does not, {by_hand}",
        lock.who, lock.operation
    )
}

/// Whether a job has the state of this project. Names do not count: two projects of one directory and workspace share it.
pub(super) fn same_state(job: &Job, project: &ProjectId) -> bool {
    job.project.as_ref().is_some_and(|known| known.dir == project.dir && known.workspace == project.workspace)
}

/// Our ended job that held this lock, of `broken` ones of the same repository.
pub fn holder<'a>(lock: &StateLock, project: &ProjectId, broken: &'a [Job]) -> Option<&'a Job> {
    let host = lock.who.rsplit_once('@').map_or(lock.who.as_str(), |(_, host)| host);
    broken.iter().find(|job| {
        let trace = &job.state_lock;
        if trace.left.as_ref().is_some_and(|left| left.id == lock.id) {
            return true;
        }
        let met_itself = trace.met.as_ref().is_some_and(|met| met.id == lock.id);
        let same_machine = trace.machine.as_deref() == Some(host) && !host.is_empty();
        let while_it_ran = lock.created.zip(job.finished).is_some_and(|(created, finished)| {
            created.duration_since(job.started) >= -SLACK && finished.duration_since(created) >= -SLACK
        });
        same_state(job, project) && !met_itself && same_machine && while_it_ran && fits(&job.kind, &lock.operation)
    })
}

/// Whether a job of this kind takes locks with this word. A `run` step may run anything, so that only clear contradictions count.
fn fits(kind: &str, operation: &str) -> bool {
    match operation {
        "OperationTypePlan" => kind == "plan",
        "OperationTypeApply" => kind == "apply",
        _ => true,
    }
}

/// Name of this machine as Terraform writes it into locks.
pub(super) fn machine() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::RepoId;
    use crate::domain::state::{JobState, StateLockTrace};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn project(dir: &str) -> ProjectId {
        ProjectId { dir: dir.into(), workspace: "default".into(), name: None }
    }

    fn job(kind: &str, dir: &str, machine: &str) -> Job {
        let repo = RepoId { host: "h".into(), owner: "o".into(), name: "n".into() };
        Job {
            id: "1".into(),
            run: "r".into(),
            pull: PullId { repo, number: 1 },
            kind: kind.into(),
            project: Some(project(dir)),
            user: "alice".into(),
            head: String::new(),
            state: JobState::Interrupted,
            summary: String::new(),
            outcome: None,
            started: at(0),
            finished: Some(at(60)),
            state_lock: StateLockTrace { machine: Some(machine.into()), ..StateLockTrace::default() },
        }
    }

    fn lock(operation: &str, second: i64) -> StateLock {
        StateLock { id: "x".into(), operation: operation.into(), who: "root@vm".into(), created: Some(at(second)) }
    }

    #[test]
    fn a_lock_is_ours_when_machine_time_operation_and_project_fit() {
        let (plan, apply) = ("OperationTypePlan", "OperationTypeApply");
        for (what, lock, job, ours) in [
            ("all fits", lock(plan, 5), job("plan", "a", "vm"), true),
            ("at the very start", lock(plan, -1), job("plan", "a", "vm"), true),
            ("before it", lock(plan, -10), job("plan", "a", "vm"), false),
            ("after it", lock(plan, 90), job("plan", "a", "vm"), false),
            ("another machine", lock(plan, 5), job("plan", "a", "laptop"), false),
            ("another operation", lock(apply, 5), job("plan", "a", "vm"), false),
            ("another project", lock(plan, 5), job("plan", "b", "vm"), false),
            ("no time", StateLock { created: None, ..lock(plan, 5) }, job("plan", "a", "vm"), false),
            ("no machine", StateLock { who: String::new(), ..lock(plan, 5) }, job("plan", "a", ""), false),
        ] {
            assert_eq!(holder(&lock, &project("a"), &[job]).is_some(), ours, "{what}");
        }
    }

    #[test]
    fn who_met_a_lock_does_not_hold_it_and_who_left_it_does() {
        let met = Some(lock("OperationTypePlan", 5));
        let mut one = job("plan", "a", "vm");
        one.state_lock.met = met.clone();
        assert!(holder(&lock("OperationTypePlan", 5), &project("a"), &[one.clone()]).is_none());
        one.state_lock = StateLockTrace { left: met, ..StateLockTrace::default() };
        assert!(holder(&lock("OperationTypePlan", 500), &project("a"), &[one]).is_some());
    }

    #[test]
    fn the_sign_of_a_local_lock_is_found_wherever_the_state_lies() {
        let dir = tempfile::TempDir::new().unwrap();
        let at = dir.path();
        let write = |path: &str, text: &str| {
            std::fs::create_dir_all(at.join(path).parent().unwrap()).unwrap();
            std::fs::write(at.join(path), text).unwrap();
        };
        let file = r#"{"ID":"i","Operation":"OperationTypePlan","Who":"root@vm"}"#;
        assert_eq!(local_lock(at, ".", "default"), Left::Unknown);
        write(".terraform/modules/x", "");
        assert_eq!(local_lock(at, ".", "default"), Left::Nothing);
        write(".terraform.tfstate.lock.info", file);
        assert!(matches!(local_lock(at, ".", "default"), Left::Local(lock) if lock.id == "i"));
        assert_eq!(local_lock(at, ".", "staging"), Left::Nothing);
        let elsewhere = at.join("elsewhere/s.tfstate");
        let backend = format!(r#"{{"backend":{{"type":"local","config":{{"path":{elsewhere:?}}}}}}}"#);
        write(".terraform/terraform.tfstate", &backend);
        assert_eq!(local_lock(at, ".", "default"), Left::Nothing);
        write("elsewhere/.s.tfstate.lock.info", file);
        assert!(matches!(local_lock(at, ".", "default"), Left::Local(_)));
        write(".terraform/terraform.tfstate", r#"{"backend":{"type":"gcs","config":{}}}"#);
        assert_eq!(local_lock(at, ".", "default"), Left::Unknown);
        std::fs::remove_file(at.join("elsewhere/.s.tfstate.lock.info")).unwrap();
        write("elsewhere/.s.tfstate.lock.info", "not json");
        write(".terraform/terraform.tfstate", &backend);
        assert_eq!(local_lock(at, ".", "default"), Left::Unknown);
    }
}
