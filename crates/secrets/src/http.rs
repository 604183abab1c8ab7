//! Requests to stores: time limits, repetitions, and how much is read of an answer. No redirect is followed: a token is sent to the address
//! that the configuration names and nowhere else.

use crate::NotRead;
use backon::BackoffBuilder;
use reqwest::{Client, RequestBuilder, StatusCode};
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::sync::OnceCell;

/// Time limit of a connection, and of one request.
const TIMES: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(15));
/// Tries of a request that may succeed later.
pub(crate) const TRIES: usize = 4;
/// First and longest pause between tries.
const PAUSES: (Duration, Duration) = if cfg!(test) {
    (Duration::from_millis(1), Duration::from_millis(4))
} else {
    (Duration::from_millis(250), Duration::from_secs(4))
};
/// Largest answer, in bytes: a value of 64 KiB, the largest that a store has, in base64 or with every character escaped, and what is around it.
const MAX_ANSWER: usize = 1 << 20;

/// Longest name of an error, in bytes.
const MAX_CODE: usize = 60;

/// The clients, made when they are first needed.
#[derive(Default)]
pub(crate) struct StoreClients {
    client: OnceCell<Client>,
    /// Uses no proxy: for the identity that the machine itself gives.
    direct: OnceCell<Client>,
}

/// The client that sends a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// As the environment has it, by a proxy or not.
    Usual,
    /// Without a proxy.
    Direct,
}

/// An answer that is no error of the server or the network.
pub(crate) struct StoreAnswer {
    pub(crate) status: StatusCode,
    body: Vec<u8>,
}

/// Meaning of a refusal, if the store says it better than its status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    Denied,
    NotFound,
    /// The request may succeed later.
    Busy,
    Other,
}

impl Refusal {
    /// Returns what a status means.
    pub(crate) fn of_status(status: StatusCode) -> Refusal {
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Refusal::Denied,
            StatusCode::NOT_FOUND => Refusal::NotFound,
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => Refusal::Busy,
            status if status.is_server_error() => Refusal::Busy,
            _ => Refusal::Other,
        }
    }
}

impl StoreAnswer {
    /// Reads the body as JSON. The parser's message is dropped: it may quote the value.
    pub(crate) fn json<T: DeserializeOwned>(&self, store: &'static str) -> Result<T, NotRead> {
        serde_json::from_slice(&self.body).map_err(|_| unknown_answer(store))
    }

    /// Returns the name of the error in a refusal, as AWS, Google and Azure write it. It has no part of a value.
    pub(crate) fn code(&self) -> Option<String> {
        let body: serde_json::Value = serde_json::from_slice(&self.body).ok()?;
        let error = &body["error"];
        let code =
            [&body["__type"], &error["status"], &error["code"]].into_iter().find_map(serde_json::Value::as_str)?;
        // AWS puts a namespace before it, and sometimes an address after it.
        let code = code.rsplit('#').next().and_then(|code| code.split(':').next())?;
        let is_name = code.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_');
        (is_name && (1..=MAX_CODE).contains(&code.len())).then(|| code.to_owned())
    }

    pub(crate) fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.body)
    }
}

/// Returns the reason that an answer is not of the form that the store documents.
pub(crate) fn unknown_answer(store: &'static str) -> NotRead {
    NotRead::Unusable(format!("the answer of {store} has an unknown form"))
}

impl StoreClients {
    /// Sends a request that `make` makes for each try, and returns a successful answer. `means` says what a refusal means.
    pub(crate) async fn send(
        &self,
        store: &'static str,
        way: Way,
        make: impl Fn(&Client) -> RequestBuilder,
        means: impl Fn(&StoreAnswer) -> Refusal,
    ) -> Result<StoreAnswer, NotRead> {
        let client = self.client(store, way).await?;
        let mut pauses = tidelock_retry::jittered(PAUSES.0, PAUSES.1).build();
        let mut last = String::new();
        for attempt in 1..=TRIES {
            match read(make(client)).await {
                Ok(answer) if answer.status.is_success() => return Ok(answer),
                Ok(answer) => {
                    let (status, refusal) = (answer.status, means(&answer));
                    if refusal != Refusal::Busy {
                        tracing::warn!(store, %status, code = answer.code(), "a secret is refused");
                        return Err(match refusal {
                            Refusal::Denied => NotRead::Denied { store },
                            Refusal::NotFound => NotRead::NotFound { store },
                            Refusal::Busy | Refusal::Other => {
                                let code = answer.code().map(|code| format!(" ({code})")).unwrap_or_default();
                                NotRead::Unusable(format!("{store} refuses the request with {}{code}", status.as_u16()))
                            }
                        });
                    }
                    last = status.to_string();
                }
                Err(error) if error.is_builder() => {
                    let why = "no request can be made of its address and token: the address needs `https://`, and a token is one line";
                    return Err(NotRead::Unusable(format!("{store} is not asked: {why}")));
                }
                // The address may have a token in its query.
                Err(error) => last = chain(&error.without_url()),
            }
            if attempt < TRIES {
                tokio::time::sleep(pauses.next().unwrap_or(PAUSES.1)).await;
            }
        }
        tracing::warn!(store, error = last, "a store of secrets is unreachable");
        Err(NotRead::Unreachable { store, tries: TRIES })
    }

    async fn client(&self, store: &'static str, way: Way) -> Result<&Client, NotRead> {
        let made = match way {
            Way::Usual => &self.client,
            Way::Direct => &self.direct,
        };
        made.get_or_try_init(async || {
            // Certificates are read from disk.
            let build = move || {
                let builder = Client::builder().redirect(reqwest::redirect::Policy::none());
                let builder = if way == Way::Direct { builder.no_proxy() } else { builder };
                builder.connect_timeout(TIMES.0).timeout(TIMES.1).build()
            };
            let built = tokio::task::spawn_blocking(build).await.ok().and_then(Result::ok);
            built.ok_or_else(|| NotRead::Unusable(format!("no client for {store} can be made")))
        })
        .await
    }
}

/// Sends a request once, and reads a bounded part of the answer.
async fn read(request: RequestBuilder) -> Result<StoreAnswer, reqwest::Error> {
    let mut response = request.send().await?;
    let (status, mut body) = (response.status(), Vec::new());
    while let Some(chunk) = response.chunk().await? {
        let room = MAX_ANSWER - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if chunk.len() > room {
            break;
        }
    }
    Ok(StoreAnswer { status, body })
}

fn chain(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(inner) = next {
        text = format!("{text}: {inner}");
        next = inner.source();
    }
    text
}
