//! Calls of the API.

use crate::settings::{ClientSettings, IAP_VARIABLE, TOKEN_VARIABLE};
use anyhow::{Context as _, Result, anyhow, bail};
use http::header::PROXY_AUTHORIZATION;
use http::{HeaderValue, Method, StatusCode};
use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::time::Duration;
use url::Url;

/// Time limit of a connection, and of the pause between two pieces of an answer: streams send something every 15 seconds.
const TIMES: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(60));
/// Largest answer, in bytes. Logs are streamed.
const MAX_ANSWER: usize = 64 << 20;

/// A server.
pub(super) struct ApiClient {
    client: Client,
    settings: ClientSettings,
}

/// A refusal of the server.
#[derive(Deserialize)]
struct ApiProblem {
    error: ProblemText,
}

/// Its text; routes of drift runs have it beside a code.
#[derive(Deserialize)]
#[serde(untagged)]
enum ProblemText {
    Plain(String),
    Coded { message: String },
}

impl ApiClient {
    pub(super) fn new(settings: ClientSettings) -> Result<ApiClient> {
        // Fails if there is one already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder();
        // What goes to this machine without TLS must not go through a proxy, which would read the tokens.
        let client = if settings.server.scheme() == "http" { client.no_proxy() } else { client };
        let client = client
            .user_agent(concat!("tidelock/", env!("CARGO_PKG_VERSION")))
            // A redirect leads to a login for browsers, and a token is for this server alone.
            .redirect(Policy::none())
            .connect_timeout(TIMES.0)
            .read_timeout(TIMES.1)
            .build()
            .context("no client for HTTP")?;
        Ok(ApiClient { client, settings })
    }

    /// Returns an address below that of the server.
    pub(super) fn address(&self, path: &str) -> Result<Url> {
        let address = self.settings.server.join(path).context("the address of a call")?;
        // What a server names as the next page must not lead the token elsewhere.
        if address.origin() != self.settings.server.origin() {
            bail!("the server names an address of another host");
        }
        Ok(address)
    }

    /// Calls and returns the answer, of which nothing is read yet. `last_event` is the number of the last line that is known of a stream.
    pub(super) async fn open(&self, method: Method, address: Url, last_event: Option<u64>) -> Result<Response> {
        let mut request = self.client.request(method, address);
        if let Some(token) = &self.settings.token {
            request = request.header("x-atlantis-token", secret_header("", token)?);
        }
        if let Some(token) = &self.settings.iap_token {
            request = request.header(PROXY_AUTHORIZATION, secret_header("Bearer ", token)?);
        }
        if let Some(number) = last_event {
            request = request.header("last-event-id", number);
        }
        let response = request.send().await.with_context(|| format!("{} does not answer", self.settings.server))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        if status.is_redirection() {
            bail!(
                "the server asks for a login ({status}): set {TOKEN_VARIABLE}, and {IAP_VARIABLE} behind Identity-Aware Proxy"
            );
        }
        let text = String::from_utf8_lossy(&bytes(response).await?).into_owned();
        let said = match serde_json::from_str(&text) {
            Ok(ApiProblem { error: ProblemText::Plain(message) | ProblemText::Coded { message } }) => message,
            Err(_) => text,
        };
        let said: String = printable(said.trim()).chars().take(1000).collect();
        let hint = match status {
            StatusCode::UNAUTHORIZED if self.settings.token.is_none() => format!(" (set {TOKEN_VARIABLE})"),
            _ => String::new(),
        };
        bail!("the server answers {status}: {said}{hint}")
    }

    /// Returns the answer of a call as text.
    pub(super) async fn text(&self, method: Method, address: Url) -> Result<String> {
        let answer = bytes(self.open(method, address, None).await?).await?;
        String::from_utf8(answer).context("the answer is not text")
    }

    /// Returns the answer to a request for this path.
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let text = self.text(Method::GET, self.address(path)?).await?;
        serde_json::from_str(&text).with_context(|| format!("the answer to {path} cannot be read"))
    }
}

fn secret_header(scheme: &str, secret: &SecretString) -> Result<HeaderValue> {
    let value = HeaderValue::from_str(&format!("{scheme}{}", secret.expose_secret()));
    let mut value = value.map_err(|_| anyhow!("a token has characters that no header can have"))?;
    value.set_sensitive(true);
    Ok(value)
}

async fn bytes(mut response: Response) -> Result<Vec<u8>> {
    let mut answer = Vec::new();
    while let Some(piece) = response.chunk().await.context("the answer ends early")? {
        if answer.len() + piece.len() > MAX_ANSWER {
            bail!("the answer is larger than {MAX_ANSWER} bytes");
        }
        answer.extend_from_slice(&piece);
    }
    Ok(answer)
}

/// Drops characters that would control the terminal: titles and names are untrusted.
pub(super) fn printable(text: &str) -> String {
    let is_plain = |c: &char| (!c.is_control() || matches!(c, '\n' | '\t')) && !turns_text(*c);
    text.chars().filter(is_plain).collect()
}

/// Returns true for characters that change the direction of text.
pub(super) fn turns_text(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
