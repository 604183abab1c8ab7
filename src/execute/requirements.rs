//! Requirements `approved`, `mergeable` and `undiverged`. Each is met, or gives the reason against it.

use super::approval_error::ApprovalError;
use super::approvals::{self, OwnersFile};
use super::command_run::CommandRun;
use super::context::Context;
use super::deleted;
use super::merged;
use super::prepare::{self, Prepared, Stop};
use crate::checkout::disk::DiskTree;
use crate::checkout::{Fetched, Strategy};
use crate::config::{ProjectConfig, Requirement};
use crate::domain::outcome::{Fault, Reason, RequirementCheck};
use crate::domain::state::PlanRecord;
use crate::domain::{CommitSha, Login};
use crate::inputs::InputGraph;
use crate::vcs::{HostError, Mergeability, Review, ReviewVerdict};
use anyhow::{Result, anyhow};
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::sync::OnceCell;

/// Time for which approval and mergeability are reused.
const FRESH: Duration = Duration::from_secs(15);

/// Facts of the host about the pull request, each requested at most once and only if it is needed.
pub(super) struct PullFacts {
    reviews: OnceCell<Vec<Review>>,
    missing_approvals: OnceCell<Option<String>>,
    contributors: OnceCell<Vec<Login>>,
    owners: OnceCell<OwnersFile>,
    mergeability: OnceCell<Mergeability>,
    since: Instant,
}

impl Default for PullFacts {
    fn default() -> PullFacts {
        PullFacts {
            reviews: OnceCell::new(),
            missing_approvals: OnceCell::new(),
            contributors: OnceCell::new(),
            owners: OnceCell::new(),
            mergeability: OnceCell::new(),
            since: Instant::now(),
        }
    }
}

impl PullFacts {
    /// Creates facts with these reviews; all others are requested.
    pub(super) fn with_reviews(reviews: Vec<Review>) -> PullFacts {
        PullFacts { reviews: OnceCell::from(reviews), ..PullFacts::default() }
    }

    /// Returns true if the facts may be out of date: an apply requests them again then.
    pub(super) fn are_old(&self) -> bool {
        self.since.elapsed() > FRESH
    }

    pub(super) async fn reviews(&self, ctx: &Context, work: &CommandRun) -> Result<&[Review], HostError> {
        let ask = async || ctx.hosts.for_repo(&work.pull.id.repo)?.reviews(&work.pull).await;
        Ok(self.reviews.get_or_try_init(ask).await?)
    }

    /// Returns the approvals that the host's own rules still require, for people.
    pub(super) async fn missing_approvals(&self, ctx: &Context, work: &CommandRun) -> Result<Option<&str>, HostError> {
        let ask = async || ctx.hosts.for_repo(&work.pull.id.repo)?.missing_approvals(&work.pull).await;
        Ok(self.missing_approvals.get_or_try_init(ask).await?.as_deref())
    }

    /// Returns the people who pushed to the pull request.
    pub(super) async fn contributors(&self, ctx: &Context, work: &CommandRun) -> Result<&[Login], HostError> {
        let ask = async || ctx.hosts.for_repo(&work.pull.id.repo)?.contributors(&work.pull).await;
        Ok(self.contributors.get_or_try_init(ask).await?)
    }

    /// Returns the code owners.
    pub(super) async fn owners(&self, ctx: &Context, work: &CommandRun) -> Result<&OwnersFile, Stop> {
        self.owners.get_or_try_init(|| approvals::owners_file(ctx, work)).await
    }

    /// Judges the reviews of the pull request, and asks for approvals that the host's own rules require besides.
    pub(super) async fn approved(
        &self,
        ctx: &Context,
        work: &CommandRun,
        config: &ProjectConfig,
    ) -> Result<Approval, HostError> {
        let reviews = self.reviews(ctx, work).await?;
        let found = approval(reviews, &work.pull.author, work.reviewed_head(), approval_of_head(ctx, config));
        if !found.met {
            return Ok(found);
        }
        Ok(match self.missing_approvals(ctx, work).await? {
            Some(missing) => Approval { met: false, detail: missing.to_owned(), remark: None },
            None => found,
        })
    }

    /// Returns the host's decision on a merge of the pull request.
    pub(super) async fn mergeable(&self, ctx: &Context, work: &CommandRun) -> Result<&Mergeability, HostError> {
        self.mergeability
            .get_or_try_init(async || ctx.hosts.for_repo(&work.pull.id.repo)?.mergeability(&work.pull).await)
            .await
    }
}

/// Result of the requirement `approved` without rules.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Approval {
    pub(super) met: bool,
    pub(super) detail: String,
    /// Remark if all approvals that count are of an earlier head.
    pub(super) remark: Option<String>,
}

