//! Commit statuses: names, which are Atlantis', and wording.

use super::markdown;
use super::view::counted;
use crate::domain::command::CommandName;
use crate::domain::guards::TrippedGuard;
use crate::domain::outcome::{Applied, Failure, JobOutcome, Outcome, PolicyReport};
use crate::domain::ownership::InvalidationCause;
use crate::domain::state::{CommitStatus, ProjectState, ProjectStatus, StatusState};
use crate::domain::{JobId, ProjectId, PullId, PullNames, duration};
use crate::wording;
use sha2::{Digest as _, Sha256};

/// Longest name of a status, in characters (Atlantis' limit, below every host's).
const MAX_CONTEXT: usize = 255;
/// Longest description, in characters: GitHub refuses longer ones.
const MAX_DESCRIPTION: usize = 140;
/// Suffix of the plan of a part of a project.
const IN_PART: &str = ", in part";
/// Beginning of the plan of a project whose directory the pull request deletes.
const DELETED: &str = "Destroy of a deleted project: ";
/// Suffix of the apply of such a plan.
const OF_PART: &str = " in part: plan and apply all of it";

/// Numbers of projects of an apply that did not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApplyFailures {
    /// Applies that began and failed.
    failed: usize,
    /// Applies that were refused.
    refused: usize,
    /// All projects of the command.
    all: usize,
}

impl ApplyFailures {
    /// Counts them; `None` if all applies succeeded.
    pub fn of(outcomes: &[JobOutcome]) -> Option<ApplyFailures> {
        let broken = outcomes.iter().filter(|outcome| !outcome.outcome.is_success()).count();
        let refused = outcomes.iter().filter(|outcome| matches!(outcome.outcome, Outcome::Failed(_))).count();
        (broken > 0).then_some(ApplyFailures { failed: broken - refused, refused, all: outcomes.len() })
    }
}

/// Creates statuses with the configured prefix and links.
#[derive(Clone)]
pub struct Statuses {
    /// `--vcs-status-name`.
    pub prefix: String,
    /// The server's address; no trailing slash.
    pub url: String,
    /// Notation of pull requests.
    pub pulls: PullNames,
    /// True if a host of the server shows details below statuses.
    pub has_details: bool,
}

impl Statuses {
    /// Returns `atlantis/plan` pending: "Plan in progress...".
    pub fn pending(&self, command: CommandName) -> CommitStatus {
        self.make(command.as_str(), StatusState::Pending, &in_progress(command), None)
    }

    /// Returns `atlantis/plan: label` pending, linked to its job.
    pub fn project_pending(&self, command: CommandName, project: &ProjectId, job: &JobId) -> CommitStatus {
        let name = project_name(command, project);
        self.make(&name, StatusState::Pending, &in_progress(command), Some(job))
    }

    /// Returns `atlantis/plan: label` with a one-line outcome, linked to its job.
    pub fn project(&self, outcome: &JobOutcome) -> CommitStatus {
        let name = project_name(outcome.command, &outcome.project);
        let state = match outcome.outcome {
            Outcome::Deferred { .. } => StatusState::Pending,
            // The project is not applied, only a part of it.
            Outcome::Applied(Applied { part: Some(_), .. }) => StatusState::Pending,
            _ if outcome.outcome.is_success() => StatusState::Success,
            _ => StatusState::Failure,
        };
        let waits = state == StatusState::Pending;
        let status = self.make(&name, state, &self.one_line(outcome), outcome.job.as_ref());
        self.with_outcome(CommitStatus { waits, ..status }, outcome)
    }

    /// Returns the name of a project's status, such as `atlantis/plan: label`.
    pub fn name_of(&self, command: CommandName, project: &ProjectId) -> String {
        self.context_of(&project_name(command, project))
    }

