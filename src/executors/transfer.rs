//! What a job gets before its start, and what comes back: trees, plan files, and files that steps left. What comes back is hostile.

use super::Executors;
use super::bounded::bounded;
use super::spec::{
    ERRORED, LEFT, MAX_ERRORED, MAX_LEFT, MAX_PLAN, MAX_TREE, PLAN, RemoteEnd, RemoteOrigin, RemoteResult, RemoteSpec,
    RemoteTree, TREE,
};
use crate::checkout::{Checkouts, PackTreeError, PackedGit, WorkingTree};
use crate::domain::state::{LeftFiles, PlanTree};
use crate::domain::{CommitSha, PlanId};
use crate::process::Redactor;
use crate::runner::local::{archive_path, plan_path};
use crate::runner::result::{Artifact, Ending, LockTrace, PlanMade, Ran, StepProblem};
use crate::runner::spec::{JobSpec, PlanReference, PlanUse};
use crate::vault::jobs::{Claimant, Created, FileTooLarge, JobObjects, JobPrefix, StoredFile};
use crate::vault::{Hash, VaultError};
use anyhow::{Context as _, Result, anyhow, ensure};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::Mutex;

/// Directory of all trees of remote jobs. It is the same on all machines.
pub(crate) const TREES: &str = "/var/tmp/tidelock";
/// Longest text in what a job gives back, in bytes.
const MAX_TEXT: usize = 4 << 20;

/// Reason for which a job gets no tree.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PackProblem {
    /// The tree is too large. The text is for people.
    #[error("{0}")]
    TooLarge(String),
    /// Anything else.
    #[error(transparent)]
    Other(#[from] anyhow::Error),
}

/// Reason that the result of a job was not taken over. The texts are for people.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CollectProblem {
    /// It is not what a job gives back, and never will be.
    #[error("{0}")]
    Unusable(String),
    /// A file could not be read or stored. Another attempt may succeed.
    #[error("{0}")]
    NotNow(String),
}

impl CollectProblem {
    fn unusable(error: &anyhow::Error) -> CollectProblem {
        CollectProblem::Unusable(format!("{error:#}"))
    }

    /// Returns the problem of a file that was not copied to the data directory.
    fn of_file(error: &anyhow::Error) -> CollectProblem {
        let is_damaged = matches!(error.downcast_ref(), Some(VaultError::Damaged(_)));
        match is_damaged || error.is::<FileTooLarge>() {
            true => CollectProblem::unusable(error),
            false => CollectProblem::NotNow(format!("{error:#}")),
        }
    }
}

/// What is stored of a job that an earlier leader has begun.
pub(crate) enum StoredSpec {
    Found(Box<RemoteSpec>),
    /// Nothing, and no attempt of it will ever run.
    Withdrawn,
    /// Something that this server cannot read. The job may run.
    Unusable(String),
}

/// Pause before a bucket that does not answer is asked again.
const TRY_AGAIN: Duration = Duration::from_secs(2);

/// Trees that a command has stored already.
#[derive(Default)]
pub(crate) struct PackedTrees(Mutex<Vec<StoredTree>>);

#[derive(Clone)]
struct StoredTree {
    executor: String,
    /// [`WorkingTree::made`] of the tree.
    made: String,
    prefix: JobPrefix,
    file: StoredFile,
}

impl Executors {
    /// Stores all that a job reads, the specification last.
    pub(crate) async fn store(&self, objects: &JobObjects, job: JobSpec, tree: RemoteTree) -> Result<()> {
        let (mut plan, mut left) = (None, None);
        if let Some(read) = job.plan.reads() {
            plan = match &read.path {
                Some(path) => Some(objects.put_file(PLAN, &self.data_dir.join(path)).await?),
                None => None,
            };
            left = match &read.left.archive {
                Some(_) => Some(objects.put_file(LEFT, &self.data_dir.join(archive_path(&read.id))).await?),
                None => None,
            };
            check_plan(read, plan.as_ref(), left.as_ref())?;
        }
        let modules = match job.runs_init() {
            true => (self.module_origins)().await.into_iter().map(RemoteOrigin::from).collect(),
            false => Vec::new(),
        };
        let spec = RemoteSpec {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            job,
            tree,
            plan,
            left,
            tools: self.tools.clone(),
            use_plugin_cache: self.use_plugin_cache,
            bounds: self.bounds.clone(),
            modules,
        };
        Ok(objects.put_spec(&spec).await?)
    }

