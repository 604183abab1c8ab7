//! Checks the plans of a run against the policy sets, each as a job of its own. A resumed run takes over recorded checks.

use super::super::command_run::CommandRun;
use super::super::context::Context;
use super::super::job::{self, ExecutorSlot, JobRun, JobTask, Ready};
use super::super::job_end::JobChange;
use super::super::not_run::NotRun;
use super::super::plan_files::bring;
use super::super::prepare::Prepared;
use super::super::requirements::PullFacts;
use super::{CheckedPlans, digest, is_on, rules, set_of, status};
use crate::comment::command_for;
use crate::config::ProjectConfig;
use crate::domain::command::{Command, CommandName};
use crate::domain::outcome::{Failure, Fault, JobOutcome, Outcome, PolicyReport, Reason};
use crate::domain::policies::{PolicyCheckRecord, PolicySetRecord};
use crate::domain::state::PlanRecord;
use crate::process::MASK;
use crate::runner::local::{EXTRA_POLICY_SET, Place};
use crate::runner::result::{PoliciesRan, PolicySetRan, Ran};
use crate::runner::spec::{PlanReference, PolicySetSpec, PolicySpec, Steps};
use crate::schedule::Schedule;
use anyhow::Result;
use futures::StreamExt;
use jiff::Timestamp;
use regex::Regex;
use sha2::{Digest, Sha256};
use std::collections::{BTreeSet, HashMap};

/// Maximum number of separate items of one output; an output with more counts as one item.
const MAX_ITEMS: usize = 10_000;
/// Maximum size of an output that counts as complete, in bytes.
const WHOLE_OUTPUT: usize = 1024 * 1024;

/// Message about results that are not those of the configured sets.
const OTHER_SETS: &str = "The job did not report one result for each policy set of `repos.yaml`, so the plan counts as not checked. Find \
                          out what this pull request runs, then plan again";

/// Checks the plans that a run has made, if all of them succeeded.
pub(in super::super) async fn run(
    ctx: &Context,
    work: &CommandRun,
    prepared: &Prepared,
    schedule: &Schedule,
    slots: usize,
    planned: &[JobOutcome],
) -> Result<Option<CheckedPlans>> {
    if !ctx.settings.enable_policy_checks {
        return Ok(None);
    }
    let is_deferred = |config: &ProjectConfig| {
        let mut of_project = planned.iter().filter(|outcome| outcome.project == config.id);
        of_project.any(|outcome| matches!(outcome.outcome, Outcome::Deferred { .. }))
    };
    let wanted = schedule.groups.iter().flatten().filter(|config| is_on(ctx, config) && !is_deferred(config));
    let wanted: Vec<&ProjectConfig> = wanted.collect();
    if planned.iter().any(|outcome| !outcome.outcome.is_success()) || wanted.is_empty() {
        // Earlier checks of this head do not count any more.
        return Ok(Some(CheckedPlans { outcomes: Vec::new(), status: status(ctx, work).await? }));
    }
    let checking = checking(work);
    let (pull, run) = (work.pull.id.clone(), work.run.id.clone());
    let (plans, checks, jobs) =
        ctx.store.read(move |view| Ok((view.plans(&pull)?, view.policy_checks(&pull)?, view.jobs_of(&run)?))).await?;
    let plans: HashMap<_, _> = plans.into_iter().map(|plan| (plan.project.clone(), plan)).collect();
    let check = CheckRun { ctx, work: &checking, prepared, facts: &PullFacts::default(), checks: &checks };
    let told: HashMap<_, _> = jobs
        .into_iter()
        .filter_map(|job| job.outcome.filter(|outcome| matches!(outcome.outcome, Outcome::PoliciesChecked(_))))
        .map(|outcome| (outcome.project.clone(), outcome))
        .collect();
    let projects: Vec<_> =
        wanted.into_iter().map(|config| check.run(config, plans.get(&config.id), told.get(&config.id))).collect();
    let outcomes: Vec<_> = futures::stream::iter(projects).buffered(slots.max(1)).collect().await;
    let outcomes = outcomes.into_iter().collect::<Result<Vec<_>>>()?;
    Ok(Some(CheckedPlans { outcomes, status: status(ctx, work).await? }))
}

