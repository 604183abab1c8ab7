//! Settings of `/metrics`.

use super::check::{Choice, choice};

/// Labels that name what a sample is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MetricsLabels {
    /// No such label.
    #[default]
    None,
    /// The repository.
    Repository,
    /// The repository, and the project where a sample has one.
    Project,
}

impl Choice for MetricsLabels {
    const NAMES: &[(&str, MetricsLabels)] = &[
        ("none", MetricsLabels::None),
        ("repository", MetricsLabels::Repository),
        ("project", MetricsLabels::Project),
    ];
}

settings! {
    /// Settings of `/metrics` besides its path and namespace.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct MetricsSettings, static METRICS {
        []
        Tidelock {
            /// Whether counters of runs and jobs in /metrics name what they are about: none, repository or project. docs/metrics.md has the
            /// limits.
            labels as "metrics-labels": Text -> MetricsLabels = "none" => choice,
            /// Serve figures under the names of Atlantis as well, those that mean the same: docs/metrics.md.
            atlantis_names as "metrics-atlantis-names": Switch = "false",
        }
    }
}