    /// Returns true if a status of exactly this name is about all projects of a pull request.
    pub fn is_of_all(&self, name: &str) -> bool {
        let commands = [CommandName::Plan, CommandName::Apply, CommandName::PolicyCheck];
        commands.iter().any(|command| self.context_of(command.as_str()) == name)
    }

    /// Returns true if this is the name of a workflow hook's status.
    pub fn is_of_hook(&self, name: &str) -> bool {
        let hooks = ["pre", "post"].map(|kind| format!("{}/{kind}_workflow_hook: ", self.prefix));
        hooks.iter().any(|hook| name.starts_with(hook.as_str()))
    }

    /// Returns `atlantis/plan` that failed as a whole, with a reason.
    pub fn failed(&self, command: CommandName, because: &str) -> CommitStatus {
        let title = title(command);
        let text = if because.is_empty() { format!("{title} failed") } else { format!("{title} failed: {because}") };
        self.with_reason(self.make(command.as_str(), StatusState::Failure, &text, None), &text)
    }

    /// Returns `atlantis/apply` after an apply of which not all projects succeeded.
    pub fn apply_failed(&self, failures: &ApplyFailures) -> CommitStatus {
        let ApplyFailures { failed, refused, all } = failures;
        let text = match (failed, refused) {
            (0, refused) => format!("Apply refused: {refused} of {all}"),
            (failed, 0) => format!("Apply failed: {failed} of {all} failed"),
            (failed, refused) => format!("Apply failed: {failed} of {all} failed, {refused} refused"),
        };
        self.with_reason(self.make("apply", StatusState::Failure, &text, None), &text)
    }

    /// Returns `atlantis/plan` after a plan: counts over all projects of the pull request; failure if any plan failed or is discarded.
    pub fn plan(&self, statuses: &[ProjectStatus]) -> CommitStatus {
        let count = |state| statuses.iter().filter(|status| status.state == state).count();
        let not_planned = statuses.iter().filter(|status| status.was_not_planned()).count();
        let failed = count(ProjectState::PlanErrored) - not_planned;
        let discarded = count(ProjectState::PlanDiscarded) + count(ProjectState::PlanInvalidated);
        let state = if failed + not_planned + discarded > 0 { StatusState::Failure } else { StatusState::Success };
        let same = count(ProjectState::PlannedNoChanges);
        let deferred = count(ProjectState::Deferred);
        let in_part = count(ProjectState::PlannedInPart) + count(ProjectState::AppliedInPart);
        let changed = statuses.len() - failed - not_planned - same - discarded - deferred - in_part;
        let text = match statuses {
            [] => "0/0 projects planned".to_owned(),
            [
                ProjectStatus {
                    state: ProjectState::Planned | ProjectState::PlannedNoChanges, summary: Some(s), ..
                },
            ] if wording::has_totals(s) => wording::plan_counts(s),
            [ProjectStatus { state: ProjectState::PlannedInPart, summary: Some(s), .. }] if wording::has_totals(s) => {
                format!("{}{IN_PART}", wording::plan_counts(s))
            }
            [one] if one.was_not_planned() => "Not planned: refused, or waits for another pull request".to_owned(),
            [one] => title_case(one.state.title()),
            _ => list(&[
                (changed, "with changes"),
                (same, if changed > 0 { "without" } else { "without changes" }),
                (failed, "failed"),
                (not_planned, "not planned"),
                (discarded, "discarded"),
                (deferred, if deferred == 1 { "waits for others" } else { "wait for others" }),
                (in_part, "in part"),
            ]),
        };
        self.with_projects(self.make("plan", state, &text, self.only_job(statuses)), statuses)
    }

    /// Returns `atlantis/apply` after a plan; `None`, as in Atlantis, if a project waits and none is applied, or planned or applied in
    /// part.
    pub fn apply_after_plan(&self, statuses: &[ProjectStatus]) -> Option<CommitStatus> {
        let is_begun = |status: &ProjectStatus| {
            matches!(status.state, ProjectState::Applied | ProjectState::AppliedInPart | ProjectState::PlannedInPart)
        };
        Some(self.apply(statuses))
            .filter(|status| status.state != StatusState::Pending || statuses.iter().any(is_begun))
    }