/// Returns the run of the plan with the command of its checks.
fn checking(work: &CommandRun) -> CommandRun {
    let CommandRun { run, pull, command, rules, after_merge, cancel, .. } = work;
    let command = Command { name: CommandName::PolicyCheck, ..command.clone() };
    let checking = CommandRun::new(run.clone(), pull.clone(), command, rules.clone(), cancel.clone());
    CommandRun { after_merge: after_merge.clone(), ..checking }
}

/// Data shared by the checks of one run.
struct CheckRun<'a> {
    ctx: &'a Context,
    work: &'a CommandRun,
    prepared: &'a Prepared,
    facts: &'a PullFacts,
    /// Recorded checks, of this run or of earlier ones.
    checks: &'a [PolicyCheckRecord],
}

impl CheckRun<'_> {
    /// Checks one project; an error becomes its outcome.
    async fn run(
        &self,
        config: &ProjectConfig,
        plan: Option<&PlanRecord>,
        told: Option<&JobOutcome>,
    ) -> Result<JobOutcome> {
        match self.attempt(config, plan, told).await {
            Ok(outcome) => Ok(outcome),
            Err(reason) => Ok(job::refused_outcome(self.work, config, reason.outcome(self.ctx, self.work)?)),
        }
    }

    async fn attempt(
        &self,
        config: &ProjectConfig,
        plan: Option<&PlanRecord>,
        told: Option<&JobOutcome>,
    ) -> Result<JobOutcome, NotRun> {
        let (ctx, work) = (self.ctx, self.work);
        let plan = plan.ok_or_else(|| Failure::NoPlan {
            because: "Its plan was dropped before its policies were checked.".into(),
        })?;
        let recorded = self.checks.iter().find(|check| check.project == config.id);
        let is_done =
            recorded.is_some_and(|check| check.plan == plan.id && check.policies_digest == digest(ctx, config));
        if let Some(told) = told.filter(|_| is_done) {
            return Ok(told.clone());
        }
        let slot = ExecutorSlot::wait(ctx, work, config).await?;
        let permit = job::enter(ctx, work, slot.as_ref()).await;
        work.cancel.check()?;
        let (mut job, ()) = JobRun::begin(ctx, work, config, slot, |_, _| Ok(())).await?;
        let (outcome, change) = match self.check(&mut job, config, plan, permit).await {
            Ok(ran) => match (job.failed(config, &ran), ran.policies) {
                (Some(outcome), _) => (outcome, JobChange::Nothing),
                (None, Some(policies))
                    if !are_of(&policies.sets, &self::policies(ctx, config), stage_length(config)) =>
                {
                    let plan = command_for(&ctx.rendering.executable, CommandName::Plan, &config.id, &[]);
                    let message = format!("{OTHER_SETS}: `{plan}`");
                    (
                        Outcome::Errored(Fault { reason: Reason::Policy, message, output: ran.output }),
                        JobChange::Nothing,
                    )
                }
                (None, Some(policies)) => {
                    let (report, record) = self.record(config, plan, recorded, policies);
                    (Outcome::PoliciesChecked(report), JobChange::PoliciesChecked(record))
                }
                (None, None) => {
                    let message = "The policies were checked, and the runner did not give the results back".to_owned();
                    let fault = Fault { reason: Reason::Internal, message, output: ran.output };
                    (Outcome::Errored(fault), JobChange::Nothing)
                }
            },
            Err(reason) => (reason.outcome(ctx, work)?, JobChange::Nothing),
        };
        let outcome = job.outcome(outcome);
        Ok(job.end(outcome, change).await?)
    }

    /// Runs the steps of the stage in the tree of the plan.
    async fn check<T: Send>(
        &self,
        job: &mut JobRun<'_>,
        config: &ProjectConfig,
        plan: &PlanRecord,
        turn: T,
    ) -> Result<Ran, NotRun> {
        let (ctx, work) = (self.ctx, self.work);
        let (spec, tree) = job::tree_of_plan(ctx, work, self.prepared, config, plan).await?;
        let dir = job::project_dir(&tree.root, &config.id.dir)?;
        let _directory = ctx.runner.directories.lock(&dir).await;
        let tool = job::resolve_tool(ctx, config, &tree).await?;
        let ready = Ready { tree: spec, place: Place::new(tree, dir, &config.id, tool) };
        let (reference, at) = (PlanReference::from(plan), job.record.remote.as_ref().map(|at| at.executor.as_str()));
        let first = bring(ctx, config, &reference, &ready.place, &config.workflow.policy_check, at).await?;
        let steps = Steps::Stage { first, steps: config.workflow.policy_check.clone() };
        let task = JobTask::Policies { steps, policies: policies(ctx, config), plan };
        Ok(job.run(config, &ready, self.facts, task, turn).await?)
    }

    /// Returns the report for people and the record of a check. Sticky approvals of an earlier check are taken over.
    fn record(
        &self,
        config: &ProjectConfig,
        plan: &PlanRecord,
        earlier: Option<&PolicyCheckRecord>,
        ran: PoliciesRan,
    ) -> (PolicyReport, PolicyCheckRecord) {
        let ctx = self.ctx;
        let mut record = PolicyCheckRecord {
            pull: plan.pull.clone(),
            project: config.id.clone(),
            plan: plan.id.clone(),
            head: plan.head.clone(),
            policies_digest: digest(ctx, config),
            sets: ran.sets.iter().map(|set| set_record(ctx, config, plan, set)).collect(),
            checked: Timestamp::now(),
        };
        // With another digest, a set may have other owners.
        if let Some(earlier) = earlier.filter(|earlier| earlier.policies_digest == record.policies_digest) {
            record.take_approvals(earlier, |name| set_of(ctx, name).is_some_and(|set| set.sticky_approvals));
        }
        let mut report = record.report(&rules(ctx, &record));
        for (set, ran) in report.sets.iter_mut().zip(ran.sets) {
            set.output = ran.output;
        }
        (PolicyReport { before: ran.before, after: ran.after, ..report }, record)
    }
}

