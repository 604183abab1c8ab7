//! Notifications that have not been sent yet, in order. A row is deleted once its message is sent or given up.

use super::{Tx, View, json, parse, rows};
use anyhow::Result;
use jiff::Timestamp;
use rusqlite::params;
use serde::{Deserialize, Serialize};
use tidelock_core::domain::notification::Notification;

/// A notification as its row holds it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PendingNotification {
    /// Number of its row.
    #[serde(skip)]
    pub row: i64,
    /// Time at which it was recorded.
    pub at: Timestamp,
    /// Message and receiver.
    pub notification: Notification,
}

impl View<'_> {
    /// Returns the names of all receivers with pending notifications.
    pub fn notified_receivers(&self) -> Result<Vec<String>> {
        let mut statement = self.connection.prepare_cached("SELECT DISTINCT receiver FROM notifications")?;
        let found = statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
        Ok(found)
    }

    /// Returns the pending notifications of a receiver, in the order in which they were recorded.
    pub fn notifications_to(&self, receiver: &str, limit: usize) -> Result<Vec<PendingNotification>> {
        let mut statement = self
            .connection
            .prepare_cached("SELECT id, record FROM notifications WHERE receiver = ?1 ORDER BY id LIMIT ?2")?;
        let mut found = statement.query(params![receiver, rows(limit)])?;
        let mut pending = Vec::new();
        while let Some(row) = found.next()? {
            let record: PendingNotification = parse(row.get_ref(1)?.as_str()?)?;
            pending.push(PendingNotification { row: row.get(0)?, ..record });
        }
        Ok(pending)
    }
}

impl Tx<'_> {
    /// Records a notification to send.
    pub fn notify(&self, notification: &Notification) -> Result<()> {
        let record = PendingNotification { row: 0, at: Timestamp::now(), notification: notification.clone() };
        self.execute(
            "INSERT INTO notifications (receiver, record) VALUES (?1, ?2)",
            params![notification.receiver, json(&record)?],
        )?;
        Ok(())
    }

    /// Deletes a notification that was sent or given up.
    pub fn notification_done(&self, row: i64) -> Result<()> {
        self.execute("DELETE FROM notifications WHERE id = ?1", [row])?;
        Ok(())
    }

    /// Drops all pending notifications of a receiver and returns their number.
    pub fn forget_receiver(&self, receiver: &str) -> Result<usize> {
        self.execute("DELETE FROM notifications WHERE receiver = ?1", [receiver])
    }
}