    /// Returns `atlantis/apply`: failure if an apply failed; success if all projects are applied or unchanged; else pending with
    /// `1/2 applied`.
    pub fn apply(&self, statuses: &[ProjectStatus]) -> CommitStatus {
        let count = |state| statuses.iter().filter(|status| status.state == state).count();
        let all = statuses.len();
        let (failed, applied, same) =
            (count(ProjectState::ApplyErrored), count(ProjectState::Applied), count(ProjectState::PlannedNoChanges));
        let up_to_date = if same > 0 { format!(", {same} up to date") } else { String::new() };
        let in_part = count(ProjectState::AppliedInPart);
        if failed > 0 {
            let text = format!("{failed} failed, {applied}/{all} applied{up_to_date}");
            let status = self.make("apply", StatusState::Failure, &text, self.only_job(statuses));
            return self.with_projects(status, statuses);
        }
        if applied + same == all {
            let text = if applied == 0 && same > 0 {
                format!("{same}/{all} up to date")
            } else {
                format!("{applied}/{all} applied{up_to_date}")
            };
            let status = self.make("apply", StatusState::Success, &text, self.only_job(statuses));
            return self.with_projects(status, statuses);
        }
        let left = if in_part > 0 { format!(", {in_part}{OF_PART}") } else { String::new() };
        let text = format!("{applied}/{all} applied{up_to_date}{left}");
        let status = self.make("apply", StatusState::Pending, &text, None);
        self.with_projects(CommitStatus { waits: true, ..status }, statuses)
    }

    /// Returns `atlantis/plan: label`, or `atlantis/plan`, of a plan that was invalidated.
    pub fn plan_invalidated(&self, project: Option<&ProjectId>, cause: &InvalidationCause) -> CommitStatus {
        let because = match cause {
            InvalidationCause::AppliedBy { pull } => format!("{} changes the same project", self.pulls.name(pull)),
            InvalidationCause::BaseMoved { branch, commit } => format!("{branch} has moved to {}", commit.short()),
            InvalidationCause::DependencyApplied { project } => format!("{} was applied", project.label()),
            InvalidationCause::DriftApplied => "a drift run applied it".to_owned(),
            InvalidationCause::TooOld { limit } => format!("it is older than {}", duration::format(*limit)),
        };
        self.discarded(project, &because)
    }

    /// Returns `atlantis/plan: label`, or `atlantis/plan`, of a plan that was discarded before anybody used it.
    pub fn discarded(&self, project: Option<&ProjectId>, because: &str) -> CommitStatus {
        let name = project.map_or_else(|| "plan".to_owned(), |project| project_name(CommandName::Plan, project));
        let text = format!("Plan discarded: {because}");
        self.with_reason(self.make(&name, StatusState::Failure, &text, None), &text)
    }

    /// Returns the statuses of a deleted project whose resources a person keeps.
    pub fn kept(&self, project: &ProjectId, because: &str) -> [CommitStatus; 2] {
        let text = format!("Not destroyed: {because}");
        ["plan", "apply"]
            .map(|what| self.make(&format!("{what}: {}", project.label()), StatusState::Success, &text, None))
    }

    /// Returns `atlantis/apply` of a pull request that was closed without a merge after it had changed the state of projects.
    pub fn owes(&self, projects: usize) -> CommitStatus {
        let text = format!("Closed after an apply of {projects} project{}", if projects == 1 { "" } else { "s" });
        self.make("apply", StatusState::Failure, &text, None)
    }

