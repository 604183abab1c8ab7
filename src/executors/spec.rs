//! What leader and job tell each other: the specification of a remote job, and its end. Both are JSON.

use super::probe::Probed;
use crate::checkout::Credentials;
use crate::domain::{CommitSha, Distribution};
use crate::process::StepConfinement;
use crate::runner::local::ModuleOrigin;
use crate::runner::result::Ran;
use crate::runner::spec::JobSpec;
use crate::vault::jobs::StoredFile;
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use std::path::PathBuf;

/// Name of the object with the tree.
pub(crate) const TREE: &str = "tree";
/// Name of the object with the plan file, which the leader stores for a job that reads it, and a job for the leader.
pub(crate) const PLAN: &str = "plan";
/// Name of the object with the archive of the files that the steps of a plan left, likewise.
pub(crate) const LEFT: &str = "left";
/// Name of the object with the state that Terraform could not save.
pub(crate) const ERRORED: &str = "errored";

/// Largest packed tree, in bytes.
pub(crate) const MAX_TREE: u64 = 1 << 30;
/// Largest plan file, in bytes.
pub(crate) const MAX_PLAN: u64 = 512 << 20;
/// Largest archive of the files that steps left, in bytes.
pub(crate) const MAX_LEFT: u64 = 128 << 20;
/// Largest state that Terraform could not save, in bytes.
pub(crate) const MAX_ERRORED: u64 = 512 << 20;

/// Work of a remote job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RemoteSpec {
    /// Version of the server. A program of another version refuses the job.
    pub(crate) version: String,
    /// The job. Its steps before the stage already restore what a new tree lacks.
    pub(crate) job: JobSpec,
    /// The tree that it runs in.
    pub(crate) tree: RemoteTree,
    /// The plan file that it reads, an object of the job; absent if it reads none.
    pub(crate) plan: Option<StoredFile>,
    /// Archive of the files that the steps of that plan left, an object of the job; absent if there is none.
    pub(crate) left: Option<StoredFile>,
    /// Sources of Terraform binaries.
    pub(crate) tools: ToolSources,
    /// True if providers are kept for later jobs of the same machine.
    pub(crate) use_plugin_cache: bool,
    /// Bounds of its steps.
    pub(crate) bounds: RemoteBounds,
    /// Sources of modules for which `init` gets credentials.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) modules: Vec<RemoteOrigin>,
}

/// A source of modules, with a token that can only read code there. Whoever reads the specification has the token until it expires.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RemoteOrigin {
    address: String,
    username: String,
    token: String,
}

impl fmt::Debug for RemoteOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteOrigin").field("address", &self.address).finish_non_exhaustive()
    }
}

impl From<ModuleOrigin> for RemoteOrigin {
    fn from(origin: ModuleOrigin) -> RemoteOrigin {
        let ModuleOrigin { address, credentials: Credentials { username, password } } = origin;
        RemoteOrigin { address, username, token: password.expose_secret().to_owned() }
    }
}

impl From<RemoteOrigin> for ModuleOrigin {
    fn from(origin: RemoteOrigin) -> ModuleOrigin {
        let RemoteOrigin { address, username, token } = origin;
        ModuleOrigin { address, credentials: Credentials { username, password: token.into() } }
    }
}

/// Bounds of the steps of a remote job, from the settings of the server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RemoteBounds {
    /// `--step-confinement`.
    pub(crate) confinement: StepConfinement,
    /// `--step-writable`.
    pub(crate) writable: Option<Vec<PathBuf>>,
    /// Files and directories that no step can open, such as those of a server on the same machine. They may be absent.
    pub(crate) hidden: Vec<PathBuf>,
    /// Files and directories that no step can change. They may be absent.
    pub(crate) kept: Vec<PathBuf>,
}

/// A packed tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RemoteTree {
    /// Prefix of the objects that it belongs to. Jobs of one command share it.
    pub(crate) prefix: String,
    /// Its archive.
    pub(crate) file: StoredFile,
    /// Absolute path at which the job unpacks it. Plans contain paths, so a plan is applied where it was made.
    pub(crate) root: PathBuf,
    /// Head commit in it.
    pub(crate) head: CommitSha,
    /// Commit of the base branch that the head was merged with, or that was known when the tree was made.
    pub(crate) base: CommitSha,
}

/// Sources of Terraform binaries, from the settings of the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ToolSources {
    /// True if missing versions are downloaded.
    pub(crate) download: bool,
    /// Address of Terraform's releases.
    pub(crate) terraform_url: String,
    /// Address of OpenTofu's releases.
    pub(crate) opentofu_url: String,
    /// True if releases without a valid signature are installed.
    pub(crate) allow_unsigned: bool,
    /// Distribution of projects that name none.
    pub(crate) default_distribution: Distribution,
}

/// Result of a remote job, the content of its `result`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RemoteResult {
    /// Its steps have ended.
    Ran(Box<RemoteEnd>),
    /// No step was run, for this reason in words.
    Refused(String),
    /// It was a probe.
    Probed(Box<Probed>),
}

/// Returns true if a result names a state that Terraform could not save. The result may be of another version.
pub(crate) fn names_errored_state(result: &Value) -> bool {
    result.pointer("/ran/errored").is_some_and(|file| !file.is_null())
}

/// The end of a remote job, as it tells it. Nothing in it is trusted: sizes are limited, and names of files are the leader's own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RemoteEnd {
    /// The result. Paths in it are those of the job's machine.
    pub(crate) ran: Ran,
    /// The plan file that it made.
    pub(crate) plan: Option<StoredFile>,
    /// Archive of the files that the steps of the plan left.
    pub(crate) left: Option<StoredFile>,
    /// The state that Terraform could not save.
    pub(crate) errored: Option<StoredFile>,
}
