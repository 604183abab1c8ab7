//! An event in words and data, before it has the form of a receiver. Pure functions. Text of pull requests is untrusted: it is in one line
//! here and bounded, and each form escapes it.

use super::message;
use super::{ApplyEnd, ApprovalsLapsed, JobFailure, LocksOverdue, TurnCome};
use crate::domain::drift::DriftDetection;
use crate::domain::{ProjectId, PullRequest, RepoId};
use crate::settings::NotificationEvent;
use serde_json::{Map, Value, json};

/// Largest fact, in characters.
const MAX_FACT: usize = 300;
/// Maximum number of projects and people that a text for people names.
const MAX_SHOWN: usize = 20;
/// Maximum number of projects that a message in JSON names.
const MAX_NAMED: usize = 100;

/// Importance of an event, for a color.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Good,
    Neutral,
    Bad,
}

/// A line of a message: its title and its text.
pub(super) struct Fact {
    pub(super) title: &'static str,
    pub(super) text: String,
}

/// One event.
pub(super) struct EventNotice<'a> {
    pub(super) event: NotificationEvent,
    /// Id that is unique among the events of its kind.
    pub(super) id: String,
    pub(super) tone: Tone,
    /// Headline: our words, and the name of the repository.
    pub(super) title: String,
    pub(super) repo: &'a RepoId,
    pub(super) base_branch: &'a str,
    /// Absent for drift.
    pub(super) pull: Option<&'a PullRequest>,
    /// Projects that it is about; none if it is about the whole pull request.
    pub(super) projects: Vec<&'a ProjectId>,
    pub(super) facts: Vec<Fact>,
    /// Message for programs.
    pub(super) json: Value,
    /// Atlantis' own form for Slack, if it has one.
    pub(super) attachment: Option<Value>,
}

