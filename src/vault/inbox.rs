//! The inbox: what servers that do not lead leave for the one that does. Every object is created once and deleted by the leader
//! only after the commit that records it.

use super::bucket::Generation;
use super::{Hash, Vault, VaultError};
use jiff::Timestamp;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

/// A verified delivery as it came, so that the leader can verify it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredDelivery {
    /// [`super::FORMAT`].
    pub format: u32,
    /// When it came, by the receiver's clock.
    pub received: Timestamp,
    /// Headers that the webhook's verification looks at; lower-case names.
    pub headers: Vec<(String, String)>,
    /// Body, base64.
    pub body: String,
}

/// What the leader found in the inbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mail {
    /// Object name.
    pub name: String,
    /// Of the object, for its deletion.
    pub generation: Generation,
    /// When it was stored, by the bucket's clock: the order of taking up.
    pub created: Timestamp,
    /// What it is, by its name.
    pub kind: MailKind,
}

/// Kinds of objects in the inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MailKind {
    /// `inbox/delivery/<hash>`: a [`StoredDelivery`].
    Delivery,
    /// `inbox/handover/<nonce>`: a [`HandOver`].
    HandOver,
    /// `inbox/end/<job>`: an [`End`].
    End,
    /// Somebody else's object; left alone, and said once in the log.
    Foreign,
}

/// A standby asks the leader to go. `proof` is an HMAC-SHA-256 with a key derived from the webhook secret over the rest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandOver {
    /// [`super::FORMAT`].
    pub format: u32,
    /// Who asks.
    pub from: super::lease::Identity,
    /// The epoch whose holder is asked.
    pub epoch: u64,
    /// HMAC, hex.
    pub proof: String,
}

/// How a job ended on a server that had been deposed meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// [`super::FORMAT`].
    pub format: u32,
    /// The job.
    pub job: String,
    /// Its outcome, as `dispatch` writes it.
    pub outcome: serde_json::Value,
    /// Content of `errored.tfstate`, base64, when Terraform left one.
    pub errored_state: Option<String>,
}

/// Proves and checks hand-over requests.
#[derive(Clone)]
pub struct HandOverKey {
    _key: SecretString,
}

impl HandOverKey {
    /// Derives the key from the webhook secret.
    pub fn derive(_webhook_secret: &str) -> HandOverKey {
        HandOverKey { _key: SecretString::from("") }
    }
}

/// Stores a delivery; returns when it is durable (also when it was there already).
pub async fn store_delivery(_vault: &Vault, _name: Hash, _delivery: &StoredDelivery) -> Result<(), VaultError> {
    Err(VaultError::Local("not built yet".into()))
}

/// Stores how a job ended.
pub async fn store_end(_vault: &Vault, _end: &End) -> Result<(), VaultError> {
    Err(VaultError::Local("not built yet".into()))
}

/// Reads one object; absent when it is gone. An error names it when it is not what its name says.
pub async fn read<T: serde::de::DeserializeOwned>(_vault: &Vault, _mail: &Mail) -> Result<Option<T>, VaultError> {
    Err(VaultError::Local("not built yet".into()))
}

/// Deletes objects whose recording is committed.
pub async fn forget(_vault: &Vault, _mail: &[Mail]) -> Result<(), VaultError> {
    Err(VaultError::Local("not built yet".into()))
}
