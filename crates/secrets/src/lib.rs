//! Reads secrets of projects from their stores, by the identity of this process: its cloud account, or the variables that the clients of
//! the stores read. A value is in memory only, and is read anew for each job.
//!
//! Each store has its file. The file `http` has the limits and repetitions of all of them.

mod aws;
mod azure;
mod google;
mod hashicorp;
mod http;
#[cfg(test)]
mod tests;

use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use http::StoreClients;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tidelock_core::config::secrets::reference::{SecretPlace, SecretReference};
use tokio::sync::OnceCell;

/// Largest value, in bytes: in the forms in which it is masked, it fits into a line of a log.
pub const MAX_VALUE: usize = 16 << 10;
/// Most bytes of all values of a project: an environment that is too large starts no program.
const MAX_VALUES: usize = 256 << 10;
/// Most places that a job reads.
const MAX_PLACES: usize = 100;
/// Time limit of all secrets that are read together, with the tokens that they need.
const TIME: Duration = Duration::from_secs(90);
/// Secrets that are read at once.
const AT_ONCE: usize = 8;
/// Largest file with a token, in bytes.
const MAX_TOKEN: u64 = 64 << 10;

/// Reason for which a secret cannot be read, in words for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotRead {
    /// The store does not let this identity read it.
    #[error("{store} denies it to the identity of the job")]
    Denied {
        /// Name of the store.
        store: &'static str,
    },
    /// The store does not have it.
    #[error("{store} has no such secret, or no such version of it")]
    NotFound {
        /// Name of the store.
        store: &'static str,
    },
    /// The store did not answer, or was not able to.
    #[error("{store} could not be reached, or was not able to answer, after {tries} tries")]
    Unreachable {
        /// Name of the store.
        store: &'static str,
        /// Number of tries.
        tries: usize,
    },
    /// The store did not answer within the time that a job waits for its secrets.
    #[error("{store} has not answered within the {} s for all secrets of the project", TIME.as_secs())]
    TimedOut {
        /// Name of the store.
        store: &'static str,
    },
    /// This process has no identity for the store.
    #[error("the job has no identity for {store}: {why}")]
    NoIdentity {
        /// Name of the store.
        store: &'static str,
        /// The part that is missing, in words.
        why: String,
    },
    /// The answer cannot be used.
    #[error("{0}")]
    Unusable(String),
}

/// A variable whose secret cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the secret `{reference}` of `{variable}` cannot be read: {reason}")]
pub struct SecretNotRead {
    /// Name of the variable.
    pub variable: String,
    /// The reference.
    pub reference: String,
    /// The reason.
    pub reason: NotRead,
}

/// Reads secrets.
pub struct SecretReader {
    /// Variables of this process, which the clients of the stores read too.
    variables: BTreeMap<String, String>,
    http: StoreClients,
    google: OnceCell<google_cloud_auth::credentials::Credentials>,
}

/// The tokens of one job, each made when it is first needed.
#[derive(Default)]
struct Tokens {
    hashicorp: OnceCell<SecretString>,
    aws: OnceCell<aws::credentials::AwsCredentials>,
    /// One for each cloud of Azure.
    azure: azure::AzureTokens,
}

impl SecretReader {
    /// Returns a reader with the variables of this process. It makes no request.
    pub fn new(variables: BTreeMap<String, String>) -> SecretReader {
        // Needed before anything is read over TLS. An error means that a provider is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        SecretReader { variables, http: StoreClients::default(), google: OnceCell::new() }
    }

    /// Returns the values of variables, in the order of their names. Each place is read once.
    ///
    /// # Errors
    ///
    /// The first variable whose secret cannot be read.
    pub async fn read_all(
        &self,
        wanted: &BTreeMap<String, SecretReference>,
    ) -> Result<Vec<(String, SecretString)>, SecretNotRead> {
        let places = distinct(wanted.values());
        let not_read = |(variable, reference): (&String, &SecretReference), reason| SecretNotRead {
            variable: variable.clone(),
            reference: reference.to_string(),
            reason,
        };
        if let Some(one) = wanted.iter().next().filter(|_| places.len() > MAX_PLACES) {
            let why = format!("the project has more than {MAX_PLACES} secrets");
            return Err(not_read(one, NotRead::Unusable(why)));
        }
        let tokens = Tokens::default();
        let mut reading = self.reading(&places, &tokens);
        let mut found: Vec<(&SecretPlace, StoredSecret)> = Vec::new();
        for place in &places {
            match (reading.next().await, wanted.iter().find(|(_, reference)| reference.place == **place)) {
                (Some(Ok(stored)), _) => found.push((*place, stored)),
                (Some(Err(reason)), Some(one)) => return Err(not_read(one, reason)),
                (Some(Err(_)) | None, _) => {}
            }
        }
        let (mut values, mut size) = (Vec::new(), 0);
        for one in wanted {
            let stored = found.iter().find(|(place, _)| **place == one.1.place);
            let value = stored.ok_or_else(|| NotRead::Unusable("it was not read".into()));
            let value = value.and_then(|(_, stored)| stored.clone().value(one.1.key.as_deref()));
            let value = value.map_err(|reason| not_read(one, reason))?;
            size += value.expose_secret().len();
            if size > MAX_VALUES {
                let why = format!("the project's values have more than {} KiB", MAX_VALUES >> 10);
                return Err(not_read(one, NotRead::Unusable(why)));
            }
            values.push((one.0.clone(), value));
        }
        Ok(values)
    }