/// Returns the policies for the job spec.
fn policies(ctx: &Context, config: &ProjectConfig) -> PolicySpec {
    let policies = &ctx.global.policies;
    PolicySpec {
        engine: ctx.settings.policy_engine,
        conftest_version: policies.conftest_version.clone(),
        custom: config.custom_policy_check,
        sets: policies
            .sets
            .iter()
            .map(|set| PolicySetSpec { name: set.name.clone(), path: set.path.clone() })
            .collect(),
    }
}

/// Returns true if there is one result for each policy set, in order. With `custom_policy_check` there may be more: a stage of `steps`
/// steps has at most one for each. A job at an executor runs the code of a pull request: it could leave a set out, and an absent set
/// lacks no approval.
fn are_of(ran: &[PolicySetRan], policies: &PolicySpec, steps: usize) -> bool {
    let Some((of_sets, extra)) = ran.split_at_checked(policies.sets.len()) else { return false };
    let are_in_order = of_sets.iter().map(|set| &set.name).eq(policies.sets.iter().map(|set| &set.name));
    let is_possible = match policies.custom {
        true => ran.len() <= steps.max(of_sets.len()),
        false => extra.is_empty() && !of_sets.is_empty(),
    };
    are_in_order && is_possible && extra.iter().all(|set| set.name == EXTRA_POLICY_SET)
}

fn stage_length(config: &ProjectConfig) -> usize {
    config.workflow.policy_check.len()
}

