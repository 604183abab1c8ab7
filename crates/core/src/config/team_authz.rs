//! `team_authz` of `repos.yaml`: a command of the operator that decides who may use which command.

use super::ConfigError;
use super::raw::LocatedText;
use super::yaml::error_at;
use serde::Deserialize;
use serde_saphyr::Spanned;

/// The command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TeamAuthz {
    /// `command`: text for the shell, as in Atlantis.
    pub command: String,
    /// `args`: more of that text. The server's arguments follow: command, repository and teams.
    pub args: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTeamAuthz {
    command: Option<LocatedText>,
    args: Option<Vec<String>>,
}

impl TeamAuthz {
    /// Checks the command. An empty one would allow nothing, or everything: it is an error.
    pub(super) fn from_raw(raw: &Spanned<RawTeamAuthz>, file: &str) -> Result<TeamAuthz, ConfigError> {
        let command = raw.value.command.as_ref().map(|text| text.value.trim()).filter(|text| !text.is_empty());
        let command = command.ok_or_else(|| {
            error_at(file, raw, "team_authz: it needs `command`, such as `command: /usr/local/bin/authz`")
        })?;
        Ok(TeamAuthz { command: command.to_owned(), args: raw.value.args.clone().unwrap_or_default() })
    }
}
