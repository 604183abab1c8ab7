//! A small server on the real vault: `dispatch`, `store` and `reply`, reduced to deliveries, applies and comments.

use super::leading::Leading;
use super::objects;
use super::port::{Mail as Post, Port};
use super::world::{Fact, Note};
use super::{Flaw, Server};
use crate::chain::{self, Chain, WantedFile};
use crate::inbox::{self, StoredDelivery};
use crate::{Blob, Hash, Source, VaultError, lease};
use futures::future::{Either, select};
use std::cell::RefCell;
use std::pin::pin;
use std::time::Duration;

/// Returns the contents that a state needs: an apply's plan, from its delivery to its outcome.
fn kept(facts: &[Fact]) -> Vec<(Hash, String)> {
    let ended = |d: &str| facts.iter().any(|f| matches!(f, Fact::Out(of, _) if of == d));
    let plans = facts.iter().filter_map(|f| match f {
        Fact::Delivery(d) if d.starts_with('a') && !ended(d) => Some(format!("plan of {d}\n").repeat(20)),
        _ => None,
    });
    plans.map(|plan| (Hash::of(plan.as_bytes()), plan)).collect()
}

pub(super) fn blobs(facts: &[Fact]) -> Vec<Blob> {
    let blob = |(hash, plan): (Hash, String)| Blob {
        hash,
        length: plan.len() as u64,
        source: Source::Bytes(plan.into_bytes().into()),
    };
    kept(facts).into_iter().map(blob).collect()
}

/// Stores a delivery in the inbox, then answers it.
pub(super) async fn to_inbox(server: &Server, delivery: &str) {
    let Server { vault, protocol, port, flaw, .. } = server;
    let flaw = *flaw;
    let stored = StoredDelivery {
        format: crate::FORMAT,
        received: jiff::Timestamp::UNIX_EPOCH,
        headers: Vec::new(),
        body: delivery.into(),
        key: None,
    };
    if flaw == Some(Flaw::AckEarly) {
        port.report(Note::Ack(delivery.into()));
    }
    if inbox::store_delivery_as(vault, protocol, Hash::of(delivery.as_bytes()), &stored).await.is_ok() {
        port.report(Note::Ack(delivery.into()));
    }
}

/// Reads the state of a chain.
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

pub(super) async fn fetch(chain: &Chain, port: &Port, facts: &[Fact]) -> Result<(), VaultError> {
    let kept = kept(facts);
    if kept.is_empty() {
        return Ok(());
    }
    let place = tempfile::tempdir().unwrap();
    let path = |hash: &Hash| place.path().join("plans").join(hash.to_string());
    let wanted = kept.iter().map(|(hash, _)| WantedFile { hash: *hash, path: path(hash), mode: 0o600 }).collect();
    chain.fetch(wanted, &|_| {}).await?;
    for (hash, plan) in kept {
        if std::fs::read(path(&hash)).unwrap() != plan.as_bytes() {
            port.report(Note::Wrong("a kept file came back changed".into()));
        }
    }
    Ok(())
}

/// Runs a whole server, from its start to its end.
pub(super) async fn whole(server: Server, ask: bool) {
    let hand = RefCell::new(Vec::<String>::new());
    let (vault, port) = (&server.vault, &server.port);
    let (mut ask, mut kept) = (ask, None);
    loop {
        for delivery in hand.take() {
            to_inbox(&server, &delivery).await;
        }
        let mut standby = pin!(stand_by(&server));
        let acquiring = async {
            match ask {
                true => lease::acquire_asking(vault, server.protocol).await,
                false => lease::acquire(vault, server.protocol).await,
            }
        };
        let lease = match select(pin!(acquiring), standby.as_mut()).await {
            Either::Left((Ok(lease), _)) => lease,
            Either::Left((Err(error), _)) => match error {
                VaultError::Bucket(_) | VaultError::Deposed(_) => {
                    vault.clock.sleep(vault.timing.poll).await;
                    continue;
                }
                error => return port.report(Note::Stopped(error.to_string())),
            },
            Either::Right(_) => return,
        };
        ask = false;
        let led = match select(pin!(Leading::begin(&server, &hand, lease, kept.take())), standby).await {
            Either::Left((led, _)) => led,
            Either::Right(_) => return,
        };
        let ended = match led {
            Ok(None) => continue,
            Ok(Some(leading)) => match leading.run().await {
                Ok(()) => {
                    kept = leading.release().await.ok().flatten();
                    port.report(Note::Released);
                    for delivery in hand.take() {
                        to_inbox(&server, &delivery).await;
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
            VaultError::Deposed(why) => port.report(Note::Deposed(why)),
            VaultError::Bucket(error) => port.report(Note::Deposed(error.to_string())),
            error => return port.report(Note::Stopped(error.to_string())),
        }
    }
}

/// Stores deliveries in the inbox until the signal to end.
async fn stand_by(server: &Server) {
    while let Post::Delivery(delivery) = server.port.mail().await {
        to_inbox(server, &delivery).await;
    }
}

/// Reads the newest state every four seconds, without the lease.
pub(super) async fn reader(server: Server) {
    let (vault, port) = (&server.vault, &server.port);
    loop {
        vault.clock.sleep(Duration::from_secs(4)).await;
        let read = async {
            let chain = chain::read(&vault.calls(), &server.protocol, None).await?;
            let position = chain.position;
            Ok::<_, VaultError>((position, fold(&chain).await?))
        };
        match read.await {
            Ok((position, facts)) => port.report(Note::Read(position, facts)),
            Err(VaultError::Bucket(_)) => {}
            Err(error) => port.report(Note::Stopped(format!("reader: {error}"))),
        }
    }
}
