//! The server under test as a GitHub App: its key, its installations and their tokens.

use super::state::State;
use super::{Forge, random_hex, server};
use anyhow::{Context, bail};
use http::HeaderMap;
use jiff::{SignedDuration, Timestamp};
use ring::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Suffix of the logins of Apps.
pub(super) const BOT_OF_APP: &str = "[bot]";
/// Life of an installation's token.
const LIFE: SignedDuration = SignedDuration::from_hours(1);

/// An App in the state of the forge.
pub(super) struct AppState {
    pub id: u64,
    pub slug: String,
    public_key: Vec<u8>,
    pub permissions: Value,
    pub events: Vec<String>,
    pub installations: Vec<InstallationState>,
    /// Tokens of installations, by value.
    tokens: BTreeMap<String, TokenState>,
    /// Life of new tokens.
    life: SignedDuration,
}

/// A token of an installation.
struct TokenState {
    installation: u64,
    end: Timestamp,
    /// True if it was asked for with no right to write.
    only_reads: bool,
}

/// An account that has installed the App.
pub(super) struct InstallationState {
    pub id: u64,
    pub account: String,
    pub suspended: bool,
}

impl AppState {
    pub(super) fn login(&self) -> String {
        format!("{}{BOT_OF_APP}", self.slug)
    }

    /// Returns the installation of a valid token.
    pub(super) fn installation_of(&self, token: &str) -> Option<&InstallationState> {
        let TokenState { installation, end, .. } = self.tokens.get(token)?;
        let found = self.installations.iter().find(|one| one.id == *installation && !one.suspended);
        found.filter(|_| *end > Timestamp::now())
    }

    /// Returns true if a request for these rights of a token can be met: each is one of the App's, and no higher
    /// (docs.github.com/en/rest/apps/apps#create-an-installation-access-token-for-an-app).
    pub(super) fn grants(&self, rights: &serde_json::Map<String, Value>) -> bool {
        rights.iter().all(|(name, level)| match self.permissions[name].as_str() {
            Some("write") => level == "write" || level == "read",
            Some("read") => level == "read",
            _ => false,
        })
    }

    /// Creates a token of an installation, and returns it with its expiry.
    pub(super) fn new_token(&mut self, installation: u64, only_reads: bool) -> Option<(String, Timestamp)> {
        let token = format!("ghs_{}", random_hex().ok()?);
        let end = Timestamp::now().checked_add(self.life).ok()?;
        self.tokens.insert(token.clone(), TokenState { installation, end, only_reads });
        Some((token, end))
    }

    /// Checks that the App itself has signed a token, by GitHub's rules; the error is GitHub's message. `now` is the forge's time in
    /// seconds.
    pub(super) fn check(&self, token: &str, now: i64) -> Result<(), &'static str> {
        const BAD: &str = "A JSON web token could not be decoded";
        let decode =
            |part: &str| base64::Engine::decode(&base64::prelude::BASE64_URL_SAFE_NO_PAD, part).map_err(|_| BAD);
        let (message, signature) = token.rsplit_once('.').ok_or(BAD)?;
        let (head, claims) = message.split_once('.').ok_or(BAD)?;
        let json = |part: &str| serde_json::from_slice::<Value>(&decode(part)?).map_err(|_| BAD);
        let (head, claims) = (json(head)?, json(claims)?);
        let key = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, &self.public_key);
        if head["alg"] != "RS256" || key.verify(message.as_bytes(), &decode(signature)?).is_err() {
            return Err(BAD);
        }
        if claims["iss"].as_str() != Some(&self.id.to_string()) {
            return Err("Integration not found");
        }
        let (Some(begin), Some(end)) = (claims["iat"].as_i64(), claims["exp"].as_i64()) else { return Err(BAD) };
        if begin > now {
            return Err(
                "'Issued at' claim ('iat') must be an Integer representing the time that the assertion was issued",
            );
        }
        if end <= now || end > now + 600 {
            return Err(
                "'Expiration time' claim ('exp') must be a numeric value representing the future time at which the assertion expires",
            );
        }
        Ok(())
    }
}

