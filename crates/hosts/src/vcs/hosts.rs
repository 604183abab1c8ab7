//! The hosts that one server talks to, told apart by their names.

use super::{Host, HostError};
use std::sync::Arc;
use tidelock_core::domain::{PullId, RepoId};

/// All VCS hosts of a server. Cheap to clone.
#[derive(Clone, Default)]
pub struct Hosts {
    all: Arc<[Arc<dyn Host>]>,
}

impl Hosts {
    /// These hosts. Where two have the same name, the first one is used.
    pub fn new(all: Vec<Arc<dyn Host>>) -> Hosts {
        Hosts { all: all.into() }
    }

    /// The host of a repository.
    ///
    /// # Errors
    ///
    /// [`HostError::NotConfigured`] where the settings name no such host; it says nothing about the repository.
    pub fn of(&self, repo: &RepoId) -> Result<&Arc<dyn Host>, HostError> {
        let found = self.all.iter().find(|host| host.hostname().eq_ignore_ascii_case(&repo.host));
        found.ok_or_else(|| HostError::NotConfigured { host: repo.host.clone() })
    }

    /// A pull request as its host writes it, such as `#7`; with `#` where the settings name no such host.
    pub fn pull_name(&self, pull: &PullId) -> String {
        if pull.is_branch() {
            return format!("a drift run of {}", pull.repo.full_name());
        }
        let host = self.of(&pull.repo);
        host.map_or_else(|_| format!("#{}", pull.number), |host| host.profile().pull_name(pull.number))
    }

    /// Every host, in the order of the settings.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Host>> {
        self.all.iter()
    }
}
