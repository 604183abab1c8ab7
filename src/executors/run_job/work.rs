//! Work of a claimed job: its tree, plan file and tool, its steps by the runner of this machine, and the files that they leave.

use super::super::spec::{
    ERRORED, LEFT, MAX_ERRORED, MAX_LEFT, MAX_PLAN, MAX_TREE, PLAN, RemoteBounds, RemoteEnd, RemoteResult, RemoteSpec,
    RemoteTree, TREE,
};
use super::super::transfer::untrusted;
use super::attend::StopTokens;
use super::log::JobLog;
use super::place::JobPlace;
use super::{BucketAddress, JobNotRun, StartedJob, until_stored};
use crate::checkout::{Checkouts, Strategy, WorkingTree, unpack_tree};
use crate::process::{Protection, Redactor};
use crate::runner::local::state_lock::machine;
use crate::runner::local::{
    DirectoryLocks, Io, Local, ModuleOrigin, ModuleOrigins, NoDirectory, Place, PlanGone, Separation,
    SeparationSettings, archive_path, has_commands, plan_path, project_dir,
};
use crate::runner::result::{Ending, LockTrace, Ran, StepProblem};
use crate::runner::spec::{PlanReference, Steps};
use crate::terraform::install::{InstallSettings, Installer, Tool, ToolRequest};
use crate::vault::jobs::{FileTooLarge, JobObjects, JobPrefix, StoredFile};
use anyhow::{Context as _, Result, anyhow, bail};
use secrecy::SecretString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Work of one job.
pub(super) struct Work<'a> {
    job: &'a StartedJob,
    spec: &'a RemoteSpec,
    redactor: Redactor,
}

/// A job whose steps can run.
struct ReadyJob {
    local: Local,
    place: Place,
}