/// Returns true if a token may see a repository: tokens of installations see only those of their account.
pub(super) fn may_see(state: &State, headers: &HeaderMap, full_name: &str) -> bool {
    let token = server::token(headers).ok().flatten();
    let owner = full_name.split('/').next().unwrap_or_default();
    let of_app = token.and_then(|token| Some(state.app.as_ref()?.installation_of(&token)?.account.clone()));
    of_app.is_none_or(|account| account.eq_ignore_ascii_case(owner))
}

/// Returns true if the token of a request may only read.
pub(super) fn only_reads(state: &State, headers: &HeaderMap) -> bool {
    let token = server::token(headers).ok().flatten();
    token.and_then(|token| Some(state.app.as_ref()?.tokens.get(&token)?.only_reads)).unwrap_or_default()
}

impl Forge {
    /// Makes the server under test this App, without installations, and returns the App's id.
    pub fn set_app(&self, slug: &str, private_key: &str) -> anyhow::Result<u64> {
        let key = match PrivateKeyDer::from_pem_slice(private_key.as_bytes()) {
            Ok(PrivateKeyDer::Pkcs1(der)) => RsaKeyPair::from_der(der.secret_pkcs1_der()),
            Ok(PrivateKeyDer::Pkcs8(der)) => RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()),
            _ => bail!("not a private key of RSA in PEM"),
        };
        let key = key.map_err(|error| anyhow::anyhow!("not a private key of RSA: {error}"))?;
        let random = random_hex()?;
        Ok(self.shared.change(|state| {
            let id = state.new_id();
            let app = AppState {
                id,
                slug: slug.to_owned(),
                public_key: key.public_key().as_ref().to_vec(),
                permissions: json!({"checks": "write", "contents": "write", "issues": "write", "metadata": "read", "pull_requests": "write", "statuses": "write"}),
                events: ["check_run", "issue_comment", "merge_group", "pull_request", "pull_request_review", "push"].map(str::to_owned).to_vec(),
                installations: Vec::new(),
                tokens: BTreeMap::new(),
                life: LIFE,
            };
            state.add_user(&app.login(), random);
            state.app = Some(app);
            id
        }))
    }

    fn change_app<T>(&self, act: impl FnOnce(&mut AppState) -> T) -> anyhow::Result<T> {
        self.shared.change(|state| state.app.as_mut().map(act)).context("the server under test is no App")
    }

    /// Installs the App for an account, and returns the id of the installation.
    pub fn install_app(&self, account: &str) -> anyhow::Result<u64> {
        let id = self.shared.change(State::new_id);
        let one = InstallationState { id, account: account.to_owned(), suspended: false };
        self.change_app(|app| app.installations.push(one))?;
        Ok(id)
    }

    /// Suspends the installation of an account, or resumes it.
    pub fn suspend_app(&self, account: &str, suspended: bool) -> anyhow::Result<()> {
        self.change_app(|app| {
            for one in app.installations.iter_mut().filter(|one| one.account == account) {
                one.suspended = suspended;
            }
        })
    }

    /// Revokes all tokens of installations.
    pub fn revoke_app_tokens(&self) -> anyhow::Result<()> {
        self.change_app(|app| app.tokens.clear())
    }

    /// Sets the life of new tokens.
    pub fn set_app_token_life(&self, life: SignedDuration) -> anyhow::Result<()> {
        self.change_app(|app| app.life = life)
    }

    /// Takes a permission and an event away from the App.
    pub fn restrict_app(&self, permission: &str, event: &str) -> anyhow::Result<()> {
        self.change_app(|app| {
            if let Some(permissions) = app.permissions.as_object_mut() {
                permissions.remove(permission);
            }
            app.events.retain(|known| known != event);
        })
    }

    /// Creates an App from a manifest, and returns the code to exchange for it.
    pub fn make_app(&self, slug: &str, private_key: &str) -> anyhow::Result<String> {
        let code = random_hex()?;
        let made = (slug.to_owned(), private_key.to_owned());
        self.shared.change(|state| state.manifests.insert(code.clone(), made));
        Ok(code)
    }
}
