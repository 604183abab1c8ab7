//! Finds commits of the base branch that change a project and that nobody has approved. After the merge the tip of that branch is applied,
//! while approvals are of the merged head. All other commits since the approved plan must therefore come from merged pull requests, each of
//! them approved as the project requires. Otherwise the tip itself needs an approval: of the pull request, after its plan of the tip.

use super::super::approval_error::ApprovalError;
use super::super::command_run::CommandRun;
use super::super::context::Context;
use super::super::prepare::{self, Prepared, Stop};
use super::super::requirements::{self, PullFacts};
use super::AfterMerge;
use crate::checkout::chain::BranchCommit;
use crate::checkout::disk::DiskTree;
use crate::config::ProjectConfig;
use crate::config::repo::DEFAULT_FILES;
use crate::domain::outcome::RequirementCheck;
use crate::domain::requirement::Requirement;
use crate::domain::state::PlanRecord;
use crate::domain::{CommitSha, PullRequest, PullState};
use crate::inputs::InputGraph;
use crate::vcs::{ReviewVerdict, is_since};
use anyhow::anyhow;
use std::collections::HashSet;

/// Maximum number of merged pull requests whose commits are looked up.
const MAX_MERGES: usize = 200;
/// Maximum number of commits that a refusal names.
const MAX_NAMED: usize = 5;
/// Maximum length of an author and of a subject in a refusal, in characters.
const MAX_WORDS: usize = 80;

/// The requirement `approved` for commits that this pull request did not merge.
#[derive(Default)]
pub(in crate::execute) struct Reviewed {
    pub(in crate::execute) check: Option<RequirementCheck>,
    pub(in crate::execute) remark: Option<String>,
}

/// Checks this requirement for one project; empty if nothing else needs an approval.
pub(in crate::execute) async fn reviewed(
    ctx: &Context,
    work: &CommandRun,
    config: &ProjectConfig,
    facts: &PullFacts,
    prepared: &Prepared,
    plan: Option<&PlanRecord>,
) -> Result<Reviewed, ApprovalError> {
    let Some(after) = &work.after_merge else { return Ok(Reviewed::default()) };
    let looking = Looking { ctx, work, after, config, prepared };
    let Some(because) = looking.unreviewed().await? else { return Ok(Reviewed::default()) };
    if looking.of_tip(facts, plan).await? {
        let remark = Some(format!("{because}. It was approved with the plan of this tip."));
        return Ok(Reviewed { check: None, remark });
    }
    let detail = format!("{because}. {}", looking.way_out(plan));
    let check = Some(RequirementCheck { name: Requirement::Approved.name().into(), met: false, detail });
    Ok(Reviewed { check, remark: None })
}

struct Looking<'a> {
    ctx: &'a Context,
    work: &'a CommandRun,
    after: &'a AfterMerge,
    config: &'a ProjectConfig,
    prepared: &'a Prepared,
}

