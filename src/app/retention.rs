//! Deletes expired records: soon after this server takes the lead, and then at intervals, each time until nothing is left to delete.

use super::lead::complain;
use crate::store::Store;
use crate::store::logs::Logs;
use crate::store::retention::remove_errored;
use anyhow::Result;
use jiff::Timestamp;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Pause after taking the lead: work that people wait for goes first.
const FIRST: Duration = Duration::from_secs(120);
/// Interval between two sweeps.
const INTERVAL: Duration = Duration::from_secs(6 * 3600);
/// Pause between two parts of one sweep: other commits go in between.
const BREATH: Duration = Duration::from_millis(500);

/// Sweeps as long as this server leads.
pub(super) async fn run(store: Store, logs: Logs, data_dir: PathBuf) {
    sweeps(store, logs, data_dir, FIRST, BREATH).await;
}

async fn sweeps(store: Store, logs: Logs, data_dir: PathBuf, first: Duration, breath: Duration) {
    for pause in std::iter::once(first).chain(std::iter::repeat(INTERVAL)) {
        tokio::time::sleep(pause).await;
        complain("old records could not be dropped", sweep_with(&store, &logs, &data_dir, breath).await);
    }
}

/// Deletes expired records until none is left.
pub(super) async fn sweep(store: &Store, logs: &Logs, data_dir: &Path) -> Result<()> {
    sweep_with(store, logs, data_dir, BREATH).await
}

async fn sweep_with(store: &Store, logs: &Logs, data_dir: &Path, breath: Duration) -> Result<()> {
    loop {
        let pruned = store.write(|tx| tx.prune(Timestamp::now())).await?;
        for job in &pruned.jobs {
            logs.remove(job);
        }
        for job in &pruned.errored {
            remove_errored(data_dir, job);
        }
        if !pruned.more {
            return Ok(());
        }
        tokio::time::sleep(breath).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::state::AuditEntry;

    #[tokio::test]
    async fn what_is_old_goes_in_the_first_sweep_and_all_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let many = 12_000;
        let fill = move |tx: &crate::store::Tx<'_>| -> Result<()> {
            let entry = AuditEntry { at: Timestamp::UNIX_EPOCH, ..AuditEntry::default() };
            (0..many).try_for_each(|_| tx.audit(&entry))
        };
        store.write(fill).await.unwrap();
        assert_eq!(store.read(|view| view.audit_log(20_000)).await.unwrap().len(), many);
        let (moment, logs) = (Duration::from_millis(1), Logs::new(dir.path()));
        let keeping = tokio::spawn(sweeps(store.clone(), logs, dir.path().to_owned(), moment, moment));
        let swept = async {
            while !store.read(|view| view.audit_log(1)).await.unwrap().is_empty() {
                tokio::time::sleep(moment).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), swept).await.expect("the first sweep leaves something");
        keeping.abort();
    }
}
