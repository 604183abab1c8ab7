//! Who may reach what.

use secrecy::SecretString;

/// Rules for pages and API.
pub struct Access {
    /// `web-basic-auth`.
    pub basic_auth: Option<(String, SecretString)>,
    /// `--allow-unauthenticated-pages`.
    pub open: bool,
}