    /// Packs and stores the tree of a plan, once for all jobs of a command on this executor. `place` names the project's own copy.
    pub(crate) async fn pack(
        &self,
        executor: &str,
        checkouts: &Checkouts,
        tree: &WorkingTree,
        git: PackedGit,
        packed: &PackedTrees,
        place: &str,
    ) -> Result<RemoteTree, PackProblem> {
        let mut packed = packed.0.lock().await;
        let is_it = |stored: &&StoredTree| stored.executor == executor && stored.made == tree.made;
        let known = packed.iter().find(is_it).cloned();
        let stored = match known {
            Some(stored) => stored,
            None => {
                let stored = self.store_tree(executor, checkouts, tree, git).await?;
                packed.push(stored.clone());
                stored
            }
        };
        let root = root(&stored.prefix, place);
        let (head, base) = (tree.head.clone(), tree.base.clone());
        Ok(RemoteTree { prefix: stored.prefix.to_string(), file: stored.file, root, head, base })
    }

    async fn store_tree(
        &self,
        executor: &str,
        checkouts: &Checkouts,
        tree: &WorkingTree,
        git: PackedGit,
    ) -> Result<StoredTree, PackProblem> {
        let prefix = JobPrefix::new(executor, &random_key()?).context("an executor with a wrong name")?;
        let dir = tempfile::tempdir_in(&self.data_dir).context("no room for the packed tree")?;
        let archive = dir.path().join("tree.tar.zst");
        match checkouts.pack_tree(tree, git, archive.clone(), MAX_TREE).await {
            Ok(_) => {}
            Err(error) if is_too_large(&error) => return Err(PackProblem::TooLarge(too_large(&error))),
            Err(error) => return Err(PackProblem::Other(anyhow::Error::from(error).context("packing the checkout"))),
        }
        let objects = self.objects_at(prefix.clone());
        let file = objects.put_file(TREE, &archive).await.context("storing the packed checkout")?;
        Ok(StoredTree { executor: executor.to_owned(), made: tree.made.clone(), prefix, file })
    }

    /// Returns the tree of a recorded plan for a job on this executor. A tree of another executor is copied to the job's own objects.
    pub(crate) async fn tree_of_plan(
        &self,
        objects: &JobObjects,
        tree: &PlanTree,
        head: &CommitSha,
        base: &CommitSha,
    ) -> Result<RemoteTree> {
        let (prefix, tree) = remote_tree(tree, head, base)?;
        let own = objects.prefix();
        if prefix.executor() == own.executor() {
            return Ok(tree);
        }
        let dir = tempfile::tempdir_in(&self.data_dir).context("no room for the packed tree")?;
        let archive = dir.path().join("tree.tar.zst");
        self.objects_at(prefix).get_file(TREE, tree.file, &archive).await?;
        objects.put_file(TREE, &archive).await?;
        Ok(RemoteTree { prefix: own.to_string(), ..tree })
    }

    /// Reads the specification of a job that an earlier leader has begun. Where there is none, it is made certain that nothing is ever
    /// started. A bucket that does not answer is asked again.
    pub(crate) async fn stored_spec(&self, objects: &JobObjects) -> StoredSpec {
        loop {
            let error = match self.spec_or_withdrawal(objects).await {
                Ok(spec) => return spec,
                Err(VaultError::Damaged(why)) => return StoredSpec::Unusable(why),
                Err(error) => error,
            };
            tracing::warn!("a remote job cannot be looked at now: {error}");
            tokio::time::sleep(TRY_AGAIN).await;
        }
    }

    async fn spec_or_withdrawal(&self, objects: &JobObjects) -> Result<StoredSpec, VaultError> {
        if let Some(spec) = objects.spec::<Value>().await? {
            let read = serde_json::from_value(spec);
            return Ok(read.map_or_else(
                |error| StoredSpec::Unusable(error.to_string()),
                |spec| StoredSpec::Found(Box::new(spec)),
            ));
        }
        Ok(match objects.withdraw(&self.leader).await? {
            Created::Ours | Created::Theirs(Claimant::Withdrawn(_)) => StoredSpec::Withdrawn,
            Created::Theirs(Claimant::Attempt(_)) => {
                StoredSpec::Unusable("it is gone, and the job has begun".to_owned())
            }
        })
    }

