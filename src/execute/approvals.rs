//! Requirement `approved` of a project with rules (`approvals`): decides whose approval counts, and which rules are met. Each rule is a
//! check of its own, and so are the host's own rules.

mod of_plan;
mod owners_file;

use super::approval_error::ApprovalError;
use super::command_run::CommandRun;
use super::context::Context;
use super::merged::AfterMerge;
use super::prepare::{self, Prepared, Stop};
use super::requirements::{PullFacts, approval_of_head};
use crate::checkout::Fetched;
use crate::checkout::disk::DiskTree;
use crate::config::ProjectConfig;
use crate::config::approvals::ApprovalRules;
use crate::config::approvers::Approver;
use crate::config::codeowners::{CodeOwner, RequiredOwners};
use crate::config::repo::DEFAULT_FILES;
use crate::domain::outcome::{Fault, Reason, RequirementCheck};
use crate::domain::requirement::Requirement;
use crate::domain::state::PlanRecord;
use crate::domain::{Login, RepoId};
use crate::inputs::InputGraph;
use crate::vcs::{HostError, Review, ReviewVerdict};
use anyhow::anyhow;
use of_plan::OfPlan;
pub(super) use owners_file::{OwnersFile, owners_file};
use std::collections::HashMap;

/// Maximum number of memberships that the host is asked about for one project.
const MAX_ASKED: usize = 100;
/// Maximum number of files, and of people, that a refusal names.
const MAX_NAMED: usize = 3;

/// Code owners of a project's changed files.
struct Owned {
    /// Changed files of the project that have owners, each with those who have to approve it; a file once for each section.
    files: Vec<(String, RequiredOwners)>,
    /// Reason for which the owners are unknown, as text for people.
    missing: Option<String>,
}

/// Checks the rules of one project.
pub(super) async fn check(
    ctx: &Context,
    work: &CommandRun,
    config: &ProjectConfig,
    rules: &ApprovalRules,
    facts: &PullFacts,
    prepared: &Prepared,
    plan: Option<&PlanRecord>,
) -> Result<Vec<RequirementCheck>, ApprovalError> {
    let names_owners = rules.any_of.iter().chain(&rules.all_of).any(|one| *one == Approver::CodeOwners);
    let owned = match names_owners {
        true => owned(ctx, work, config, facts, prepared).await?,
        false => Owned { files: Vec::new(), missing: None },
    };
    let of_plan = match plan.filter(|_| rules.of_plan) {
        Some(plan) => {
            let (pull, project) = (plan.pull.clone(), plan.project.clone());
            let seen = ctx.store.read(move |view| view.seen_plans(&pull, &project)).await?;
            let told = seen.iter().flat_map(|seen| &seen.plans).find(|one| one.id == plan.id);
            let made = told.map_or(plan.made, |told| told.made);
            let (changes, incomparable) = (plan.changes.clone(), plan.incomparable.clone());
            Some(OfPlan { made, changes, incomparable, seen })
        }
        None => None,
    };
    Ok(judge(ctx, work, config, rules, facts, &owned, of_plan.as_ref()).await?)
}

async fn judge(
    ctx: &Context,
    work: &CommandRun,
    config: &ProjectConfig,
    rules: &ApprovalRules,
    facts: &PullFacts,
    owned: &Owned,
    plan: Option<&OfPlan>,
) -> Result<Vec<RequirementCheck>, HostError> {
    let reviews = facts.reviews(ctx, work).await?;
    let blocking = blocking(reviews, &work.pull.author);
    if !blocking.is_empty() {
        return Ok(vec![unmet(format!("{} requested changes", blocking.join(", ")))]);
    }
    let pushers = match rules.exclude_pushers {
        true => facts.contributors(ctx, work).await?,
        false => &[],
    };
    if pushers.iter().any(Login::is_unknown) {
        let detail = "the host does not report all authors and pushers, who must not approve (`exclude_pushers`). Amend commits whose \
                      author has no account, squash 250 or more commits, then push";
        return Ok(vec![unmet(detail.to_owned())]);
    }
    let terms = ApprovalTerms {
        author: &work.pull.author,
        head: work.reviewed_head().as_str(),
        of_head: approval_of_head(ctx, config),
        plan,
        pushers,
    };
    let (counted, notes) = terms.sort(reviews);
    let mut members = Members { ctx, repo: &work.pull.id.repo, told: HashMap::new(), too_many: false };
    let mut checks = Vec::new();
    if rules.count > 0 {
        checks.push(members.count(rules, &counted, owned, &notes).await?);
    }
    for wanted in &rules.all_of {
        checks.push(members.each(wanted, &counted, owned, &notes).await?);
    }
    if members.too_many {
        for check in checks.iter_mut().filter(|check| !check.met) {
            check.detail.push_str(&too_many());
        }
    }
    checks.extend(facts.missing_approvals(ctx, work).await?.map(|missing| unmet(missing.to_owned())));
    Ok(checks)
}