/// Judges the latest review of each person with write access. Requested changes block; the author's own review never counts.
fn approval(reviews: &[Review], author: &Login, head: &CommitSha, of_head: bool) -> Approval {
    let own = |review: &&Review| review.user.is(author);
    let counted = || reviews.iter().filter(|review| review.can_write && !own(review));
    let blocking: Vec<&str> =
        counted().filter(|r| r.verdict == ReviewVerdict::ChangesRequested).map(|r| r.user.shown()).collect();
    let approving: Vec<&Review> = counted().filter(|r| r.verdict == ReviewVerdict::Approved).collect();
    let current = approving.iter().filter(|review| review.commit.as_ref() == Some(head)).count();
    let names = |list: &[&Review]| list.iter().map(|r| r.user.shown()).collect::<Vec<_>>().join(", ");
    if !blocking.is_empty() {
        return Approval { met: false, detail: format!("{} requested changes", blocking.join(", ")), remark: None };
    }
    let usable = if of_head { current } else { approving.len() };
    if usable == 0 {
        let mut detail = "0 of 1 review".to_owned();
        if !approving.is_empty() {
            detail += &format!("; the approval of {} is of an earlier head", names(&approving));
        }
        if reviews.iter().any(|review| own(&review)) {
            detail += &format!("; {author}'s review does not count as they are the author");
        }
        let outsiders = reviews.iter().filter(|r| !r.can_write && r.verdict == ReviewVerdict::Approved);
        let outsiders: Vec<&Review> = outsiders.collect();
        if !outsiders.is_empty() {
            detail += &format!("; no write access: {}", names(&outsiders));
        }
        return Approval { met: false, detail, remark: None };
    }
    let remark = (current == 0).then(|| {
        let of = approving[0].commit.as_ref().map_or(String::new(), |commit| format!(", {}", commit.short()));
        format!("The approval of {} is of an earlier head{of}.", names(&approving))
    });
    Approval { met: true, detail: format!("approved by {}", names(&approving)), remark }
}

/// Returns true if `apply --force` overrides the requirement of this name. It does not override locks, freezes or policies.
pub(super) fn can_be_forced(name: &str) -> bool {
    match Requirement::of_name(name) {
        Some(Requirement::Approved | Requirement::Mergeable | Requirement::Undiverged) => true,
        // Of an apply also `policies_passed`.
        None => false,
    }
}

/// Returns true if only approvals of the head count for a project. Those of before may be of a head that did not delete it.
pub(super) fn approval_of_head(ctx: &Context, config: &ProjectConfig) -> bool {
    ctx.settings.approval_of_head || config.deleted
}

/// Checks the requirement `approved` of a pull request for one project, and returns a remark for the reply.
pub(super) async fn approval_of(
    ctx: &Context,
    work: &CommandRun,
    config: &ProjectConfig,
    facts: &PullFacts,
    prepared: &Prepared,
    plan: Option<&PlanRecord>,
) -> Result<(Vec<RequirementCheck>, Option<String>), ApprovalError> {
    if let Some(rules) = &config.approvals {
        return Ok((approvals::check(ctx, work, config, rules, facts, prepared, plan).await?, None));
    }
    let Approval { met, detail, remark } = facts.approved(ctx, work, config).await?;
    Ok((vec![RequirementCheck { name: Requirement::Approved.name().into(), met, detail }], remark))
}

/// Checks all requirements, and returns remarks for the reply. Without an answer of the host nothing of the project is done.
pub(super) async fn check(
    ctx: &Context,
    work: &CommandRun,
    config: &ProjectConfig,
    wanted: &[Requirement],
    facts: &PullFacts,
    prepared: &Prepared,
    plan: Option<&PlanRecord>,
) -> Result<(Vec<RequirementCheck>, Vec<String>), Stop> {
    let unanswered = |what: &str, error: HostError| {
        let say = format!("{} {}", ctx.rendering.executable, work.command.name.spoken());
        let message = ctx.redactor.redact(&format!(
            "The host did not say whether the pull request {what}, so nothing of this project was done: {error}. Comment again: `{say}`"
        ));
        Stop::Fault(Fault { reason: Reason::Internal, message, output: String::new() })
    };
    let unknown = |error| match error {
        ApprovalError::Host(error) => unanswered("is approved", error),
        ApprovalError::Stop(stop) => stop,
    };
    let (mut checks, mut remarks) = (Vec::new(), Vec::new());
    let is_asked = |requirement: &&Requirement| match requirement {
        Requirement::Approved => true,
        // A merged pull request cannot be merged again, and does not diverge.
        Requirement::Mergeable | Requirement::Undiverged => work.after_merge.is_none(),
    };
    for requirement in wanted.iter().filter(is_asked) {
        let (met, detail) = match requirement {
            Requirement::Approved => {
                let approval = approval_of(ctx, work, config, facts, prepared, plan).await;
                let (of_pull, remark) = approval.map_err(unknown)?;
                checks.extend(of_pull);
                remarks.extend(remark);
                let reviewed = merged::reviewed(ctx, work, config, facts, prepared, plan).await;
                let reviewed = reviewed.map_err(unknown)?;
                checks.extend(reviewed.check);
                remarks.extend(reviewed.remark);
                continue;
            }
            Requirement::Mergeable => {
                let found = facts.mergeable(ctx, work).await.map_err(|error| unanswered("can be merged", error))?;
                (found.mergeable, found.detail.clone())
            }
            Requirement::Undiverged => undiverged(ctx, work, config, prepared, plan.map(|plan| &plan.base)).await?,
        };
        checks.push(RequirementCheck { name: requirement.name().into(), met, detail });
    }
    Ok((checks, remarks))
}