    /// Returns the result of a job. Its files are in the data directory, under the server's names for them, and its texts are masked.
    ///
    /// # Errors
    ///
    /// If it is not what a job gives back, or if a file could not be copied now.
    pub(crate) async fn collect(
        &self,
        objects: &JobObjects,
        spec: &JobSpec,
        mut result: Value,
        redactor: &Redactor,
    ) -> Result<Ran, CollectProblem> {
        mask(&mut result, redactor);
        let result = serde_json::from_value(result).context("it is not the result of a job");
        let end = match result.map_err(|error| CollectProblem::unusable(&error))? {
            RemoteResult::Ran(end) => end,
            RemoteResult::Refused(why) => return Ok(not_started(spec, objects.prefix().executor(), why)),
            RemoteResult::Probed(_) => {
                return Err(CollectProblem::Unusable("it is the result of a probe".to_owned()));
            }
        };
        self.files_back(objects, spec, *end).await.map_err(|error| CollectProblem::of_file(&error))
    }

    /// Copies the files of a job to the data directory.
    async fn files_back(&self, objects: &JobObjects, spec: &JobSpec, end: RemoteEnd) -> Result<Ran> {
        let mut ran = Ran { job: spec.job.clone(), errored_state: None, ..bounded(end.ran) };
        ran.plan = match (&spec.plan, ran.plan.take()) {
            (PlanUse::Make { id, .. }, Some(made)) => {
                Some(self.plan_back(objects, id, made, end.plan, end.left).await?)
            }
            _ => None,
        };
        let has_no_file = ran.plan.as_ref().is_some_and(|made| made.file.is_none());
        if ran.ending == Ending::Done && has_no_file && spec.steps.make_a_plan_file() {
            (ran.ending, ran.plan) = (Ending::Broken(StepProblem::NoPlanFile), None);
        }
        if let Some(file) = end.errored.filter(|_| spec.command.name.changes_state()) {
            let path = format!("errored/{}.tfstate", spec.job);
            ran.errored_state = Some(self.bring(objects, ERRORED, file.within(MAX_ERRORED)?, path).await?);
        }
        Ok(ran)
    }

    async fn plan_back(
        &self,
        objects: &JobObjects,
        id: &PlanId,
        made: PlanMade,
        plan: Option<StoredFile>,
        left: Option<StoredFile>,
    ) -> Result<PlanMade> {
        let file = match plan {
            Some(file) => Some(self.bring(objects, PLAN, file.within(MAX_PLAN)?, plan_path(id)).await?),
            None => None,
        };
        let archive = match left {
            Some(file) => Some(self.bring(objects, LEFT, file.within(MAX_LEFT)?, archive_path(id)).await?.sha256),
            None => None,
        };
        Ok(PlanMade { file, left: LeftFiles { archive, ..made.left }, ..made })
    }

    /// Copies a file of the job to the data directory.
    async fn bring(&self, objects: &JobObjects, name: &str, file: StoredFile, path: String) -> Result<Artifact> {
        let to = self.data_dir.join(&path);
        let unwritable = || format!("cannot write {}", to.display());
        let dir = to.parent().context("a file without a directory")?;
        tokio::fs::create_dir_all(dir).await.with_context(unwritable)?;
        let coming = tempfile::tempdir_in(dir).with_context(unwritable)?;
        let whole = coming.path().join("file");
        objects.get_file(name, file, &whole).await?;
        tokio::fs::rename(&whole, &to).await.with_context(unwritable)?;
        Ok(Artifact { path, sha256: file.sha256.to_string() })
    }
}

fn is_too_large(error: &PackTreeError) -> bool {
    matches!(error, PackTreeError::TooLarge(_) | PackTreeError::TooMuchContent(_) | PackTreeError::TooManyFiles(_))
}

/// Returns the refusal of a tree that is too large, with the ways out.
pub(super) fn too_large(error: &PackTreeError) -> String {
    format!(
        "{error}. Let the server run the project: in `repos.yaml`, a rule of `executor` with `plan: local` and `apply: local`. Or check \
         out less, with `--sparse-checkout` or a smaller repository"
    )
}

/// Returns the result of a job whose steps have not run and never will.
pub(crate) fn not_started(spec: &JobSpec, executor: &str, why: String) -> Ran {
    let problem = StepProblem::NotStartedElsewhere { executor: executor.to_owned(), why };
    ended_without_result(spec, problem)
}

