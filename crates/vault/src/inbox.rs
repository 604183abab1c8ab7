//! The inbox: objects that servers other than the leader store for it. Every object is created once. The leader deletes it after
//! the commit that records it.

mod requests;
#[cfg(test)]
mod tests;

use super::bucket::{Body, Generation, Written};
use super::pack::Invalid;
use super::protocol::{Protocol, Proven};
use super::{FORMAT, Hash, Vault, VaultError};
use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
pub(super) use requests::followed;
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Prefix of all names in the inbox.
const FOLDER: &str = "inbox/";
const DELIVERY: &str = "inbox/delivery/";
const HANDOVER: &str = "inbox/handover/";
const END: &str = "inbox/end/";
/// Maximum number of objects that are remembered as named in the log.
const MAX_TOLD: usize = 100;

/// A delivery as it was received, so that the leader can verify it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredDelivery {
    /// Format of the object, [`super::FORMAT`] at its creation.
    pub format: u32,
    /// Time at which it was received, by the receiver's clock.
    pub received: Timestamp,
    /// Headers that the verification of the webhook needs, with lower-case names.
    pub headers: Vec<(String, String)>,
    /// Body, base64.
    pub body: String,
    /// Id of the webhook secret that it is signed with ([`HandOverKey::ids`]); absent if deliveries are not signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// An object of the inbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxEntry {
    /// Object name.
    pub name: String,
    /// Generation of the object, for its deletion.
    pub generation: Generation,
    /// Time at which it was stored, by the bucket's clock. The oldest object is processed first.
    pub created: Timestamp,
    /// Kind, from its name and size.
    pub kind: InboxEntryKind,
}

/// Kinds of objects in the inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InboxEntryKind {
    /// `inbox/delivery/<hash>`: a [`StoredDelivery`].
    Delivery,
    /// `inbox/handover/<nonce>`: a [`HandOver`].
    HandOver,
    /// `inbox/end/<job>`: a [`LateOutcome`].
    LateOutcome,
    /// Another program's object. It is ignored, and logged once.
    Foreign,
}

/// A request to hand the lead over. Each proof is an HMAC-SHA-256 over format, sender and epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandOver {
    /// Format of the object, [`super::FORMAT`] at its creation.
    pub format: u32,
    /// Server that asks.
    pub from: super::lease::Identity,
    /// Epoch of the leader that is asked.
    pub epoch: u64,
    /// HMAC with a key derived from the webhook secret, hex.
    pub proof: String,
    /// HMAC with a key derived from the previous webhook secret, while the sender knows that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_proof: Option<String>,
    /// Ids of the webhook secrets that the sender knows, for people.
    #[serde(default)]
    pub keys: Vec<String>,
}

/// Outcome of a job on a server that had been deposed meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LateOutcome {
    /// Format of the object, [`super::FORMAT`] at its creation.
    pub format: u32,
    /// Id of the job.
    pub job: String,
    /// Its outcome, as `dispatch` writes it.
    pub outcome: serde_json::Value,
    /// Content of `errored.tfstate`, base64, if Terraform left one.
    pub errored_state: Option<String>,
}

/// Label of the key for hand-over requests, so that the webhook secret proves nothing else.
const KEY_LABEL: &[u8] = b"tidelock hand-over 1";
/// Label of a webhook secret's id.
const ID_LABEL: &[u8] = b"tidelock key id 1";
/// Bytes of the id of a webhook secret.
const ID_BYTES: usize = 6;
/// Largest object of the inbox, in bytes. Larger ones are foreign.
pub const MAX_ENTRY: u64 = 64 << 20;
/// Maximum number of objects that one request lists.
const PAGE: usize = 1000;
/// Approximate maximum number of objects that one list of the inbox returns.
const MAX_LISTED: usize = 20_000;
/// Number of concurrent deletions.
const DELETED_AT_ONCE: usize = 16;

type HmacSha256 = Hmac<sha2::Sha256>;

