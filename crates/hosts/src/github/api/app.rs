//! A GitHub App. It signs short-lived tokens with its private key, and exchanges them at GitHub for a token of each installation (one for
//! each account that has installed it). Those live an hour; they are kept, and renewed before they expire.

mod key;
mod new_tokens;

use super::Login;
use crate::vcs::http::{Http, IssuedTokens, NotAnswered, RequestToken, odd, page_of, too_many};
use crate::vcs::{HostError, TokenSource};
use async_trait::async_trait;
use jiff::Timestamp;
use key::signed;
use reqwest::Method;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

/// Difference of the clocks, in seconds, from which the host's time is used for the App's own tokens.
const SKEW: i64 = 30;
/// Remaining life at which a token is renewed. It is still used while the renewal fails.
const RENEWED_AHEAD: Duration = Duration::from_secs(10 * 60);
/// Remaining life that a token needs to be used.
const LEAST_LIFE: Duration = Duration::from_secs(30);
/// Longest life that is assumed of a token; GitHub's is an hour.
const LONGEST_LIFE: Duration = Duration::from_secs(3600);
/// Age at which the list of installations is read again.
const LIST_AGE: Duration = Duration::from_secs(600);
/// Age at which it is read again for an account that it does not have.
const ASKED_AGAIN: Duration = Duration::from_secs(20);
/// Time between requests for the App's own name, while it is not known.
const LOGIN_ASKED_AGAIN: Duration = Duration::from_secs(60);
/// Rows on one page: GitHub's maximum.
const PER_PAGE: u32 = 100;
/// Most pages of installations, and of the repositories of one.
const PAGES: u32 = 20;

/// The GitHub App that the server is.
pub struct AppOptions {
    /// Id of the App.
    pub id: u64,
    /// Private key of the App, in PEM.
    pub key: TokenSource,
    /// The only installation to use; absent: the one of a repository's owner.
    pub installation: Option<u64>,
}

/// An account that has installed the App.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Installation {
    /// Id of the installation.
    pub id: u64,
    /// Login of the account.
    pub account: String,
    /// True if the account has suspended it: its tokens are refused.
    pub suspended: bool,
    /// Permissions that the account has granted: `read` or `write`, by name.
    pub permissions: BTreeMap<String, String>,
    /// Events that the account has accepted.
    pub events: Vec<String>,
    /// Page of the installation for people.
    pub page: String,
}

/// GitHub's data of the App itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AppFacts {
    /// Name in addresses; the login is `SLUG[bot]`.
    pub slug: String,
    /// Permissions that the App asks for: `read` or `write`, by name.
    pub permissions: BTreeMap<String, String>,
    /// Events that the App subscribes to.
    pub events: Vec<String>,
    /// Page of the App for people.
    pub page: String,
}

/// The tokens of one App.
pub(super) struct App {
    options: AppOptions,
    /// Address of the host's pages.
    pages: String,
    /// Lead of the host's clock over ours, in seconds.
    ahead: AtomicI64,
    login: OnceLock<Login>,
    /// Time of the last request for the login.
    login_asked: Mutex<Option<Instant>>,
    installations: AsyncMutex<KnownInstallations>,
    /// Tokens by installation; bounded by the list of installations.
    tokens: Mutex<HashMap<u64, Arc<AsyncMutex<Option<InstallationToken>>>>>,
    /// Tokens that can only read code, by installation.
    reading_tokens: AsyncMutex<HashMap<u64, InstallationToken>>,
}

/// Installations as last listed.
#[derive(Default)]
struct KnownInstallations {
    list: Arc<[Installation]>,
    listed: Option<Instant>,
}

#[derive(Clone)]
struct InstallationToken {
    value: SecretString,
    until: Instant,
}

impl InstallationToken {
    fn lives(&self, least: Duration) -> bool {
        self.until.saturating_duration_since(Instant::now()) > least
    }
}

