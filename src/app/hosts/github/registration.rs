//! Creation of a GitHub App: `/github-app/setup` sends a manifest to GitHub, which redirects to `/github-app/exchange-code` with a code.
//! The server exchanges that for the App's id, private key and webhook secret, displays them once, and stores them nowhere.

use crate::domain::is_secret;
use crate::settings::Settings;
use crate::settings::hosts::github::GithubToken;
use crate::web::host_pages::{HostForm, HostPage, HostPageContent};
use async_trait::async_trait;
use secrecy::ExposeSecret as _;
use serde_json::json;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tidelock_hosts::github::{NewApp, convert_manifest, pages_url};
use url::Url;
use url::form_urlencoded;

const SETUP: &str = "/github-app/setup";
const EXCHANGE: &str = "/github-app/exchange-code";
/// Lifetime of GitHub's code.
const CODE_LIFE: Duration = Duration::from_secs(3600);
/// Longest name of an App, in characters.
const LONGEST_NAME: usize = 34;
/// Longest code that is exchanged, in bytes.
const LONGEST_CODE: usize = 256;
/// Events that the App subscribes to.
const EVENTS: [&str; 5] = ["issue_comment", "merge_group", "pull_request", "pull_request_review", "push"];

/// State of both pages.
struct Registration {
    /// Address of this server.
    url: String,
    api_url: String,
    organization: String,
    /// True if the server is an App already.
    is_app: bool,
    /// State parameter of the last manifest and its time. A request with another one did not begin here.
    begun: Mutex<Option<(String, Instant)>>,
}

/// Page that sends the manifest to GitHub.
struct SetupPage(Arc<Registration>);

/// Page that exchanges the code and displays the App's values.
struct ExchangePage(Arc<Registration>);

/// Returns both pages if the settings name GitHub.
pub(super) fn pages(settings: &Settings) -> Vec<Arc<dyn HostPage>> {
    let Some(github) = &settings.hosts.github else { return Vec::new() };
    let registration = Arc::new(Registration {
        url: settings.atlantis_url.clone(),
        api_url: github.api_url.clone(),
        organization: github.organization.clone(),
        is_app: matches!(github.token, Some(GithubToken::App(_))),
        begun: Mutex::default(),
    });
    vec![Arc::new(SetupPage(Arc::clone(&registration))), Arc::new(ExchangePage(registration))]
}

fn refusal_page(title: &str, text: impl Into<String>) -> HostPageContent {
    HostPageContent { status: 400, title: title.into(), text: vec![text.into()], ..HostPageContent::default() }
}

impl Registration {
    fn refusal(&self) -> Option<HostPageContent> {
        let text = "The server is a GitHub App already (--gh-app-id). To make another one, start it without gh-app-id.";
        self.is_app.then(|| refusal_page("There is an App already", text))
    }

    fn manifest(&self) -> serde_json::Value {
        let host = Url::parse(&self.url).ok().and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default();
        let name: String = format!("Tidelock for {host}").chars().take(LONGEST_NAME).collect();
        json!({
            "name": name,
            "description": "Plans and applies Terraform from pull requests",
            "url": self.url,
            "public": false,
            "hook_attributes": {"url": format!("{}/events", self.url), "active": true},
            "redirect_url": format!("{}{EXCHANGE}", self.url),
            "default_events": EVENTS,
            "default_permissions": {
                // With `write`, GitHub adds a suite of checks to each push, also if no check follows; docs/checks.md.
                "checks": "read", "contents": "write", "issues": "write", "members": "read",
                "merge_queues": "read", "metadata": "read", "pull_requests": "write", "statuses": "write",
            },
        })
    }

    /// Returns and removes the state of the last manifest if it is this one and not expired.
    fn take_manifest(&self, state: &str) -> Option<(String, Instant)> {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = begun.as_ref().is_some_and(|(known, at)| at.elapsed() < CODE_LIFE && is_secret(known, state));
        if fits { begun.take() } else { None }
    }

    /// Restores the state: the code is still valid, and the person may try again.
    fn give_back(&self, taken: (String, Instant)) {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(taken);
    }
}

