//! The hosts that one server uses, selected by name.

use super::{Host, HostError};
use std::sync::Arc;
use tidelock_core::domain::{PullId, PullNames, RepoId};

/// All VCS hosts of a server. Cheap to clone.
#[derive(Clone, Default)]
pub struct Hosts {
    all: Arc<[Arc<dyn Host>]>,
    pull_names: PullNames,
}

impl Hosts {
    /// Takes the hosts. If two have the same name, the first one is used.
    pub fn new(all: Vec<Arc<dyn Host>>) -> Hosts {
        let pull_names = PullNames::new(all.iter().map(|host| (host.hostname(), host.profile().pull_mark)));
        Hosts { all: all.into(), pull_names }
    }

    /// Returns the host of a repository.
    ///
    /// # Errors
    ///
    /// [`HostError::NotConfigured`] if the settings name no such host. It implies nothing about the repository.
    pub fn for_repo(&self, repo: &RepoId) -> Result<&Arc<dyn Host>, HostError> {
        let found = self.all.iter().find(|host| host.hostname().eq_ignore_ascii_case(&repo.host));
        found.ok_or_else(|| HostError::NotConfigured { host: repo.host.clone() })
    }

    /// Returns the names of pull requests as these hosts write them.
    pub fn pull_names(&self) -> &PullNames {
        &self.pull_names
    }

    /// Name of a pull request as its host writes it, such as `#7`; with `#` if the settings name no such host.
    pub fn pull_name(&self, pull: &PullId) -> String {
        self.pull_names.name(pull)
    }

    /// All hosts, in the order of the settings.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Host>> {
        self.all.iter()
    }
}
