//! Sign-in of people with their accounts on GitHub.

use crate::settings::GithubOauthSettings;
use crate::web::access::people::Person;
use crate::web::login::way::{SignInAttempt, SignInError, SignInWay};
use anyhow::Result;
use async_trait::async_trait;
use secrecy::SecretString;
use std::time::Duration;
use tidelock_hosts::github::{CodeError, OauthApp, SignedInAccount, pages_url};
use url::Url;

/// Time limit of the requests of one sign-in together.
const TIME: Duration = Duration::from_secs(30);

/// The host, and the server as an OAuth app there.
pub(super) struct GithubSignIn {
    app: OauthApp,
    hostname: String,
    realm: String,
}

impl GithubSignIn {
    /// Makes no request.
    pub(super) fn new(settings: &GithubOauthSettings) -> GithubSignIn {
        let GithubOauthSettings { hostname, api_url, client_id, client_secret, groups } = settings.clone();
        let realm = format!("{hostname} {client_id}");
        GithubSignIn { app: OauthApp { api_url, client_id, client_secret, groups }, hostname, realm }
    }

    /// Returns the person whose account this is. GitHub ignores case in names.
    fn person(&self, account: SignedInAccount) -> Person {
        let of_host = |name: &str| format!("{}/{}", self.hostname, name.to_lowercase());
        let groups = account.groups.iter().map(|group| of_host(group)).collect();
        Person { name: of_host(&account.login), domain: None, groups }
    }
}

#[async_trait]
impl SignInWay for GithubSignIn {
    fn word(&self) -> &'static str {
        "github"
    }

    fn title(&self) -> &str {
        &self.hostname
    }

    fn realm(&self) -> &str {
        &self.realm
    }

    fn client_secret(&self) -> &SecretString {
        &self.app.client_secret
    }

    async fn begin(&self, attempt: &SignInAttempt, callback: &str) -> Result<Url> {
        let mut url = Url::parse(&format!("{}/login/oauth/authorize", pages_url(&self.app.api_url)))?;
        // Without groups the app needs no more than the login, which every account shows.
        let scope = if self.app.groups.is_empty() { "" } else { "read:org" };
        url.query_pairs_mut()
            .append_pair("client_id", &self.app.client_id)
            .append_pair("redirect_uri", callback)
            .append_pair("scope", scope)
            .append_pair("state", &attempt.state)
            .append_pair("code_challenge", &attempt.challenge())
            .append_pair("code_challenge_method", "S256")
            .append_pair("allow_signup", "false");
        Ok(url)
    }

    async fn finish(&self, attempt: &SignInAttempt, callback: &str, code: &str) -> Result<Person, SignInError> {
        let account = tokio::time::timeout(TIME, self.app.account(code, callback, &attempt.verifier)).await;
        let account = account.map_err(|_| SignInError::Unavailable(anyhow::anyhow!("no answer in {TIME:?}")))?;
        account.map(|account| self.person(account)).map_err(|error| match error {
            CodeError::NotAccepted => {
                SignInError::NotProven("it did not accept the code of this sign-in: a code is good for one use".into())
            }
            error => SignInError::Unavailable(error.into()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sign_in(api_url: &str, groups: &[&str]) -> GithubSignIn {
        GithubSignIn::new(&GithubOauthSettings {
            hostname: "git.example.com".into(),
            api_url: api_url.into(),
            client_id: "Iv1.a b".into(),
            client_secret: "app-secret".to_owned().into(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        })
    }

    async fn begun(sign_in: &GithubSignIn) -> String {
        let attempt = serde_json::json!({
            "until": 0, "realm": "", "state": "s&x", "nonce": "n", "next": "/",
            "verifier": "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
        });
        let attempt: SignInAttempt = serde_json::from_value(attempt).unwrap();
        sign_in.begin(&attempt, "https://tide.example/login/callback").await.unwrap().to_string()
    }

    #[tokio::test]
    async fn people_are_led_to_the_host_and_asked_for_no_more_than_rules_need() {
        let parameters = "state=s%26x&code_challenge=E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM&code_challenge_method=S256\
                          &allow_signup=false";
        let start = "client_id=Iv1.a+b&redirect_uri=https%3A%2F%2Ftide.example%2Flogin%2Fcallback";
        let cloud = begun(&sign_in("https://api.github.com", &[])).await;
        assert_eq!(cloud, format!("https://github.com/login/oauth/authorize?{start}&scope=&{parameters}"));
        let server = begun(&sign_in("https://git.example.com/api/v3", &["acme/sre"])).await;
        let expected = format!("https://git.example.com/login/oauth/authorize?{start}&scope=read%3Aorg&{parameters}");
        assert_eq!(server, expected);
    }

    #[test]
    fn a_person_is_an_account_of_its_host_in_lower_case() {
        let account = SignedInAccount { login: "Ada".into(), groups: vec!["acme/sre".into(), "acme/*".into()] };
        let person = sign_in("https://git.example.com/api/v3", &[]).person(account);
        assert_eq!((&*person.name, person.domain), ("git.example.com/ada", None));
        assert_eq!(person.groups, ["git.example.com/acme/sre", "git.example.com/acme/*"]);
    }
}
