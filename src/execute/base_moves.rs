//! Inputs of plans in mode `strict`, and the plans that later changes of a base branch make out of date.

use super::command_run::CommandRun;
use super::context::Context;
use super::deleted;
use super::plan;
use super::prepare::{self, Prepared, Stop};
use crate::checkout::CheckoutError;
use crate::checkout::disk::DiskTree;
use crate::config::paths::Glob;
use crate::config::repo;
use crate::config::{MAX_CONFIG_BYTES, ProjectConfig};
use crate::domain::ownership::PlanInputs;
use crate::domain::state::PlanRecord;
use crate::domain::{CommitSha, PlanId, ProjectId, PullRequest};
use crate::inputs::patterns::Patterns;
use crate::inputs::{InputGraph, recorded};
use crate::schedule::Schedule;
use anyhow::anyhow;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

/// Returns the inputs of a plan's projects in mode `strict`; empty after the merge, when each plan is made at the tip of the branch.
pub(super) async fn inputs(
    ctx: &Context,
    work: &CommandRun,
    prepared: &Prepared,
    schedule: &Schedule,
) -> Result<BTreeMap<ProjectId, PlanInputs>, Stop> {
    let strict = schedule.groups.iter().flatten().filter(|config| plan::wanted_lock(ctx, work, config).is_strict());
    let strict: Vec<_> = strict.cloned().collect();
    if strict.is_empty() || work.after_merge.is_some() {
        return Ok(BTreeMap::new());
    }
    let (deleted, present): (Vec<_>, Vec<_>) = strict.into_iter().partition(|config| config.deleted);
    let mut found = BTreeMap::new();
    for projects in [present, deleted] {
        let Some(first) = projects.first() else { continue };
        let root = deleted::root_of(ctx, work, prepared, first, &prepared.fetched.base_tip).await?;
        found.extend(inputs_in(ctx, work, root, projects).await?);
    }
    Ok(found)
}

/// Returns the inputs of projects whose code is in one tree.
async fn inputs_in(
    ctx: &Context,
    work: &CommandRun,
    root: PathBuf,
    projects: Vec<ProjectConfig>,
) -> Result<BTreeMap<ProjectId, PlanInputs>, Stop> {
    let (options, rules) = (prepare::options(ctx), work.rules.clone());
    let arguments = work.command.extra_args.clone();
    let reading = move || {
        let tree = DiskTree { root };
        let graph = InputGraph::new(&tree, options.input_rules(&rules));
        let of = |config: &ProjectConfig| {
            let found = graph.inputs_of(config).map(|inputs| inputs.with_arguments(&arguments).recorded());
            let found = found.unwrap_or_else(|_| PlanInputs { everything: true, ..PlanInputs::default() });
            PlanInputs { depends_on: config.depends_on.clone(), ..found }
        };
        projects.iter().map(|config| (config.id.clone(), of(config))).collect()
    };
    tokio::task::spawn_blocking(reading)
        .await
        .map_err(|error| Stop::Other(anyhow!(error).context("looking for what the plans are made of")))
}

/// Fetches the current tip of a pull request's base branch into the mirror, and returns it.
pub(crate) async fn tip(ctx: &Context, pull: &PullRequest) -> Result<CommitSha, CheckoutError> {
    let credentials = prepare::credentials_of(ctx, &pull.id.repo).await;
    Ok(ctx.checkouts.fetch(pull, credentials.as_ref()).await?.base_tip)
}

/// Returns the plans with inputs that differ between their commit of the base branch and its tip. All plans are for the base branch of this
/// pull request; the mirror has the tip.
pub(crate) async fn find_stale(
    ctx: &Context,
    pull: &PullRequest,
    plans: &[PlanRecord],
    tip: &CommitSha,
) -> Result<Vec<PlanId>, CheckoutError> {
    let file_list = Patterns::new(&ctx.settings.autoplan_file_list).ok();
    let mut changed_since: HashMap<&CommitSha, Option<Vec<String>>> = HashMap::new();
    let mut found = Vec::new();
    for plan in plans.iter().filter(|plan| plan.base != *tip) {
        let Some(inputs) = &plan.inputs else { continue };
        if !changed_since.contains_key(&plan.base) {
            let changed = ctx.checkouts.differing_files(&pull.id.repo, &plan.base, tip).await?;
            changed_since.insert(&plan.base, changed);
        }
        let is_stale = match (changed_since.get(&plan.base).and_then(Option::as_ref), &file_list) {
            (Some(changed), Some(file_list)) => {
                recorded::are_touched(&plan.project, inputs, file_list, changed)
                    || is_configured_otherwise(ctx, pull, plan, tip, changed).await?
            }
            // The changes are unknown.
            _ => true,
        };
        if is_stale {
            found.push(plan.id.clone());
        }
    }
    Ok(found)
}

/// Returns true if the branch's own repo config configures a plan's project differently than before.
async fn is_configured_otherwise(
    ctx: &Context,
    pull: &PullRequest,
    plan: &PlanRecord,
    tip: &CommitSha,
    changed: &[String],
) -> Result<bool, CheckoutError> {
    let rules = ctx.global.rules(&pull.id.repo, &pull.base.branch);
    let names = rules.repo_config_names();
    if !names.iter().any(|name| changed.iter().any(|file| file == name)) {
        return Ok(false);
    }
    let credentials = prepare::credentials_of(ctx, &pull.id.repo).await;
    // Symlinks of neither commit are resolved: the project is searched for by the paths that its plan was made with.
    let link = plan.inputs.as_ref().and_then(|inputs| inputs.link.clone());
    let paths: Vec<String> = link.into_iter().chain([plan.project.dir.clone()]).collect();
    let own = |glob: &str| match Glob::new(glob) {
        Ok(glob) => paths.iter().filter(|path| glob.matches(path)).take(1).cloned().collect(),
        Err(_) => Vec::new(),
    };
    let is_own = |id: &ProjectId| {
        paths.contains(&id.dir) && (&id.workspace, &id.name) == (&plan.project.workspace, &plan.project.name)
    };
    let mut digests = Vec::new();
    for commit in [&plan.base, tip] {
        let mut digest = None;
        for name in &names {
            let file = ctx.checkouts.file_at(pull, commit, name, MAX_CONFIG_BYTES, credentials.as_ref());
            let Some(text) = file.await? else { continue };
            let Ok(config) = repo::parse(&text, name, &rules, &pull.base.branch, &own) else { return Ok(true) };
            let project = config.projects.into_iter().find(|project| is_own(&project.id));
            digest = project.map(|project| ProjectConfig { id: plan.project.clone(), ..project }.digest());
            break;
        }
        digests.push(digest);
    }
    Ok(digests.first() != digests.last())
}