/// Signs and verifies hand-over requests, and names the webhook secrets that this server knows.
#[derive(Clone)]
pub struct HandOverKey {
    /// Key of the present webhook secret, then that of the previous one.
    keys: Vec<DerivedKey>,
}

#[derive(Clone)]
struct DerivedKey {
    /// Id of the secret, which does not reveal it.
    id: String,
    key: SecretString,
}

impl DerivedKey {
    fn derive(webhook_secret: &str) -> DerivedKey {
        let derived = |label| mac(webhook_secret.as_bytes(), label).map(|mac| mac.finalize().into_bytes());
        let id = derived(ID_LABEL).map(|id| hex::encode(&id[..ID_BYTES])).unwrap_or_default();
        let key = derived(KEY_LABEL).map(hex::encode).unwrap_or_default();
        DerivedKey { id, key: SecretString::from(key) }
    }

    fn prove(&self, request: &HandOver) -> Option<HmacSha256> {
        /// Fields that the proof covers, in this order.
        #[derive(Serialize)]
        struct Proven<'a> {
            format: u32,
            from: &'a super::lease::Identity,
            epoch: u64,
        }
        let proven = Proven { format: request.format, from: &request.from, epoch: request.epoch };
        mac(self.key.expose_secret().as_bytes(), &serde_json::to_vec(&proven).ok()?)
    }
}

impl HandOverKey {
    /// Derives the key from the webhook secret.
    pub fn derive(webhook_secret: &str) -> HandOverKey {
        HandOverKey { keys: vec![DerivedKey::derive(webhook_secret)] }
    }

    /// Adds the key of the previous webhook secret, while that one is still accepted.
    pub fn and_previous(mut self, webhook_secret: &str) -> HandOverKey {
        self.keys.push(DerivedKey::derive(webhook_secret));
        self
    }

    /// Returns the ids of the webhook secrets that this server knows: the present one, then the previous one.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(|key| key.id.as_str())
    }

    fn sign(&self, mut request: HandOver) -> HandOver {
        let mut proofs =
            self.keys.iter().filter_map(|key| Some(hex::encode(key.prove(&request)?.finalize().into_bytes())));
        let (first, second) = (proofs.next(), proofs.next());
        drop(proofs);
        (request.proof, request.previous_proof) = (first.unwrap_or_default(), second);
        request
    }

    /// Returns true if one of the proofs is made with a secret that this server knows.
    fn verify(&self, request: &HandOver) -> bool {
        let proofs = [Some(&request.proof), request.previous_proof.as_ref()];
        let proofs: Vec<Vec<u8>> = proofs.into_iter().flatten().filter_map(|proof| hex::decode(proof).ok()).collect();
        let proves =
            |key: &DerivedKey, proof: &[u8]| key.prove(request).is_some_and(|mac| mac.verify_slice(proof).is_ok());
        self.keys.iter().any(|key| proofs.iter().any(|proof| proves(key, proof)))
    }
}

fn mac(key: &[u8], message: &[u8]) -> Option<HmacSha256> {
    // HMAC takes keys of any length.
    let mut mac = <HmacSha256 as KeyInit>::new_from_slice(key).ok()?;
    mac.update(message);
    Some(mac)
}

/// First line of an object in the inbox; the content follows.
#[derive(Serialize, Deserialize)]
struct Envelope {
    format: u32,
    /// The object's name, so that an exchanged object is detected.
    name: String,
    /// Hash of the content.
    sha256: Hash,
}

pub(super) fn seal(name: &str, content: &impl Serialize) -> Result<Bytes, VaultError> {
    let unwritable = |error: serde_json::Error| VaultError::Local(format!("cannot write {name}: {error}"));
    let content = serde_json::to_vec(content).map_err(unwritable)?;
    let envelope = Envelope { format: FORMAT, name: name.to_owned(), sha256: Hash::of(&content) };
    let mut bytes = serde_json::to_vec(&envelope).map_err(unwritable)?;
    bytes.push(b'\n');
    bytes.extend_from_slice(&content);
    Ok(bytes.into())
}