impl Looking<'_> {
    /// Describes the commits that nobody has approved; `None` if there are none.
    async fn unreviewed(&self) -> Result<Option<String>, ApprovalError> {
        let (ctx, own, tip) = (self.ctx, &self.after.pull, &self.work.pull.head.commit);
        let (repo, branch) = (&own.id.repo, &own.base.branch);
        let name = ctx.hosts.pull_name(&own.id);
        let PullState::Merged { commit: Some(merge) } = &own.state else {
            return Ok(Some(format!(
                "the host does not report the merge commit of {name}, so the server cannot find the commits that were pushed since"
            )));
        };
        let brought = self.brought(own, merge).await?;
        let from = match self.approved_base().await? {
            Some(base) => base,
            None => ctx.checkouts.ancestor(repo, merge, brought.max(1)).await?,
        };
        let is_there = ctx.checkouts.contains(repo, tip, merge).await?;
        let chain = if is_there { ctx.checkouts.commits_since(repo, &from, tip).await? } else { None };
        let Some(chain) = chain else {
            return Ok(Some(format!(
                "`{branch}` was rewritten since {}, or has more new commits than the server checks",
                from.short()
            )));
        };
        let mut open = self.touching(&chain).await?;
        cover(&chain, merge, brought, &mut open);
        let mut notes = Vec::new();
        if !open.is_empty() {
            let (of, on) = (repo.clone(), branch.clone());
            let merged = ctx.store.read(move |view| view.merged_pulls_of(&of, &on, MAX_MERGES)).await?;
            for other in merged.iter().filter(|other| other.id != own.id) {
                notes.extend(self.cover_with(other, &chain, &mut open).await?);
            }
        }
        Ok((!open.is_empty()).then(|| self.describe_commits(&chain, &open, notes)))
    }

    /// Returns the commit of the base branch on which the approved plan was made.
    async fn approved_base(&self) -> Result<Option<CommitSha>, Stop> {
        let (id, project) = (self.after.pull.id.clone(), self.config.id.clone());
        let owners = self.ctx.store.read(move |view| view.owners_of(&id)).await?;
        let owner = owners.into_iter().find(|owner| owner.project == project);
        Ok(owner.and_then(|owner| owner.approved).map(|approved| approved.base))
    }

    /// Returns the number of commits, ending with its merge, that a pull request brought; 0 if its head is not available any more.
    async fn brought(&self, pull: &PullRequest, merge: &CommitSha) -> Result<usize, Stop> {
        let (ctx, head) = (self.ctx, &pull.head.commit);
        let credentials = prepare::credentials(ctx, self.work).await;
        // Some hosts do not provide the commits of a deleted branch.
        if !ctx.checkouts.contains(&pull.id.repo, head, head).await?
            && let Err(error) = ctx.checkouts.fetch_missing(pull, credentials.as_ref()).await
        {
            tracing::warn!(pull = %pull.id, "the head that was merged cannot be fetched: {error}");
            return Ok(0);
        }
        Ok(ctx.checkouts.brought(pull, merge, credentials.as_ref()).await?)
    }

    /// Removes from `open` the commits of another merged pull request if they are approved. Returns a note on one that is not approved.
    async fn cover_with(
        &self,
        other: &PullRequest,
        chain: &[BranchCommit],
        open: &mut HashSet<CommitSha>,
    ) -> Result<Option<String>, ApprovalError> {
        let PullState::Merged { commit: Some(merge) } = &other.state else { return Ok(None) };
        if open.is_empty() || !chain.iter().any(|commit| commit.id == *merge) {
            return Ok(None);
        }
        let brought = self.brought(other, merge).await?;
        let mut left = open.clone();
        let files = cover(chain, merge, brought, &mut left);
        if left.len() == open.len() {
            return Ok(None);
        }
        let (pull, owed, guarded) = (other.clone(), Vec::new(), None);
        let after_merge = Some(AfterMerge { owed, pull: pull.clone(), guarded, files: Some(files) });
        let CommandRun { run, command, rules, cancel, .. } = self.work;
        let work = CommandRun::new(run.clone(), pull, command.clone(), rules.clone(), cancel.clone());
        let work = CommandRun { after_merge, ..work };
        let facts = PullFacts::default();
        let approval = requirements::approval_of(self.ctx, &work, self.config, &facts, self.prepared, None);
        let (checks, _) = approval.await?;
        let unmet: Vec<String> = checks.into_iter().filter(|check| !check.met).map(|check| check.detail).collect();
        if unmet.is_empty() {
            *open = left;
            return Ok(None);
        }
        Ok(Some(format!("{} is merged and not approved ({})", self.ctx.hosts.pull_name(&other.id), unmet.join("; "))))
    }

    /// Returns the commits that change inputs of the project.
    async fn touching(&self, chain: &[BranchCommit]) -> Result<HashSet<CommitSha>, Stop> {
        let (options, project, rules) = (prepare::options(self.ctx), self.config.clone(), self.work.rules.clone());
        let (root, chain) = (self.prepared.tree.root.clone(), chain.to_vec());
        let looking = tokio::task::spawn_blocking(move || {
            let is_config = |file: &String| match &rules.repo_config_file {
                Some(own) => file == own,
                None => DEFAULT_FILES.contains(&file.as_str()),
            };
            let tree = DiskTree { root };
            let graph = InputGraph::new(&tree, options.input_rules(&rules));
            let touches = |commit: &BranchCommit| {
                commit.files.iter().any(is_config) || !graph.files_of(&project, commit.files.clone()).is_empty()
            };
            chain.into_iter().filter(touches).map(|commit| commit.id).collect()
        });
        Ok(looking.await.map_err(|error| anyhow!(error).context("looking for what the base branch has got"))?)
    }

    /// Returns true if the pull request was approved after the plan of this tip was made. False if approvals of pushers do not count, as
    /// the people who pushed to the base branch are unknown.
    async fn of_tip(&self, facts: &PullFacts, plan: Option<&PlanRecord>) -> Result<bool, ApprovalError> {
        let excludes = self.config.approvals.as_ref().is_some_and(|rules| rules.exclude_pushers);
        let Some(plan) = plan.filter(|plan| plan.head == self.work.pull.head.commit && !excludes) else {
            return Ok(false);
        };
        let mut reviews = facts.reviews(self.ctx, self.work).await?.to_vec();
        let is_later = |at: jiff::Timestamp| is_since(at, plan.made);
        reviews.retain(|review| review.verdict != ReviewVerdict::Approved || review.at.is_some_and(is_later));
        let facts = PullFacts::with_reviews(reviews);
        let approval = requirements::approval_of(self.ctx, self.work, self.config, &facts, self.prepared, Some(plan));
        let (checks, _) = approval.await?;
        Ok(checks.iter().all(|check| check.met))
    }

    fn describe_commits(&self, chain: &[BranchCommit], open: &HashSet<CommitSha>, notes: Vec<String>) -> String {
        let short = |text: &str| self.ctx.redactor.redact(&text.chars().take(MAX_WORDS).collect::<String>());
        let named = chain.iter().filter(|commit| open.contains(&commit.id)).take(MAX_NAMED);
        let mut named: Vec<String> = named
            .map(|commit| format!("{} by {} ({})", commit.id.short(), short(&commit.author), short(&commit.subject)))
            .collect();
        if open.len() > MAX_NAMED {
            named.push(format!("{} more", open.len() - MAX_NAMED));
        }
        let notes: String = notes.into_iter().map(|note| format!("; {note}")).collect();
        let branch = &self.after.pull.base.branch;
        format!(
            "no approved pull request contains these commits of `{branch}` that change this project: {}{notes}",
            named.join(", ")
        )
    }

    fn way_out(&self, plan: Option<&PlanRecord>) -> String {
        let (name, executable) = (self.ctx.hosts.pull_name(&self.after.pull.id), &self.ctx.rendering.executable);
        match plan {
            Some(_) => format!(
                "Have somebody look at this plan and approve {name} now, then `{executable} apply`; or `{executable} apply --force -m \"why\"`"
            ),
            None => format!(
                "Have these changes approved; or `{executable} unlock --accept-drift -m \"why\"`, and plan in a new pull request"
            ),
        }
    }
}

