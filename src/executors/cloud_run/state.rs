//! What executions tell of a job.

use super::super::engine::EngineState;
use super::super::follow::Beginning;
use super::api::{RunCondition, RunExecution};
use crate::google_api::quoted;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// Time for which a start may take without being told: Cloud Run takes some seconds, and longer for a large image.
const USUAL_START: Duration = Duration::from_secs(30);
/// Time after which what was learnt last counts no more.
const STALE: Duration = Duration::from_secs(60);
/// Time for which an unanswered start may still be carried out.
const IN_DOUBT: Duration = Duration::from_secs(60);
/// Words of a condition's state, and of the type that tells of the end.
const FAILED: &str = "CONDITION_FAILED";
const SUCCEEDED: &str = "CONDITION_SUCCEEDED";
const COMPLETED: &str = "Completed";

/// State of an execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ExecutionState {
    /// It does not run yet. What it waits for, if that is told.
    Pending(Option<String>),
    /// It does not run, for the reason in the text.
    Stuck(String),
    Running,
    /// It has failed or was cancelled, for the reason in the text.
    Failed(String),
    Succeeded,
}

impl ExecutionState {
    /// Returns the state that the service tells.
    pub(super) fn of(execution: &RunExecution) -> ExecutionState {
        let of_type = |name: &str| execution.conditions.iter().find(|condition| condition.r#type == name);
        let completed = of_type(COMPLETED);
        match completed.map(|condition| condition.state.as_str()) {
            Some(SUCCEEDED) => return ExecutionState::Succeeded,
            // One that is cancelled before it began has no time of its end.
            Some(FAILED) => return ExecutionState::Failed(failure(&execution.conditions)),
            _ if execution.completion_time.is_some() => return ExecutionState::Failed(failure(&execution.conditions)),
            _ => {}
        }
        if execution.running_count > 0 || of_type("Started").is_some_and(|condition| condition.state == SUCCEEDED) {
            return ExecutionState::Running;
        }
        if let Some(failed) = execution.conditions.iter().find(|condition| condition.state == FAILED) {
            return ExecutionState::Stuck(worded(failed));
        }
        let waits = |condition: &&RunCondition| condition.state != SUCCEEDED && !condition.message.is_empty();
        ExecutionState::Pending(execution.conditions.iter().find(waits).map(worded))
    }

    fn has_ended(&self) -> bool {
        matches!(self, ExecutionState::Failed(_) | ExecutionState::Succeeded)
    }
}

fn reason(condition: &RunCondition) -> &str {
    if condition.execution_reason.is_empty() { &condition.reason } else { &condition.execution_reason }
}

fn worded(condition: &RunCondition) -> String {
    let (message, reason) = (quoted(&condition.message), quoted(reason(condition)));
    match (message.is_empty(), reason.is_empty()) {
        (false, false) => format!("{message} ({reason})"),
        (false, true) => message,
        (true, false) => reason,
        (true, true) => format!("{} is false", quoted(&condition.r#type)),
    }
}

/// Returns the reason of an end: what the end itself tells, or another condition that has failed.
fn failure(conditions: &[RunCondition]) -> String {
    let failed = |condition: &&RunCondition| condition.state == FAILED;
    let has_text = |condition: &&RunCondition| !condition.message.is_empty() || !reason(condition).is_empty();
    let end = conditions.iter().filter(failed).find(|condition| condition.r#type == COMPLETED && has_text(condition));
    let end = end.or_else(|| conditions.iter().filter(failed).find(has_text));
    end.map_or_else(|| "Cloud Run tells no reason".to_owned(), worded)
}

/// An execution that is known.
#[derive(Debug)]
pub(super) struct KnownExecution {
    pub(super) state: ExecutionState,
    /// Time at which it was first known.
    since: Instant,
    /// Time at which its end was first known.
    ended: Option<Instant>,
    /// Time at which it was last cancelled.
    pub(super) cancelled: Option<Instant>,
}

impl KnownExecution {
    pub(super) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }
}

/// The executions of a job, as far as they are known.
#[derive(Debug)]
pub(super) struct JobExecutions {
    executions: BTreeMap<String, KnownExecution>,
    beginning: Beginning,
    /// Time of the last interest in it.
    pub(super) looked: Instant,
    /// Time at which its executions were last asked for.
    pub(super) learnt: Instant,
    /// Time of the last start without an answer.
    pub(super) unanswered: Option<Instant>,
    /// Time at which the last search among all executions began.
    pub(super) searched: Option<Instant>,
}

impl JobExecutions {
    pub(super) fn new(beginning: Beginning) -> JobExecutions {
        let now = Instant::now();
        let (executions, unanswered, searched) = Default::default();
        JobExecutions { executions, beginning, looked: now, learnt: now, unanswered, searched }
    }

    /// Records the state of an execution. The first reason of an end stays.
    pub(super) fn record(&mut self, name: &str, state: ExecutionState) {
        let now = Instant::now();
        let new = || KnownExecution { state: ExecutionState::Pending(None), since: now, ended: None, cancelled: None };
        let known = self.executions.entry(name.to_owned()).or_insert_with(new);
        if known.ended.is_none() {
            known.ended = state.has_ended().then_some(now);
            known.state = state;
        }
        self.learnt = now;
    }

    /// Returns the executions that have not ended.
    pub(super) fn live(&mut self) -> impl Iterator<Item = (&String, &mut KnownExecution)> {
        self.executions.iter_mut().filter(|(_, known)| known.ended.is_none())
    }

    /// Returns true if executions may exist that are not known: of an earlier leader, of a start without an answer, or doubled ones.
    pub(super) fn must_be_searched(&self) -> bool {
        // That all have ended is believed only if there is no other.
        let all_ended = self.executions.values().map(|known| known.ended).min().flatten();
        let last_end = all_ended.and_then(|_| self.executions.values().filter_map(|known| known.ended).max());
        match (self.searched, self.unanswered.max(last_end)) {
            (None, None) => self.beginning == Beginning::Earlier,
            (None, Some(_)) => true,
            (Some(_), None) => false,
            (Some(searched), Some(since)) => searched <= since,
        }
    }

    /// Returns the state of the job.
    pub(super) fn state(&self, now: Instant) -> EngineState {
        let live: Vec<&KnownExecution> = self.executions.values().filter(|known| known.ended.is_none()).collect();
        if live.is_empty() {
            return self.end(now);
        }
        if now.saturating_duration_since(self.learnt) > STALE {
            // It may still wait, so no other start is due; of a job that has begun, signs of life decide.
            return EngineState::Held(format!("Cloud Run has not told for {} s how it does", STALE.as_secs()));
        }
        if live.iter().any(|known| known.state == ExecutionState::Running) {
            return EngineState::Alive;
        }
        let held = live.iter().find_map(|known| match &known.state {
            ExecutionState::Stuck(why) => Some(why.clone()),
            ExecutionState::Pending(why) if known.age(now) >= USUAL_START => {
                let slow = format!("Cloud Run has not started it within {} s", USUAL_START.as_secs());
                Some(why.as_ref().map_or_else(|| slow.clone(), |why| format!("{slow}: {why}")))
            }
            _ => None,
        });
        held.map_or(EngineState::Alive, EngineState::Held)
    }

    fn end(&self, now: Instant) -> EngineState {
        let in_doubt = self.unanswered.is_some_and(|at| now.saturating_duration_since(at) < IN_DOUBT);
        if self.executions.is_empty() || in_doubt || self.must_be_searched() {
            return EngineState::Unknown;
        }
        let mut failures = self.executions.iter().filter_map(|(name, known)| match &known.state {
            ExecutionState::Failed(why) => Some(format!("its execution {name} has failed: {why}")),
            _ => None,
        });
        // More would be another failure of the same kind.
        EngineState::Ended(
            failures.next_back().unwrap_or_else(|| "its execution has succeeded without a result".to_owned()),
        )
    }
}
