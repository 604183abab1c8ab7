//! The inbox: what servers that do not lead leave for the one that does. Every object is created once and deleted by the leader
//! only after the commit that records it.

#[cfg(test)]
mod tests;

use super::bucket::{Body, Generation};
use super::pack::Bad;
use super::{FORMAT, Hash, Vault, VaultError};
use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Of all names here.
const FOLDER: &str = "inbox/";
const DELIVERY: &str = "inbox/delivery/";
const HANDOVER: &str = "inbox/handover/";
const END: &str = "inbox/end/";
/// Foreign objects that are named in the log.
const MAX_FOREIGN: usize = 100;

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

/// Label of the key for hand-over requests, so that the webhook secret proves nothing else.
const KEY_LABEL: &[u8] = b"tidelock hand-over 1";
/// Bytes of an object in the inbox; a delivery's body is bounded by the front door. Larger ones are foreign.
pub const MAX_MAIL: u64 = 64 << 20;
/// Objects that one request lists.
const PAGE: usize = 1000;
/// Objects that one look finds, about.
const MAX_LISTED: usize = 20_000;
/// Objects that are deleted at once.
const DELETED_AT_ONCE: usize = 16;

type HmacSha256 = Hmac<sha2::Sha256>;

/// Proves and checks hand-over requests.
#[derive(Clone)]
pub struct HandOverKey {
    key: SecretString,
}

impl HandOverKey {
    /// Derives the key from the webhook secret.
    pub fn derive(webhook_secret: &str) -> HandOverKey {
        let derived = mac(webhook_secret.as_bytes(), KEY_LABEL).map(|mac| hex::encode(mac.finalize().into_bytes()));
        HandOverKey { key: SecretString::from(derived.unwrap_or_default()) }
    }

    fn prove(&self, request: &HandOver) -> Option<HmacSha256> {
        /// What is proven, in this order.
        #[derive(Serialize)]
        struct Proven<'a> {
            format: u32,
            from: &'a super::lease::Identity,
            epoch: u64,
        }
        let proven = Proven { format: request.format, from: &request.from, epoch: request.epoch };
        mac(self.key.expose_secret().as_bytes(), &serde_json::to_vec(&proven).ok()?)
    }

    fn sign(&self, mut request: HandOver) -> HandOver {
        request.proof = self.prove(&request).map(|mac| hex::encode(mac.finalize().into_bytes())).unwrap_or_default();
        request
    }

    fn verify(&self, request: &HandOver) -> bool {
        let proof = hex::decode(&request.proof).unwrap_or_default();
        self.prove(request).is_some_and(|mac| mac.verify_slice(&proof).is_ok())
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
    /// The object's name, so that a swapped one is seen.
    name: String,
    /// Of the content's bytes.
    sha256: Hash,
}

fn seal(name: &str, content: &impl Serialize) -> Result<Bytes, VaultError> {
    let unwritable = |error: serde_json::Error| VaultError::Local(format!("cannot write {name}: {error}"));
    let content = serde_json::to_vec(content).map_err(unwritable)?;
    let envelope = Envelope { format: FORMAT, name: name.to_owned(), sha256: Hash::of(&content) };
    let mut bytes = serde_json::to_vec(&envelope).map_err(unwritable)?;
    bytes.push(b'\n');
    bytes.extend_from_slice(&content);
    Ok(bytes.into())
}

fn open<T: DeserializeOwned>(name: &str, bytes: &[u8]) -> Result<T, Bad> {
    const UNREADABLE: Bad = Bad::Damaged("it is nothing that Tidelock left in its inbox");
    let end = bytes.iter().position(|byte| *byte == b'\n').ok_or(UNREADABLE)?;
    let (envelope, content) = (&bytes[..end], &bytes[end + 1..]);
    let envelope: Envelope = serde_json::from_slice(envelope).map_err(|_| UNREADABLE)?;
    if envelope.format > FORMAT {
        return Err(Bad::Newer(envelope.format));
    }
    if envelope.name != name {
        return Err(Bad::Damaged("it is another object under this name"));
    }
    if envelope.sha256 != Hash::of(content) {
        return Err(Bad::Damaged("its content does not have the hash that it names"));
    }
    serde_json::from_slice(content).map_err(|_| UNREADABLE)
}

fn is_segment(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=100).contains(&text.len()) && text.bytes().all(fits)
}

async fn store(vault: &Vault, name: &str, content: &impl Serialize, label: &str) -> Result<(), VaultError> {
    Ok(vault.calls().create_any(name, seal(name, content)?, label).await?)
}

/// Stores a delivery; returns when it is durable (also when it was there already).
pub async fn store_delivery(vault: &Vault, name: Hash, delivery: &StoredDelivery) -> Result<(), VaultError> {
    store(vault, &format!("{DELIVERY}{name}"), delivery, "delivery").await
}

/// Stores how a job ended.
pub async fn store_end(vault: &Vault, end: &End) -> Result<(), VaultError> {
    // A job's id is a name; whatever else it may come to be, it stays one object's.
    let job = if is_segment(&end.job) { end.job.clone() } else { Hash::of(end.job.as_bytes()).to_string() };
    store(vault, &format!("{END}{job}"), end, "end").await
}

