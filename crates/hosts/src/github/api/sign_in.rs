//! Sign-in of people with an OAuth app (docs.github.com/apps/oauth-apps, "Authorizing OAuth apps").

use crate::vcs::http::{Http, odd, segment};
use crate::vcs::{HostError, TokenSource};
use reqwest::Method;
use reqwest::header::{ACCEPT, HeaderMap, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;

/// An OAuth app.
pub struct OauthApp {
    /// Address of the API, without trailing slash.
    pub api_url: String,
    /// Id of the app.
    pub client_id: String,
    /// Secret of the app.
    pub client_secret: SecretString,
    /// Organizations and teams that are asked about, `ORG/*` and `ORG/TEAM`, lower case.
    pub groups: Vec<String>,
}

/// An account that has signed in.
#[derive(Debug, PartialEq, Eq)]
pub struct SignedInAccount {
    /// Its login.
    pub login: String,
    /// Those of the app's groups that it is a member of.
    pub groups: Vec<String>,
}

/// Reason for which a code has no account.
#[derive(Debug, thiserror::Error)]
pub enum CodeError {
    /// The code is unknown, used, expired, or of another sign-in.
    #[error("the code was not accepted")]
    NotAccepted,
    /// GitHub has something else against the exchange, such as a wrong client secret: its word for that.
    #[error("the exchange of a code was refused: {0}")]
    Refused(String),
    /// A request had no usable answer.
    #[error(transparent)]
    Host(#[from] HostError),
}

impl OauthApp {
    /// Exchanges the code of a sign-in for the account. Its token is used for these requests, and forgotten.
    pub async fn account(&self, code: &str, callback: &str, verifier: &str) -> Result<SignedInAccount, CodeError> {
        let token = self.token(code, callback, verifier).await?;
        let http = Http::new(self.api_url.clone(), TokenSource::Value(token), HeaderMap::new());
        let what = "GET /user";
        let user = http.get("/user").await?.body;
        let login =
            user["login"].as_str().filter(|login| is_login(login)).ok_or_else(|| odd(what, "it has no login"))?;
        let mut groups = Vec::new();
        for group in &self.groups {
            if is_member(&http, group, login).await? {
                groups.push(group.clone());
            }
        }
        Ok(SignedInAccount { login: login.to_owned(), groups })
    }

    async fn token(&self, code: &str, callback: &str, verifier: &str) -> Result<SecretString, CodeError> {
        let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("application/json"))]);
        let http = Http::new(super::pages_url(&self.api_url), TokenSource::Value(String::new().into()), headers);
        let body = json!({
            "client_id": self.client_id, "client_secret": self.client_secret.expose_secret(),
            "code": code, "redirect_uri": callback, "code_verifier": verifier,
        });
        let answer = http.send(Method::POST, "/login/oauth/access_token", Some(body)).await?.body;
        // GitHub refuses with status 200.
        match (answer["access_token"].as_str(), answer["error"].as_str()) {
            (Some(token), None) => Ok(token.into()),
            (_, Some("bad_verification_code")) => Err(CodeError::NotAccepted),
            (_, Some(error)) => Err(CodeError::Refused(error.chars().filter(|c| !c.is_control()).take(100).collect())),
            (None, None) => Err(odd("POST /login/oauth/access_token", "it has neither a token nor an error").into()),
        }
    }
}

/// Returns true for the characters that logins have, also those of enterprises with a short code (`ada_acme`).
fn is_login(login: &str) -> bool {
    login.starts_with(|c: char| c.is_ascii_alphanumeric())
        && login.len() <= 100
        && login.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
}

/// Returns true if the account is an active member of an organization, or of a team. An organization that does not admit the app answers
/// 403, which is no membership.
async fn is_member(http: &Http, group: &str, login: &str) -> Result<bool, HostError> {
    let path = match group.split_once('/') {
        Some((organization, "*")) => format!("/user/memberships/orgs/{}", segment(organization)),
        Some((organization, team)) => {
            format!("/orgs/{}/teams/{}/memberships/{}", segment(organization), segment(team), segment(login))
        }
        None => return Ok(false),
    };
    match http.get(&path).await {
        Ok(answer) => Ok(answer.body["state"] == "active"),
        Err(HostError::NotFound { .. }) => Ok(false),
        Err(HostError::Denied { message, .. }) => {
            tracing::warn!(group, "a membership of a person who signs in is not told, and counts as none: {message}");
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
