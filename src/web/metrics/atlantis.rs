//! The same work under the names of Atlantis, as far as they mean the same: `docs/metrics.md` has those that are not served.

use super::families::{Families, MetricKind, MetricSample, MetricValue};
use crate::meters::{Histogram, WorkCounts, WorkResult};
use std::collections::BTreeMap;

/// Commands that Atlantis counts by project.
const OF_PROJECTS: [&str; 6] = ["plan", "apply", "policy_check", "approve_policies", "import", "state"];

/// Adds them. Names that nothing has happened under are absent, as in Atlantis.
pub(super) fn families(counts: &WorkCounts, page: &mut Families) {
    let mut commands: BTreeMap<String, (u64, f64)> = BTreeMap::new();
    for ((command, trigger), times) in &counts.run_seconds {
        let name = match *trigger {
            "autoplan" => "cmd_autoplan_execution_time".to_owned(),
            "comment" => format!("cmd_comment_{}_execution_time", named(command)),
            _ => continue,
        };
        let (count, sum) = commands.entry(name).or_default();
        *count += times.count();
        *sum += times.sum();
    }
    for (name, (count, sum)) in commands {
        page.add(name, MetricKind::Summary, "Time of commands, in seconds.", vec![summary(count, sum)]);
    }
    for command in OF_PROJECTS {
        let of = |result: WorkResult| -> u64 {
            let is_it = |known: &&str| named(known) == command;
            counts.jobs.iter().filter(|((known, of, _), _)| is_it(known) && *of == result).map(|(_, count)| count).sum()
        };
        let times: Vec<&Histogram> =
            counts.job_seconds.iter().filter(|(known, _)| named(known) == command).map(|(_, times)| times).collect();
        if times.is_empty() {
            continue;
        }
        let (count, sum) = (times.iter().map(|times| times.count()).sum(), times.iter().map(|times| times.sum()).sum());
        let name = |end: &str| format!("project_{command}_execution_{end}");
        page.add(name("time"), MetricKind::Summary, "Time of projects, in seconds.", vec![summary(count, sum)]);
        for (end, help, value) in [
            ("success", "Projects that succeeded.", of(WorkResult::Success)),
            (
                "failure",
                "Projects that a rule refused, or that were stopped.",
                of(WorkResult::Failure) + of(WorkResult::Stopped),
            ),
            ("error", "Projects that broke.", of(WorkResult::Error)),
        ] {
            page.add(name(end), MetricKind::Counter, help, vec![MetricSample::number(Vec::new(), value as f64)]);
        }
    }
}

/// Returns the name of a command in Atlantis' metrics.
fn named(command: &str) -> &str {
    if command == "state_rm" { "state" } else { command }
}

fn summary(count: u64, sum: f64) -> MetricSample {
    MetricSample { labels: Vec::new(), value: MetricValue::Summary { count, sum } }
}