/// Returns the text for an approval that may not have been counted because the host was asked too often.
fn too_many() -> String {
    format!("; the host is asked at most {MAX_ASKED} times about team members per project: name fewer teams, or people")
}

fn met(detail: String) -> RequirementCheck {
    RequirementCheck { name: Requirement::Approved.name().into(), met: true, detail }
}

fn unmet(detail: String) -> RequirementCheck {
    RequirementCheck { met: false, ..met(detail) }
}

/// Returns the people other than the author who requested changes and have write access.
fn blocking<'a>(reviews: &'a [Review], author: &Login) -> Vec<&'a str> {
    let counts = |review: &&Review| review.can_write && !review.user.is(author);
    let blocks = |review: &&Review| review.verdict == ReviewVerdict::ChangesRequested;
    reviews.iter().filter(counts).filter(blocks).map(|review| review.user.shown()).collect()
}

/// Conditions under which an approval counts.
struct ApprovalTerms<'a> {
    author: &'a Login,
    head: &'a str,
    of_head: bool,
    /// Plan that an approval has to be of, or of one with the same changes; absent without `of_plan`.
    plan: Option<&'a OfPlan>,
    /// People whose approval does not count because they pushed.
    pushers: &'a [Login],
}

impl ApprovalTerms<'_> {
    /// Returns the logins whose approval counts, and the reasons against the other approvals.
    fn sort<'r>(&self, reviews: &'r [Review]) -> (Vec<&'r Login>, Vec<String>) {
        let (mut counted, mut notes) = (Vec::new(), Vec::new());
        for review in reviews.iter().filter(|review| review.verdict == ReviewVerdict::Approved) {
            match self.problem(review) {
                None => counted.push(&review.user),
                Some(note) => notes.push(note),
            }
        }
        (counted, notes)
    }

    fn problem(&self, review: &Review) -> Option<String> {
        let user = &review.user;
        let is_of_head = review.commit.as_ref().is_some_and(|commit| commit.as_str() == self.head);
        if user.is(self.author) {
            return Some(format!("{user} is the author"));
        }
        if !review.can_write {
            return Some(format!("{user} has no write access"));
        }
        if self.pushers.iter().any(|pusher| pusher.is(user)) {
            return Some(format!("{user} pushed to it"));
        }
        let is_of = |plan: &OfPlan| (is_of_head && plan.precedes(review)) || plan.is_same_as_at(review);
        let is_of_plan = self.plan.is_none_or(is_of);
        let difference = || self.plan.map(|plan| plan.difference(review)).unwrap_or_default();
        if (self.of_head || !is_of_plan) && !is_of_head {
            let difference = if self.of_head { String::new() } else { difference() };
            return Some(format!("the approval of {user} is of an earlier head{difference}"));
        }
        (!is_of_plan).then(|| format!("{user} approved before this plan was made{}", difference()))
    }
}

/// Memberships of teams, each asked for once.
struct Members<'a> {
    ctx: &'a Context,
    repo: &'a RepoId,
    told: HashMap<(String, String), bool>,
    /// True if a membership was not asked for, because of `MAX_ASKED`.
    too_many: bool,
}