fn set_record(ctx: &Context, config: &ProjectConfig, plan: &PlanRecord, set: &PolicySetRan) -> PolicySetRecord {
    let configured = set_of(ctx, &set.name);
    // Other findings could be masked alike.
    let is_masked = !config.masks.is_empty() && set.output.contains(MASK);
    let item_regex = configured.and_then(|set| set.item_regex.clone());
    let items = match set.passed {
        true => Vec::new(),
        // The output may be incomplete or masked, so an approval is for this plan only.
        false if is_masked || set.output.len() > WHOLE_OUTPUT => vec![hash(&format!("{} {}", plan.id, set.output))],
        false => items(&set.output, item_regex.as_deref()),
    };
    PolicySetRecord {
        name: set.name.clone(),
        passed: set.passed,
        items,
        item_regex,
        approvals: Vec::new(),
        required: configured.map_or(1, |set| set.approve_count),
    }
}

/// Returns the SHA-256 of each item that a pattern finds in an output. An output without any is one item: its approval covers only that.
fn items(output: &str, pattern: Option<&str>) -> Vec<String> {
    let found = pattern.and_then(|pattern| Regex::new(pattern).ok());
    let mut items = BTreeSet::new();
    for one in found.iter().flat_map(|regex| regex.find_iter(output)) {
        items.insert(hash(one.as_str()));
        if items.len() > MAX_ITEMS {
            return vec![hash(output)];
        }
    }
    match items.is_empty() {
        true => vec![hash(output)],
        false => items.into_iter().collect(),
    }
}

fn hash(text: &str) -> String {
    hex::encode(Sha256::digest(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_output_without_items_is_one_item() {
        let whole = items("FAIL - a\nFAIL - b", None);
        assert_eq!(whole.len(), 1);
        assert_eq!(items("FAIL - a\nFAIL - b", Some("nothing")), whole);
        let (ab, b) = (items("FAIL - a\nFAIL - b", Some("FAIL.*")), items("FAIL - b", Some("FAIL.*")));
        assert_eq!((ab.len(), b.len()), (2, 1));
        assert!(ab.contains(&b[0]));
        // An item that occurs many times counts once, and displaces no later one.
        let many = "FAIL - a\n".repeat(MAX_ITEMS + 1);
        assert_eq!(items(&format!("{many}FAIL - b"), Some("FAIL.*")), ab);
    }

    #[test]
    fn results_are_those_of_the_configured_sets() {
        let ran = |names: &[&str]| -> Vec<_> {
            let set = |name: &&str| PolicySetRan { name: (*name).into(), passed: true, output: String::new() };
            names.iter().map(set).collect()
        };
        let spec = |names: &[&str], custom| PolicySpec {
            engine: Default::default(),
            conftest_version: None,
            custom,
            sets: names.iter().map(|name| PolicySetSpec { name: (*name).into(), path: None }).collect(),
        };
        for (told, configured, custom, fits) in [
            (&["a", "b"][..], &["a", "b"][..], false, true),
            (&["b", "a"], &["a", "b"], false, false),
            (&["a"], &["a", "b"], false, false),
            (&[], &["a"], false, false),
            (&[], &[], false, false),
            (&["a", "a"], &["a"], false, false),
            (&["a", EXTRA_POLICY_SET], &["a"], false, false),
            (&["a", EXTRA_POLICY_SET], &["a"], true, true),
            (&["a", "b"], &["a"], true, false),
            (&["a", EXTRA_POLICY_SET, EXTRA_POLICY_SET], &["a"], true, false),
            (&[], &["a"], true, false),
        ] {
            assert_eq!(are_of(&ran(told), &spec(configured, custom), 2), fits, "{told:?} of {configured:?}");
        }
    }

    proptest! {
        #[test]
        fn a_failed_set_always_has_an_item(output in "\\PC{0,200}", pattern in "[a-z.*]{0,5}") {
            prop_assert!(!items(&output, Some(&pattern)).is_empty());
        }
    }
}
