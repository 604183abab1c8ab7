//! Metrics of runs, jobs, phases and waits.

use super::families::{Families, MetricKind, MetricSample, MetricValue};
use crate::meters::{Histogram, LabelSet, WorkCounts, WorkKey};
use std::collections::BTreeMap;

/// Adds them.
pub(super) fn families(counts: &WorkCounts, page: &mut Families) {
    let help = "Runs that have ended here: one command on one pull request, or one drift run.";
    page.add("runs_total", MetricKind::Counter, help, counters(&counts.runs));
    let help = "Jobs that have ended here: one command on one project.";
    page.add("jobs_total", MetricKind::Counter, help, counters(&counts.jobs));
    let by_trigger = |((command, trigger), times): (&(&'static str, &'static str), &Histogram)| {
        histogram(vec![("command", (*command).to_owned()), ("trigger", (*trigger).to_owned())], times)
    };
    let runs = counts.run_seconds.iter().map(by_trigger).collect();
    page.add(
        "run_duration_seconds",
        MetricKind::Histogram,
        "Time of runs, from their beginning to their answer.",
        runs,
    );
    page.add("job_duration_seconds", MetricKind::Histogram, "Time of jobs.", times("command", &counts.job_seconds));
    let help = "Time of the phases of runs: checkout, hooks, the wait of a job for its place, and its steps.";
    page.add("phase_duration_seconds", MetricKind::Histogram, help, times("phase", &counts.phase_seconds));
    let help = "Time from a delivery to its turn in the queue of its pull request.";
    page.add("queue_duration_seconds", MetricKind::Histogram, help, vec![histogram(Vec::new(), &counts.queue_seconds)]);
    let help = "Time for which pull requests waited in line for a project, until their turn.";
    let waits = vec![histogram(Vec::new(), &counts.lock_wait_seconds)];
    page.add("lock_wait_duration_seconds", MetricKind::Histogram, help, waits);
}

fn counters(all: &BTreeMap<WorkKey, u64>) -> Vec<MetricSample> {
    let sample = |((command, result, set), count): (&WorkKey, &u64)| {
        let LabelSet { repository, project } = set.clone();
        let mut labels = vec![("command", (*command).to_owned()), ("result", result.as_str().to_owned())];
        labels.extend(repository.map(|repository| ("repository", repository)));
        labels.extend(project.map(|project| ("project", project)));
        MetricSample::number(labels, *count as f64)
    };
    all.iter().map(sample).collect()
}

fn times(label: &'static str, all: &BTreeMap<&'static str, Histogram>) -> Vec<MetricSample> {
    all.iter().map(|(word, times)| histogram(vec![(label, (*word).to_owned())], times)).collect()
}

fn histogram(labels: Vec<(&'static str, String)>, times: &Histogram) -> MetricSample {
    MetricSample { labels, value: MetricValue::Histogram(times.clone()) }
}