    /// Returns `atlantis/policy_check`: success if the policies of all checked projects have passed or are approved.
    pub fn policies(&self, met: usize, all: usize) -> CommitStatus {
        let failed = all - met;
        let (state, text) = match failed {
            0 => (StatusState::Success, format!("{met}/{all} passed or approved")),
            _ => (StatusState::Failure, format!("{failed}/{all} failed policies")),
        };
        self.make(CommandName::PolicyCheck.as_str(), state, &text, None)
    }

    /// Returns `atlantis/plan` or `atlantis/apply` of a merge queue's commit: success, or failure with what is missing.
    pub fn of_queue(&self, command: CommandName, pulls: &[PullId], missing: &[String]) -> CommitStatus {
        let name = command.as_str();
        if missing.is_empty() {
            let pulls: Vec<String> = pulls.iter().map(|pull| self.pulls.name(pull)).collect();
            let done = if command == CommandName::Plan { "planned" } else { "applied" };
            return self.make(name, StatusState::Success, &format!("{} {done}", pulls.join(", ")), None);
        }
        self.make(name, StatusState::Failure, &missing.join("; "), None)
    }

    /// Returns 0/0 success of plan, policy_check and apply, for an autoplan without projects.
    pub fn nothing_to_do(&self) -> Vec<CommitStatus> {
        let texts =
            [("plan", "0/0 projects planned"), ("policy_check", "0/0 projects checked"), ("apply", "0/0 applied")];
        texts.into_iter().map(|(name, text)| self.make(name, StatusState::Success, text, None)).collect()
    }

    /// Returns `atlantis/pre_workflow_hook: description`, or the post-workflow one.
    pub fn hook(&self, pre: bool, description: &str, state: StatusState, text: &str, job: &JobId) -> CommitStatus {
        let kind = if pre { "pre" } else { "post" };
        self.make(&format!("{kind}_workflow_hook: {description}"), state, text, Some(job))
    }

    /// Returns the name of a status with the prefix, cut to the limit.
    fn context_of(&self, name: &str) -> String {
        context(&format!("{}/{}", self.prefix, line(name)))
    }

    fn make(&self, name: &str, state: StatusState, text: &str, job: Option<&JobId>) -> CommitStatus {
        let url = match job {
            Some(id) => format!("{}/jobs/{id}", self.url),
            None => self.url.clone(),
        };
        CommitStatus {
            context: self.context_of(name),
            state,
            description: shortened(&line(text), MAX_DESCRIPTION),
            url,
            waits: false,
            details: None,
        }
    }

    /// Returns the result of all policy sets in one line.
    pub fn policy_line(report: &PolicyReport) -> String {
        match report.sets.iter().filter(|set| !set.is_met()).count() {
            0 => "All policy sets have passed or are approved".to_owned(),
            unmet => format!("{unmet} of {} did not pass", counted(report.sets.len(), "policy set")),
        }
    }

    /// Returns the outcome of a job in one line.
    pub fn one_line(&self, outcome: &JobOutcome) -> String {
        match &outcome.outcome {
            Outcome::Planned(plan) => {
                let totals = wording::has_totals(&plan.summary).then(|| wording::plan_counts(&plan.summary));
                let part = if plan.part.is_some() { IN_PART } else { "" };
                let deleted = if plan.deleted { DELETED } else { "" };
                format!(
                    "{deleted}{}{part}{}",
                    totals.unwrap_or_else(|| "Planned".to_owned()),
                    open_guards(&plan.guards)
                )
            }
            Outcome::Deferred { on } => format!("Waits for {}", wording::labels(on)),
            Outcome::Applied(a) => {
                let left = if a.part.is_some() { format!(",{OF_PART}") } else { String::new() };
                format!("{}{left}", wording::applied_counts(a))
            }
            Outcome::Ran { .. } => "Done".to_owned(),
            Outcome::PoliciesChecked(report) => Statuses::policy_line(report),
            Outcome::PoliciesApproved(_) => "Approved policies".to_owned(),
            Outcome::Failed(failure) => title_case(&self.refusal(failure)),
            Outcome::Errored(fault) => match wording::reason(fault.reason) {
                word if word == outcome.command.spoken() => title_case(&fault.message),
                word => format!("{}: {}", title_case(word), fault.message),
            },
        }
    }

