//! After a kill at any moment, a restarted server has all acknowledged changes.

use super::*;
use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

/// Variable that tells a second process of this test binary that it is to be killed, and names its data directory.
const VICTIM: &str = "TIDELOCK_TEST_STORE_VICTIM";

/// Number of concurrent callers.
const CALLERS: usize = 8;

/// Accepts deliveries until this process is killed, and prints each durable one.
async fn accept_until_killed(dir: &Path, round: &str) {
    let store = Store::open(dir).unwrap();
    let callers = (0..CALLERS).map(|caller| {
        let (store, round) = (store.clone(), round.to_owned());
        tokio::spawn(async move {
            for number in 0.. {
                let identity = format!("{round}-{caller}-{number}");
                let named = identity.clone();
                assert!(store.write(move |tx| tx.accept_delivery(&delivery(&named))).await.unwrap());
                // One write for each line, so that lines of concurrent callers do not mix.
                std::io::stdout().write_all(format!("durable {identity}\n").as_bytes()).unwrap();
            }
        })
    });
    futures::future::join_all(callers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_sigkill() {
    if let Ok(place) = std::env::var(VICTIM) {
        let (dir, round) = place.rsplit_once(':').unwrap();
        return accept_until_killed(Path::new(dir), round).await;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut durable = HashSet::new();
    for round in 0..6 {
        let mut random = [0u8; 1];
        getrandom::fill(&mut random).unwrap();
        let kill_after = usize::from(random[0]);
        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tests::crash::what_was_acknowledged_survives_sigkill", "--nocapture"])
            .env(VICTIM, format!("{}:{round}", dir.path().display()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut seen = 0;
        for line in BufReader::new(victim.stdout.take().unwrap()).lines() {
            if let Some((_, identity)) = line.unwrap().split_once("durable ") {
                durable.insert(identity.to_owned());
                seen += 1;
                if seen == kill_after + 1 {
                    victim.kill().unwrap();
                }
            }
        }
        assert!(!victim.wait().unwrap().success() && seen > kill_after, "it ended by itself");

        let store = Store::open(dir.path()).unwrap();
        let kept: HashSet<String> = identities(&store).await.into_iter().collect();
        let lost: Vec<_> = durable.difference(&kept).collect();
        assert!(lost.is_empty(), "round {round}: {} of {} are lost: {lost:?}", lost.len(), durable.len());
        let check = |view: &View<'_>| -> Result<String> {
            Ok(view.connection.query_row("PRAGMA integrity_check", [], |row| row.get(0))?)
        };
        assert_eq!(store.read(check).await.unwrap(), "ok");
        store.close().await.unwrap();
    }
}