impl Members<'_> {
    async fn has(&mut self, team: &str, login: &Login) -> Result<bool, HostError> {
        let key = (team.to_owned(), login.as_str().to_lowercase());
        if let Some(known) = self.told.get(&key) {
            return Ok(*known);
        }
        if self.told.len() >= MAX_ASKED {
            self.too_many = true;
            return Ok(false);
        }
        let is_member = self.ctx.teams.is_member(self.ctx, self.repo, team, login.as_str()).await? == Some(true);
        self.told.insert(key, is_member);
        Ok(is_member)
    }

    async fn owns(&mut self, owners: &[CodeOwner], login: &Login) -> Result<bool, HostError> {
        for owner in owners {
            let is_owner = match owner {
                CodeOwner::User(name) => login.as_str().eq_ignore_ascii_case(name),
                CodeOwner::Team(team) => self.has(team, login).await?,
                CodeOwner::UserOrTeam(name) => {
                    login.as_str().eq_ignore_ascii_case(name) || self.has(name, login).await?
                }
                CodeOwner::Role(_) => false,
            };
            if is_owner {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn is_one(&mut self, wanted: &Approver, login: &Login, owned: &Owned) -> Result<bool, HostError> {
        match wanted {
            Approver::User(name) => Ok(login.as_str().eq_ignore_ascii_case(name)),
            Approver::Team(team) => self.has(team, login).await,
            Approver::CodeOwners => {
                for (_, required) in &owned.files {
                    if self.owns(&required.owners, login).await? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
        }
    }

    /// Checks `any_of` with `count`.
    async fn count(
        &mut self,
        rules: &ApprovalRules,
        counted: &[&Login],
        owned: &Owned,
        notes: &[String],
    ) -> Result<RequirementCheck, HostError> {
        let mut found = Vec::new();
        for login in counted {
            let mut is_any = rules.any_of.is_empty();
            for wanted in &rules.any_of {
                is_any = is_any || self.is_one(wanted, login, owned).await?;
            }
            if is_any {
                found.push(login.shown());
            }
        }
        let who = match rules.any_of.is_empty() {
            true => "people who may write".to_owned(),
            false => rules.any_of.iter().map(|one| describe(one, owned)).collect::<Vec<_>>().join(", "),
        };
        let by = if found.is_empty() { String::new() } else { format!(" ({})", found.join(", ")) };
        let detail = format!("{} of {} of: {who}{by}", found.len(), rules.count);
        Ok(if found.len() >= rules.count { met(detail) } else { unmet(detail + &noted(notes)) })
    }

    /// Checks one entry of `all_of`.
    async fn each(
        &mut self,
        wanted: &Approver,
        counted: &[&Login],
        owned: &Owned,
        notes: &[String],
    ) -> Result<RequirementCheck, HostError> {
        if *wanted == Approver::CodeOwners {
            return self.owners(counted, owned, notes).await;
        }
        for login in counted {
            if self.is_one(wanted, login, owned).await? {
                return Ok(met(format!("{}: {login}", wanted.describe())));
            }
        }
        let who = match wanted {
            Approver::User(name) => format!("{name} has to approve"),
            _ => format!("somebody of {} has to approve", wanted.describe()),
        };
        Ok(unmet(who + &noted(notes)))
    }

    /// Checks that each changed file of the project that has owners is approved by as many of them as have to.
    async fn owners(
        &mut self,
        counted: &[&Login],
        owned: &Owned,
        notes: &[String],
    ) -> Result<RequirementCheck, HostError> {
        if let Some(missing) = &owned.missing {
            return Ok(unmet(missing.clone()));
        }
        let mut open = Vec::new();
        for (file, required) in &owned.files {
            let mut approved = 0;
            for login in counted {
                if approved < required.count && self.owns(&required.owners, login).await? {
                    approved += 1;
                }
            }
            if approved < required.count {
                open.push(format!("`{file}` ({})", who_of(required)));
            }
        }
        if open.is_empty() {
            let detail = if owned.files.is_empty() { "its files have no code owners" } else { "by the code owners" };
            return Ok(met(detail.to_owned()));
        }
        Ok(unmet(format!("code owners have to approve {}", named(open, ", ")) + &noted(notes)))
    }
}

/// Returns the owners who have to approve a file, for people.
fn who_of(required: &RequiredOwners) -> String {
    let count = if required.count > 1 { format!("{} of ", required.count) } else { String::new() };
    let owners = named(required.owners.iter().map(CodeOwner::describe).collect(), " or ");
    let section = required.section.as_ref().map(|name| format!(", section `{name}`")).unwrap_or_default();
    format!("{count}{owners}{section}")
}

fn describe(approver: &Approver, owned: &Owned) -> String {
    match (approver, &owned.missing) {
        (Approver::CodeOwners, Some(missing)) => format!("the code owners ({missing})"),
        _ => approver.describe(),
    }
}

/// Returns the reasons against approvals, to follow what is missing.
fn noted(notes: &[String]) -> String {
    notes.iter().map(|note| format!("; {note}")).collect()
}

fn named(mut list: Vec<String>, between: &str) -> String {
    let more = list.len().saturating_sub(MAX_NAMED);
    list.truncate(MAX_NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    list.join(between) + &more
}

/// Returns the changed files of a project and their owners.
async fn owned(
    ctx: &Context,
    work: &CommandRun,
    config: &ProjectConfig,
    facts: &PullFacts,
    prepared: &Prepared,
) -> Result<Owned, Stop> {
    let rules = match facts.owners(ctx, work).await? {
        OwnersFile::Rules(rules) => rules,
        OwnersFile::Missing(missing) => return Ok(Owned { files: Vec::new(), missing: Some(missing.clone()) }),
    };
    let files = changed_files(ctx, work, config, prepared).await?;
    let mut owned = Owned { files: Vec::new(), missing: None };
    for file in files {
        let shown = ctx.redactor.redact(&file);
        owned.files.extend(rules.owners_of(&file).into_iter().map(|required| (shown.clone(), required.clone())));
    }
    Ok(owned)
}

/// Returns the changed files of a project, and the repo config if changed. Without any, a file of its directory stands for them.
async fn changed_files(
    ctx: &Context,
    work: &CommandRun,
    config: &ProjectConfig,
    prepared: &Prepared,
) -> Result<Vec<String>, Stop> {
    let modified = match &work.after_merge {
        None => ctx.checkouts.modified_files(&work.pull, &prepared.fetched).await?,
        Some(AfterMerge { files: Some(files), .. }) => files.clone(),
        Some(after) => merged_files(ctx, work, config, after).await?,
    };
    let (options, project, rules) = (prepare::options(ctx), config.clone(), work.rules.clone());
    let root = prepared.tree.root.clone();
    let touching = tokio::task::spawn_blocking(move || {
        let is_config = |file: &String| match &rules.repo_config_file {
            Some(own) => file == own,
            None => DEFAULT_FILES.contains(&file.as_str()),
        };
        let (configs, others): (Vec<String>, Vec<String>) = modified.into_iter().partition(is_config);
        let tree = DiskTree { root };
        let mut files = InputGraph::new(&tree, options.input_rules(&rules)).files_of(&project, others);
        files.extend(configs);
        files
    });
    let mut files = touching.await.map_err(|error| anyhow!(error).context("looking for the project's files"))?;
    if files.is_empty() {
        files.push(if config.id.dir == "." { "main.tf".to_owned() } else { format!("{}/main.tf", config.id.dir) });
    }
    Ok(files)
}

/// Returns the files that a pull request changed before it was merged: its head against the base that it was planned on.
async fn merged_files(
    ctx: &Context,
    work: &CommandRun,
    config: &ProjectConfig,
    after: &AfterMerge,
) -> Result<Vec<String>, Stop> {
    let (id, project) = (work.pull.id.clone(), config.id.clone());
    let owners = ctx.store.read(move |view| view.owners_of(&id)).await?;
    let owner = owners.into_iter().find(|owner| owner.project == project);
    let Some(planned) = owner.and_then(|owner| owner.approved) else {
        let message = "The server does not know which files of this project were changed, because it was not planned before the merge. \
                       It cannot determine whose approval is needed"
            .to_owned();
        return Err(Stop::Fault(Fault { reason: Reason::Requirement, message, output: String::new() }));
    };
    let credentials = prepare::credentials(ctx, work).await;
    let fetched = ctx.checkouts.fetch_missing(&after.pull, credentials.as_ref()).await?;
    Ok(ctx.checkouts.modified_files(&after.pull, &Fetched { base_tip: planned.base, ..fetched }).await?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ProjectId;
    use crate::domain::plan_digest::SeenPlan;
    use crate::domain::plan_digest::{ChangesDigest, SeenPlans};
    use jiff::Timestamp;

    fn review(user: &str, commit: &str, at: &str) -> Review {
        let verdict = ReviewVerdict::Approved;
        Review { user: user.into(), can_write: true, verdict, commit: Some(commit.into()), at: at.parse().ok() }
    }

    #[test]
    fn an_approval_counts_unless_something_speaks_against_it() {
        let reviews = [
            review("ann", "h", "2026-01-01T00:00:00Z"),
            review("bob", "old", "2026-01-01T00:00:00Z"),
            review("Cid", "h", "2026-01-01T00:00:00Z"),
            review("dan", "h", "2026-01-01T00:00:00Z"),
            Review { can_write: false, ..review("eve", "h", "2026-01-01T00:00:00Z") },
        ];
        let (author, pushers) = (Login::from("dan"), [Login::from("cid")]);
        let loose = ApprovalTerms { author: &author, head: "h", of_head: false, plan: None, pushers: &pushers };
        let (counted, notes) = loose.sort(&reviews);
        assert_eq!(counted, [&Login::from("ann"), &Login::from("bob")]);
        assert_eq!(notes, ["Cid pushed to it", "dan is the author", "eve has no write access"]);
        let (counted, notes) = ApprovalTerms { of_head: true, ..loose }.sort(&reviews);
        assert_eq!(counted, [&Login::from("ann")]);
        assert!(notes.contains(&"the approval of bob is of an earlier head".to_owned()), "{notes:?}");
    }

    #[test]
    fn an_approval_counts_for_plans_that_change_what_the_approved_one_did() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let digest = |text: &str| Some(ChangesDigest(text.to_owned())).filter(|_| !text.is_empty());
        let made = |second: i64, head: &str, changes: &str| {
            let (id, head) = ("p".into(), head.into());
            SeenPlan {
                id,
                head,
                base: "base".into(),
                made: at(second),
                changes: digest(changes),
                incomparable: None,
                on_merge: false,
            }
        };
        let project = ProjectId { dir: ".".into(), workspace: "default".into(), name: None };
        let plans = vec![made(10, "old", "a"), made(20, "h", "b"), made(30, "h", ""), made(40, "h", "a")];
        let seen = Some(SeenPlans { project, key: String::new(), plans, others: Vec::new() });
        let author = Login::from("dan");
        for (changes, commit, second, counts) in [
            // Given for the plan itself, or later.
            ("a", "h", 40, true),
            ("", "h", 41, true),
            // For one that changed the same, of the head that was approved.
            ("a", "old", 15, true),
            ("a", "h", 15, false),
            ("a", "old", 25, false),
            // For one that changed something else, or whose changes are unknown.
            ("a", "h", 25, false),
            ("a", "h", 35, false),
            ("", "h", 35, false),
            ("", "old", 15, false),
            // Before there was any plan.
            ("a", "old", 9, false),
            ("b", "h", 29, true),
        ] {
            let of_plan = OfPlan { made: at(40), changes: digest(changes), incomparable: None, seen: seen.clone() };
            let review = Review { at: Some(at(second)), ..review("ann", commit, "") };
            let terms =
                ApprovalTerms { author: &author, head: "h", of_head: false, plan: Some(&of_plan), pushers: &[] };
            assert_eq!(terms.problem(&review).is_none(), counts, "{changes} {commit} {second}");
            let of_head = ApprovalTerms { of_head: true, ..terms };
            assert_eq!(of_head.problem(&review).is_none(), counts && commit == "h", "{changes} {commit} {second}");
        }
    }
}