impl App {
    pub(super) fn new(options: AppOptions, pages: String) -> App {
        App {
            options,
            pages,
            ahead: AtomicI64::new(0),
            login: OnceLock::new(),
            login_asked: Mutex::default(),
            installations: AsyncMutex::default(),
            tokens: Mutex::default(),
            reading_tokens: AsyncMutex::default(),
        }
    }

    /// Login of the App, once it is known.
    pub(super) fn login(&self) -> Option<&Login> {
        self.login.get()
    }

    /// Sends a request with the App's own token, and repeats it by the host's clock if ours is wrong.
    pub(super) async fn send(
        &self,
        http: &Http,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Value, HostError> {
        let token = RequestToken { value: Some(self.own_token().await?), purse: 0 };
        let refused = match http.exchange_as(&token, method.clone(), path, body.clone(), None).await {
            Ok(answer) => return Ok(answer.body),
            Err(refused) => refused,
        };
        if !self.set_clock(&refused) {
            return Err(self.worded(refused));
        }
        let token = RequestToken { value: Some(self.own_token().await?), purse: 0 };
        let answer = http.exchange_as(&token, method, path, body, None).await;
        answer.map(|answer| answer.body).map_err(|refused| self.worded(refused))
    }

    /// Signs the App's own token, by the host's clock.
    async fn own_token(&self) -> Result<SecretString, HostError> {
        let denied =
            |message| HostError::Denied { what: format!("the key of the GitHub App {}", self.options.id), message };
        let key = self.options.key.read().await.map_err(denied)?;
        let key = key.ok_or_else(|| denied("it is empty".to_owned()))?;
        let now = Timestamp::now().as_second() + self.ahead.load(Ordering::Relaxed);
        signed(key.expose_secret(), self.options.id, now).map_err(denied)
    }

    /// Records the host's time if it has refused a token and its clock differs from our assumption. Returns true if it has recorded one.
    fn set_clock(&self, refused: &NotAnswered) -> bool {
        let Some(at) = refused.at.filter(|_| refused.status == 401) else { return false };
        let ahead = at.as_second() - Timestamp::now().as_second();
        if (ahead - self.ahead.load(Ordering::Relaxed)).abs() < SKEW {
            return false;
        }
        tracing::warn!(
            seconds = ahead,
            "the host's clock is ahead of this machine's by so much: its time is used for the app's tokens"
        );
        self.ahead.store(ahead, Ordering::Relaxed);
        true
    }

    /// Adds advice to an error about the App's own token.
    fn worded(&self, refused: NotAnswered) -> HostError {
        match refused.error {
            HostError::Denied { what, message } if refused.status == 401 => {
                let message = format!(
                    "GitHub does not take the key of the App {} ({message}): make a new private key on the App's page, give it as \
                     --gh-app-key-file, and check that --gh-app-id is that App's",
                    self.options.id
                );
                HostError::Denied { what, message }
            }
            error => error,
        }
    }

    /// Returns GitHub's data of the App. Its login is known from then on.
    pub(super) async fn facts(&self, http: &Http) -> Result<AppFacts, HostError> {
        let body = self.send(http, Method::GET, "/app", None).await?;
        let slug = body["slug"].as_str().ok_or_else(|| odd("GET /app", "an app without a slug"))?;
        self.login.get_or_init(|| Login::new(format!("{slug}[bot]")));
        Ok(AppFacts {
            slug: slug.to_owned(),
            permissions: permissions(&body),
            events: events(&body),
            page: text(&body["html_url"]),
        })
    }

    /// Returns all installations; lists them again if the list is older than `age`.
    pub(super) async fn installations(&self, http: &Http, age: Duration) -> Result<Arc<[Installation]>, HostError> {
        let mut known = self.installations.lock().await;
        if known.listed.is_some_and(|listed| listed.elapsed() < age) {
            return Ok(Arc::clone(&known.list));
        }
        let mut list = Vec::new();
        for page in 1.. {
            if page > PAGES {
                return Err(too_many("/app/installations", PER_PAGE, PAGES));
            }
            let body = self.send(http, Method::GET, &page_of("/app/installations", PER_PAGE, page), None).await?;
            let Value::Array(rows) = body else { return Err(odd("GET /app/installations", "not a list")) };
            let is_last = rows.len() < PER_PAGE as usize;
            list.extend(rows.iter().filter_map(installation));
            if is_last {
                break;
            }
        }
        *known = KnownInstallations { list: list.into(), listed: Some(Instant::now()) };
        let list = Arc::clone(&known.list);
        let is_known = |id: &u64| Some(*id) == self.options.installation || list.iter().any(|one| one.id == *id);
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner).retain(|id, _| is_known(id));
        Ok(list)
    }

