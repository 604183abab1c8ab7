//! Preparation of a command before its projects begin: fetch, the default workspace's tree, modified files, the repo config, the schedule.

use super::applicable_plans::ApplicablePlans;
use super::command_run::CommandRun;
use super::context::Context;
use super::deleted::BaseTrees;
use super::{measured, merged, names};
use crate::checkout::disk::DiskTree;
use crate::checkout::{CheckoutError, Credentials, Fetched, Strategy, WorkingTree};
use crate::config::global::RepoRules;
use crate::config::paths::{clean, parent};
use crate::config::repo::{self, RepoConfig};
use crate::config::{ConfigError, ConfigErrors, MAX_CONFIG_BYTES, ProjectConfig};
use crate::domain::command::BranchTargets;
use crate::domain::outcome::{Fault, Reason};
use crate::domain::ownership::OwnerState;
use crate::domain::{CommitSha, Distribution, ProjectId, PullRequest, RepoId};
use crate::inputs::{self, InputGraph, Tree};
use crate::meters::RunPhase;
use crate::schedule::{self, ConfigChange, Facts, NoSchedule, Schedule, ScheduleOptions};
use crate::settings::Settings;
use anyhow::{Context as _, anyhow};
use std::path::Path;
use std::time::Instant;

/// Maximum number of times that a sparse tree grows by directories that its files name.
const MAX_GROWTH: usize = 12;

/// Reason for which a command ends before its projects begin.
pub(super) enum Stop {
    /// An error that is reported on the pull request.
    Fault(Fault),
    /// It has no project, and gets no answer.
    Silent,
    /// The command was cancelled.
    Cancelled,
    /// An internal error.
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
    /// Directories of sparse trees. All trees of a command have the same ones, so that none is changed for another project.
    pub(super) dirs: Option<Vec<String>>,
}

/// Returns the credentials with which git fetches the repository; `None` for public access, and if its host is not configured.
pub(super) async fn credentials(ctx: &Context, work: &CommandRun) -> Option<Credentials> {
    credentials_of(ctx, &work.pull.id.repo).await
}

/// Fetches head and base of a pull request.
pub(crate) async fn fetch(ctx: &Context, pull: &PullRequest) -> Result<Fetched, CheckoutError> {
    ctx.checkouts.fetch(pull, credentials_of(ctx, &pull.id.repo).await.as_ref()).await
}

/// Does the same for a repository.
pub(super) async fn credentials_of(ctx: &Context, repo: &RepoId) -> Option<Credentials> {
    let found = ctx.hosts.for_repo(repo).ok()?.git_credentials(&repo.owner).await?;
    Some(Credentials { username: found.username, password: found.password })
}