    fn refusal(&self, failure: &Failure) -> String {
        match failure {
            Failure::Locked(holder) => format!("locked by {}", self.pulls.name(&holder.pull)),
            Failure::Owned(owner) => format!("owned by {}", self.pulls.name(&owner.holder.pull)),
            Failure::Requirements(checks) => {
                checks.iter().filter(|c| !c.met).map(|c| wording::unmet(&c.name)).collect::<Vec<_>>().join(", ")
            }
            Failure::Dependency { missing } => format!("waits for {}", missing.join(", ")),
            Failure::EarlierGroupFailed => "an earlier group failed".to_owned(),
            Failure::Unplanned { .. } => "not planned".to_owned(),
            Failure::Cancelled { .. } => "cancelled".to_owned(),
            Failure::Refused { because, .. } => because.clone(),
            other => wording::reason(other.reason()).to_owned(),
        }
    }

    /// Returns the job to link to, if there is just one project.
    fn only_job<'a>(&self, statuses: &'a [ProjectStatus]) -> Option<&'a JobId> {
        match statuses {
            [one] => one.job.as_ref(),
            _ => None,
        }
    }
}

/// Returns the names of guards that were not overridden, as an end of a sentence.
fn open_guards(guards: &[TrippedGuard]) -> String {
    let open: Vec<&str> =
        guards.iter().filter(|guard| guard.passed.is_none()).map(|guard| guard.name.as_str()).collect();
    if open.is_empty() { String::new() } else { format!("; guard {} tripped", open.join(", ")) }
}

/// Returns the name of a project's status without the prefix.
fn project_name(command: CommandName, project: &ProjectId) -> String {
    format!("{}: {}", command.as_str(), project.label())
}

fn in_progress(command: CommandName) -> String {
    format!("{} in progress...", title(command))
}

/// Returns the command's name at the start of a sentence.
fn title(command: CommandName) -> String {
    title_case(&command.as_str().replace('_', " "))
}