/// Returns true if the base branch has not changed inputs of this project, and the reason. An apply compares from the planned base.
async fn undiverged(
    ctx: &Context,
    work: &CommandRun,
    config: &ProjectConfig,
    prepared: &Prepared,
    planned_base: Option<&CommitSha>,
) -> Result<(bool, String), Stop> {
    let branch = &work.pull.base.branch;
    let credentials = prepare::credentials(ctx, work).await;
    let now = ctx.checkouts.fetch(&work.pull, credentials.as_ref()).await?;
    // A plan of a merged tree includes the base up to the merged commit; one of the head alone, up to the fork point.
    let from = match (ctx.checkouts.strategy, planned_base) {
        (Strategy::Merge, Some(base)) => base.clone(),
        // Its plan has the base's code.
        (Strategy::Branch, Some(base)) if config.deleted => base.clone(),
        (Strategy::Merge, None) => prepared.tree.base.clone(),
        (Strategy::Branch, _) => now.head.clone(),
    };
    let changed = ctx.checkouts.diverged_files(&work.pull, &Fetched { head: from, base_tip: now.base_tip }).await?;
    if changed.is_empty() {
        return Ok((true, format!("`{branch}` has not moved")));
    }
    let (options, project, rules) = (prepare::options(ctx), config.clone(), work.rules.clone());
    let root =
        deleted::root_of(ctx, work, prepared, config, planned_base.unwrap_or(&prepared.fetched.base_tip)).await?;
    let files = changed.clone();
    let touched = tokio::task::spawn_blocking(move || {
        let tree = DiskTree { root };
        let is_own = |file: &String| Path::new(file).starts_with(&project.id.dir) || project.id.dir == ".";
        // Of a deleted project each file counts, whatever its `when_modified` lists.
        (project.deleted && files.iter().any(is_own))
            || InputGraph::new(&tree, options.input_rules(&rules)).is_touched(&project, &files)
    })
    .await
    .map_err(|error| anyhow!(error).context("comparing the base branch"))?;
    if touched {
        let shown: Vec<String> =
            changed.iter().take(3).map(|file| format!("`{}`", ctx.redactor.redact(file))).collect();
        let more = if changed.len() > 3 { format!(" and {} more", changed.len() - 3) } else { String::new() };
        return Ok((
            false,
            format!("`{branch}` has moved and changed {}{more}: rebase or merge it, then plan again", shown.join(", ")),
        ));
    }
    Ok((true, format!("`{branch}` has moved, but not in files of this project")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn review(user: &str, verdict: ReviewVerdict, commit: &str) -> Review {
        Review { user: user.into(), can_write: true, verdict, commit: Some(commit.into()), at: None }
    }

    #[test]
    fn requested_changes_block_although_somebody_approved() {
        let found = approval(
            &[review("bob", ReviewVerdict::Approved, "h"), review("eve", ReviewVerdict::ChangesRequested, "h")],
            &"alice".into(),
            &"h".into(),
            false,
        );
        assert_eq!((found.met, found.detail.as_str()), (false, "eve requested changes"));
    }

    #[test]
    fn the_authors_own_and_outsiders_never_count() {
        let mut outsider = review("mallory", ReviewVerdict::Approved, "h");
        outsider.can_write = false;
        let found =
            approval(&[review("Alice", ReviewVerdict::Approved, "h"), outsider], &"alice".into(), &"h".into(), false);
        assert!(!found.met);
        assert!(found.detail.contains("alice's review does not count"), "{}", found.detail);
        assert!(found.detail.contains("no write access: mallory"), "{}", found.detail);
    }

    #[test]
    fn an_approval_of_an_earlier_head_is_remarked_and_refused_when_strict() {
        let reviews = [review("bob", ReviewVerdict::Approved, "0123456789")];
        let loose = approval(&reviews, &"alice".into(), &"h".into(), false);
        assert!(loose.met && loose.remark.is_some_and(|text| text.contains("0123456")));
        let strict = approval(&reviews, &"alice".into(), &"h".into(), true);
        assert!(!strict.met && strict.detail.contains("earlier head"));
    }
}