/// Reads one object; absent when it is gone. An error names it when it is not what its name says.
pub async fn read<T: DeserializeOwned>(vault: &Vault, mail: &Mail) -> Result<Option<T>, VaultError> {
    let Some(object) = vault.calls().get(&mail.name).await? else { return Ok(None) };
    open(&mail.name, &object.bytes).map(Some).map_err(|bad| unusable(vault, &mail.name, &bad))
}

/// The error about an object of the inbox: the leader goes on without it.
fn unusable(vault: &Vault, name: &str, bad: &Bad) -> VaultError {
    let place = format!("{}/{name}", vault.bucket.location());
    let why = match bad {
        Bad::Newer(format) => format!("it was written by a newer version of Tidelock (format {format})"),
        Bad::Older(format) => format!("it was written by a version of Tidelock that is too old (format {format})"),
        Bad::Damaged(why) => (*why).to_owned(),
    };
    VaultError::Damaged(format!(
        "{place} cannot be used: {why}. It was left there; when it is a delivery, redeliver it from the host's list of \
         deliveries, then delete the object"
    ))
}

/// Deletes objects whose recording is committed.
pub async fn forget(vault: &Vault, mail: &[Mail]) -> Result<(), VaultError> {
    let calls = vault.calls();
    // Another generation under the name of a delivery is the same delivery again: it is taken up anew, and known.
    let mail = mail.to_vec();
    let delete = mail.into_iter().map(|mail| {
        let calls = calls.clone();
        async move { calls.delete(&mail.name, mail.generation).await.map(drop) }
    });
    Ok(stream::iter(delete).buffer_unordered(DELETED_AT_ONCE).try_collect::<()>().await?)
}

/// Asks the leader of `epoch` to hand over; returns when the request is there.
pub(super) async fn request_handover(vault: &Vault, epoch: u64) -> Result<(), VaultError> {
    let from = vault.identity.clone();
    let name = format!("{HANDOVER}{}", from.nonce);
    let request = vault.handover.sign(HandOver { format: FORMAT, from, epoch, proof: String::new() });
    let put = vault.bucket.put(&name, 0, Body::Bytes(seal(&name, &request)?), "handover").await;
    Ok(put.map(drop)?)
}

/// What lies in the inbox, in the order of its coming. Foreign objects are left out and named in `foreign`.
/// Of a very long inbox only [`MAX_LISTED`] objects are given: the others are seen when those are taken up.
pub(super) async fn list(vault: &Vault, foreign: &mut BTreeSet<String>) -> Result<Vec<Mail>, VaultError> {
    let (mut mail, mut after) = (Vec::new(), String::new());
    while mail.len() < MAX_LISTED {
        // In pieces, so that each is answered within the time that a call to the bucket has.
        let page = vault.bucket.list_some(FOLDER, &after, PAGE).await?;
        let Some(last) = page.last() else { break };
        after.clone_from(&last.name);
        for one in page.into_iter().map(classify) {
            if one.kind != MailKind::Foreign {
                mail.push(one);
            } else if foreign.len() < MAX_FOREIGN && foreign.insert(one.name.clone()) {
                let place = vault.bucket.location();
                tracing::warn!("{place}/{} is nothing that Tidelock left in its inbox: it is ignored", one.name);
            }
        }
    }
    mail.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
    Ok(mail)
}

fn classify(listed: super::bucket::Listed) -> Mail {
    let name = listed.name;
    let kind = if listed.size > MAX_MAIL {
        MailKind::Foreign
    } else if name.strip_prefix(DELIVERY).is_some_and(|hash| Hash::parse(hash).is_some()) {
        MailKind::Delivery
    } else if name.starts_with(HANDOVER) {
        MailKind::HandOver
    } else if name.starts_with(END) {
        MailKind::End
    } else {
        MailKind::Foreign
    };
    Mail { name, generation: listed.generation, created: listed.created, kind }
}

/// Whether a hand-over request is to be followed; says in the log why not. Both kinds are done with: delete them.
pub(super) async fn judge(vault: &Vault, epoch: u64, mail: &Mail) -> Result<bool, VaultError> {
    // Asked once: the next look asks again.
    let Some(object) = vault.bucket.get(&mail.name).await? else { return Ok(false) };
    let request: HandOver = match open(&mail.name, &object.bytes) {
        Ok(request) => request,
        Err(bad) => {
            tracing::warn!("a hand-over request is refused: {}", unusable(vault, &mail.name, &bad));
            return Ok(false);
        }
    };
    let from = &request.from;
    // Our own, from before we took the lease.
    if from.nonce == vault.identity.nonce {
        return Ok(false);
    }
    let why = if !vault.handover.verify(&request) {
        "it is not proven with this server's webhook secret"
    } else if request.epoch != epoch {
        "it is for a leader before this one"
    } else if from.fingerprint != vault.identity.fingerprint && !from.force {
        "its VCS host, bot's account or repository allowlist are others"
    } else {
        return Ok(true);
    };
    tracing::warn!(
        machine = from.machine,
        url = from.url,
        version = from.version,
        why,
        "a hand-over request is refused"
    );
    Ok(false)
}