/// Returns the result of a job that its executor has lost.
pub(crate) fn lost(spec: &JobSpec, executor: &str, why: String) -> Ran {
    let problem = StepProblem::LostElsewhere { executor: executor.to_owned(), why };
    let ran = ended_without_result(spec, problem);
    // Its Terraform may have been killed.
    Ran { state_lock: LockTrace { killed: true, ..ran.state_lock }, ..ran }
}

fn ended_without_result(spec: &JobSpec, problem: StepProblem) -> Ran {
    Ran {
        job: spec.job.clone(),
        ending: Ending::Broken(problem),
        output: String::new(),
        plan: None,
        errored_state: None,
        state_lock: LockTrace { machine: String::new(), killed: false, met: None },
        log_lines: 0,
        policies: None,
        verification: None,
        steps: Vec::new(),
        marks: Vec::new(),
    }
}

/// Checks that the files of a plan, as they were stored for the job that reads it, are those of its record.
fn check_plan(plan: &PlanReference, file: Option<&StoredFile>, left: Option<&StoredFile>) -> Result<()> {
    let is_it = |stored: Option<&StoredFile>, recorded: Option<&String>| {
        stored.map(|stored| stored.sha256.to_string()).as_ref() == recorded
    };
    ensure!(is_it(file, plan.sha256.as_ref()), "the plan file is not the one that was made");
    ensure!(
        is_it(left, plan.left.archive.as_ref()),
        "the files that the steps of the plan left are not those that were kept"
    );
    Ok(())
}

/// Returns the tree of a recorded plan, and the prefix of its objects.
pub(super) fn remote_tree(tree: &PlanTree, head: &CommitSha, base: &CommitSha) -> Result<(JobPrefix, RemoteTree)> {
    let prefix = JobPrefix::parse(&tree.prefix).context("the plan's record names no tree")?;
    let sha256 = Hash::parse(&tree.sha256).context("the plan's record has no hash of its tree")?;
    let file = StoredFile { size: tree.size, sha256 };
    let (root, head, base) = (PathBuf::from(&tree.root), head.clone(), base.clone());
    Ok((prefix, RemoteTree { prefix: tree.prefix.clone(), file, root, head, base }))
}

/// Returns the name of the executor that a plan was made at; `None` if its tree has no valid name.
pub(crate) fn made_at(tree: &PlanTree) -> Option<String> {
    Some(JobPrefix::parse(&tree.prefix)?.executor().to_owned())
}

/// Describes a file that the steps of a plan have left and that another identity does not take over, for people.
pub(crate) fn untrusted(file: &str) -> String {
    format!(
        "The steps of the plan have left `{file}`, and could change with it what is applied: the plan was made at another executor. Let one \
         executor plan and apply: in `repos.yaml`, a rule of `executor` with the same name for `plan` and `apply`",
        file = file.replace(['`', '\n', '\r'], "'")
    )
}

/// Returns the record of the tree that a plan was made in.
pub(crate) fn plan_tree(tree: &RemoteTree) -> PlanTree {
    PlanTree {
        prefix: tree.prefix.clone(),
        size: tree.file.size,
        sha256: tree.file.sha256.to_string(),
        root: tree.root.to_string_lossy().into_owned(),
    }
}

/// Returns the path at which the jobs of one project unpack a tree. It is as hard to guess as the key of the tree.
fn root(prefix: &JobPrefix, place: &str) -> PathBuf {
    let digest = Sha256::new().chain_update(prefix.to_string()).chain_update([0]).chain_update(place).finalize();
    Path::new(TREES).join(hex::encode(&digest[..16]))
}

/// Masks secrets in all texts of a result, and cuts those that are too long.
pub(super) fn mask(value: &mut Value, redactor: &Redactor) {
    match value {
        Value::String(text) => {
            *text = redactor.redact(text);
            if text.len() > MAX_TEXT {
                let end = (0..=MAX_TEXT).rev().find(|&end| text.is_char_boundary(end)).unwrap_or_default();
                text.truncate(end);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| mask(item, redactor)),
        Value::Object(fields) => fields.values_mut().for_each(|field| mask(field, redactor)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns a new key of a job, or name of an attempt: 128 random bits, hexadecimal.
pub(crate) fn random_key() -> Result<String> {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits).map_err(|error| anyhow!("no random bytes: {error}"))?;
    Ok(hex::encode(bits))
}