    /// Tries to read secrets, each place once, and returns the reason for each that cannot be read.
    pub async fn try_all(&self, references: &[&SecretReference]) -> Vec<Option<NotRead>> {
        let places = distinct(references.iter().copied());
        let tokens = Tokens::default();
        let found: Vec<_> = self.reading(&places, &tokens).collect().await;
        let problem = |reference: &&SecretReference| {
            let found = places.iter().zip(&found).find(|(place, _)| **place == &reference.place);
            let (_, found) = found?;
            found.clone().and_then(|stored| stored.value(reference.key.as_deref())).err()
        };
        references.iter().map(problem).collect()
    }

    /// Reads places, in their order and with one time limit for all of them.
    fn reading<'r>(
        &'r self,
        places: &'r [&'r SecretPlace],
        tokens: &'r Tokens,
    ) -> BoxStream<'r, Result<StoredSecret, NotRead>> {
        let end = tokio::time::Instant::now() + TIME;
        let mut reading = Vec::new();
        for place in places {
            let read = tokio::time::timeout_at(end, self.stored(place, tokens));
            let read = read.map(move |read| read.unwrap_or_else(|_| Err(NotRead::TimedOut { store: place.store() })));
            reading.push(read.boxed());
        }
        futures::stream::iter(reading).buffered(AT_ONCE).boxed()
    }

    async fn stored(&self, place: &SecretPlace, tokens: &Tokens) -> Result<StoredSecret, NotRead> {
        match place {
            SecretPlace::GoogleSecretManager { version, .. } => self.google(version).await,
            SecretPlace::HashicorpVault { path } => self.hashicorp(path, &tokens.hashicorp).await,
            SecretPlace::AwsSecretsManager(arn) => self.aws(arn, aws::AwsService::Secrets, &tokens.aws).await,
            SecretPlace::AwsParameter(arn) => self.aws(arn, aws::AwsService::Parameters, &tokens.aws).await,
            SecretPlace::AzureKeyVault { url } => self.azure(url, &tokens.azure).await,
        }
    }

    /// Returns a variable of this process that is not empty.
    fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    /// Returns an address from a variable, without a slash at its end.
    fn address(&self, name: &str) -> Option<String> {
        self.variable(name).map(|address| address.trim_end_matches('/').to_owned())
    }

    /// Reads a file with a token.
    async fn token_file(&self, path: &str, store: &'static str) -> Result<SecretString, NotRead> {
        let path = PathBuf::from(path);
        let reading = tokio::task::spawn_blocking(move || read_token(&path)).await;
        let read = reading.map_err(std::io::Error::other).and_then(|read| read);
        read.map_err(|error| {
            let why = "the file with its token cannot be read".to_owned();
            tracing::warn!(store, %error, "{why}");
            NotRead::NoIdentity { store, why }
        })
    }
}

/// Returns the places of references, each once.
fn distinct<'r>(references: impl Iterator<Item = &'r SecretReference>) -> Vec<&'r SecretPlace> {
    let mut places: Vec<&SecretPlace> = Vec::new();
    for reference in references {
        if !places.contains(&&reference.place) {
            places.push(&reference.place);
        }
    }
    places
}

fn read_token(path: &Path) -> std::io::Result<SecretString> {
    use std::io::Read;
    let mut text = String::new();
    std::fs::File::open(path)?.take(MAX_TOKEN).read_to_string(&mut text)?;
    Ok(SecretString::from(text.trim()))
}

/// Content of a place in a store.
#[derive(Clone)]
enum StoredSecret {
    /// A text, which may be JSON.
    Text(SecretString),
    /// Texts by their names.
    Data(Map<String, Value>),
}

impl StoredSecret {
    /// Returns the value, or that of a key in it.
    fn value(self, key: Option<&str>) -> Result<SecretString, NotRead> {
        let unusable = |why: &str| Err(NotRead::Unusable(why.to_owned()));
        let text = match (self, key) {
            (StoredSecret::Text(text), None) => text,
            (StoredSecret::Data(_), None) => return unusable("the reference has no key, as `#KEY`"),
            (StoredSecret::Text(text), Some(key)) => {
                match serde_json::from_str::<Map<String, Value>>(text.expose_secret()) {
                    Ok(data) => of_key(&data, key)?,
                    Err(_) => return unusable("the value is no JSON object, so it has no keys"),
                }
            }
            (StoredSecret::Data(data), Some(key)) => of_key(&data, key)?,
        };
        match text.expose_secret() {
            "" => unusable("the value is empty"),
            text if text.len() > MAX_VALUE => unusable(&format!("the value is larger than {} KiB", MAX_VALUE >> 10)),
            text if text.contains('\0') => unusable("the value has a byte that no variable can have"),
            _ => Ok(text),
        }
    }
}

fn of_key(data: &Map<String, Value>, key: &str) -> Result<SecretString, NotRead> {
    match data.get(key) {
        Some(Value::String(text)) => Ok(text.as_str().into()),
        Some(value @ (Value::Number(_) | Value::Bool(_))) => Ok(value.to_string().into()),
        Some(_) => Err(NotRead::Unusable(format!("the value of the key `{key}` is no text"))),
        None => Err(NotRead::Unusable(format!("the secret has no key `{key}`"))),
    }
}

/// Returns the text of a value, or the reason that it is none.
fn text(bytes: Vec<u8>) -> Result<StoredSecret, NotRead> {
    let text = String::from_utf8(bytes).map_err(|_| NotRead::Unusable("the value is no text in UTF-8".to_owned()))?;
    Ok(StoredSecret::Text(text.into()))
}