fn title_case(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// Returns `2 with changes, 1 failed`, without counts of zero.
fn list(counts: &[(usize, &str)]) -> String {
    counts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect::<Vec<_>>().join(", ")
}

/// Returns one line without control characters.
fn line(text: &str) -> String {
    markdown::clean(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

fn shortened(text: &str, most: usize) -> String {
    markdown::shorten(text, most)
}

/// Returns a status name of at most [`MAX_CONTEXT`] characters. A cut name ends with a hash of the whole, so that it stays unique.
fn context(name: &str) -> String {
    if name.chars().count() <= MAX_CONTEXT {
        return name.to_owned();
    }
    let hash = hex::encode(Sha256::digest(name.as_bytes()));
    let kept: String = name.chars().take(MAX_CONTEXT - 13).collect();
    format!("{kept}-{}", &hash[..12])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::outcome::{Fault, PlanSummary, Planned, Reason, RequirementCheck};
    use ProjectState::{
        Applied as Done, AppliedInPart, ApplyErrored, PlanDiscarded, PlanErrored, PlanInvalidated, Planned as Waiting,
        PlannedInPart, PlannedNoChanges,
    };

    fn statuses() -> Statuses {
        let (prefix, url) = ("atlantis".to_owned(), "https://t".to_owned());
        Statuses { prefix, url, pulls: PullNames::default(), has_details: false }
    }

    fn project(dir: &str) -> ProjectId {
        ProjectId { dir: dir.to_owned(), workspace: "default".to_owned(), name: None }
    }

    fn states(states: &[ProjectState]) -> Vec<ProjectStatus> {
        let status = |state: &ProjectState| ProjectStatus {
            project: project("."),
            state: *state,
            head: "h".into(),
            summary: Some(PlanSummary { add: 1, no_changes: *state == PlannedNoChanges, ..PlanSummary::default() }),
            job: Some("j1".into()),
            updated: jiff::Timestamp::UNIX_EPOCH,
            waits_for: Vec::new(),
        };
        states.iter().map(status).collect()
    }

    fn describe(status: &CommitStatus) -> String {
        format!("{} {:?} {} {}", status.context, status.state, status.description, status.url)
    }

    #[test]
    fn plans_are_counted() {
        for (of, want) in [
            (&[][..], "atlantis/plan Success 0/0 projects planned https://t"),
            (&[Waiting], "atlantis/plan Success 1 to add, 0 to change, 0 to destroy https://t/jobs/j1"),
            (&[PlannedNoChanges], "atlantis/plan Success No changes https://t/jobs/j1"),
            (&[PlanErrored], "atlantis/plan Failure Plan failed https://t/jobs/j1"),
            (
                &[Waiting, Waiting, PlannedNoChanges, PlanErrored],
                "atlantis/plan Failure 2 with changes, 1 without, 1 failed https://t",
            ),
            (&[PlanDiscarded], "atlantis/plan Failure Plan discarded https://t/jobs/j1"),
            (&[Waiting, PlanDiscarded], "atlantis/plan Failure 1 with changes, 1 discarded https://t"),
            (&[PlannedInPart], "atlantis/plan Success 1 to add, 0 to change, 0 to destroy, in part https://t/jobs/j1"),
            (&[Waiting, PlannedInPart], "atlantis/plan Success 1 with changes, 1 in part https://t"),
            (&[Waiting, PlanInvalidated], "atlantis/plan Failure 1 with changes, 1 discarded https://t"),
            (&[PlannedNoChanges, PlannedNoChanges], "atlantis/plan Success 2 without changes https://t"),
        ] {
            assert_eq!(describe(&statuses().plan(&states(of))), want);
        }
    }

    #[test]
    fn projects_that_were_not_planned_have_not_failed() {
        let not_planned = ProjectStatus { job: None, ..states(&[PlanErrored]).remove(0) };
        let want = "atlantis/plan Failure Not planned: refused, or waits for another pull request https://t";
        assert_eq!(describe(&statuses().plan(std::slice::from_ref(&not_planned))), want);
        let both = [states(&[PlanErrored]), vec![not_planned]].concat();
        assert_eq!(describe(&statuses().plan(&both)), "atlantis/plan Failure 1 failed, 1 not planned https://t");
        for (failed, refused, want) in [
            (2, 0, "Apply failed: 2 of 3 failed"),
            (0, 3, "Apply refused: 3 of 3"),
            (1, 2, "Apply failed: 1 of 3 failed, 2 refused"),
        ] {
            let status = statuses().apply_failed(&ApplyFailures { failed, refused, all: 3 });
            assert_eq!((status.state, status.description.as_str()), (StatusState::Failure, want));
        }
    }

    #[test]
    fn applies_are_pending_only_while_planned_projects_wait() {
        for (of, after_apply, want) in [
            (&[Waiting, Waiting][..], false, None),
            (&[Waiting, Done], false, Some("Pending 1/2 applied")),
            (&[Waiting, Done, PlannedNoChanges], true, Some("Pending 1/3 applied, 1 up to date")),
            (&[Done, Done], true, Some("Success 2/2 applied")),
            (&[Done, PlannedNoChanges], true, Some("Success 1/2 applied, 1 up to date")),
            (&[PlannedNoChanges], false, Some("Success 1/1 up to date")),
            (&[ApplyErrored, Done], true, Some("Failure 1 failed, 1/2 applied")),
            (&[ApplyErrored], false, Some("Failure 1 failed, 0/1 applied")),
            (&[AppliedInPart], true, Some("Pending 0/1 applied, 1 in part: plan and apply all of it")),
            (&[Done, AppliedInPart], false, Some("Pending 1/2 applied, 1 in part: plan and apply all of it")),
            (&[PlannedInPart], false, Some("Pending 0/1 applied")),
            (&[PlanDiscarded], false, None),
            (&[], false, Some("Success 0/0 applied")),
        ] {
            let (statuses, of_pull) = (statuses(), states(of));
            let status = if after_apply { Some(statuses.apply(&of_pull)) } else { statuses.apply_after_plan(&of_pull) };
            assert!(status.iter().all(|status| status.waits == (status.state == StatusState::Pending)));
            let got = status.map(|status| format!("{:?} {}", status.state, status.description));
            assert_eq!(got.as_deref(), want, "{of:?} {after_apply}");
        }
    }

    #[test]
    fn projects_tell_their_outcome_in_one_line() {
        let job = |command, outcome| JobOutcome {
            command,
            project: project("infra"),
            job: Some("j2".into()),
            millis: 0,
            tool: None,
            silenced: false,
            outcome,
        };
        let summary = PlanSummary { add: 1, ..PlanSummary::default() };
        let fault =
            |reason| Fault { reason, message: "terraform init: exit status 1".to_owned(), output: String::new() };
        let check = RequirementCheck { name: "approved".to_owned(), met: false, detail: String::new() };
        for (job, want) in [
            (
                job(CommandName::Plan, Outcome::Planned(Planned { summary, ..Planned::default() })),
                "atlantis/plan: infra/default Success 1 to add, 0 to change, 0 to destroy https://t/jobs/j2",
            ),
            (
                job(CommandName::Apply, Outcome::Applied(Applied { added: 1, ..Applied::default() })),
                "atlantis/apply: infra/default Success 1 added, 0 changed, 0 destroyed https://t/jobs/j2",
            ),
            (
                job(CommandName::Plan, Outcome::Errored(fault(Reason::Init))),
                "atlantis/plan: infra/default Failure Init: terraform init: exit status 1 https://t/jobs/j2",
            ),
            (
                job(CommandName::Apply, Outcome::Failed(Failure::Requirements(vec![check]))),
                "atlantis/apply: infra/default Failure Not approved https://t/jobs/j2",
            ),
        ] {
            assert_eq!(describe(&statuses().project(&job)), want);
        }
    }

    #[test]
    fn other_statuses() {
        let s = statuses();
        assert_eq!(
            describe(&s.pending(CommandName::PolicyCheck)),
            "atlantis/policy_check Pending Policy check in progress... https://t"
        );
        assert_eq!(
            describe(&s.project_pending(CommandName::Plan, &project("."), &"j".into())),
            "atlantis/plan: ./default Pending Plan in progress... https://t/jobs/j"
        );
        assert_eq!(
            describe(&s.failed(CommandName::Apply, "not\nplanned")),
            "atlantis/apply Failure Apply failed: not planned https://t"
        );
        assert_eq!(
            describe(&s.hook(true, "Make it", StatusState::Success, "2 projects", &"j".into())),
            "atlantis/pre_workflow_hook: Make it Success 2 projects https://t/jobs/j"
        );
        let names: Vec<_> = s.nothing_to_do().into_iter().map(|status| status.context).collect();
        assert_eq!(names, ["atlantis/plan", "atlantis/policy_check", "atlantis/apply"]);
    }

    #[test]
    fn long_names_and_texts_are_cut_so_that_they_stay_different() {
        let s = statuses();
        let long = |end: &str| {
            s.project_pending(CommandName::Plan, &project(&format!("{}{end}", "é".repeat(300))), &"j".into())
        };
        assert_eq!(long("a").context.chars().count(), 255);
        assert_ne!(long("a").context, long("b").context);
        assert_eq!(s.failed(CommandName::Plan, &"x".repeat(500)).description.chars().count(), 140);
    }
}
