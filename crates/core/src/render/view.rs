//! Results for the templates: facts selected, sorted and escaped. The templates have the words.

mod failure;
mod output;
mod plan;
mod policies;
mod sections;
mod totals;

use super::RenderOptions;
use super::markdown;
use super::room::CommentRoom;
use crate::domain::command::CommandName;
use crate::domain::outcome::{Fault, JobOutcome, Outcome, PlanHold, Planned, Reason};
use crate::domain::reply::{Reply, Results};
use crate::domain::{CommitSha, ProjectId};
use crate::wording;
use failure::FailureView;
use minijinja::Value;
pub(super) use output::{cut, error_excerpt, headline};
use plan::PlanView;
pub(super) use policies::counted;
use policies::{PoliciesView, policy_counts};
pub(super) use sections::wanted;
use sections::{Arranged, ResultSection, is_unchanged};
use serde::Serialize;

/// Creates the views of one reply.
pub(super) struct Maker<'a> {
    pub(super) reply: &'a Reply,
    pub(super) options: &'a RenderOptions,
    pub(super) room: CommentRoom,
}

/// The result of one project.
#[derive(Serialize)]
pub(super) struct ResultView {
    kind: &'static str,
    /// `Plan for`, `Apply of`.
    noun: String,
    /// Action of a command such as `import`.
    title: String,
    project: ProjectId,
    time: Value,
    tool: Option<String>,
    /// The result in a few words, for the table and for headings.
    state: Value,
    /// `+1 ~1 -1`.
    delta: Value,
    /// `1 added, 1 changed, 1 destroyed`.
    counts: String,
    unchanged: bool,
    plan: Option<PlanView>,
    policies: Option<PoliciesView>,
    failure: Option<FailureView>,
    error: Option<ErrorView>,
    /// Output values, in front of a long log.
    highlights: Option<Value>,
    output: Option<Value>,
    offers: Vec<Offer>,
    /// Command for an operator's own templates, which word their offers themselves.
    apply_command: String,
    plan_command: String,
    log: Option<String>,
    lock: String,
    /// True if it has a row in the table of results.
    row: bool,
    section: ResultSection,
    /// The project whose section has the same plan, refusal or error.
    same: Option<ProjectId>,
}

/// A command that the reader may want next.
#[derive(Serialize)]
pub(super) struct Offer {
    label: String,
    command: String,
}

/// An error.
#[derive(Serialize)]
pub(super) struct ErrorView {
    title: String,
    /// The kind of error, in a word.
    word: &'static str,
    /// The first error of the tool.
    headline: Option<String>,
    /// `was interrupted after`: the heading's words before the duration.
    after: Option<&'static str>,
    message: String,
    /// Further lines of the message.
    detail: Option<Value>,
    excerpt: Option<Value>,
    whole: Option<Value>,
    offers: Vec<Offer>,
}

