//! Spans of the work on a run: its delivery, the command, jobs, and their phases.

use super::context::Context;
use crate::domain::job_times::StepTime;
use crate::domain::outcome::JobOutcome;
use crate::domain::state::Run;
use crate::domain::{JobId, RunId};
use crate::meters::{WorkResult, word};
use crate::traces::{self, SpanKey, WorkSpan};
use jiff::Timestamp;
use std::time::Duration;

/// Adds the spans of a run that ends now: its delivery, if it has one, and its command.
pub(super) fn run(ctx: &Context, run: &Run, command: &'static str, result: WorkResult) {
    let ended = Timestamp::now();
    let failed = failure(result);
    let delivered = run.received.filter(|received| *received <= run.started);
    let root = delivered.map(|_| SpanKey::Delivery);
    if let Some(began) = delivered {
        ctx.traces.add(|| WorkSpan {
            run: &run.id,
            key: SpanKey::Delivery,
            parent: None,
            name: "delivery".into(),
            began,
            ended,
            attributes: of_run(run),
            failed,
        });
        let queue = |began, ended| leaf(&run.id, SpanKey::Delivery, "queue", began, ended);
        ctx.traces.add(|| queue(began, run.started));
    }
    ctx.traces.add(|| WorkSpan {
        run: &run.id,
        key: SpanKey::Command,
        parent: root,
        name: command.into(),
        began: run.started,
        ended,
        attributes: of_run(run),
        failed,
    });
}

fn of_run(run: &Run) -> Vec<(&'static str, String)> {
    let number = if run.pull.is_branch() { String::new() } else { run.pull.number.to_string() };
    vec![
        ("tidelock.run", run.id.to_string()),
        ("tidelock.repository", run.pull.repo.to_string()),
        ("tidelock.pull", number),
        ("tidelock.head", run.head.to_string()),
        ("tidelock.user", run.user.as_str().to_owned()),
        ("tidelock.trigger", word(run.trigger).to_owned()),
    ]
}

/// Adds the span of a job that ends now.
pub(super) fn job(
    ctx: &Context,
    run: &RunId,
    command: &'static str,
    began: Timestamp,
    outcome: &JobOutcome,
    result: WorkResult,
) {
    let Some(job) = &outcome.job else { return };
    ctx.traces.add(|| WorkSpan {
        run,
        key: SpanKey::Job(job),
        parent: Some(SpanKey::Command),
        name: format!("job {command}").into(),
        began,
        ended: Timestamp::now(),
        attributes: vec![
            ("tidelock.job", job.to_string()),
            ("tidelock.project.dir", outcome.project.dir.clone()),
            ("tidelock.project.workspace", outcome.project.workspace.clone()),
            ("tidelock.project.name", outcome.project.name.clone().unwrap_or_default()),
            ("tidelock.tool", outcome.tool.clone().unwrap_or_default()),
        ],
        failed: failure(result),
    });
}

/// Adds the span of a phase that ends now: a child of a job, or of the command.
pub(super) fn phase(ctx: &Context, run: &RunId, name: &'static str, took: Duration) {
    let ended = Timestamp::now();
    ctx.traces.add(|| leaf(run, SpanKey::Command, name, before(ended, took), ended));
}

/// Adds the spans of the steps of a job, the last of which ends now. Only their times are known, so they follow each other without a gap.
pub(super) fn steps(ctx: &Context, run: &RunId, job: &JobId, steps: &[StepTime]) {
    let mut ended = Timestamp::now();
    for StepTime { kind, millis, .. } in steps.iter().rev() {
        let began = before(ended, Duration::from_millis(*millis));
        ctx.traces.add(|| leaf(run, SpanKey::Job(job), kind.as_str(), began, ended));
        ended = began;
    }
}

fn leaf<'a>(
    run: &'a RunId,
    parent: SpanKey<'a>,
    name: &'static str,
    began: Timestamp,
    ended: Timestamp,
) -> WorkSpan<'a> {
    let (key, attributes, failed) = (traces::leaf(), Vec::new(), None);
    WorkSpan { run, key, parent: Some(parent), name: name.into(), began, ended, attributes, failed }
}

fn before(then: Timestamp, time: Duration) -> Timestamp {
    then.checked_sub(time).unwrap_or(then)
}

fn failure(result: WorkResult) -> Option<&'static str> {
    (result != WorkResult::Success).then(|| result.as_str())
}
