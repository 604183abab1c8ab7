//! A small whole server on the real vault: what `dispatch`, `store` and `reply` do, reduced to deliveries, applies and comments.

use super::objects;
use super::port::{Mail as Post, Op, Port, Reply};
use super::world::{Fact, How, Note};
use super::{Flaw, Server};
use crate::vault::chain::{Chain, Wanted};
use crate::vault::inbox::{self, Mail, MailKind, StoredDelivery};
use crate::vault::leader::Leader;
use crate::vault::{Blob, Changes, Hash, Image, Position, Source, Vault, VaultError};
use futures::future::{Either, select, try_join};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;
use tokio::sync::{Mutex, watch};

/// Deliveries in one commit.
const GROUP: usize = 4;
/// Tries to post one comment before its turn comes again.
const TRIES: usize = 6;

/// Contents that a state needs: an apply's plan, from its delivery to its outcome.
fn kept(facts: &[Fact]) -> Vec<(Hash, String)> {
    let ended = |d: &str| facts.iter().any(|f| matches!(f, Fact::Out(of, _) if of == d));
    let plans = facts.iter().filter_map(|f| match f {
        Fact::Delivery(d) if d.starts_with('a') && !ended(d) => Some(format!("plan of {d}\n").repeat(20)),
        _ => None,
    });
    plans.map(|plan| (Hash::of(plan.as_bytes()), plan)).collect()
}

fn blobs(facts: &[Fact]) -> Vec<Blob> {
    let blob = |(hash, plan): (Hash, String)| Blob {
        hash,
        length: plan.len() as u64,
        source: Source::Bytes(plan.into_bytes().into()),
    };
    kept(facts).into_iter().map(blob).collect()
}

/// Puts a delivery into the inbox, then answers it.
pub(super) async fn to_inbox(vault: &Vault, port: &Port, flaw: Option<Flaw>, delivery: &str) {
    let stored = StoredDelivery {
        format: crate::vault::FORMAT,
        received: jiff::Timestamp::UNIX_EPOCH,
        headers: Vec::new(),
        body: delivery.into(),
    };
    if flaw == Some(Flaw::AckEarly) {
        port.note(Note::Ack(delivery.into()));
    }
    if inbox::store_delivery(vault, Hash::of(delivery.as_bytes()), &stored).await.is_ok() {
        port.note(Note::Ack(delivery.into()));
    }
}

/// The state that a chain holds, and a look at its kept contents.
pub(super) async fn fold(chain: &Chain) -> Result<Vec<Fact>, VaultError> {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("database");
    let mut facts = Vec::new();
    if chain.database(&file).await? {
        facts = objects::facts(&std::fs::read(&file).unwrap());
    }
    for rows in chain.rows().await? {
        facts.extend(objects::facts(&rows.rows));
    }
    Ok(facts)
}

async fn fetch(chain: &Chain, port: &Port, facts: &[Fact]) -> Result<(), VaultError> {
    let kept = kept(facts);
    if kept.is_empty() {
        return Ok(());
    }
    let place = tempfile::tempdir().unwrap();
    let path = |hash: &Hash| place.path().join("plans").join(hash.to_string());
    let wanted = kept.iter().map(|(hash, _)| Wanted { hash: *hash, path: path(hash), mode: 0o600 }).collect();
    chain.fetch(wanted, &|_| {}).await?;
    for (hash, plan) in kept {
        if std::fs::read(path(&hash)).unwrap() != plan.as_bytes() {
            port.note(Note::Wrong("a kept file came back changed".into()));
        }
    }
    Ok(())
}

/// A server while it leads.
pub(super) struct Leading<'a> {
    server: &'a Server,
    leader: Leader,
    state: RefCell<Vec<Fact>>,
    restored: BTreeSet<Fact>,
    one: Mutex<()>,
    mail: RefCell<Vec<Mail>>,
    /// Deliveries that came and are not answered.
    pub(super) hand: &'a RefCell<Vec<String>>,
    leaving: watch::Sender<bool>,
    terminated: Cell<bool>,
}