impl Maker<'_> {
    /// Returns visible results in reading order: failed ones first, unchanged ones last.
    pub(super) fn results(&self, results: &Results) -> Vec<ResultView> {
        let arranged = self.arranged(results);
        let most = if self.options.templates.know_sections() { self.room.results().max(1) } else { usize::MAX };
        let arranged = arranged.into_iter().take(most).enumerate();
        arranged.map(|(at, arranged)| self.result(at, &arranged)).collect()
    }

    fn result(&self, at: usize, arranged: &Arranged<'_>) -> ResultView {
        let job = arranged.job;
        let log = job.job.as_ref().map(|id| format!("{}/jobs/{id}", self.options.url));
        let lock = wording_lock(self.options, &self.reply.pull.repo, &job.project);
        let mut view = ResultView {
            kind: "planned",
            noun: self.titled(job.command, job.command.spec().heading.to_owned()),
            title: self.titled(job.command, job.command.spec().heading_of_success.to_owned()),
            project: job.project.clone(),
            time: Value::from_safe_string(wording::duration(job.millis)),
            tool: job.tool.clone(),
            state: Value::from("done"),
            delta: Value::from(""),
            counts: String::new(),
            unchanged: false,
            plan: None,
            policies: None,
            failure: None,
            error: None,
            highlights: None,
            output: None,
            offers: self.offers(job),
            apply_command: self.offer("", "apply", Some(&job.project), &[]).command,
            plan_command: self.offer("", "plan", Some(&job.project), &[]).command,
            log,
            lock,
            row: at < self.room.rows,
            section: arranged.section,
            same: arranged.same.cloned(),
        };
        self.fill(&mut view, job, arranged.is_told());
        view
    }

    /// Adds the facts of the outcome, with outputs and resources if these are told.
    fn fill(&self, view: &mut ResultView, job: &JobOutcome, is_told: bool) {
        match &job.outcome {
            Outcome::Planned(planned) => {
                let s = &planned.summary;
                let base = planned.base_commit.as_ref().map(|base| self.commit(base));
                let listed = if is_told { self.room.resources } else { 0 };
                let plan = PlanView::new(planned, base, listed, &view.apply_command);
                view.unchanged = is_unchanged(planned);
                view.state = Value::from(plan.state());
                if wording::has_totals(s) && !s.no_changes && !s.outputs_only {
                    view.delta = delta(s.add, s.change, s.destroy);
                }
                view.output = if is_told { self.plan_output(planned, view.section, view.log.as_deref()) } else { None };
                view.plan = Some(plan);
            }
            Outcome::Deferred { on } => {
                view.kind = "deferred";
                view.counts = wording::labels(on);
                view.state = Value::from(format!("waits for {}", view.counts));
            }
            Outcome::Applied(applied) => {
                view.kind = "applied";
                let part = if applied.part.is_some() { " in part" } else { "" };
                view.state =
                    Value::from(format!("✓ applied{part}{}", wording::verified(applied.verification.as_ref())));
                view.delta = delta(applied.added, applied.changed, applied.destroyed);
                view.counts = wording::applied_counts(applied);
                if is_told {
                    (view.highlights, view.output) = self.apply_output(&applied.output, view.log.as_deref());
                }
            }
            Outcome::Ran { output } => {
                view.kind = "ran";
                view.state = Value::from("✓ done");
                view.output = if is_told { self.block(output, "", "Output", view.log.as_deref()) } else { None };
            }
            Outcome::PoliciesChecked(report) | Outcome::PoliciesApproved(report) => {
                let policies = self.policies(report, view.log.as_deref());
                (view.kind, view.policies) = match job.outcome {
                    Outcome::PoliciesApproved(_) => ("approved", Some(policies.approving())),
                    _ => ("checked", Some(policies)),
                };
                view.counts = policy_counts(report);
                let mark = if report.is_met() { "✓" } else { "✗" };
                view.state = Value::from(format!("{mark} {}", view.counts));
            }
            Outcome::Failed(failure) => {
                view.kind = "failed";
                let failure = self.failure(failure, &view.lock);
                view.state = Value::from(format!("✗ {}", failure.word));
                view.failure = Some(failure);
            }
            Outcome::Errored(fault) => {
                view.kind = "errored";
                let error = self.error(fault, job.command, view.log.as_deref(), is_told);
                view.state = Value::from(match error.after {
                    Some(_) => format!("✗ {}", error.word),
                    None if error.word.is_empty() => format!("✗ {} failed", job.command.spoken()),
                    None => format!("✗ {} failed: {}", job.command.spoken(), error.word),
                });
                view.error = Some(error);
            }
        }
    }

    /// Offers the command as it was typed, for the projects that these flags name.
    fn offer_again(&self, label: &str, flags: &str) -> Option<Offer> {
        let command = self.reply.command.as_ref()?;
        let name = command.name;
        let extra_args = if name == CommandName::Apply { &[][..] } else { &command.extra_args };
        let arguments = wording::arguments(&command.positional, extra_args);
        Some(self.typed(label, name.spoken(), &(flags.to_owned() + &arguments)))
    }

    fn offer(&self, label: &str, name: &str, project: Option<&ProjectId>, extra_args: &[String]) -> Offer {
        let flags = project.map(wording::project_flags).unwrap_or_default();
        self.typed(label, name, &(flags + &wording::arguments(&[], extra_args)))
    }

    fn typed(&self, label: &str, name: &str, rest: &str) -> Offer {
        Offer { label: label.to_owned(), command: format!("{} {name}{rest}", self.options.executable) }
    }

    fn offers(&self, job: &JobOutcome) -> Vec<Offer> {
        let project = Some(&job.project);
        match &job.outcome {
            Outcome::Planned(planned) => {
                let mut offers = Vec::new();
                if self.options.offer_apply && planned.can_be_applied() {
                    offers.push(self.offer("to apply", "apply", project, &[]));
                }
                offers.push(self.offer("to plan again", "plan", project, &planned.extra_args));
                let later = later_apply(planned).filter(|_| self.options.offer_apply);
                offers.extend(later.map(|label| self.offer(label, "apply", project, &[])));
                if self.is_single() {
                    let label = if self.options.locking { "to drop plan and lock" } else { "to drop the plan" };
                    offers.push(self.offer(label, "unlock", None, &[]));
                }
                capitalized(offers)
            }
            Outcome::Deferred { .. } => vec![self.offer("For a preview now", "plan", project, &[])],
            Outcome::Applied(_) => Vec::new(),
            Outcome::Ran { .. } => match job.command {
                CommandName::Import | CommandName::StateRm => {
                    vec![self.offer("The state has changed, so plan again", "plan", project, &[])]
                }
                CommandName::ForceUnlock => vec![self.offer("To plan again", "plan", project, &[])],
                _ => Vec::new(),
            },
            Outcome::PoliciesChecked(report) | Outcome::PoliciesApproved(report) => {
                self.after_policies(report, &job.project)
            }
            Outcome::Failed(failure) => self.after_failure(failure, &job.project),
            Outcome::Errored(fault) => self.after_error(fault, job.command, &wording::project_flags(&job.project)),
        }
    }

    fn after_error(&self, fault: &Fault, command: CommandName, flags: &str) -> Vec<Offer> {
        if matches!(fault.reason, Reason::NoPlan | Reason::StalePlan) && !self.names_command(&fault.message) {
            return vec![self.typed("Plan first", "plan", flags)];
        }
        match command {
            CommandName::Apply => vec![self.typed("See what is left", "plan", flags)],
            // A message that names the next command needs no second one.
            _ if self.names_command(&fault.message) => Vec::new(),
            _ => self.offer_again("After the fix, comment", flags).into_iter().collect(),
        }
    }

    /// Returns true if a text names the next command.
    fn names_command(&self, text: &str) -> bool {
        text.contains(&format!("`{} ", self.options.executable))
    }

    /// Returns the error with its own lines before the whole log.
    fn error(&self, fault: &Fault, command: CommandName, log: Option<&str>, is_told: bool) -> ErrorView {
        let (message, detail) = match markdown::clean(&fault.message).trim().split_once('\n') {
            Some((first, more)) => (
                first.to_owned(),
                Some(Value::from_safe_string(markdown::fence(&cut(more, self.room.output, None), ""))),
            ),
            None => (fault.message.clone(), None),
        };
        let (excerpt, whole) = if is_told { self.error_output(&fault.output, log) } else { (None, None) };
        ErrorView {
            title: String::new(),
            headline: output::headline(&fault.output).filter(|_| !is_interruption(fault.reason)),
            word: match wording::reason(fault.reason) {
                word if word == command.spoken() => "",
                word => word,
            },
            after: match fault.reason {
                Reason::Interrupted => Some("was interrupted after"),
                Reason::Cancelled => Some("was cancelled after"),
                Reason::Timeout => Some("timed out after"),
                _ => None,
            },
            message,
            detail,
            excerpt,
            whole,
            offers: Vec::new(),
        }
    }

    /// Returns the error of a command that failed before any project began.
    pub(super) fn command_error(&self, fault: &Fault) -> ErrorView {
        let command = self.reply.command_name().unwrap_or(CommandName::Plan);
        let verb =
            if fault.reason == Reason::NotPermitted || fault.reason == Reason::NoPlan { "refused" } else { "failed" };
        let mut title = format!("{} {verb}", command.spoken());
        title[..1].make_ascii_uppercase();
        let title = self.options.language.title(command).map_or(title, |words| format!("{words}: {verb}"));
        let offers = match fault.reason {
            Reason::NotPermitted => Vec::new(),
            _ => self.after_error(fault, command, &self.target_flags()),
        };
        ErrorView { title, offers, ..self.error(fault, command, None, true) }
    }

    /// Returns the flags that name the command's projects, as they were typed.
    fn target_flags(&self) -> String {
        self.reply.command.as_ref().map(|command| wording::target_flags(&command.target)).unwrap_or_default()
    }

    /// Returns the title of a command in the operator's language, or else the English words.
    fn titled(&self, command: CommandName, words: String) -> String {
        self.options.language.title(command).map_or(words, |title| format!("{title}:"))
    }

    /// Returns seven digits of a commit, linked to its page on the host, if it has one.
    fn commit(&self, commit: &CommitSha) -> Value {
        let pages = self.options.commit_address.as_ref();
        let address = pages.and_then(|pages| pages.url_of(&self.reply.pull.repo, commit));
        Value::from_safe_string(markdown::link(commit.short(), &address.unwrap_or_default()))
    }

    pub(super) fn is_single(&self) -> bool {
        match &self.reply.body {
            crate::domain::reply::ReplyBody::Results(results) => results.shown().count() == 1,
            _ => true,
        }
    }
}

