//! Metrics of the state: locks, owners, plans, drift.

use super::families::{Families, MetricKind};
use crate::server_status::Services;
use crate::store::{StateFigures, is_closed};
use MetricKind::Gauge;
use jiff::Timestamp;
use std::sync::{Mutex, PoisonError};

/// The figures of the state after the last commit that was read: a scrape of a server without new commits reads nothing.
#[derive(Debug, Default)]
pub struct GaugeCache {
    /// Epoch and number of the commit, and the figures.
    last: Mutex<Option<((u64, u64), StateFigures)>>,
}

impl GaugeCache {
    /// Returns the figures; `None` if the state cannot be read.
    pub(super) async fn read(&self, services: &Services) -> Option<StateFigures> {
        // Taken before the read: a commit in between is read again by the next scrape.
        let commit = (services.leader.epoch(), services.leader.position().seq);
        let known = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((_, figures)) = known.filter(|(of, _)| *of == commit) {
            return Some(figures);
        }
        match services.store.read(|view| view.figures()).await {
            Ok(figures) => {
                *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((commit, figures.clone()));
                Some(figures)
            }
            Err(error) => {
                if !is_closed(&error) {
                    tracing::warn!(error = format!("{error:#}"), "/metrics lacks the figures of the state");
                }
                None
            }
        }
    }
}

/// Adds them.
pub(super) fn families(figures: &StateFigures, now: Timestamp, page: &mut Families) {
    let age = |since: Option<Timestamp>| since.map_or(0.0, |since| now.duration_since(since).as_secs_f64().max(0.0));
    page.one("locks", Gauge, "Project locks.", figures.locks.into());
    let help = "Time for which the oldest project lock has been held; 0: there is none.";
    page.one("oldest_lock_age_seconds", Gauge, help, age(figures.oldest_lock));
    let help = "Pull requests in line for a project, each once for each project.";
    page.one("lock_waits", Gauge, help, figures.waits.into());
    page.one("owned_projects", Gauge, "Projects that a pull request owns, in mode strict.", figures.owned.into());
    let help = "Owned projects whose pull request is merged or closed. Most are released only by an apply or `unlock`.";
    page.one("owed_projects", Gauge, help, figures.owed.into());
    page.one("kept_plans", Gauge, "Plan files that are kept for an apply.", figures.plans.into());
    let help = "Projects whose last check has found drift, each once for each branch.";
    page.one("drifted_projects", Gauge, help, figures.drifted.into());
    let help =
        "Time since the last scheduled drift detection, of the repository where it is longest ago; 0: there was none.";
    page.one("oldest_drift_check_age_seconds", Gauge, help, age(figures.oldest_drift_check));
    let help = "Time for which all applies have been stopped by a person; 0: they are not.";
    page.one("applies_stopped_seconds", Gauge, help, age(figures.applies_stopped));
}
