//! The outbox: what is to be done on hosts, in order.

use super::{Tx, View, json, micros, parse, rows};
use crate::domain::PullId;
use crate::domain::state::{NewEffect, PendingEffect};
use anyhow::{Result, ensure};
use jiff::Timestamp;
use rusqlite::{Params, params};

impl View<'_> {
    /// Effects that are still to be done, of one pull request or of all; in the order they were enqueued.
    pub fn pending_effects(&self, pull: Option<&PullId>, limit: usize) -> Result<Vec<PendingEffect>> {
        match pull {
            Some(pull) => self.effects(
                "SELECT id, attempts, record FROM effects WHERE done IS NULL AND pull = ?2 ORDER BY id LIMIT ?1",
                params![rows(limit), pull.to_string()],
            ),
            None => self.effects(
                "SELECT id, attempts, record FROM effects WHERE done IS NULL ORDER BY id LIMIT ?1",
                params![rows(limit)],
            ),
        }
    }

    fn effects(&self, sql: &str, params: impl Params) -> Result<Vec<PendingEffect>> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query(params)?;
        let mut effects = Vec::new();
        while let Some(row) = rows.next()? {
            let NewEffect { pull, effect } = parse(row.get_ref(2)?.as_str()?)?;
            effects.push(PendingEffect { id: row.get(0)?, attempts: row.get(1)?, pull, effect });
        }
        Ok(effects)
    }
}

impl Tx<'_> {
    /// Puts an effect behind all others; its id is greater than any before, also of those that are gone.
    pub fn enqueue(&self, effect: &NewEffect) -> Result<i64> {
        self.execute(
            "INSERT INTO effects (pull, record) VALUES (?1, ?2)",
            params![effect.pull.to_string(), json(effect)?],
        )?;
        Ok(self.connection.last_insert_rowid())
    }

    /// Counts a try. An effect that is not pending is an error: it must not be tried.
    pub fn effect_tried(&self, id: i64) -> Result<()> {
        let changed =
            self.execute("UPDATE effects SET attempts = attempts + 1 WHERE id = ?1 AND done IS NULL", [id])?;
        ensure!(changed == 1, "the effect {id} is not pending: it was done or given up");
        Ok(())
    }

    /// Takes an effect out of the outbox, done or given up; the note says how. Again: the first note stays.
    pub fn effect_done(&self, id: i64, note: &str) -> Result<()> {
        self.execute(
            "UPDATE effects SET done = ?2, note = ?3, record = NULL WHERE id = ?1 AND done IS NULL",
            params![id, micros(Timestamp::now()), note],
        )?;
        Ok(())
    }
}