#[async_trait]
impl HostPage for SetupPage {
    fn path(&self) -> &'static str {
        SETUP
    }

    async fn show(&self, _: &str) -> HostPageContent {
        let Registration { organization, api_url, .. } = &*self.0;
        if let Some(refusal) = self.0.refusal() {
            return refusal;
        }
        let mut random = [0; 16];
        if let Err(error) = getrandom::fill(&mut random) {
            return HostPageContent {
                status: 500,
                ..refusal_page("Something broke", format!("There is no randomness: {error}"))
            };
        }
        let state = hex::encode(random);
        *self.0.begun.lock().unwrap_or_else(PoisonError::into_inner) = Some((state.clone(), Instant::now()));
        let pages = pages_url(api_url);
        let (place, whose) = match organization.as_str() {
            "" => (format!("{pages}/settings/apps/new?state={state}"), "your own account".to_owned()),
            name => {
                let escaped: String = form_urlencoded::byte_serialize(name.as_bytes()).collect();
                (format!("{pages}/organizations/{escaped}/settings/apps/new?state={state}"), name.to_owned())
            }
        };
        let text = vec![
            format!("GitHub makes a private App in {whose}, with the permissions and events that the server needs."),
            "Then it leads back here, and the App's id, private key and webhook secret are shown once.".to_owned(),
        ];
        let form = HostForm {
            action: place,
            fields: vec![("manifest".into(), self.0.manifest().to_string())],
            button: "Make the App on GitHub".into(),
        };
        HostPageContent { status: 200, title: "Make a GitHub App".into(), text, values: Vec::new(), form: Some(form) }
    }
}

#[async_trait]
impl HostPage for ExchangePage {
    fn path(&self) -> &'static str {
        EXCHANGE
    }

    async fn show(&self, query: &str) -> HostPageContent {
        if let Some(refusal) = self.0.refusal() {
            return refusal;
        }
        let parameter = |name: &str| {
            let found = form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == name);
            found.map(|(_, value)| value.into_owned()).unwrap_or_default()
        };
        let (code, state) = (parameter("code"), parameter("state"));
        if code.is_empty() || code.len() > LONGEST_CODE {
            return refusal_page(
                "There is no code",
                format!("GitHub leads here with a code: begin at {}{SETUP}.", self.0.url),
            );
        }
        let Some(taken) = self.0.take_manifest(&state) else {
            let text = "This was not begun here within the last hour, so that the App may be somebody else's: nothing was exchanged.";
            return refusal_page("Not begun here", format!("{text} Begin at {}{SETUP}.", self.0.url));
        };
        match convert_manifest(&self.0.api_url, &code).await {
            Ok(app) => creation_page(&app),
            Err(error) => {
                if error.is_transient() {
                    self.0.give_back(taken);
                }
                tracing::warn!("the code of an app's manifest was not exchanged: {error}");
                let text = format!(
                    "GitHub did not exchange the code: {error}. A code is good for one exchange within an hour."
                );
                HostPageContent { status: 502, ..refusal_page("The App was not told", text) }
            }
        }
    }
}

fn creation_page(app: &NewApp) -> HostPageContent {
    tracing::info!(id = app.id, slug = app.slug, "a GitHub App was made; its key is shown once");
    let value = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let text = vec![
        format!(
            "{} was made. What follows is shown only now, and kept nowhere: copy it into the server's settings.",
            app.slug
        ),
        format!(
            "Then start the server without gh-user and gh-token, and install the App at {}/installations/new.",
            app.page
        ),
    ];
    let values = vec![
        value("gh-app-id", &app.id.to_string()),
        value("gh-app-slug", &app.slug),
        value("gh-webhook-secret", app.webhook_secret.expose_secret()),
        value("gh-app-key-file: the contents of this file", app.key.expose_secret()),
    ];
    HostPageContent { status: 200, title: "The App was made".into(), text, values, form: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_begun_is_taken_once_and_can_be_given_back() {
        let begun = Mutex::new(Some(("state".to_owned(), Instant::now())));
        let text = String::new;
        let registration = Registration { url: text(), api_url: text(), organization: text(), is_app: false, begun };
        assert!(registration.take_manifest("other").is_none());
        let taken = registration.take_manifest("state").unwrap();
        assert!(registration.take_manifest("state").is_none());
        registration.give_back(taken);
        assert!(registration.take_manifest("state").is_some());
    }
}
