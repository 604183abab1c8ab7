//! A small pool of read-only connections, used off the async threads.

use super::{CLOSED, View, schema};
use anyhow::{Context, Result, anyhow};
use rusqlite::Connection;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Semaphore;

/// Maximum number of concurrent reads; further ones wait.
const READERS: u32 = 2;

/// A pool of connections, which are opened at their first use.
pub(super) struct Readers {
    path: PathBuf,
    turns: Arc<Semaphore>,
    idle: Arc<Mutex<Vec<Connection>>>,
}

impl Readers {
    pub(super) fn new(path: PathBuf) -> Readers {
        Readers { path, turns: Arc::new(Semaphore::new(READERS as usize)), idle: Arc::default() }
    }

    /// Runs a query on one committed state.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&View<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let turn = self.turns.clone().acquire_owned().await.map_err(|_| anyhow!(CLOSED))?;
        let idle = self.idle.clone();
        let path = self.path.clone();
        let work = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let kept = lock(&idle).pop();
            let connection = kept.map_or_else(|| schema::open_reader(&path), Ok)?;
            connection.execute_batch("BEGIN")?;
            // A panic drops the connection, and the caller gets an error.
            let result = query(&View { connection: &connection });
            connection.execute_batch("ROLLBACK")?;
            lock(&idle).push(connection);
            result
        });
        work.await.context("a query of the state panicked")?
    }

    /// Waits for running queries and closes all connections.
    pub(super) async fn close(&self) {
        if let Ok(turns) = self.turns.acquire_many(READERS).await {
            self.turns.close();
            lock(&self.idle).clear();
            drop(turns);
        }
    }
}

fn lock(idle: &Mutex<Vec<Connection>>) -> std::sync::MutexGuard<'_, Vec<Connection>> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}