    /// Returns the accounts whose repositories can be read.
    pub(super) async fn owners(&self, http: &Http) -> Vec<String> {
        match self.installations(http, LIST_AGE).await {
            Ok(list) => list.iter().filter(|one| self.uses(one)).map(|one| one.account.clone()).collect(),
            Err(error) => {
                tracing::warn!("the installations of the app cannot be listed: {error}");
                Vec::new()
            }
        }
    }

    fn uses(&self, installation: &Installation) -> bool {
        !installation.suspended && self.options.installation.is_none_or(|id| id == installation.id)
    }

    /// Returns the installation of an account; without a name, the only installation.
    async fn installation_of(&self, http: &Http, owner: &str) -> Result<u64, HostError> {
        if let Some(id) = self.options.installation {
            return Ok(id);
        }
        for age in [LIST_AGE, ASKED_AGAIN] {
            let list = self.installations(http, age).await?;
            if owner.is_empty() && list.len() > 1 {
                return Err(odd("a request that names no owner", "the App has more than one installation"));
            }
            let named = |one: &&Installation| owner.is_empty() || one.account.eq_ignore_ascii_case(owner);
            match list.iter().find(named) {
                // It may have been resumed since the list was read.
                Some(one) if one.suspended && age == LIST_AGE => {}
                Some(one) if one.suspended => return Err(self.suspended(one)),
                Some(one) => return Ok(one.id),
                None => {}
            }
        }
        Err(self.not_installed(owner))
    }

    fn suspended(&self, installation: &Installation) -> HostError {
        let message = format!(
            "{} has suspended its installation of the GitHub App: an owner of it can resume it at {}",
            installation.account, installation.page
        );
        HostError::Denied { what: format!("the GitHub App {}", self.options.id), message }
    }

    fn not_installed(&self, owner: &str) -> HostError {
        let slug = self.login().map(|login| login.as_str().trim_end_matches("[bot]")).unwrap_or("SLUG");
        let message =
            format!("it is not installed for {owner}: install it at {}/apps/{slug}/installations/new", self.pages);
        HostError::Denied { what: format!("the GitHub App {}", self.options.id), message }
    }

    /// Returns the token for the repositories of an account.
    pub(super) async fn installation_token(&self, http: &Http, owner: &str) -> Result<Option<SecretString>, HostError> {
        let id = self.installation_of(http, owner).await?;
        self.token_of(http, id).await.map(Some)
    }

    /// Returns the token of an installation: the known one, or a new one. Concurrent calls for one installation wait for the first.
    pub(super) async fn token_of(&self, http: &Http, id: u64) -> Result<SecretString, HostError> {
        let place = {
            let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(tokens.entry(id).or_default())
        };
        let mut place = place.lock().await;
        if self.may_ask_for_login()
            && let Err(error) = self.facts(http).await
        {
            tracing::warn!("the app's own name is not known yet: {error}");
        }
        if let Some(token) = place.as_ref().filter(|token| token.lives(RENEWED_AHEAD)) {
            return Ok(token.value.clone());
        }
        match self.new_token(http, id, None).await {
            Ok(token) => Ok(place.insert(token).value.clone()),
            Err(error) => match place.as_ref().filter(|token| error.is_transient() && token.lives(LEAST_LIFE)) {
                Some(token) => {
                    tracing::warn!("the token of an installation could not be renewed yet: {error}");
                    Ok(token.value.clone())
                }
                None => Err(error),
            },
        }
    }