pub(super) fn open<T: DeserializeOwned>(name: &str, bytes: &[u8]) -> Result<T, Invalid> {
    const UNREADABLE: Invalid = Invalid::Damaged("Tidelock did not write it");
    let end = bytes.iter().position(|byte| *byte == b'\n').ok_or(UNREADABLE)?;
    let (envelope, content) = (&bytes[..end], &bytes[end + 1..]);
    let envelope: Envelope = serde_json::from_slice(envelope).map_err(|_| UNREADABLE)?;
    if envelope.format > FORMAT {
        return Err(Invalid::Newer(envelope.format));
    }
    if envelope.name != name {
        return Err(Invalid::Damaged("it is another object under this name"));
    }
    if envelope.sha256 != Hash::of(content) {
        return Err(Invalid::Damaged("its content does not have the hash that it names"));
    }
    serde_json::from_slice(content).map_err(|_| UNREADABLE)
}

fn is_segment(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=100).contains(&text.len()) && text.bytes().all(fits)
}

async fn store<P: Protocol>(
    vault: &Vault,
    protocol: &P,
    name: &str,
    content: &impl Serialize,
    label: &str,
) -> Result<(), VaultError> {
    Ok(vault.calls().create_any(protocol, name, seal(name, content)?, label).await?)
}

/// Stores a delivery. Returns once it is durable, also if it was stored already.
pub async fn store_delivery(vault: &Vault, name: Hash, delivery: &StoredDelivery) -> Result<(), VaultError> {
    store_delivery_as(vault, &Proven, name, delivery).await
}

/// Stores a delivery under the given protocol.
pub(super) async fn store_delivery_as<P: Protocol>(
    vault: &Vault,
    protocol: &P,
    name: Hash,
    delivery: &StoredDelivery,
) -> Result<(), VaultError> {
    store(vault, protocol, &format!("{DELIVERY}{name}"), delivery, "delivery").await
}

/// Stores the outcome of a job.
pub async fn store_late_outcome(vault: &Vault, end: &LateOutcome) -> Result<(), VaultError> {
    // An id that cannot be part of a name is replaced by its hash.
    let job = if is_segment(&end.job) { end.job.clone() } else { Hash::of(end.job.as_bytes()).to_string() };
    store(vault, &Proven, &format!("{END}{job}"), end, "end").await
}

/// Reads one object; absent if it has been deleted. Fails with an error that names the object if its content does not fit its name.
pub async fn read<T: DeserializeOwned>(vault: &Vault, entry: &InboxEntry) -> Result<Option<T>, VaultError> {
    let Some(object) = vault.calls().get(&entry.name).await? else { return Ok(None) };
    open(&entry.name, &object.bytes).map(Some).map_err(|bad| unusable(vault, &entry.name, &bad))
}

/// Error for an object of the inbox that cannot be used. The leader continues without it.
fn unusable(vault: &Vault, name: &str, bad: &Invalid) -> VaultError {
    let place = format!("{}/{name}", vault.bucket.location());
    let why = match bad {
        Invalid::Newer(format) => format!("it was written by a newer version of Tidelock (format {format})"),
        Invalid::Older(format) => format!("it was written by a version of Tidelock that is too old (format {format})"),
        Invalid::Damaged(why) => (*why).to_owned(),
    };
    VaultError::Damaged(format!(
        "{place} cannot be used: {why}. It was left there; when it is a delivery, redeliver it from the host's list of \
         deliveries, then delete the object"
    ))
}

/// Deletes objects whose recording is committed.
pub async fn delete(vault: &Vault, entries: &[InboxEntry]) -> Result<(), VaultError> {
    let calls = vault.calls();
    // Another generation under the same name is the same delivery again. It stays, is read again, and is a known delivery then.
    let entries = entries.to_vec();
    let delete = entries.into_iter().map(|entry| {
        let calls = calls.clone();
        async move { calls.delete(&entry.name, entry.generation).await.map(drop) }
    });
    Ok(stream::iter(delete).buffer_unordered(DELETED_AT_ONCE).try_collect::<()>().await?)
}

