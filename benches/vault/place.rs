//! Buckets, leaders and stores as a server has them, without the server.

use anyhow::{Context, Result, anyhow};
use jiff::Timestamp;
use std::path::Path;
use std::sync::Arc;
use tidelock_core::domain::outcome::PlanSummary;
use tidelock_core::domain::state::{Job, JobState, LeftFiles, PlanRecord};
use tidelock_core::domain::{CommitSha, JobId, Login, PlanId, ProjectId, PullId, RepoId, RunId};
use tidelock_storage_double::{Settings, StorageDouble};
use tidelock_store::{KeptFile, Store};
use tidelock_vault::bucket::Bucket;
use tidelock_vault::gcs::{Access, Address, Gcs, Options};
use tidelock_vault::leader::Leader;
use tidelock_vault::lease::Identity;
use tidelock_vault::{Hash, Retention, Vault};

/// Name of the bucket in the double.
pub(crate) const BUCKET: &str = "acme-tidelock";

/// Starts a double with one bucket.
pub(crate) async fn double() -> Result<StorageDouble> {
    let double = StorageDouble::start().await?;
    double.bucket(BUCKET, Settings::default());
    Ok(double)
}

/// Returns the bucket as a server accesses it.
pub(crate) fn cloud(double: &StorageDouble) -> Result<Arc<dyn Bucket>> {
    let address = Address::parse(&format!("gs://{BUCKET}/prod")).map_err(|why| anyhow!(why))?;
    let options = Options { endpoint: Some(double.endpoint()), access: Access::Anonymous, ..Options::default() };
    Ok(Arc::new(Gcs::new(address, options)))
}

/// The same as a server's flags.
pub(crate) fn flags(double: &StorageDouble) -> [String; 2] {
    [format!("--bucket=gs://{BUCKET}/prod"), format!("--bucket-endpoint={}", double.endpoint())]
}

/// Takes the lead on a bucket, restores, opens: as a server does at its start.
pub(crate) async fn lead(bucket: Arc<dyn Bucket>, dir: &Path, retention: Retention) -> Result<(Leader, Store)> {
    let reader = Vault::reader(bucket);
    let identity = Identity { nonce: "0".repeat(32), ..reader.identity.clone() };
    let vault = Vault { identity, retention, ..reader };
    let lease = vault.acquire().await?;
    let (leader, chain) = vault.lead(lease).await?.context("the lease went to another")?;
    std::fs::create_dir_all(dir)?;
    Store::restore(dir, &chain).await?;
    let store = Store::lead(dir, leader.clone()).await?;
    Ok((leader, store))
}

/// Writes the newest state of a bucket into a new directory, as `tidelock vault export` does.
pub(crate) async fn export(bucket: Arc<dyn Bucket>, dir: &Path) -> Result<()> {
    let chain = Vault::reader(bucket).read(None).await?;
    Store::export(dir, &chain).await.map(drop)
}

/// Records and files of a finished plan: plan file, files that its steps made, log.
#[derive(Clone)]
pub(crate) struct Planned {
    pub(crate) job: Job,
    pub(crate) plan: PlanRecord,
    pub(crate) left: Option<KeptFile>,
}

/// Lengths of the files of one plan; 0: none.
#[derive(Clone, Copy)]
pub(crate) struct Lengths {
    pub(crate) plan: usize,
    pub(crate) log: usize,
    pub(crate) left: usize,
}

impl Planned {
    /// Writes the files as a running server does. Plan files and archives are compressed already, logs are text.
    pub(crate) fn write(dir: &Path, number: u64, lengths: Lengths) -> Result<()> {
        let id = format!("{number:032x}");
        let put = |folder: &str, ending: &str, content: Vec<u8>| -> Result<()> {
            std::fs::create_dir_all(dir.join(folder))?;
            if !content.is_empty() {
                std::fs::write(dir.join(format!("{folder}/{id}{ending}")), content)?;
            }
            Ok(())
        };
        put("plans", ".tfplan", crate::machine::noise(number, lengths.plan))?;
        put("left", ".tar.zst", crate::machine::noise(!number, lengths.left))?;
        put("logs", ".log", crate::machine::output(number, lengths.log))
    }

    /// Hashes the written files and makes the records that name them, as `execute::plan` does.
    pub(crate) fn read(dir: &Path, number: u64) -> Result<Planned> {
        let id = format!("{number:032x}");
        let path = format!("plans/{id}.tfplan");
        let plan_file = KeptFile::read(dir, &path)?.context("the plan file is gone")?;
        let left = KeptFile::read(dir, &format!("left/{id}.tar.zst"))?;
        let repo = RepoId { host: "github.com".into(), owner: "acme".into(), name: "infra".into() };
        let pull = PullId { repo, number: number / 10 + 1 };
        let project = ProjectId { dir: format!("live/{}", number % 10), workspace: "default".into(), name: None };
        let digest = Hash::of(id.as_bytes()).to_string();
        let (head, now) = (CommitSha::parse(&digest)?, Timestamp::now());
        let job = Job {
            id: JobId::from_bits(number.into()),
            run: RunId::from_bits((number / 10).into()),
            pull: pull.clone(),
            kind: "plan".into(),
            project: Some(project.clone()),
            user: Login::new("alice"),
            head: head.clone(),
            state: JobState::Succeeded,
            summary: "1 to add, 0 to change, 0 to destroy".into(),
            outcome: None,
            started: now,
            finished: Some(now),
            state_lock: Default::default(),
            remote: None,
        };
        let plan = PlanRecord {
            id: PlanId::from_bits(number.into()),
            pull,
            project,
            head: head.clone(),
            base: head,
            base_branch: "main".into(),
            config_digest: digest,
            tool: "terraform 1.13.3".into(),
            path: Some(path),
            sha256: Some(plan_file.sha256),
            summary: PlanSummary::default(),
            made: now,
            job: job.id.clone(),
            consumed_by: None,
            left: LeftFiles { archive: left.as_ref().map(|left| left.sha256.clone()), ..LeftFiles::default() },
            dependencies: Vec::new(),
            may_depend_on_more: false,
            max_age: None,
            inputs: None,
            changes: None,
            incomparable: None,
            part: None,
            guards: Vec::new(),
            tree: None,
            auto_apply: tidelock_core::domain::AutoApply::Never,
            arguments: Vec::new(),
            deleted: false,
        };
        Ok(Planned { job, plan, left })
    }

    /// Records it as one change, which is committed with others that wait.
    pub(crate) async fn record(self, store: &Store) -> Result<()> {
        let Planned { job, plan, left } = self;
        store
            .write(move |tx| {
                tx.put_job(&job)?;
                tx.put_plan(&plan)?;
                left.map_or(Ok(()), |left| tx.keep_file(&left))
            })
            .await
    }
}