/// Information that a command needs besides the head's tree.
#[derive(Clone, Copy)]
pub(super) enum Need<'a> {
    /// The base branch as it is now, and the files that the pull request changes.
    Changes,
    /// The files that it changes, from the base that the tree is on.
    Files,
    /// Nothing: the changed files are given.
    Listed(&'a [String]),
    /// Nothing: the plans are given, and the tree is on the base of the newest one.
    Plans(&'a ApplicablePlans),
    /// Nothing: a drift run plans a commit of a branch, in a whole tree.
    Branch,
}

/// Fetches and checks out the head.
pub(super) async fn check_out(ctx: &Context, work: &CommandRun, need: Need<'_>) -> Result<Prepared, Stop> {
    let work_on = async {
        let credentials = credentials(ctx, work).await;
        let fetched = match need {
            Need::Changes => {
                // Only a plan moves the tree to another base, and no job of the pull request runs now.
                ctx.checkouts.retry_pointers(&work.pull.id).await?;
                ctx.checkouts.fetch(&work.pull, credentials.as_ref()).await?
            }
            Need::Files | Need::Listed(_) | Need::Plans(_) | Need::Branch => {
                ctx.checkouts.fetch_missing(&work.pull, credentials.as_ref()).await?
            }
        };
        // Only a plan moves on to a newer base.
        let base = match need {
            Need::Changes | Need::Listed(_) => None,
            Need::Files => ctx.checkouts.base_of_tree(&work.pull),
            Need::Plans(plans_to_apply) => plans_to_apply.base(&work.pull.head.commit).cloned(),
            // Merged with itself, the commit stays the same.
            Need::Branch => Some(fetched.head.clone()),
        };
        let fetched = Fetched { base_tip: base.unwrap_or(fetched.base_tip), ..fetched };
        let modified = async {
            match need {
                Need::Plans(_) | Need::Branch => Ok(Vec::new()),
                Need::Listed(files) => Ok(files.to_vec()),
                Need::Changes | Need::Files => ctx.checkouts.modified_files(&work.pull, &fetched).await,
            }
        };
        if ctx.checkouts.sparse && !matches!(need, Need::Branch) {
            let modified = modified.await?;
            let mut dirs: Vec<String> = modified.iter().map(|file| parent(file).to_owned()).collect();
            if let Need::Plans(plans_to_apply) = need {
                dirs.extend(plans_to_apply.dirs().map(str::to_owned));
            }
            dirs.extend(work.after_merge.iter().flat_map(|after| &after.owed).map(|project| project.dir.clone()));
            let (tree, dirs) = sparse_tree(ctx, work, &fetched, dirs).await?;
            bring_history_for_hooks(ctx, work, &tree).await?;
            return Ok(Prepared { fetched, tree, modified, dirs: Some(dirs) });
        }
        let tree = ctx.checkouts.tree(&work.pull, "default", &fetched, None, credentials.as_ref());
        let (modified, tree) = tokio::try_join!(modified, tree)?;
        bring_history_for_hooks(ctx, work, &tree).await?;
        Ok(Prepared { fetched, tree, modified, dirs: None })
    };
    let began = Instant::now();
    let checked_out = tokio::select! {
        biased;
        () = work.cancel.token.cancelled() => Err(Stop::Cancelled),
        result = work_on => result,
    };
    measured::phase(ctx, &work.run.id, RunPhase::Checkout, began.elapsed());
    checked_out
}

/// Fetches the history for hooks, which may need more of it than the checkout and have no credentials.
async fn bring_history_for_hooks(ctx: &Context, work: &CommandRun, tree: &WorkingTree) -> Result<(), CheckoutError> {
    match work.has_hooks() {
        true => ctx.checkouts.bring_history(&work.pull, tree, credentials(ctx, work).await.as_ref()).await,
        false => Ok(()),
    }
}

/// Makes a tree with these directories, those of configured projects, and the local modules that they use. Also returns all directories.
async fn sparse_tree(
    ctx: &Context,
    work: &CommandRun,
    fetched: &Fetched,
    mut dirs: Vec<String>,
) -> Result<(WorkingTree, Vec<String>), CheckoutError> {
    let credentials = credentials(ctx, work).await;
    // A glob too: there may be a directory of that very name.
    dirs.extend(work.command.target.dirs.iter().map(|dir| clean(dir)));
    if work.rules.terragrunt {
        // Any unit may depend on a changed one.
        dirs.extend(ctx.checkouts.dirs_with(&work.pull, &fetched.head, "terragrunt.hcl").await?);
    }
    // Repeated: configured projects are known once the root's files are there, modules once the projects' files are, and the dependencies
    // of a unit once the unit is.
    let mut tree = ctx.checkouts.tree(&work.pull, "default", fetched, Some(&dirs), credentials.as_ref()).await?;
    for round in 0..=MAX_GROWTH {
        let before = dirs.clone();
        dirs = with_inputs(ctx, work, &tree, dirs).await?;
        if dirs == before {
            break;
        }
        if round == MAX_GROWTH {
            // The files name ever more directories.
            dirs.push(".".to_owned());
        }
        tree = ctx.checkouts.tree(&work.pull, "default", fetched, Some(&dirs), credentials.as_ref()).await?;
    }
    Ok((tree, dirs))
}

/// Returns these directories, those of configured projects, and those of the inputs of all of them, as far as the tree has their files.
async fn with_inputs(
    ctx: &Context,
    work: &CommandRun,
    tree: &WorkingTree,
    mut dirs: Vec<String>,
) -> anyhow::Result<Vec<String>> {
    let (disk, rules, branch) =
        (DiskTree { root: tree.root.clone() }, work.rules.clone(), work.pull.base.branch.clone());
    let (options, arguments) = (options(ctx), work.command.extra_args.clone());
    let work = tokio::task::spawn_blocking(move || {
        let configured = read_config(&rules, &branch, &disk).ok().flatten();
        let projects = configured.map(|config| config.projects).unwrap_or_default();
        dirs.extend(projects.iter().map(|project| project.id.dir.clone()));
        InputGraph::new(&disk, options.input_rules(&rules)).sparse(dirs, &projects, &arguments)
    });
    work.await.context("looking for what projects are made of")
}

/// Reads the repository's own config, effective for this base branch; `None` if there is none. Blocks.
pub(crate) fn read_config(
    rules: &RepoRules,
    base_branch: &str,
    tree: &DiskTree,
) -> Result<Option<RepoConfig>, ConfigErrors> {
    let Some(name) =
        repo::find(rules, &|file| tree.files(".").iter().any(|known| known == file) || tree.read(file).is_some())?
    else {
        return Ok(None);
    };
    let text = tree
        .read(&name)
        .ok_or_else(|| ConfigError(format!("`{name}` cannot be read: it is not text, or larger than 1 MiB")))?;
    parse_config(&text, &name, rules, base_branch, tree).map(Some)
}

fn parse_config(
    text: &str,
    name: &str,
    rules: &RepoRules,
    base_branch: &str,
    tree: &DiskTree,
) -> Result<RepoConfig, ConfigErrors> {
    repo::parse(text, name, rules, base_branch, &schedule::Directories::new(tree))
}

/// Texts of the repo config before and after a pull request.
struct ConfigTexts {
    name: String,
    base: String,
    /// Absent if it is the one in the tree.
    head: Option<String>,
}

/// Returns the repo config before and after the pull request, if that changes the file. The earlier one is of the commit that its tree is
/// merged with, or of the fork point. For merged changes, both are of the two given commits.
async fn changed_config(
    ctx: &Context,
    work: &CommandRun,
    prepared: &Prepared,
    wanted: ScheduleScope<'_>,
) -> Result<Option<ConfigTexts>, Stop> {
    let name =
        work.rules.repo_config_names().into_iter().find(|name| prepared.modified.iter().any(|file| file == name));
    let Some(name) = name else { return Ok(None) };
    let (tree, pull) = (&prepared.tree, &work.pull);
    let base = match (wanted, ctx.checkouts.strategy) {
        (ScheduleScope::Merged { from, .. }, _) => Some(from.clone()),
        (_, Strategy::Merge) => Some(tree.base.clone()),
        (_, Strategy::Branch) => ctx.checkouts.forked_at(&pull.id.repo, &tree.base, &tree.head).await?,
    };
    let Some(base) = base else { return Ok(None) };
    let credentials = credentials(ctx, work).await;
    let text_at = async |commit: &CommitSha| {
        let text = ctx.checkouts.file_at(pull, commit, name, MAX_CONFIG_BYTES, credentials.as_ref()).await;
        // A missing file means the same as one without projects: the rules alone configure them.
        text.map(|text| text.unwrap_or_else(|| "version: 3\n".to_owned()))
    };
    let head = match wanted {
        ScheduleScope::Merged { to, .. } => Some(text_at(to).await?),
        _ => None,
    };
    Ok(Some(ConfigTexts { name: name.to_owned(), base: text_at(&base).await?, head }))
}

/// Returns the projects that this pull request has applied, in mode `strict`.
async fn applied_here(ctx: &Context, work: &CommandRun) -> Result<Vec<ProjectId>, Stop> {
    let pull = work.pull.id.clone();
    let mut owners = ctx.store.read(move |view| view.owners_of(&pull)).await?;
    owners.retain(|owner| owner.applied.is_some() && owner.state != OwnerState::MergedUnapplied);
    Ok(owners.into_iter().map(|owner| owner.project).collect())
}

/// Projects that a command runs on.
#[derive(Clone, Copy)]
pub(super) enum ScheduleScope<'a> {
    /// Projects that the pull request changes, or the target.
    Plan,
    /// Projects that a merged pull request has changed between these commits.
    Merged { from: &'a CommitSha, to: &'a CommitSha },
    /// Projects that were planned.
    Planned(&'a [ProjectId]),
    /// These projects with their configuration, regardless of the command.
    Known(&'a [ProjectId]),
    /// These projects of a branch.
    Branch(&'a BranchTargets),
}

/// Reads the repo config and makes the schedule.
pub(super) async fn schedule(
    ctx: &Context,
    work: &CommandRun,
    prepared: &Prepared,
    wanted: ScheduleScope<'_>,
) -> Result<Schedule, Stop> {
    let mut modified = prepared.modified.clone();
    if ctx.settings.include_git_untracked_files && !matches!(wanted, ScheduleScope::Branch(_)) {
        modified.extend(ctx.checkouts.untracked_files(&prepared.tree).await?);
    }
    let options = options(ctx);
    let owed = work.after_merge.as_ref().map(|after| after.owed.clone());
    let is_limited = !matches!(wanted, ScheduleScope::Known(_));
    let (mut given, mut targets) = (None, None);
    match wanted {
        ScheduleScope::Plan | ScheduleScope::Merged { .. } => {}
        ScheduleScope::Planned(ids) | ScheduleScope::Known(ids) => given = Some(ids.to_vec()),
        ScheduleScope::Branch(wanted) => targets = Some(wanted.clone()),
    }
    let (texts, applied) = match given.is_none() && targets.is_none() && owed.is_none() {
        true => (changed_config(ctx, work, prepared, wanted).await?, applied_here(ctx, work).await?),
        false => (None, Vec::new()),
    };
    let base_trees = BaseTrees::prepare(ctx, work, prepared, wanted).await?;
    let (command, rules, branch) = (work.command.clone(), work.rules.clone(), work.pull.base.branch.clone());
    let root = prepared.tree.root.clone();
    let made = tokio::task::spawn_blocking(move || {
        let tree = DiskTree { root };
        let config = read_config(&rules, &branch, &tree).map_err(ConfigError::from)?;
        let texts = texts.and_then(|ConfigTexts { name, base, head }| {
            let parsed = |text: &str| parse_config(text, &name, &rules, &branch, &tree).ok();
            let head = match head {
                Some(head) => Some(parsed(&head)?),
                None => None,
            };
            Some((parsed(&base)?, head))
        });
        let config_change = texts.as_ref().and_then(|(base, head)| {
            let head = head.as_ref().or(config.as_ref())?;
            Some(ConfigChange { base, head })
        });
        let facts = Facts {
            rules: &rules,
            repo_config: config.as_ref(),
            modified: &modified,
            tree: &tree,
            options: &options,
            config_change,
            applied: &applied,
            deletions: None,
        };
        let deletions = base_trees.map(|trees| trees.deletions(&command, &branch, &facts)).transpose()?;
        let facts = Facts { deletions: deletions.as_ref(), ..facts };
        // The base branch may have renamed a project since.
        let owed = owed.map(|owed| schedule::named_now(&owed, &facts));
        let schedule = match (&targets, given.as_ref().or(owed.as_ref())) {
            (Some(targets), _) => schedule::for_branch(targets, &facts),
            (None, None) => schedule::for_plan(&command, &facts),
            (None, Some(ids)) => schedule::for_planned(&command, ids, &facts),
        };
        let schedule = merged::only_owed(schedule?, owed.as_deref().filter(|_| is_limited))?;
        Ok::<_, NoSchedule>((schedule, owed))
    })
    .await
    .context("making the schedule")?;
    let (schedule, named) = made.map_err(|why| no_schedule(ctx, &why))?;
    names::record_owed(ctx, work, named).await?;
    Ok(schedule)
}

/// Returns the stop of a command that has no schedule.
pub(super) fn no_schedule(ctx: &Context, why: &NoSchedule) -> Stop {
    if *why == NoSchedule::Silent {
        return Stop::Silent;
    }
    let message = ctx.redactor.redact(&why.to_string());
    Stop::Fault(Fault { reason: Reason::Config, message, output: String::new() })
}

pub(super) fn options(ctx: &Context) -> ScheduleOptions {
    schedule_options(&ctx.settings, &ctx.rendering.executable)
}

/// Returns the settings that select projects.
pub(crate) fn schedule_options(settings: &Settings, executable: &str) -> ScheduleOptions {
    ScheduleOptions {
        executable: executable.to_owned(),
        default_distribution: settings.default_tf_distribution,
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

/// Returns the constraints of `required_version` in a project's files that this distribution reads; for a Terragrunt unit, also those of
/// its source.
pub(super) async fn required_versions(
    root: &Path,
    config: &ProjectConfig,
    which: Distribution,
) -> Result<Vec<String>, Stop> {
    let (tree, dir, is_unit) = (DiskTree { root: root.to_owned() }, config.id.dir.clone(), config.terragrunt);
    let reading = move || {
        let source = if is_unit { inputs::unit_source(&tree, &dir) } else { None };
        let dirs = std::iter::once(dir).chain(source);
        dirs.flat_map(|dir| inputs::required_versions(&tree, &dir, which)).collect()
    };
    tokio::task::spawn_blocking(reading)
        .await
        .map_err(|error| Stop::Other(anyhow!(error).context("reading required_version")))
}
