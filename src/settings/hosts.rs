//! The hosts of repositories that settings can name, for what concerns each of them.

use super::table::Setting;
use super::typed::Reader;
use super::{azure_devops, github};

/// All hosts.
pub(super) static ALL: [&HostSettings; 2] = [&github::HOST, &azure_devops::HOST];

/// The settings of one host, by name.
pub(super) struct HostSettings {
    /// All of them that are read one by one.
    pub(super) rows: &'static [Setting],
    /// The host's name or address.
    pub(super) hostname: &'static str,
    /// Those that show that the host is used.
    pub(super) naming: &'static [&'static str],
    /// Those that show that the server has an account there.
    pub(super) account: &'static [&'static str],
    /// Those that name files with secrets.
    pub(super) secret_files: &'static [&'static str],
}

impl HostSettings {
    /// Returns true if a setting shows that the host is used.
    pub(super) fn is_named(&self, r: &Reader) -> bool {
        self.naming.iter().any(|name| r.is_given(name))
    }

    /// Returns true if a setting shows that the server has an account there.
    pub(super) fn has_account(&self, r: &Reader) -> bool {
        self.account.iter().any(|name| r.is_given(name))
    }
}