    /// Returns true if the login is unknown and no request for it was made lately. A call that returns true counts as a request.
    fn may_ask_for_login(&self) -> bool {
        let mut asked = self.login_asked.lock().unwrap_or_else(PoisonError::into_inner);
        let may = self.login().is_none() && asked.is_none_or(|asked| asked.elapsed() >= LOGIN_ASKED_AGAIN);
        if may {
            *asked = Some(Instant::now());
        }
        may
    }

    /// Returns all repositories of the installations, each with `true` if its account allows the App to set statuses.
    pub(super) async fn repositories(&self, http: &Http) -> Result<Vec<(Value, bool)>, HostError> {
        let mut all = Vec::new();
        let list = self.installations(http, ASKED_AGAIN).await?;
        for one in list.iter().filter(|one| self.uses(one)) {
            let token = RequestToken { value: Some(self.token_of(http, one.id).await?), purse: one.id };
            let can_write = one.permissions.get("statuses").is_some_and(|level| level == "write");
            for page in 1.. {
                if page > PAGES {
                    return Err(too_many("/installation/repositories", PER_PAGE, PAGES));
                }
                let path = page_of("/installation/repositories", PER_PAGE, page);
                let answer = http.exchange_as(&token, Method::GET, &path, None, None).await;
                let mut answer = answer.map_err(|refused| refused.error)?;
                let Value::Array(rows) = answer.body["repositories"].take() else {
                    return Err(odd(&path, "not a list"));
                };
                let is_last = rows.len() < PER_PAGE as usize;
                all.extend(rows.into_iter().map(|row| (row, can_write)));
                if is_last {
                    break;
                }
            }
        }
        Ok(all)
    }
}

/// Owner of a path of the API.
#[derive(Debug, PartialEq, Eq)]
enum Whose<'a> {
    App,
    Account(&'a str),
    Unknown,
}

fn whose(path: &str) -> Whose<'_> {
    let mut parts = path.split('?').next().unwrap_or_default().split('/').skip(1);
    match (parts.next(), parts.next()) {
        (Some("app"), _) => Whose::App,
        (Some("repos" | "orgs" | "users"), Some(account)) => Whose::Account(account),
        _ => Whose::Unknown,
    }
}

#[async_trait]
impl IssuedTokens for App {
    async fn token(&self, http: &Http, path: &str, owner: &str) -> Result<RequestToken, HostError> {
        let account = match whose(path) {
            Whose::App => return Ok(RequestToken { value: Some(self.own_token().await?), purse: 0 }),
            Whose::Account(account) => account,
            // For example a repository by its number, after it has moved.
            Whose::Unknown => owner,
        };
        let id = self.installation_of(http, account).await?;
        Ok(RequestToken { value: Some(self.token_of(http, id).await?), purse: id })
    }

    async fn on_rejected(&self, path: &str, token: &RequestToken) -> bool {
        if whose(path) == Whose::App {
            return false;
        }
        let place = self.tokens.lock().unwrap_or_else(PoisonError::into_inner).get(&token.purse).map(Arc::clone);
        let (Some(place), Some(refused)) = (place, &token.value) else { return false };
        let mut place = place.lock().await;
        // A concurrent request may have replaced it already.
        if place.as_ref().is_some_and(|known| known.value.expose_secret() == refused.expose_secret()) {
            *place = None;
        }
        true
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn permissions(body: &Value) -> BTreeMap<String, String> {
    let all = body["permissions"].as_object().into_iter().flatten();
    all.map(|(name, level)| (name.clone(), text(level))).collect()
}

fn events(body: &Value) -> Vec<String> {
    body["events"].as_array().into_iter().flatten().map(text).collect()
}

fn installation(row: &Value) -> Option<Installation> {
    Some(Installation {
        id: row["id"].as_u64()?,
        account: row["account"]["login"].as_str().or(row["account"]["slug"].as_str())?.to_owned(),
        suspended: !row["suspended_at"].is_null(),
        permissions: permissions(row),
        events: events(row),
        page: text(&row["html_url"]),
    })
}

#[cfg(test)]
mod tests;
