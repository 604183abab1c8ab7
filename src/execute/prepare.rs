//! Before the projects are known: fetch, the default workspace's tree, modified files, the repo config.

use super::{Context, Work};
use crate::checkout::disk::DiskTree;
use crate::checkout::{CheckoutError, Credentials, Fetched, WorkingTree};
use crate::config::repo::{self, RepoConfig};
use crate::domain::outcome::{Fault, Reason};
use crate::schedule::{self, Facts, Options, Refusal, Schedule, Tree};
use anyhow::anyhow;
use std::path::Path;
use std::sync::atomic::AtomicUsize;

/// Why a command ends before its projects begin.
pub(super) enum Stop {
    /// Something broke; said on the pull request.
    Fault(Fault),
    /// The schedule refuses.
    Refused(Refusal),
    /// The command was cancelled.
    Cancelled,
    /// Something broke that is ours.
    Other(anyhow::Error),
}

impl From<anyhow::Error> for Stop {
    fn from(error: anyhow::Error) -> Stop {
        Stop::Other(error)
    }
}

impl From<CheckoutError> for Stop {
    fn from(error: CheckoutError) -> Stop {
        match error {
            CheckoutError::Other(error) => Stop::Other(error),
            CheckoutError::Conflict(output) => Stop::Fault(Fault {
                reason: Reason::Plan,
                message: "The head branch cannot be merged into the base branch: merge or rebase it, then push".into(),
                output,
            }),
            other => Stop::Fault(Fault { reason: Reason::Internal, message: other.to_string(), output: String::new() }),
        }
    }
}

/// The pull request's code, on disk.
pub(super) struct Prepared {
    /// Commits in the mirror.
    pub(super) fetched: Fetched,
    /// Tree of the default workspace.
    pub(super) tree: WorkingTree,
    /// Files that the pull request changes.
    pub(super) modified: Vec<String>,
}

pub(super) fn credentials(ctx: &Context) -> Option<Credentials> {
    let found = ctx.host.git_credentials()?;
    Some(Credentials { username: found.username, password: found.password })
}

/// What a command needs to know besides the head's tree.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// The base branch as it is now, and the files that the pull request changes.
    Changes,
    /// The files that it changes, from a base branch that is known.
    Files,
    /// Nothing: its projects are known.
    Tree,
}

/// Fetches and checks out the head.
pub(super) async fn check_out(ctx: &Context, work: &Work, need: Need) -> Result<Prepared, Stop> {
    let work_on = async {
        let credentials = credentials(ctx);
        let fetched = ctx.checkouts.fetch(&work.pull, credentials.as_ref(), need == Need::Changes).await?;
        let modified = async {
            match need {
                Need::Tree => Ok(Vec::new()),
                Need::Changes | Need::Files => ctx.checkouts.modified_files(&work.pull, &fetched).await,
            }
        };
        if ctx.checkouts.sparse {
            let modified = modified.await?;
            let tree = sparse_tree(ctx, work, &fetched, &modified).await?;
            return Ok(Prepared { fetched, tree, modified });
        }
        let tree = ctx.checkouts.tree(&work.pull, "default", &fetched, None, credentials.as_ref());
        let (modified, tree) = tokio::try_join!(modified, tree)?;
        Ok(Prepared { fetched, tree, modified })
    };
    tokio::select! {
        biased;
        () = work.cancel.token.cancelled() => Err(Stop::Cancelled),
        result = work_on => result,
    }
}

/// A tree with the directories of modified files and of configured projects, then also with the local modules they use.
async fn sparse_tree(
    ctx: &Context,
    work: &Work,
    fetched: &Fetched,
    modified: &[String],
) -> Result<WorkingTree, CheckoutError> {
    let credentials = credentials(ctx);
    let mut dirs: Vec<String> = modified.iter().map(|file| parent(file).to_owned()).collect();
    let targeted = work.command.target.dir.iter().filter(|dir| !dir.contains(['*', '?', '[']));
    dirs.extend(targeted.cloned());
    // Twice: configured projects are known when the root's files are there, modules when the projects' files are.
    let mut tree = ctx.checkouts.tree(&work.pull, "default", fetched, Some(&dirs), credentials.as_ref()).await?;
    for _ in 0..2 {
        let disk = DiskTree { root: tree.root.clone() };
        let configured = read_config(work, &disk).ok().flatten();
        dirs.extend(configured.into_iter().flat_map(|config| config.projects).map(|project| project.id.dir));
        let modules: Vec<String> = dirs.iter().flat_map(|dir| schedule::modules::module_dirs(&disk, dir)).collect();
        dirs.extend(modules);
        dirs.sort();
        dirs.dedup();
        tree = ctx.checkouts.tree(&work.pull, "default", fetched, Some(&dirs), credentials.as_ref()).await?;
    }
    Ok(tree)
}

