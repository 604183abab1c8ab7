//! Answers from the entries of all repositories: schedules of drift detections, and references to secrets.

use super::super::drift::{DriftRule, DriftSchedule};
use super::super::secrets::SecretRules;
use super::super::secrets::reference::SecretReference;
use super::{GlobalConfig, IdMatch};
use crate::domain::RepoId;

impl GlobalConfig {
    /// Returns the schedule of drift detections of a repository: that of the last matching entry with `drift`.
    pub fn drift_schedule(&self, repo: &RepoId) -> Option<&DriftSchedule> {
        let id = repo.to_string();
        let rule = self.repos.iter().rev().filter(|entry| entry.is_for(&id)).find_map(|entry| entry.drift.as_ref());
        rule.and_then(DriftRule::schedule)
    }

    /// Returns true if an entry has a schedule of drift detections.
    pub fn has_drift_schedules(&self) -> bool {
        self.repos.iter().filter_map(|entry| entry.drift.as_ref()).any(|rule| rule.schedule().is_some())
    }

    /// Returns the `id`s without a pattern of entries that have a schedule of drift detections.
    pub fn ids_with_drift_schedule(&self) -> impl Iterator<Item = &str> {
        let scheduled = self.repos.iter().filter(|entry| entry.drift.as_ref().and_then(DriftRule::schedule).is_some());
        scheduled.filter_map(|entry| match &entry.id {
            IdMatch::Exact(id) => Some(id.as_str()),
            IdMatch::Regex(_) => None,
        })
    }

    /// Returns the references of all secrets, each once.
    pub fn secret_references(&self) -> Vec<&SecretReference> {
        let mut found: Vec<&SecretReference> = Vec::new();
        for reference in self.repos.iter().filter_map(|entry| entry.secrets.as_ref()).flat_map(SecretRules::references)
        {
            if !found.contains(&reference) {
                found.push(reference);
            }
        }
        found
    }
}