impl<'a> EventNotice<'a> {
    /// Returns the notice of an apply. `host_kind` is Atlantis' number of the host's kind.
    pub(super) fn of_apply(end: &'a ApplyEnd<'a>, host_kind: u8) -> EventNotice<'a> {
        let (tone, word) = if end.success { (Tone::Good, "succeeded") } else { (Tone::Bad, "failed") };
        let mut facts = of_projects(&[end.project]);
        facts.push(fact("By", end.command.user.shown()));
        if !end.success {
            facts.push(fact("Reason", end.reason));
        }
        EventNotice {
            event: NotificationEvent::Apply,
            id: end.job.to_string(),
            tone,
            title: format!("Apply {word} in {}", end.pull.id.repo.full_name()),
            projects: vec![end.project],
            json: message::http(end, host_kind),
            attachment: Some(message::slack(end)),
            ..EventNotice::about(NotificationEvent::Apply, end.pull, facts)
        }
    }

    /// Returns the notice of a detection that found drift.
    pub(super) fn of_drift(detection: &'a DriftDetection) -> EventNotice<'a> {
        let drifted = detection.projects.iter().map(|(found, _)| found).filter(|found| found.finding.has_drift());
        let projects: Vec<&ProjectId> = drifted.map(|found| &found.project).collect();
        let mut facts = of_projects(&projects);
        facts.push(fact("Projects with drift", &format!("{} of {}", projects.len(), detection.projects.len())));
        facts.push(fact("Ref", &detection.reference));
        facts.push(fact("Detection ID", detection.id.as_str()));
        EventNotice {
            event: NotificationEvent::Drift,
            id: detection.id.to_string(),
            tone: Tone::Bad,
            title: format!("Drift detected in {}", detection.repo.full_name()),
            repo: &detection.repo,
            base_branch: &detection.branch,
            pull: None,
            projects,
            facts,
            json: message::http_drift(detection),
            attachment: Some(message::slack_drift(detection)),
        }
    }

    /// Returns the notice of a failed plan or apply.
    pub(super) fn of_failure(failure: &'a JobFailure<'a>) -> EventNotice<'a> {
        let projects: Vec<&ProjectId> = failure.project.into_iter().collect();
        let mut facts = of_projects(&projects);
        facts.push(fact("By", failure.user.shown()));
        facts.push(fact("Reason", failure.reason));
        let command = failure.command.spoken();
        let more = json!({"command": command, "user": failure.user.as_str(), "reason": one_line(failure.reason)});
        EventNotice {
            id: failure.id.to_owned(),
            tone: Tone::Bad,
            title: format!("{} failed in {}", capitalized(command), failure.pull.id.repo.full_name()),
            projects,
            ..EventNotice::about(NotificationEvent::Failure, failure.pull, facts)
        }
        .with(more)
    }

    /// Returns the notice of a turn.
    pub(super) fn of_turn(turn: &'a TurnCome<'a>) -> EventNotice<'a> {
        let projects: Vec<&ProjectId> = turn.projects.iter().collect();
        EventNotice {
            id: turn.replan.0.to_string(),
            title: format!("Projects are free for a pull request of {}", turn.pull.id.repo.full_name()),
            facts: of_projects(&projects),
            projects,
            ..EventNotice::about(NotificationEvent::Turn, turn.pull, Vec::new())
        }
        .with(json!({}))
    }

    /// Returns the notice of approvals that do not count any more.
    pub(super) fn of_lapsed(lapsed: &'a ApprovalsLapsed<'a>) -> EventNotice<'a> {
        let projects: Vec<&ProjectId> = lapsed.project.into_iter().collect();
        let mut facts = of_projects(&projects);
        facts.push(fact("Approvals", &listed(&lapsed.approvals)));
        facts.push(fact("Reason", lapsed.because));
        let people: Vec<String> = lapsed.approvals.iter().take(MAX_NAMED).map(|one| one_line(one)).collect();
        EventNotice {
            id: lapsed.id.to_owned(),
            title: format!("Approvals do not count any more in {}", lapsed.pull.id.repo.full_name()),
            projects,
            ..EventNotice::about(NotificationEvent::ApprovalLapsed, lapsed.pull, facts)
        }
        .with(json!({"approvals": people, "reason": one_line(lapsed.because)}))
    }

    /// Returns the notice of locks that are held for long.
    pub(super) fn of_overdue(overdue: &'a LocksOverdue<'a>) -> EventNotice<'a> {
        let projects: Vec<&ProjectId> = overdue.projects.iter().collect();
        let mut facts = of_projects(&projects);
        facts.push(fact("Locked since", &overdue.since.to_string()));
        EventNotice {
            id: format!("{}-{}", overdue.pull.id, overdue.since),
            title: format!("Projects are locked for long in {}", overdue.pull.id.repo.full_name()),
            projects,
            ..EventNotice::about(NotificationEvent::LockOverdue, overdue.pull, facts)
        }
        .with(json!({"locked_since": overdue.since.to_string()}))
    }

    /// Returns a notice about a pull request, without a title, an id and data.
    fn about(event: NotificationEvent, pull: &'a PullRequest, facts: Vec<Fact>) -> EventNotice<'a> {
        EventNotice {
            event,
            id: String::new(),
            tone: Tone::Neutral,
            title: String::new(),
            repo: &pull.id.repo,
            base_branch: &pull.base.branch,
            pull: Some(pull),
            projects: Vec::new(),
            facts,
            json: Value::Null,
            attachment: None,
        }
    }

    /// Adds the message for programs: what all events have, and `more`.
    fn with(mut self, more: Value) -> EventNotice<'a> {
        let projects = self.projects.iter().take(MAX_NAMED).map(|project| {
            json!({
                "project_name": project.name.as_deref().unwrap_or_default(),
                "directory": project.dir,
                "workspace": project.workspace,
            })
        });
        let mut all = Map::new();
        all.insert("event".into(), self.event.word().into());
        all.insert("host".into(), self.repo.host.clone().into());
        all.insert("repository".into(), self.repo.full_name().into());
        all.insert("base_branch".into(), self.base_branch.into());
        all.insert("projects".into(), projects.collect());
        if let Some(pull) = self.pull {
            let of_pull = json!({
                "number": pull.id.number,
                "title": one_line(&pull.title),
                "url": pull.url,
                "author": pull.author.as_str(),
                "head_branch": pull.head.branch,
                "head_commit": pull.head.commit,
            });
            all.insert("pull_request".into(), of_pull);
        }
        if let Value::Object(more) = more {
            all.extend(more);
        }
        self.json = Value::Object(all);
        self
    }

    /// Returns all facts for people, the pull request first.
    pub(super) fn facts(&self) -> impl Iterator<Item = Fact> {
        let of_pull = self.pull.map(|pull| fact("Pull request", &format!("{}: {}", pull.id.number, pull.title)));
        let facts = self.facts.iter().map(|known| Fact { title: known.title, text: known.text.clone() });
        of_pull.into_iter().chain(facts)
    }

    /// Returns the page of the pull request, if it is one for browsers.
    pub(super) fn link(&self) -> Option<&'a str> {
        let is_page = |url: &&str| (url.starts_with("https://") || url.starts_with("http://")) && url.len() <= 2048;
        self.pull.map(|pull| pull.url.as_str()).filter(is_page)
    }

    /// Returns a text that is the same for all events of a pull request.
    pub(super) fn thread(&self) -> Option<String> {
        self.pull.map(|pull| pull.id.to_string())
    }
}

fn fact(title: &'static str, text: &str) -> Fact {
    Fact { title, text: one_line(text) }
}

/// Returns the fact that names the projects; none without projects.
fn of_projects(projects: &[&ProjectId]) -> Vec<Fact> {
    let labels: Vec<String> = projects.iter().map(|project| project.label()).collect();
    let title = if labels.len() == 1 { "Project" } else { "Projects" };
    if labels.is_empty() { Vec::new() } else { vec![fact(title, &listed(&labels))] }
}

fn listed(all: &[String]) -> String {
    let shown: Vec<&str> = all.iter().take(MAX_SHOWN).map(String::as_str).collect();
    match all.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Returns the beginning of an untrusted text in one line, without characters that hide or reorder others.
fn one_line(text: &str) -> String {
    let is_hidden = |c: char| matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{ad}');
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    let line = words.collect::<Vec<_>>().join(" ");
    let mut shown: String = line.chars().filter(|c| !is_hidden(*c)).take(MAX_FACT + 1).collect();
    if shown.chars().count() > MAX_FACT {
        shown.pop();
        shown.push('…');
    }
    shown
}

fn capitalized(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