fn parent(file: &str) -> &str {
    file.rsplit_once('/').map_or(".", |(dir, _)| dir)
}

fn read_config(work: &Work, tree: &DiskTree) -> Result<Option<RepoConfig>, crate::config::ConfigError> {
    let Some(name) = repo::find(&work.rules, &|file| {
        tree.files(".").iter().any(|known| known == file) || tree.read(file).is_some()
    })?
    else {
        return Ok(None);
    };
    let text = tree.read(&name).ok_or_else(|| {
        crate::config::ConfigError(format!("`{name}` cannot be read: it is not text, or larger than 1 MiB"))
    })?;
    let expand = |glob: &str| schedule::directories_matching(tree, glob);
    repo::parse(&text, &name, &work.rules, &work.pull.base.branch, &expand).map(Some)
}

/// What a command is to run on.
pub(super) enum Wanted<'a> {
    /// What the pull request changes, or the target.
    Plan,
    /// What was planned.
    Planned(&'a [crate::domain::ProjectId]),
}

/// Reads the repo config and makes the schedule.
pub(super) async fn schedule(
    ctx: &Context,
    work: &Work,
    prepared: &Prepared,
    wanted: Wanted<'_>,
) -> Result<Schedule, Stop> {
    let mut modified = prepared.modified.clone();
    if ctx.settings.include_git_untracked_files {
        modified.extend(ctx.checkouts.untracked_files(&prepared.tree).await?);
    }
    let options = options(ctx);
    let planned = match wanted {
        Wanted::Plan => None,
        Wanted::Planned(ids) => Some(ids.to_vec()),
    };
    let copy = Work {
        run: work.run.clone(),
        pull: work.pull.clone(),
        command: work.command.clone(),
        rules: work.rules.clone(),
        cancel: work.cancel.clone(),
        begun: AtomicUsize::default(),
    };
    let root = prepared.tree.root.clone();
    tokio::task::spawn_blocking(move || {
        let tree = DiskTree { root };
        let config = read_config(&copy, &tree).map_err(|error| Stop::Refused(Refusal::Config(error)))?;
        let facts = Facts {
            rules: &copy.rules,
            repo_config: config.as_ref(),
            modified: &modified,
            tree: &tree,
            options: &options,
        };
        let schedule = match planned {
            None => schedule::for_plan(&copy.command, &facts),
            Some(ids) => schedule::for_planned(&copy.command, &ids, &facts),
        };
        schedule.map_err(Stop::Refused)
    })
    .await
    .map_err(|error| Stop::Other(anyhow!(error).context("making the schedule")))?
}

pub(super) fn options(ctx: &Context) -> Options {
    let settings = &ctx.settings;
    Options {
        executable: ctx.rendering.executable.clone(),
        autodiscover_mode: settings.autodiscover_mode,
        autoplan_file_list: settings.autoplan_file_list.clone(),
        autoplan_modules_from: settings.autoplan_modules_from_projects.clone(),
        enable_regexp_cmd: settings.enable_regexp_cmd,
        restrict_file_list: settings.restrict_file_list,
        silence_no_projects: settings.silence_no_projects,
        parallel_plan: settings.parallel_plan,
        parallel_apply: settings.parallel_apply,
    }
}

/// Constraints of `required_version`, and whether `init` may have to fetch providers, of one project directory.
pub(super) async fn required_versions(root: &Path, dir: &str) -> Result<Vec<String>, Stop> {
    let (root, dir) = (root.to_owned(), dir.to_owned());
    tokio::task::spawn_blocking(move || schedule::required_versions(&DiskTree { root }, &dir))
        .await
        .map_err(|error| Stop::Other(anyhow!(error).context("reading required_version")))
}