/// Asks the leader of `epoch` to hand over. Returns once the request is stored.
pub(super) async fn request_handover(vault: &Vault, epoch: u64) -> Result<(), VaultError> {
    let from = vault.present_identity();
    let name = format!("{HANDOVER}{}", from.nonce);
    let keys = vault.handover.ids().map(str::to_owned).collect();
    let request = HandOver { format: FORMAT, from, epoch, proof: String::new(), previous_proof: None, keys };
    let bytes = seal(&name, &vault.handover.sign(request))?;
    let put = |expected| vault.bucket.put(&name, expected, Body::Bytes(bytes.clone()), "handover");
    if let Written::Stored(_) = put(0).await? {
        return Ok(());
    }
    // Only this process uses the name: the object is this request, or one to an earlier leader, which this leader would not follow.
    let there = match vault.bucket.get(&name).await? {
        Some(object) if object.bytes == bytes => return Ok(()),
        there => there.map_or(0, |object| object.generation),
    };
    match put(there).await? {
        Written::Stored(_) => Ok(()),
        Written::Refused => Err(vault.calls().gone(&name).into()),
    }
}

/// Names of unusable objects that the log has named.
#[derive(Default)]
pub(super) struct LoggedNames(BTreeSet<String>);

impl LoggedNames {
    /// Records a name. Returns true if the log should name it now: it has not yet, and has named fewer than [`MAX_TOLD`] objects.
    pub(super) fn first(&mut self, name: &str) -> bool {
        self.0.len() < MAX_TOLD && self.0.insert(name.to_owned())
    }

    /// Returns true if the log has named this object.
    fn has(&self, name: &str) -> bool {
        self.0.contains(name)
    }
}

/// Lists the objects of the inbox, oldest first. Foreign objects are left out and logged once. Of a very long inbox, returns about
/// [`MAX_LISTED`] objects; a later list returns the others.
pub(super) async fn list(vault: &Vault, told: &mut LoggedNames) -> Result<Vec<InboxEntry>, VaultError> {
    let (mut entries, mut after) = (Vec::new(), String::new());
    while entries.len() < MAX_LISTED {
        // In pages, so that each is answered within the time limit of a call to the bucket.
        let page = vault.bucket.list_some(FOLDER, &after, PAGE).await?;
        let Some(last) = page.last() else { break };
        after.clone_from(&last.name);
        for one in page.into_iter().map(classify) {
            if one.kind != InboxEntryKind::Foreign {
                entries.push(one);
            } else if told.first(&one.name) {
                let place = vault.bucket.location();
                tracing::warn!("{place}/{} was not written by Tidelock and is ignored", one.name);
            }
        }
    }
    entries.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
    Ok(entries)
}

/// Returns the number of waiting objects, and the names of foreign ones.
pub(super) async fn names(calls: &super::calls::Calls) -> Result<(u64, Vec<String>), VaultError> {
    let entries = calls.list(FOLDER, "").await?.into_iter().map(classify);
    let (ours, others): (Vec<InboxEntry>, Vec<InboxEntry>) =
        entries.partition(|entry| entry.kind != InboxEntryKind::Foreign);
    Ok((ours.len() as u64, others.into_iter().map(|entry| entry.name).collect()))
}

fn classify(listed: super::bucket::Listed) -> InboxEntry {
    let name = listed.name;
    let kind = if listed.size > MAX_ENTRY {
        InboxEntryKind::Foreign
    } else if name.strip_prefix(DELIVERY).is_some_and(|hash| Hash::parse(hash).is_some()) {
        InboxEntryKind::Delivery
    } else if name.strip_prefix(HANDOVER).is_some_and(is_segment) {
        InboxEntryKind::HandOver
    } else if name.strip_prefix(END).is_some_and(is_segment) {
        InboxEntryKind::LateOutcome
    } else {
        InboxEntryKind::Foreign
    };
    InboxEntry { name, generation: listed.generation, created: listed.created, kind }
}
