//! What the leader finds in the inbox: deliveries that others took, verified again; ends of jobs of deposed servers. An object is
//! deleted only when what it says is committed.

use crate::domain::Event;
use crate::domain::PullId;
use crate::vault::inbox::{self, End, Mail, MailKind, StoredDelivery};
use crate::vault::{Vault, VaultError};
use crate::web::standing::Ready;
use crate::webhook::{self, Secrets, Verified};
use anyhow::{Context, Result};
use base64::Engine;
use futures::StreamExt;
use jiff::Timestamp;
use std::collections::{HashMap, HashSet};
use tokio::sync::watch;

/// Objects that are read at the same time; each may be as large as the largest delivery.
const READS_AT_ONCE: usize = 4;
/// Objects that are taken up together, and then deleted together.
const BATCH: usize = 64;
/// Pull requests whose deliveries are recorded at the same time; those of one go one after the other.
const PULLS_AT_ONCE: usize = 16;
/// Names of objects that cannot be used, which are remembered so as to complain once.
const MAX_COMPLAINTS: usize = 10_000;
/// What dispatch answers to a delivery that it could not record.
const UNRECORDED: u16 = 503;

/// The inbox as it was last seen.
#[derive(Debug, Clone, Default)]
pub(super) struct Inbox {
    mail: Vec<Mail>,
    /// A standby asks for the lead, and may have it. Such a request is seen once and then deleted, so it is kept here.
    hand_over: bool,
}

impl Inbox {
    /// Another look.
    pub(super) fn put(&mut self, mail: Vec<Mail>) {
        self.hand_over |= mail.iter().any(|one| one.kind == MailKind::HandOver);
        self.mail = mail;
    }
}

/// Takes up what comes, in the order in which it came, until a standby asks for the lead.
pub(super) async fn take_up(vault: &Vault, ready: &Ready, secrets: &Secrets, mut inbox: watch::Receiver<Inbox>) {
    let mut taker = Taker { vault, ready, secrets, complained: HashSet::new() };
    loop {
        let seen = inbox.borrow_and_update().clone();
        if seen.hand_over {
            return;
        }
        let of = |kind| seen.mail.iter().filter(move |mail| mail.kind == kind).cloned().collect::<Vec<Mail>>();
        // An apply that is in doubt is known to have ended before somebody's next command is taken up.
        taker.ends(of(MailKind::End)).await;
        for batch in of(MailKind::Delivery).chunks(BATCH) {
            taker.deliveries(batch).await;
            // A long inbox does not keep the lead: the rest is for the server that asks for it.
            if inbox.borrow().hand_over {
                return;
            }
        }
        if inbox.changed().await.is_err() {
            // No more looks: deposed, which others wait for.
            return std::future::pending().await;
        }
    }
}

struct Taker<'a> {
    vault: &'a Vault,
    ready: &'a Ready,
    secrets: &'a Secrets,
    complained: HashSet<String>,
}

/// A delivery that was stored and is authentic, and when it was received.
pub(super) type Authentic = (Mail, Verified<Event>, Timestamp);
/// The same, unless it is not.
pub(super) type Opened = std::result::Result<(Verified<Event>, Timestamp), String>;

impl Taker<'_> {
    /// Says once that an object stays where it is.
    fn complain(&mut self, mail: &Mail, why: &str) {
        if self.complained.len() < MAX_COMPLAINTS && self.complained.insert(mail.name.clone()) {
            tracing::error!(object = mail.name, "an object in the inbox is left there: {why}");
        }
    }

    /// Content of an object; absent when it is gone, cannot be used, or cannot be had now.
    fn found<T>(&mut self, mail: &Mail, read: std::result::Result<Option<T>, VaultError>) -> Option<T> {
        match read {
            Ok(found) => found,
            Err(VaultError::Bucket(error)) => {
                tracing::warn!(object = mail.name, "cannot be read now: {error}");
                None
            }
            Err(error) => {
                self.complain(mail, &error.to_string());
                None
            }
        }
    }

    async fn ends(&mut self, ends: Vec<Mail>) {
        for mail in ends {
            let read = inbox::read::<End>(self.vault, &mail).await;
            let Some(end) = self.found(&mail, read) else { continue };
            match self.ready.dispatch.take_end(end).await {
                Ok(()) => self.forget(&[mail]).await,
                Err(error) => self.complain(&mail, &format!("{error:#}")),
            }
        }
    }

    async fn deliveries(&mut self, batch: &[Mail]) {
        let reads = futures::stream::iter(batch.to_vec()).map(|mail| {
            let vault = self.vault.clone();
            async move {
                let read = inbox::read::<StoredDelivery>(&vault, &mail).await;
                (mail, read)
            }
        });
        let mut reads = reads.buffered(READS_AT_ONCE);
        let mut done = Vec::new();
        let mut by_pull: HashMap<Option<PullId>, Vec<Authentic>> = HashMap::new();
        while let Some((mail, read)) = reads.next().await {
            let Some(stored) = self.found(&mail, read) else { continue };
            match open(stored, self.secrets.clone()).await {
                Ok(Ok((event, received))) => {
                    by_pull.entry(event.get().pull_id().cloned()).or_default().push((mail, event, received));
                }
                Ok(Err(why)) => {
                    tracing::warn!(object = mail.name, "a stored delivery is not authentic, and is deleted: {why}");
                    done.push(mail);
                }
                Err(error) => self.complain(&mail, &format!("{error:#}")),
            }
        }
        let ready = self.ready;
        let taken = futures::stream::iter(by_pull.into_values()).map(|of_pull| record(ready, of_pull));
        let taken: Vec<Vec<Mail>> = taken.buffer_unordered(PULLS_AT_ONCE).collect().await;
        done.extend(taken.into_iter().flatten());
        self.forget(&done).await;
    }

    /// What is committed is deleted. What stays is taken up again, and then known.
    async fn forget(&self, mail: &[Mail]) {
        if mail.is_empty() {
            return;
        }
        if let Err(error) = inbox::forget(self.vault, mail).await {
            tracing::warn!("objects of the inbox could not be deleted, and will be seen again: {error}");
        }
    }
}

/// Records deliveries of one pull request in their order; those that are recorded now.
pub(super) async fn record(ready: &Ready, deliveries: Vec<Authentic>) -> Vec<Mail> {
    let mut recorded = Vec::new();
    for (mail, event, received) in deliveries {
        let answer = ready.dispatch.accept_of(event, received).await;
        if answer.status == UNRECORDED {
            break;
        }
        tracing::info!(object = mail.name, answer = answer.text, "a delivery was taken from the inbox");
        recorded.push(mail);
    }
    recorded
}

/// Verifies a stored delivery as if it came now; off the async threads, as a body has up to 25 MB.
pub(super) async fn open(stored: StoredDelivery, secrets: Secrets) -> Result<Opened> {
    let verify = move || {
        let body = base64::engine::general_purpose::STANDARD.decode(&stored.body).map_err(|error| error.to_string())?;
        let headers = webhook::kept_headers(&stored.headers);
        let event = webhook::receive(&headers, &body, &secrets).map_err(|rejection| rejection.message)?;
        Ok((event, stored.received))
    };
    tokio::task::spawn_blocking(verify).await.context("verifying panicked")
}
