//! `tfe-token` and `tfe-hostname`: credentials of Terraform for Terraform Cloud or Enterprise.

use super::typed::Reader;
use secrecy::SecretString;

/// Default of `tfe-hostname`.
pub(super) const DEFAULT: &str = "app.terraform.io";

/// Token, and its host.
#[derive(Debug, Clone)]
pub struct TfeSettings {
    /// Name of the host, without scheme and port.
    pub hostname: String,
    /// Token for that host.
    pub token: SecretString,
}

impl TfeSettings {
    /// Returns the variable in which Terraform and OpenTofu look for the token of this host.
    pub fn variable(&self) -> String {
        format!("TF_TOKEN_{}", self.hostname.replace('-', "__").replace('.', "_"))
    }
}

pub(super) fn read(r: &mut Reader) -> Option<TfeSettings> {
    let (hostname, token) = (r.text("tfe-hostname"), r.secret("tfe-token"));
    if r.is_given("tfe-hostname") {
        let is_letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
        let is_name = hostname.split('.').all(|part| !part.is_empty()) && hostname.chars().all(is_letter);
        if !is_name {
            r.wrong("tfe-hostname", "is no name of a host such as tfe.example.com: leave scheme, port and path out");
        } else if token.is_none() && !hostname.eq_ignore_ascii_case(DEFAULT) {
            r.wrong("tfe-hostname", "has no effect without tfe-token: give that too, or leave it out");
        }
    }
    Some(TfeSettings { hostname: hostname.to_ascii_lowercase(), token: token? })
}
