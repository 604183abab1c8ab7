//! The end of a trial: waits until all is at rest, and records what is there then.

use super::owners::waiting_in_vain;
use super::player::{LOOK, Play, REST};
use super::trace::{Applied, Event, Locking, Owned};
use std::collections::BTreeMap;
use std::time::Instant;
use tidelock_forge::Pull;

impl Play {
    /// Waits until nothing runs, no comment comes, and no status changes.
    pub(super) async fn rest(&self, url: &str) {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let (began, mut seen, mut since) = (Instant::now(), (0, BTreeMap::new()), Instant::now());
        while since.elapsed() < REST && began.elapsed() < self.patience {
            tokio::time::sleep(LOOK).await;
            let busy = match client.get(format!("{url}/status")).send().await {
                Ok(answer) => match answer.text().await.map(|text| serde_json::from_str::<serde_json::Value>(&text)) {
                    Ok(Ok(status)) => status["in_progress_operations"] != 0,
                    _ => true,
                },
                Err(_) => true,
            };
            let pulls = self.repo.pulls().unwrap();
            let comments: usize = pulls.iter().map(|pull| pull.bot_comments().unwrap().len()).sum();
            let states = pulls
                .iter()
                .flat_map(|pull| states(pull).into_iter().map(|(name, state)| ((pull.number(), name), state)));
            let now = (comments, states.collect());
            if busy || now != seen {
                (seen, since) = (now, Instant::now());
            }
        }
        for pull in self.repo.pulls().unwrap() {
            self.read(&pull);
        }
    }

    /// In mode `strict`, records the owners when everybody who waits for a free project has had a turn.
    pub(super) async fn turns(&self, url: &str) {
        if self.locking != Locking::Strict {
            return;
        }
        let began = Instant::now();
        loop {
            let owned = owned(url).await;
            let is_done = {
                let mut trace = self.trace.lock().unwrap();
                trace.owned = owned;
                waiting_in_vain(&trace).is_empty()
            };
            if is_done || began.elapsed() > self.patience {
                return;
            }
            self.rest(url).await;
        }
    }

    /// Records the comments that still exist, the statuses of open pull requests, and the applies.
    pub(super) fn look_at_the_end(&self) {
        let pulls = self.repo.pulls().unwrap();
        let there: Vec<u64> =
            pulls.iter().flat_map(|pull| pull.bot_comments().unwrap()).map(|comment| comment.id).collect();
        let statuses: Vec<(u64, String, String)> = pulls
            .iter()
            .filter(|pull| pull.is_open().unwrap())
            .flat_map(|pull| states(pull).into_iter().map(|(context, state)| (pull.number(), context, state)))
            .collect();
        let heads = pulls.iter().map(|pull| (pull.number(), pull.head_commit().unwrap())).collect();
        let mut trace = self.trace.lock().unwrap();
        trace.statuses = statuses;
        trace.heads = heads;
        // A duplicate comment that was deleted again is no second answer.
        trace.events.retain(|event| !matches!(event, Event::Answered { id, .. } if !there.contains(id)));
        self.read_runs(&mut trace);
        let applied = |event: &Event| match event {
            Event::Ran { is_apply: true, pull, dir, plan } => {
                Some(Applied { pull: *pull, dir: dir.clone(), plan: plan.clone() })
            }
            _ => None,
        };
        trace.applied = trace.events.iter().filter_map(applied).collect();
    }
}

/// Returns the rows of `/api/locks`.
async fn owned(url: &str) -> Vec<Owned> {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let text = client.get(format!("{url}/api/locks")).send().await.unwrap().text().await.unwrap();
    let all: serde_json::Value = serde_json::from_str(&text).unwrap();
    let word = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let row = |row: &serde_json::Value| Owned {
        pull: word(&row["PullID"]).parse().unwrap(),
        dir: word(&row["ProjectRepoPath"]),
        state: word(&row["State"]),
    };
    all["Locks"].as_array().into_iter().flatten().map(row).collect()
}

/// Returns contexts and states of a head's statuses.
fn states(pull: &Pull) -> BTreeMap<String, String> {
    pull.statuses().unwrap().into_iter().map(|(context, status)| (context, status.state)).collect()
}