/// Removes from `open` the `brought` commits that end with this merge. Returns the files of all of them.
fn cover(chain: &[BranchCommit], merge: &CommitSha, brought: usize, open: &mut HashSet<CommitSha>) -> Vec<String> {
    let Some(at) = chain.iter().position(|commit| commit.id == *merge) else { return Vec::new() };
    let covered = chain.iter().skip(at).take(brought);
    let mut files = Vec::new();
    for commit in covered {
        open.remove(&commit.id);
        files.extend(commit.files.iter().cloned());
    }
    files.sort();
    files.dedup();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merge_covers_what_it_brought_and_nothing_else() {
        let id = |number: usize| CommitSha::from(number.to_string());
        let commit = |number| BranchCommit {
            id: id(number),
            author: String::new(),
            subject: String::new(),
            files: vec![format!("{number}.tf")],
        };
        let chain: Vec<BranchCommit> = (1..=5).rev().map(commit).collect();
        for (merge, brought, left, files) in [
            (4, 2, vec![1, 2, 5], 2),
            (4, 0, vec![1, 2, 3, 4, 5], 0),
            (1, 9, vec![2, 3, 4, 5], 1),
            (9, 3, vec![1, 2, 3, 4, 5], 0),
        ] {
            let mut open: HashSet<CommitSha> = (1..=5).map(id).collect();
            assert_eq!(cover(&chain, &id(merge), brought, &mut open).len(), files);
            assert_eq!(open, left.into_iter().map(id).collect());
        }
    }
}
