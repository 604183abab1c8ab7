//! Accepted deliveries: identities that are known already, and deliveries that are not done.

use super::{Tx, View, json, micros, parse, word};
use anyhow::{Result, bail, ensure};
use jiff::Timestamp;
use rusqlite::{OptionalExtension, params};
use tidelock_core::domain::state::{Cause, Delivery, DeliveryState};
use tidelock_core::domain::{DeliveryId, PullId};

impl View<'_> {
    /// Returns true if a delivery of this identity was accepted, done or not.
    pub fn knows_delivery(&self, identity: &DeliveryId) -> Result<bool> {
        Ok((self.connection)
            .prepare_cached("SELECT 1 FROM deliveries WHERE identity = ?1")?
            .exists([identity.as_str()])?)
    }

    /// Returns the outcome of a delivery; absent as long as it is not done.
    pub fn outcome_of_delivery(&self, identity: &DeliveryId) -> Result<Option<String>> {
        let outcome = (self.connection)
            .prepare_cached("SELECT outcome FROM deliveries WHERE identity = ?1 AND finished IS NOT NULL")?
            .query_row([identity.as_str()], |row| row.get(0));
        Ok(outcome.optional()?)
    }

    /// Returns the identity of an accepted delivery, done or not, that begins with `start`.
    pub fn delivery_beginning(&self, start: &str) -> Result<Option<DeliveryId>> {
        // `~` sorts after all other characters of an identity.
        let found = (self.connection)
            .prepare_cached("SELECT identity FROM deliveries WHERE identity > ?1 AND identity < ?1 || '~' LIMIT 1")?
            .query_row([start], |row| row.get(0));
        Ok(found.optional()?.map(DeliveryId::new))
    }

    /// Returns accepted deliveries that are not done, in the order of their acceptance.
    pub fn unfinished_deliveries(&self) -> Result<Vec<(Delivery, DeliveryState)>> {
        let mut statement = (self.connection)
            .prepare_cached("SELECT record, state FROM deliveries WHERE finished IS NULL ORDER BY seq")?;
        let mut rows = statement.query([])?;
        let mut deliveries = Vec::new();
        while let Some(row) = rows.next()? {
            let state = match row.get_ref(1)?.as_str()? {
                "queued" => DeliveryState::Queued,
                "running" => DeliveryState::Running,
                other => bail!("a delivery has the unknown state {other}"),
            };
            deliveries.push((parse(row.get_ref(0)?.as_str()?)?, state));
        }
        Ok(deliveries)
    }

    /// Returns true if an accepted delivery or an automatic re-plan of a pull request is not done yet.
    pub fn has_unfinished_work(&self, pull: &PullId) -> Result<bool> {
        let unfinished = self.unfinished_deliveries()?;
        let is_of_delivery = unfinished.iter().any(|(delivery, _)| delivery.event.pull_id() == Some(pull));
        Ok(is_of_delivery || !self.replans_of(pull)?.is_empty())
    }
}

impl Tx<'_> {
    /// Records a delivery as queued. Returns false if its identity is known already, done or not.
    pub fn accept_delivery(&self, delivery: &Delivery) -> Result<bool> {
        let added = self.execute(
            "INSERT INTO deliveries (identity, host_id, state, received, record) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (identity) DO NOTHING",
            params![
                delivery.identity.as_str(),
                delivery.host_id,
                word(&DeliveryState::Queued)?,
                micros(delivery.received),
                json(delivery)?
            ],
        )?;
        Ok(added == 1)
    }

    /// Changes the state of a delivery. Done is final: its outcome text may still change, but it is never queued or run
    /// again. Its record is dropped then, and its runs are ended. Fails for an unknown identity.
    pub fn set_delivery_state(&self, identity: &DeliveryId, state: DeliveryState, outcome: &str) -> Result<()> {
        let changed = match state {
            DeliveryState::Done => self.execute(
                "UPDATE deliveries SET state = ?2, outcome = ?3, finished = coalesce(finished, ?4), record = NULL
                 WHERE identity = ?1",
                params![identity.as_str(), word(&state)?, outcome, micros(Timestamp::now())],
            )?,
            DeliveryState::Queued | DeliveryState::Running => self.execute(
                "UPDATE deliveries SET state = ?2, outcome = ?3 WHERE identity = ?1 AND finished IS NULL",
                params![identity.as_str(), word(&state)?, outcome],
            )?,
        };
        ensure!(
            changed == 1,
            "the delivery {identity} cannot become {}: it is unknown, or done already",
            word(&state)?
        );
        if state == DeliveryState::Done {
            self.signals.delivery_finished.set(true);
            self.end_runs_of(&Cause::Delivery(identity.clone()))?;
        }
        Ok(())
    }
}