impl<'a> Work<'a> {
    /// Returns the work of a job, without doing anything.
    pub(super) fn new(job: &'a StartedJob, spec: &'a RemoteSpec) -> Work<'a> {
        let env = &job.settings.env;
        let masked = |name: &&(String, String)| spec.job.secrets.contains(&name.0);
        let values = env.iter().filter(masked).map(|(_, value)| SecretString::from(value.as_str()));
        let key_of_tree = spec.tree.prefix.rsplit('/').next().map(SecretString::from);
        let tokens = origins(spec).into_iter().map(|origin| origin.credentials.password);
        let secrets = job.settings.secrets.iter().cloned().chain(values).chain(key_of_tree).chain(tokens).collect();
        Work { job, spec, redactor: Redactor::new(secrets) }
    }

    /// Returns what masks the secrets of the job's environment.
    pub(super) fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// Runs the job and stores its files. Afterwards its place on this machine is free.
    pub(super) async fn result(&self, log: &JobLog, tokens: &StopTokens) -> RemoteResult {
        let root = self.spec.tree.root.clone();
        let end = match JobPlace::take(root, &tokens.stop, |line| log.line(line)).await {
            Ok(at) => {
                let end = self.run_at(&at, log, tokens).await;
                at.leave().await;
                end
            }
            Err(reason) => Err(reason),
        };
        match end {
            Ok(end) => RemoteResult::Ran(Box::new(end)),
            Err(JobNotRun::Stopped) => RemoteResult::Ran(Box::new(self.stopped())),
            Err(JobNotRun::Refused(why)) => RemoteResult::Refused(self.redactor.redact(&why)),
        }
    }

    async fn run_at(&self, at: &JobPlace, log: &JobLog, tokens: &StopTokens) -> Result<RemoteEnd, JobNotRun> {
        let ReadyJob { local, place } = self.ready(at, &tokens.stop).await?;
        let sink = |line: &str| log.line(line);
        let io = Io { log: &sink, stop: &tokens.stop, kill: &tokens.kill };
        let turn = local.directories.lock(&place.dir).await;
        let ran = local.run(&self.spec.job, &place, &io, turn).await;
        log.hurry();
        Ok(self.store_files(at, ran, log).await)
    }

    /// Prepares the tree, the plan file and the tool.
    async fn ready(&self, at: &JobPlace, stop: &CancellationToken) -> Result<ReadyJob, JobNotRun> {
        let tree = tokio::select! {
            fetched = self.fetch(at) => { fetched?; unpack(&self.spec.tree, at).await? }
            () = stop.cancelled() => return Err(JobNotRun::Stopped),
        };
        let job = &self.spec.job;
        let dir = project_dir(&tree.root, &job.project.id.dir).map_err(|error| match error {
            NoDirectory::Missing => anyhow!("the tree has no directory `{}`", job.project.id.dir),
            NoDirectory::Unusable(why) => anyhow!("the directory `{}` cannot be used: {why}", job.project.id.dir),
        })?;
        let local = self.local(at).await?;
        let tool = self.tool(&local.installer).await?;
        let place = Place::new(tree, dir, &job.project.id, tool);
        if let Some(plan) = job.plan.reads() {
            self.restore(&local, plan, &place).await.map_err(|gone| anyhow!(worded(gone)))?;
        }
        Ok(ReadyJob { local, place })
    }

    /// Reads the files of the job from the bucket.
    async fn fetch(&self, at: &JobPlace) -> Result<()> {
        let (objects, spec) = (&self.job.objects, self.spec);
        fetch_tree(objects, &spec.tree, at).await?;
        let Some(plan) = spec.job.plan.reads() else { return Ok(()) };
        if let (Some(file), Some(path)) = (spec.plan, &plan.path) {
            // Where the runner keeps plan files: a specification cannot name another path.
            let expected = plan_path(&plan.id);
            if *path != expected {
                bail!("the specification names the plan file {path} and not {expected}");
            }
            let file = file.within(MAX_PLAN).context("the plan file is too large")?;
            fetch(objects, PLAN, file, &at.files.join(path)).await.context("the plan file cannot be read")?;
        }
        if let Some(file) = spec.left {
            let file = file.within(MAX_LEFT).context("the archive of what steps left is too large")?;
            let to = at.files.join(archive_path(&plan.id));
            fetch(objects, LEFT, file, &to).await.context("the archive of what steps left cannot be read")?;
        }
        Ok(())
    }

    /// Returns the runner of this machine, with the settings of the server.
    async fn local(&self, at: &JobPlace) -> Result<Local> {
        let (env, tools, redactor) = (&self.job.settings.env, &self.spec.tools, self.redactor.clone());
        let path = env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.clone());
        let installer = Installer::new(InstallSettings {
            data_dir: at.files.clone(),
            download: tools.download,
            terraform_url: tools.terraform_url.clone(),
            opentofu_url: tools.opentofu_url.clone(),
            allow_unsigned: tools.allow_unsigned,
            default_version: None,
            default_distribution: tools.default_distribution,
            path: path.unwrap_or_default(),
            redactor: redactor.clone(),
            keys: None,
        });
        let (bounds, bucket) = (self.spec.bounds.clone(), self.job.settings.bucket.clone());
        let (files, parent, of_steps) = (at.files.clone(), at.parent.clone(), env.clone());
        let separating =
            tokio::task::spawn_blocking(move || separation(bounds, bucket, &files, parent, &of_steps)).await?;
        Ok(Local {
            checkouts: Checkouts::new(&at.files, Strategy::Branch, redactor.clone(), env.clone())?,
            installer: Arc::new(installer),
            directories: DirectoryLocks::default(),
            redactor,
            data_dir: at.files.clone(),
            env: env.clone(),
            separation: separating?,
            use_plugin_cache: self.spec.use_plugin_cache,
            own_program: self.job.own_program.clone(),
            module_origins: self.module_origins(),
            secret_reader: Arc::clone(&self.job.settings.secret_reader),
            tfe_token: None,
        })
    }

    fn module_origins(&self) -> ModuleOrigins {
        let origins = origins(self.spec);
        Arc::new(move || Box::pin(std::future::ready(origins.clone())))
    }

    async fn tool(&self, installer: &Installer) -> Result<Tool> {
        let wanted = &self.spec.job.tool;
        let request = ToolRequest {
            version: Some(wanted.version.clone()),
            distribution: Some(wanted.distribution),
            required: Vec::new(),
            terragrunt: wanted.terragrunt.is_some(),
            terragrunt_version: wanted.terragrunt.clone(),
        };
        installer.resolve(&request).await
    }

    /// Puts back what the steps of the plan left, and the plan file if commands may read it.
    async fn restore(&self, local: &Local, plan: &PlanReference, place: &Place) -> Result<(), PlanGone> {
        local.put_back(plan, place).await?;
        match &self.spec.job.steps {
            Steps::Stage { first, steps } if has_commands(first) || has_commands(steps) => {
                local.restore_plan_file(plan, place).await
            }
            _ => local.check_plan_file(plan).await,
        }
    }

    /// Stores the files that the steps left for the server. A plan that cannot be stored was not made.
    async fn store_files(&self, at: &JobPlace, mut ran: Ran, log: &JobLog) -> RemoteEnd {
        let made = ran.plan.as_ref();
        let plan = made.and_then(|made| made.file.as_ref()).map(|file| file.path.clone());
        let archive = made.filter(|made| made.left.archive.is_some()).and(self.spec.job.plan.makes()).map(archive_path);
        let state = ran.errored_state.as_ref().map(|file| file.path.clone());
        let (plan, left, errored) = tokio::join!(
            self.store(PLAN, MAX_PLAN, at, plan),
            self.store(LEFT, MAX_LEFT, at, archive),
            self.store(ERRORED, MAX_ERRORED, at, state),
        );
        if let Err(error) = &errored {
            log.line(&self.redactor.redact(&format!("[tidelock: errored.tfstate cannot be stored: {error:#}]")));
        }
        let (plan, left) = match (plan, left) {
            (Ok(plan), Ok(left)) => (plan, left),
            (Err(error), _) | (_, Err(error)) => {
                let error = self.redactor.redact(&format!("{error:#}"));
                ran.ending = Ending::Broken(StepProblem::PlanNotKept { error });
                ran.plan = None;
                (None, None)
            }
        };
        RemoteEnd { ran, plan, left, errored: errored.unwrap_or_default() }
    }

    /// Stores a file that the leader accepts up to this size, in bytes.
    async fn store(&self, name: &str, limit: u64, at: &JobPlace, path: Option<String>) -> Result<Option<StoredFile>> {
        let Some(path) = path.map(|path| at.files.join(path)) else { return Ok(None) };
        let stored = async {
            let size = tokio::fs::metadata(&path).await?.len();
            if size > limit {
                return Err(FileTooLarge { size, limit }.into());
            }
            Ok(until_stored(|| self.job.objects.put_file(name, &path)).await?)
        };
        let stored: Result<StoredFile> = stored.await;
        stored.inspect_err(|error| tracing::error!("the file {name} of the job cannot be stored: {error:#}")).map(Some)
    }

    /// Returns the end of a job that was stopped before its first step.
    fn stopped(&self) -> RemoteEnd {
        let ran = Ran {
            job: self.spec.job.job.clone(),
            ending: Ending::Stopped,
            output: String::new(),
            plan: None,
            errored_state: None,
            state_lock: LockTrace { machine: machine(), killed: false, met: None },
            log_lines: 0,
            policies: None,
            verification: None,
            steps: Vec::new(),
            marks: Vec::new(),
        };
        RemoteEnd { ran, plan: None, left: None, errored: None }
    }
}

