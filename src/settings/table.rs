//! The table of settings: flags, variables, keys of the config file and the reference page derive from it.

use super::{hosts, metrics, notifications, server, sign_in, smtp, traces, without_effect};

/// One setting.
pub(super) struct Setting {
    /// Flag and key of the config file; its variables derive from it.
    pub(super) name: &'static str,
    pub(super) kind: ValueKind,
    /// Default as an operator would write it; empty if there is none, or if it is computed at the start.
    pub(super) default: &'static str,
    /// Help in sentences, the last one with its full stop.
    pub(super) help: &'static str,
    pub(super) support: Support,
    /// True if a change in the config file takes effect while the server runs.
    pub(super) is_live: bool,
}

/// The kind of a setting's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueKind {
    /// `true` or `false`.
    Switch,
    Text,
    /// Text that is masked everywhere.
    Secret,
    /// Items separated by commas.
    List,
    Number,
    /// `90s`, `10m`, `1h`, or seconds.
    Duration,
    Path,
}

/// Support of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Support {
    /// It works as in Atlantis, unless its help says otherwise.
    Atlantis,
    /// It works, and Atlantis does not have it.
    Tidelock,
    /// Accepted without an effect; the warning gives this reason. Empty if no warning is needed.
    Accepted(&'static str),
}

impl Setting {
    pub(super) fn is_secret(&self) -> bool {
        self.kind == ValueKind::Secret
    }

    /// Returns `ATLANTIS_GH_USER` for `gh-user`.
    pub(super) fn variable(&self, prefix: &str) -> String {
        format!("{prefix}{}", self.name.to_uppercase().replace('-', "_"))
    }
}

/// Returns all settings.
pub(super) fn all() -> impl Iterator<Item = &'static Setting> {
    let of_hosts = hosts::ALL.iter().map(|host| host.rows);
    let others = [
        server::PARTS,
        server::ACCESS,
        sign_in::SIGN_IN,
        server::LIMITS,
        server::SLEEP,
        server::STEPS,
        server::VAULT,
        notifications::NOTIFICATIONS,
        smtp::SMTP,
        metrics::METRICS,
        traces::TRACES,
    ];
    [server::SETTINGS].into_iter().chain(of_hosts).chain(others).chain([without_effect::SETTINGS]).flatten()
}

/// Returns the setting of that name.
pub(super) fn find(name: &str) -> Option<&'static Setting> {
    all().find(|setting| setting.name == name)
}

/// Returns the setting that a misspelt name probably means: one with a similar name, or one that ends alike (`atlantis-url` for `url`) and
/// does not allow anything.
pub(super) fn nearest(name: &str) -> Option<&'static Setting> {
    let distance = |setting: &Setting| strsim::damerau_levenshtein(setting.name, name);
    let ends_alike = |setting: &&Setting| {
        setting.name.strip_suffix(name).is_some_and(|start| start.ends_with('-') && !start.starts_with("allow-"))
    };
    let nearest =
        all().min_by_key(|setting| distance(setting)).filter(|setting| 5 * distance(setting) <= 2 * name.len());
    nearest.or_else(|| all().find(ends_alike))
}

/// Returns what follows the message on a name that no setting has. `written` is the setting as people write it there.
pub(super) fn hint(meant: Option<&Setting>, written: impl FnOnce(&Setting) -> String) -> String {
    meant.map_or_else(
        || "; `tidelock server --help` lists all".to_owned(),
        |setting| format!("; did you mean {}?", written(setting)),
    )
}