/// Returns true if the job was interrupted: errors in its output then have no meaning.
fn is_interruption(reason: Reason) -> bool {
    matches!(reason, Reason::Interrupted | Reason::Cancelled | Reason::Timeout)
}

/// Returns `+1 ~1 -1`, which needs no escaping in a table cell.
fn delta(added: u64, changed: u64, destroyed: u64) -> Value {
    Value::from_safe_string(format!("+{added} ~{changed} -{destroyed}"))
}

/// Returns the label of the offer to apply a plan that waits for its policies, or that has no changes. None if an apply would be refused.
fn later_apply(planned: &Planned) -> Option<&'static str> {
    match planned.held {
        Some(PlanHold::Policies) => Some("when its policies pass or are approved, to apply"),
        None if planned.summary.no_changes && !planned.preview => Some("to confirm that there is nothing to apply"),
        _ => None,
    }
}

fn capitalized(mut offers: Vec<Offer>) -> Vec<Offer> {
    if let Some(first) = offers.first_mut() {
        first.label[..1].make_ascii_uppercase();
    }
    offers
}

/// Returns the address of the page of a project's lock.
fn wording_lock(options: &RenderOptions, repo: &crate::domain::RepoId, project: &ProjectId) -> String {
    let key = crate::domain::state::lock_id(repo, project);
    let query: String = url::form_urlencoded::byte_serialize(key.as_bytes()).collect();
    format!("{}/lock?id={query}", options.url)
}