/// Reads a packed tree from the bucket; `objects` are any of its executor.
pub(in super::super) async fn fetch_tree(objects: &JobObjects, tree: &RemoteTree, at: &JobPlace) -> Result<()> {
    let prefix = JobPrefix::parse(&tree.prefix).context("the specification names no place of the tree")?;
    let file = tree.file.within(MAX_TREE).context("the tree is too large")?;
    fetch(&objects.of(prefix), TREE, file, &packed_tree(at)).await.context("the tree cannot be read")
}

/// Unpacks a tree that was read.
pub(in super::super) async fn unpack(tree: &RemoteTree, at: &JobPlace) -> Result<WorkingTree> {
    let (head, base) = (tree.head.clone(), tree.base.clone());
    let unpacked = unpack_tree(packed_tree(at), at.root.clone(), at.files.join("git"), head, base).await?;
    tokio::fs::remove_file(packed_tree(at)).await.context("the packed tree cannot be removed")?;
    Ok(unpacked)
}

fn packed_tree(at: &JobPlace) -> PathBuf {
    at.files.join("tree")
}

async fn fetch(objects: &JobObjects, name: &str, file: StoredFile, to: &Path) -> Result<()> {
    if let Some(folder) = to.parent() {
        tokio::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).await?;
    }
    Ok(objects.get_file(name, file, to).await?)
}

/// Builds the separation of steps from other files of this machine. Blocks.
fn separation(
    bounds: RemoteBounds,
    bucket: BucketAddress,
    files: &Path,
    parent: PathBuf,
    env: &[(String, String)],
) -> Result<Separation> {
    let RemoteBounds { confinement, writable, mut hidden, kept } = bounds;
    // Trees of other jobs.
    hidden.push(parent);
    if let BucketAddress::Directory(bucket) = bucket {
        hidden.push(bucket);
    }
    let settings = SeparationSettings {
        writable: writable.as_deref(),
        home: None,
        data_dir: files,
        hidden,
        kept,
        readable: Vec::new(),
        env,
        users: None,
    };
    Separation::new(&Protection::of_steps(confinement)?, settings)
}

fn worded(gone: PlanGone) -> String {
    match gone {
        PlanGone::LeftTooMuch(what) => format!("the steps of the plan had left {what} in its tree; plan again"),
        PlanGone::LeftFiles => "the files that the steps of the plan had left are gone; plan again".to_owned(),
        PlanGone::File => "the plan file is missing or was changed; plan again".to_owned(),
        PlanGone::Untrusted(file) => untrusted(&file),
        PlanGone::Broken(error) => format!("the plan cannot be put into the tree: {error:#}"),
    }
}

fn origins(spec: &RemoteSpec) -> Vec<ModuleOrigin> {
    spec.modules.iter().cloned().map(ModuleOrigin::from).collect()
}