impl<'a> Leading<'a> {
    /// From the lease to the state. `None`: somebody else is faster.
    pub(super) async fn begin(
        server: &'a Server,
        hand: &'a RefCell<Vec<String>>,
        lease: crate::vault::lease::Lease,
    ) -> Result<Option<Leading<'a>>, VaultError> {
        let Some((leader, chain)) = server.vault.lead(lease).await? else { return Ok(None) };
        let position = leader.position();
        let facts = match fold(&chain).await {
            Ok(facts) => facts,
            Err(error) => {
                leader.may_act().await?;
                return Err(error);
            }
        };
        server.port.note(Note::Lead(position, facts.clone()));
        if let Err(error) = fetch(&chain, &server.port, &facts).await {
            leader.may_act().await?;
            return Err(error);
        }
        Ok(Some(Leading {
            server,
            leader,
            restored: facts.iter().cloned().collect(),
            state: RefCell::new(facts),
            one: Mutex::new(()),
            mail: RefCell::default(),
            hand,
            leaving: watch::channel(false).0,
            terminated: Cell::new(false),
        }))
    }

    fn flaw(&self, flaw: Flaw) -> bool {
        self.server.flaw == Some(flaw)
    }

    fn port(&self) -> &Port {
        &self.server.port
    }

    fn ack(&self, delivery: &str) {
        self.port().note(Note::Ack(delivery.into()));
        self.hand.borrow_mut().retain(|d| d != delivery);
    }

    fn has(&self, fact: &Fact) -> bool {
        self.state.borrow().contains(fact)
    }

    fn known(&self, delivery: &str) -> bool {
        !self.flaw(Flaw::IdsForgotten) && self.has(&Fact::Delivery(delivery.into()))
    }

    /// With the lock held: the order of facts is the order of commits.
    async fn commit_locked(&self, facts: Vec<Fact>) -> Result<(), VaultError> {
        let rows = serde_json::to_vec(&facts).unwrap().into();
        let commit = Box::pin(self.leader.commit(Changes { schema: 1, rows, blobs: blobs(&facts) }));
        let position = if self.server.hasty && self.port().random(50) == 0 {
            // Whoever waits for the commit goes away: nobody may count on anything then.
            let patience = Duration::from_millis(self.port().random(100));
            match select(commit, pin!(self.server.vault.clock.sleep(patience))).await {
                Either::Left((position, _)) => position?,
                Either::Right((_, commit)) => {
                    drop(commit);
                    self.leader.may_act().await?;
                    self.port().note(Note::Wrong("leads on after a commit was abandoned".into()));
                    return Ok(());
                }
            }
        } else {
            commit.await?
        };
        self.state.borrow_mut().extend(facts.iter().cloned());
        self.port().note(Note::Durable(position, facts));
        Ok(())
    }

    async fn commit(&self, fact: Fact) -> Result<(), VaultError> {
        let _one = self.one.lock().await;
        self.commit_locked(vec![fact]).await
    }

    /// Deliveries that reach the leader: one commit for the group, then 2xx.
    pub(super) async fn direct(&self, deliveries: &[String]) -> Result<(), VaultError> {
        self.hand.borrow_mut().extend(deliveries.iter().cloned());
        if self.flaw(Flaw::AckEarly) {
            deliveries.iter().for_each(|d| self.port().note(Note::Ack(d.clone())));
        }
        let _one = self.one.lock().await;
        let (mut new, mut wait) = (Vec::new(), Vec::new());
        for delivery in deliveries {
            let fact = Fact::Delivery(delivery.clone());
            if self.known(delivery) {
                self.ack(delivery);
            } else if new.contains(&fact) && self.flaw(Flaw::DuplicateAnsweredEarly) {
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

    /// Renews, and takes over what the list of the inbox shows.
    pub(super) async fn tick(&self) -> Result<(), VaultError> {
        let mail = self.leader.tick().await?;
        if mail.iter().any(|m| m.kind == MailKind::HandOver) {
            self.leaving.send_replace(true);
        }
        *self.mail.borrow_mut() = mail.into_iter().filter(|m| m.kind == MailKind::Delivery).collect();
        Ok(())
    }

    /// Records what the inbox holds, then deletes it there.
    pub(super) async fn drain(&self) -> Result<(), VaultError> {
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
            inbox::forget(vault, &seen).await?;
        }
        {
            let _one = self.one.lock().await;
            let new: Vec<Fact> = found.iter().filter(|d| !self.known(d)).cloned().map(Fact::Delivery).collect();
            if !new.is_empty() {
                self.commit_locked(new).await?;
            }
        }
        inbox::forget(vault, &seen).await
    }

    /// Brings each delivery to an outcome.
    pub(super) async fn work(&self) -> Result<(), VaultError> {
        let state = self.state.borrow().clone();
        for fact in &state {
            let Fact::Delivery(d) = fact else { continue };
            if [How::Fine, How::Interrupted].iter().any(|how| self.has(&Fact::Out(d.clone(), *how))) {
                continue;
            }
            let mut how = How::Fine;
            if d.starts_with('a') {
                let apply = Fact::Apply(d.clone());
                if self.has(&apply) && !self.flaw(Flaw::ApplyRepeated) {
                    how = How::Interrupted;
                } else {
                    if self.flaw(Flaw::SpawnBeforeCommit) {
                        self.port().ask(Op::Spawn(d.as_str().into())).await;
                    }
                    if !self.has(&apply) {
                        self.commit(apply).await?;
                    }
                    if !self.flaw(Flaw::SpawnBeforeCommit) {
                        self.leader.may_act().await?;
                        self.port().ask(Op::Spawn(d.as_str().into())).await;
                    }
                }
            }
            if self.flaw(Flaw::CommentBeforeCommit) {
                self.port().ask(Op::Post(d.as_str().into())).await;
            }
            self.commit(Fact::Out(d.clone(), how)).await?;
            if *self.leaving.borrow() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Lists for the marker, posts, marks.
    pub(super) async fn outbox(&self) -> Result<(), VaultError> {
        let state = self.state.borrow().clone();
        let mut outcomes = 0;
        for fact in &state {
            let Fact::Out(d, _) = fact else { continue };
            outcomes += 1;
            if self.has(&Fact::Done(d.clone())) {
                continue;
            }
            if self.flaw(Flaw::MarkedFirst) {
                self.commit(Fact::Done(d.clone())).await?;
            }
            let posted = self.post(d).await?;
            self.leader.may_act().await?;
            self.port().ask(Op::SetStatus(outcomes)).await;
            if posted && !self.flaw(Flaw::MarkedFirst) {
                self.commit(Fact::Done(d.clone())).await?;
            }
            if *self.leaving.borrow() {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn post(&self, delivery: &str) -> Result<bool, VaultError> {
        for _ in 0..TRIES {
            match self.port().ask(Op::Comments(delivery.into())).await {
                Reply::Comments(ids) if !ids.is_empty() => return Ok(true),
                Reply::Comments(_) => {}
                _ => continue,
            }
            if self.flaw(Flaw::CommentBeforeCommit) {
                return Ok(true);
            }
            self.leader.may_act().await?;
            match self.port().ask(Op::Post(delivery.into())).await {
                Reply::Lost if self.flaw(Flaw::MarkedFirst) => return Ok(true),
                Reply::Lost => {}
                _ => return Ok(true),
            }
        }
        Ok(false)
    }

    /// Statuses that differ are set again, second comments deleted.
    async fn sweep(&self) -> Result<(), VaultError> {
        let state = self.state.borrow().clone();
        let outcomes = state.iter().filter(|f| matches!(f, Fact::Out(..))).count() as u64;
        let done: Vec<&String> =
            state.iter().filter_map(|f| if let Fact::Done(d) = f { Some(d) } else { None }).collect();
        if let Reply::Status(there) = self.port().ask(Op::Status).await
            && there != outcomes
            && done.len() as u64 == outcomes
        {
            self.leader.may_act().await?;
            self.port().ask(Op::SetStatus(outcomes)).await;
        }
        for delivery in done {
            if let Reply::Comments(ids) = self.port().ask(Op::Comments(delivery.as_str().into())).await {
                let lowest = ids.iter().min().copied();
                for id in ids.into_iter().filter(|id| Some(*id) != lowest) {
                    self.port().ask(Op::DeleteComment(id)).await;
                }
            }
        }
        Ok(())
    }

    /// Writes a base of the present state; commits may go on meanwhile.
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

    pub(super) async fn release(&self) -> Result<(), VaultError> {
        self.leader.release().await
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
            unless_unavailable(self.drain().await)?;
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

    async fn ticker(&self) -> Result<(), VaultError> {
        loop {
            unless_unavailable(self.tick().await)?;
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
                    self.port().note(Note::Alarm(error.to_string()));
                }
                kept => kept?,
            }
        }
    }

    /// Acts outside all the time, where that is looked at.
    async fn actor(&self) -> Result<(), VaultError> {
        if !self.server.eager {
            std::future::pending::<()>().await;
        }
        loop {
            self.server.vault.clock.sleep(Duration::from_millis(100)).await;
            self.leader.may_act().await?;
            self.port().ask(Op::Act).await;
        }
    }

    /// Until it has to go.
    async fn run(&self) -> Result<(), VaultError> {
        let main = pin!(try_join(self.intake(), self.worker()));
        let side = pin!(try_join(try_join(self.ticker(), self.keeper()), self.actor()));
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

/// The bucket may be asked again later; only this is no reason to stop.
fn unless_unavailable(result: Result<(), VaultError>) -> Result<(), VaultError> {
    match result {
        Err(VaultError::Bucket(_)) => Ok(()),
        result => result,
    }
}

/// A whole server, from its start to its end.
pub(super) async fn whole(server: Server, ask: bool) {
    let hand = RefCell::new(Vec::<String>::new());
    let (vault, port) = (&server.vault, &server.port);
    let mut ask = ask;
    loop {
        for delivery in hand.take() {
            to_inbox(vault, port, server.flaw, &delivery).await;
        }
        let mut standby = pin!(stand_by(&server));
        let lease = match select(pin!(vault.acquire(ask)), standby.as_mut()).await {
            Either::Left((Ok(lease), _)) => lease,
            Either::Left((Err(error), _)) => match error {
                VaultError::Bucket(_) | VaultError::Deposed(_) => {
                    vault.clock.sleep(vault.timing.poll).await;
                    continue;
                }
                error => return port.note(Note::Stopped(error.to_string())),
            },
            Either::Right(_) => return,
        };
        ask = false;
        let led = match select(pin!(Leading::begin(&server, &hand, lease)), standby).await {
            Either::Left((led, _)) => led,
            Either::Right(_) => return,
        };
        let ended = match led {
            Ok(None) => continue,
            Ok(Some(leading)) => match leading.run().await {
                Ok(()) => {
                    let _ = leading.release().await;
                    port.note(Note::Released);
                    for delivery in hand.take() {
                        to_inbox(vault, port, server.flaw, &delivery).await;
                    }
                    if leading.terminated.get() {
                        return;
                    }
                    let rest = pin!(vault.clock.sleep(vault.timing.poll * 6));
                    if let Either::Left(_) = select(pin!(stand_by(&server)), rest).await {
                        return;
                    }
                    continue;
                }
                Err(error) => error,
            },
            Err(error) => error,
        };
        match ended {
            VaultError::Deposed(why) => port.note(Note::Deposed(why)),
            VaultError::Bucket(error) => port.note(Note::Deposed(error.to_string())),
            error => return port.note(Note::Stopped(error.to_string())),
        }
    }
}

/// Takes deliveries into the inbox until it is told to go.
async fn stand_by(server: &Server) {
    while let Post::Delivery(delivery) = server.port.mail().await {
        to_inbox(&server.vault, &server.port, server.flaw, &delivery).await;
    }
}

/// Reads the newest state again and again, without the lease.
pub(super) async fn reader(server: Server) {
    let (vault, port) = (&server.vault, &server.port);
    loop {
        vault.clock.sleep(Duration::from_secs(4)).await;
        let read = async {
            let chain = vault.read(None).await?;
            let position = chain.position;
            Ok::<_, VaultError>((position, fold(&chain).await?))
        };
        match read.await {
            Ok((position, facts)) => port.note(Note::Read(position, facts)),
            Err(VaultError::Bucket(_)) => {}
            Err(error) => port.note(Note::Stopped(format!("reader: {error}"))),
        }
    }
}
