//! A server while it leads.

use super::mutation::Broken;
use super::port::{Mail as Post, Port};
use super::request::Op;
use super::server::{blobs, fetch, fold};
use super::world::{Fact, Note};
use super::{Flaw, Server};
use crate::inbox::{self, InboxEntry, InboxEntryKind, StoredDelivery};
use crate::leader::{self, LastTerm, Leader};
use crate::{Changes, Hash, Image, Position, VaultError};
use futures::future::{Either, select, try_join};
use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::time::Duration;
use tokio::sync::{Mutex, watch};

/// Most deliveries in one commit.
const GROUP: usize = 4;

/// State that a server keeps after its term.
pub(super) struct KeptState {
    last: LastTerm,
    facts: Vec<Fact>,
}

/// A server while it leads.
pub(super) struct Leading<'a> {
    server: &'a Server,
    pub(super) leader: Leader<Broken>,
    pub(super) state: RefCell<Vec<Fact>>,
    one: Mutex<()>,
    mail: RefCell<Vec<InboxEntry>>,
    /// Deliveries that were received and are not answered.
    pub(super) hand: &'a RefCell<Vec<String>>,
    pub(super) leaving: watch::Sender<bool>,
    pub(super) terminated: Cell<bool>,
}

impl<'a> Leading<'a> {
    /// Takes the lead under a lease, with the state of the last term or a restored one. `None` if another server was faster.
    pub(super) async fn begin(
        server: &'a Server,
        hand: &'a RefCell<Vec<String>>,
        lease: crate::lease::Lease,
        kept: Option<KeptState>,
    ) -> Result<Option<Leading<'a>>, VaultError> {
        let (last, facts) = kept.map(|kept| (kept.last, kept.facts)).unzip();
        let led = leader::lead(&server.vault, lease, server.protocol, last.as_ref()).await?;
        let Some((leader, chain)) = led else { return Ok(None) };
        let position = leader.position();
        let folded = match &chain {
            Some(chain) => fold(chain).await,
            None => Ok(facts.unwrap()),
        };
        let facts = match folded {
            Ok(facts) => facts,
            Err(error) => {
                leader.may_act().await?;
                return Err(error);
            }
        };
        server.port.report(Note::Lead(position, facts.clone()));
        if chain.is_none() {
            server.port.report(Note::WentOn);
        }
        if let Some(chain) = chain
            && let Err(error) = fetch(&chain, &server.port, &facts).await
        {
            leader.may_act().await?;
            return Err(error);
        }
        Ok(Some(Leading {
            server,
            leader,
            state: RefCell::new(facts),
            one: Mutex::new(()),
            mail: RefCell::default(),
            hand,
            leaving: watch::channel(false).0,
            terminated: Cell::new(false),
        }))
    }

    pub(super) fn flaw(&self, flaw: Flaw) -> bool {
        self.server.flaw == Some(flaw)
    }

    pub(super) fn port(&self) -> &Port {
        &self.server.port
    }

    pub(super) fn ack(&self, delivery: &str) {
        self.port().report(Note::Ack(delivery.into()));
        self.hand.borrow_mut().retain(|d| d != delivery);
    }

    pub(super) fn has(&self, fact: &Fact) -> bool {
        self.state.borrow().contains(fact)
    }

    pub(super) fn is_known(&self, delivery: &str) -> bool {
        !self.flaw(Flaw::IdsForgotten) && self.has(&Fact::Delivery(delivery.into()))
    }

    /// Commits while the caller holds the lock, so that facts are in the order of commits.
    async fn commit_locked(&self, facts: Vec<Fact>) -> Result<(), VaultError> {
        let rows = serde_json::to_vec(&facts).unwrap().into();
        let (epoch, next) = (self.leader.epoch(), self.leader.position().seq + 1);
        self.port().report(Note::Tried(epoch, next, facts.clone()));
        let commit = Box::pin(self.leader.commit(Changes { schema: 1, rows, blobs: blobs(&facts) }));
        let known = |committed: Result<Position, VaultError>| {
            // As the store does: an error other than a deposition means that the commit was not done.
            if !matches!(committed, Ok(_) | Err(VaultError::Deposed(_))) {
                self.port().report(Note::Undone(epoch, next, facts.clone()));
            }
            committed
        };
        let position = if self.server.hasty && self.port().random(50) == 0 {
            // The caller stops waiting for the commit: its outcome is unknown then.
            let patience = Duration::from_millis(self.port().random(100));
            match select(commit, pin!(self.server.vault.clock.sleep(patience))).await {
                Either::Left((position, _)) => known(position)?,
                Either::Right((_, commit)) => {
                    drop(commit);
                    self.leader.may_act().await?;
                    self.port().report(Note::Wrong("leads on after a commit was abandoned".into()));
                    return Ok(());
                }
            }
        } else {
            known(commit.await)?
        };
        self.state.borrow_mut().extend(facts.iter().cloned());
        self.port().report(Note::Durable(position, facts));
        Ok(())
    }

    pub(super) async fn commit(&self, fact: Fact) -> Result<(), VaultError> {
        let _one = self.one.lock().await;
        self.commit_locked(vec![fact]).await
    }

    /// Records deliveries that reach the leader in one commit, then answers them with 2xx.
    pub(super) async fn direct(&self, deliveries: &[String]) -> Result<(), VaultError> {
        self.hand.borrow_mut().extend(deliveries.iter().cloned());
        if self.flaw(Flaw::AckEarly) {
            deliveries.iter().for_each(|d| self.port().report(Note::Ack(d.clone())));
        }
        let _one = self.one.lock().await;
        let (mut new, mut wait) = (Vec::new(), Vec::new());
        for delivery in deliveries {
            let fact = Fact::Delivery(delivery.clone());
            let early = new.contains(&fact) && self.flaw(Flaw::DuplicateAnsweredEarly);
            if self.is_known(delivery) || early {
                self.ack(delivery);
            } else {
                wait.push(delivery);
                if !new.contains(&fact) {
                    new.push(fact);
                }
            }
        }
        if !new.is_empty() {
            self.commit_locked(new).await?;
        }
        wait.into_iter().for_each(|d| self.ack(d));
        Ok(())
    }

    /// Renews the lease, then lists the inbox.
    pub(super) async fn tick(&self) -> Result<(), VaultError> {
        self.leader.renew().await?;
        self.list_inbox().await
    }

    /// Lists the inbox and remembers its deliveries.
    async fn list_inbox(&self) -> Result<(), VaultError> {
        let mail = self.leader.list_inbox().await?;
        if mail.iter().any(|m| m.kind == InboxEntryKind::HandOver) {
            self.leaving.send_replace(true);
        }
        *self.mail.borrow_mut() = mail.into_iter().filter(|m| m.kind == InboxEntryKind::Delivery).collect();
        Ok(())
    }

    /// Records the deliveries of the inbox, then deletes them there.
    pub(super) async fn record_inbox(&self) -> Result<(), VaultError> {
        let vault = &self.server.vault;
        let mail = self.mail.take();
        let (mut found, mut seen) = (Vec::new(), Vec::new());
        for mail in mail {
            let recorded =
                self.state.borrow().iter().any(
                    |f| matches!(f, Fact::Delivery(d) if mail.name.ends_with(&Hash::of(d.as_bytes()).to_string())),
                );
            if !recorded || self.flaw(Flaw::IdsForgotten) {
                match inbox::read::<StoredDelivery>(vault, &mail).await {
                    Ok(Some(stored)) => found.push(stored.body),
                    Ok(None) | Err(VaultError::Bucket(_)) => continue,
                    Err(error) => return Err(error),
                }
            }
            seen.push(mail);
        }
        if self.flaw(Flaw::InboxDeletedFirst) {
            inbox::delete(vault, &seen).await?;
        }
        {
            let _one = self.one.lock().await;
            let new: Vec<Fact> = found.iter().filter(|d| !self.is_known(d)).cloned().map(Fact::Delivery).collect();
            if !new.is_empty() {
                self.commit_locked(new).await?;
            }
        }
        inbox::delete(vault, &seen).await
    }

    /// Writes a base of the present state. Commits may continue meanwhile.
    pub(super) async fn base(&self) -> Result<(), VaultError> {
        let (mut position, mut facts) = {
            let _one = self.one.lock().await;
            (self.leader.position(), self.state.borrow().clone())
        };
        if self.flaw(Flaw::BaseDirty) {
            facts.push(Fact::Delivery("dirty".into()));
        }
        if self.flaw(Flaw::BaseAhead) {
            position = Position { seq: position.seq + 1, hash: Hash::of(b"unsent") };
            facts.push(Fact::Delivery("unsent".into()));
        }
        let place = tempfile::NamedTempFile::new().unwrap();
        let database = place.path().to_owned();
        std::fs::write(&database, serde_json::to_vec(&facts).unwrap()).unwrap();
        let image = Image { position, schema: 1, database, blobs: blobs(&facts) };
        self.leader.write_base(image).await.map(|_| ())
    }

    pub(super) async fn collect(&self) -> Result<(), VaultError> {
        self.leader.collect().await.map(|_| ())
    }

    /// Releases the lease, and returns what this server keeps for its next term.
    pub(super) async fn release(&self) -> Result<Option<KeptState>, VaultError> {
        let last = self.leader.release().await?;
        Ok(last.map(|last| KeptState { last, facts: self.state.borrow().clone() }))
    }

    async fn intake(&self) -> Result<(), VaultError> {
        let mut leaving = self.leaving.subscribe();
        loop {
            let first = {
                let left = pin!(leaving.wait_for(|leaving| *leaving));
                match select(left, pin!(self.port().mail())).await {
                    Either::Left(_) => return Ok(()),
                    Either::Right((mail, _)) => mail,
                }
            };
            let (mut group, mut next) = (Vec::new(), Some(first));
            while let Some(Post::Delivery(delivery)) = next {
                group.push(delivery);
                next = if group.len() < GROUP { self.port().try_mail() } else { None };
            }
            let terminated = matches!(next, Some(Post::Terminate));
            if terminated {
                self.terminated.set(true);
                self.leaving.send_replace(true);
            }
            if !group.is_empty() {
                self.direct(&group).await?;
            }
            if terminated {
                return Ok(());
            }
        }
    }

    async fn worker(&self) -> Result<(), VaultError> {
        loop {
            unless_unavailable(self.record_inbox().await)?;
            self.work().await?;
            self.outbox().await?;
            if self.port().random(8) == 0 {
                self.sweep().await?;
            }
            if *self.leaving.borrow() {
                return Ok(());
            }
            self.server.vault.clock.sleep(Duration::from_millis(300)).await;
        }
    }

    async fn renewer(&self) -> Result<(), VaultError> {
        loop {
            unless_unavailable(self.leader.renew().await)?;
            self.server.vault.clock.sleep(self.server.vault.timing.renew).await;
        }
    }

    async fn looker(&self) -> Result<(), VaultError> {
        loop {
            unless_unavailable(self.list_inbox().await)?;
            self.server.vault.clock.sleep(self.server.vault.timing.renew).await;
        }
    }

    async fn keeper(&self) -> Result<(), VaultError> {
        loop {
            self.server.vault.clock.sleep(Duration::from_millis(300)).await;
            let kept = match self.port().random(8) {
                0 if !self.leader.base_due() => Ok(()),
                0 => self.base().await,
                1 => self.collect().await,
                _ => Ok(()),
            };
            match unless_unavailable(kept) {
                Err(error @ (VaultError::Damaged(_) | VaultError::Local(_))) => {
                    self.port().report(Note::Alarm(error.to_string()));
                }
                kept => kept?,
            }
        }
    }

    /// Constantly has effects outside the bucket, in runs that check them.
    async fn actor(&self) -> Result<(), VaultError> {
        if !self.server.eager {
            std::future::pending::<()>().await;
        }
        loop {
            self.server.vault.clock.sleep(Duration::from_millis(100)).await;
            self.leader.may_act().await?;
            self.port().send(Op::Act).await;
        }
    }

    /// Runs all tasks of a leader until it ends, leaves or is deposed.
    pub(super) async fn run(&self) -> Result<(), VaultError> {
        let main = pin!(try_join(self.intake(), self.worker()));
        let side = pin!(try_join(try_join(self.renewer(), self.looker()), try_join(self.keeper(), self.actor())));
        let gone = pin!(self.leader.deposed());
        let abrupt = self.port().random(4) == 0;
        let mut leaving = self.leaving.subscribe();
        let hurry = pin!(async {
            let _ = leaving.wait_for(|leaving| *leaving).await;
            if !abrupt {
                std::future::pending::<()>().await;
            }
        });
        match select(select(main, side), select(gone, hurry)).await {
            Either::Left((Either::Left((ended, _)), _)) => ended.map(|_| ()),
            Either::Left((Either::Right((ended, _)), _)) => ended.map(|_| ()),
            Either::Right((Either::Left((why, _)), _)) => Err(VaultError::Deposed(why)),
            Either::Right((Either::Right(_), _)) => Ok(()),
        }
    }
}

/// Drops errors of the bucket, after which a leader continues.
fn unless_unavailable(result: Result<(), VaultError>) -> Result<(), VaultError> {
    match result {
        Err(VaultError::Bucket(_)) => Ok(()),
        result => result,
    }
}
