//! Labels that name repositories and projects. Their number is bounded: each label set is a time series in Prometheus.

use crate::domain::{ProjectId, RepoId};
use crate::settings::MetricsLabels;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of repositories with a label of their own, until the process ends.
pub(super) const MAX_REPOSITORIES: usize = 200;
/// Maximum number of projects of all repositories.
pub(super) const MAX_PROJECTS: usize = 500;
/// Maximum number of projects of one repository: pull requests choose their names, and cannot use up the labels of others.
pub(super) const MAX_PROJECTS_OF_ONE: usize = 200;
/// Longest value of a label, in bytes.
const MAX_VALUE: usize = 200;
/// Value for what has no label of its own.
const OTHER: &str = "other";

/// Labels of a sample; absent where they are off.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LabelSet {
    /// The repository, with its host.
    pub repository: Option<String>,
    /// The project.
    pub project: Option<String>,
}

/// The repositories and projects that have labels of their own. The first ones that are counted get them.
#[derive(Debug, Clone)]
pub(super) struct LabelSets {
    labels: MetricsLabels,
    known: BTreeMap<String, BTreeSet<String>>,
}

impl LabelSets {
    pub(super) fn new(labels: MetricsLabels) -> LabelSets {
        LabelSets { labels, known: BTreeMap::new() }
    }

    /// Returns the labels of a repository and of a project of it.
    pub(super) fn of(&mut self, repo: &RepoId, project: Option<&ProjectId>) -> LabelSet {
        if self.labels == MetricsLabels::None {
            return LabelSet::default();
        }
        let project = project.filter(|_| self.labels == MetricsLabels::Project).map(ProjectId::label);
        let repo = repo.to_string();
        if !self.known.contains_key(&repo) && (self.known.len() >= MAX_REPOSITORIES || repo.len() > MAX_VALUE) {
            return LabelSet { repository: Some(OTHER.into()), project: project.map(|_| OTHER.into()) };
        }
        let all: usize = self.known.values().map(BTreeSet::len).sum();
        let projects = self.known.entry(repo.clone()).or_default();
        let project = project.map(|project| {
            let has_room = all < MAX_PROJECTS && projects.len() < MAX_PROJECTS_OF_ONE && project.len() <= MAX_VALUE;
            if projects.contains(&project) {
                return project;
            }
            if !has_room {
                return OTHER.into();
            }
            projects.insert(project.clone());
            project
        });
        LabelSet { repository: Some(repo), project }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(sets: &mut LabelSets, repo: &str, project: &str) -> (String, String) {
        let repo = RepoId { host: "github.com".into(), owner: "acme".into(), name: repo.into() };
        let project = ProjectId { dir: project.into(), workspace: "default".into(), name: None };
        let LabelSet { repository, project } = sets.of(&repo, Some(&project));
        (repository.unwrap_or_default(), project.unwrap_or_default())
    }

    #[test]
    fn nobody_is_named_unless_the_setting_says_so() {
        let mut sets = LabelSets::new(MetricsLabels::None);
        assert_eq!(of(&mut sets, "infra", "net"), (String::new(), String::new()));
        let mut sets = LabelSets::new(MetricsLabels::Repository);
        assert_eq!(of(&mut sets, "infra", "net"), ("github.com/acme/infra".into(), String::new()));
    }

    #[test]
    fn a_repository_with_many_projects_leaves_labels_to_others() {
        let mut sets = LabelSets::new(MetricsLabels::Project);
        let own = |sets: &mut LabelSets, repo: &str, count: usize| {
            (0..count).filter(|number| of(sets, repo, &format!("p{number}")).1 != OTHER).count()
        };
        assert_eq!(own(&mut sets, "many", 1000), MAX_PROJECTS_OF_ONE);
        assert_eq!(own(&mut sets, "second", 1000), MAX_PROJECTS_OF_ONE);
        assert_eq!(own(&mut sets, "third", 1000), MAX_PROJECTS - 2 * MAX_PROJECTS_OF_ONE);
        // One that has a label keeps it.
        assert_eq!(own(&mut sets, "many", 10), 10);
        assert_eq!(of(&mut sets, "many", &"x".repeat(MAX_VALUE)).1, OTHER);
    }

    #[test]
    fn later_repositories_are_counted_as_one() {
        let mut sets = LabelSets::new(MetricsLabels::Project);
        let own = |number: usize, sets: &mut LabelSets| of(sets, &format!("r{number}"), "net").0 != OTHER;
        assert_eq!((0..1000).filter(|number| own(*number, &mut sets)).count(), MAX_REPOSITORIES);
        assert_eq!(of(&mut sets, "last", "net"), (OTHER.into(), OTHER.into()));
    }
}
