//! `docs/metrics.md` against the page: each metric with its type and labels.

use super::families::{Families, MetricFamily, MetricKind};
use super::{atlantis, gauges, server, work};
use crate::domain::command::Trigger;
use crate::domain::{ProjectId, RepoId};
use crate::meters::{EndedJob, EndedRun, RunPhase, WorkMeters, WorkResult};
use crate::settings::MetricsLabels;
use crate::store::StateFigures;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const PAGE: &str = include_str!("../../../docs/metrics.md");

/// Type and labels, by name.
type Described = BTreeMap<String, (String, BTreeSet<String>)>;

/// Returns counters of each command, trigger, result and phase.
fn counted(labels: MetricsLabels) -> WorkMeters {
    let meters = WorkMeters::new(labels);
    let repo = RepoId { host: "github.com".into(), owner: "acme".into(), name: "infra".into() };
    let project = ProjectId { dir: "net".into(), workspace: "default".into(), name: None };
    let took = Duration::from_secs(1);
    for command in ["plan", "apply", "policy_check", "approve_policies", "import", "state_rm"] {
        for trigger in [Trigger::Autoplan, Trigger::Comment] {
            let result = WorkResult::Success;
            meters.run_ended(EndedRun { command, trigger, repo: &repo, result, took });
            meters.job_ended(EndedJob { command, repo: &repo, project: &project, result, took });
        }
    }
    meters.phase(RunPhase::Checkout, took);
    meters
}

/// Returns what a leader with an executor shows.
fn families() -> Vec<MetricFamily> {
    let mut page: Families = server::tests::leader_with_executor(|facts| facts.families());
    counted(MetricsLabels::None).read(|counts| work::families(counts, &mut page));
    gauges::families(&StateFigures::default(), Timestamp::now(), &mut page);
    page.into_vec()
}

fn described(families: &[MetricFamily]) -> Described {
    let of = |family: &MetricFamily| {
        let labels = family.samples.iter().flat_map(|sample| &sample.labels).map(|(label, _)| (*label).to_owned());
        (format!("tidelock_{}", family.name), (family.kind.as_str().to_owned(), labels.collect()))
    };
    families.iter().map(of).collect()
}

#[test]
fn every_metric_is_documented_and_every_documented_one_exists() {
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, name, kind, labels, meaning, _] = cells[..] else { panic!("{line}") };
        assert!(meaning.ends_with('.'), "{line}");
        let labels =
            labels.split(", ").filter(|label| !label.is_empty()).map(|label| label.trim_matches('`').to_owned());
        (name.trim_matches('`').to_owned(), (kind.to_owned(), labels.collect()))
    };
    let documented: Described = PAGE.lines().filter(|line| line.starts_with("| `tidelock_")).map(row).collect();
    assert_eq!(documented, described(&families()));
}

#[test]
fn labels_are_added_to_the_counters_that_the_page_names() {
    let with = |labels| {
        let mut page = Families::new();
        counted(labels).read(|counts| work::families(counts, &mut page));
        let mut all = described(&page.into_vec());
        all.retain(|_, (kind, _)| kind == "counter");
        all.into_iter()
            .map(|(name, (_, labels))| (name, labels.into_iter().collect::<Vec<_>>().join(" ")))
            .collect::<Vec<_>>()
    };
    let expected = |jobs: &str, runs: &str| {
        vec![("tidelock_jobs_total".to_owned(), jobs.to_owned()), ("tidelock_runs_total".to_owned(), runs.to_owned())]
    };
    assert_eq!(with(MetricsLabels::None), expected("command result", "command result"));
    assert_eq!(with(MetricsLabels::Repository), expected("command repository result", "command repository result"));
    assert_eq!(
        with(MetricsLabels::Project),
        expected("command project repository result", "command repository result")
    );
}

#[test]
fn names_of_atlantis_are_those_of_the_page() {
    let mut page = Families::new();
    counted(MetricsLabels::Project).read(|counts| atlantis::families(counts, &mut page));
    let families = page.into_vec();
    let section = PAGE.split("## Names of Atlantis").nth(1).unwrap().split("\n## ").next().unwrap();
    let patterns: Vec<&str> = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let fits = |name: &str, pattern: &str| match pattern.split_once("<command>") {
        Some((start, end)) => name.starts_with(start) && name.ends_with(end),
        None => name == pattern,
    };
    for pattern in &patterns {
        assert!(families.iter().any(|family| fits(&family.name, pattern)), "{pattern} is not served");
    }
    for family in &families {
        assert!(patterns.iter().any(|pattern| fits(&family.name, pattern)), "{} is not documented", family.name);
        assert!(family.samples.iter().all(|sample| sample.labels.is_empty()) && family.samples.len() == 1);
        assert!(matches!(family.kind, MetricKind::Counter | MetricKind::Summary));
    }
    // A success in each of six commands, by two triggers.
    assert_eq!((patterns.len(), families.len()), (6, 1 + 6 + 6 * 4));
}
