//! Time of a commit on the full state against one on an empty state, in turns.

use crate::machine::median;
use crate::place;
use crate::records::digits;
use crate::report::Report;
use anyhow::{Result, ensure};
use jiff::Timestamp;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidelock_core::domain::state::{AuditEntry, Delivery};
use tidelock_core::domain::{CommentEvent, DeliveryId, Event, Login, PullId, RepoId};
use tidelock_store::Store;
use tidelock_vault::Retention;
use tidelock_vault::directory::Directory;

/// Turns, and commits in each.
const TURNS: usize = 20;
const COMMITS: usize = 100;
/// Limit of the time on the full state, as a multiple of that on the empty one.
const BOUND: f64 = 1.2;

pub(crate) async fn measure(report: &mut Report, bucket: &Path, dir: &Path) -> Result<()> {
    let began = Instant::now();
    let lead = async |bucket: &Path, to: &str| {
        place::lead(Arc::new(Directory::open(bucket)?), &dir.join(to), Retention::default()).await
    };
    let (_full_leader, full) = lead(bucket, "full").await?;
    report.line(&format!("a leader with an empty disk has the state after {:.1} s", began.elapsed().as_secs_f64()))?;
    let (_empty_leader, empty) = lead(&dir.join("empty-bucket"), "empty").await?;
    for (what, commit) in [("a delivery", delivery as MeasuredCommit), ("an audit entry", audit)] {
        let (mut on_full, mut on_empty) = (Vec::new(), Vec::new());
        for turn in 0..TURNS {
            for (store, times) in [(&full, &mut on_full), (&empty, &mut on_empty)] {
                for number in 0..COMMITS {
                    let began = Instant::now();
                    commit(store, turn * COMMITS + number).await?;
                    times.push(began.elapsed());
                }
            }
        }
        let (on_full, on_empty): (Duration, Duration) = (median(on_full), median(on_empty));
        let ratio = on_full.as_secs_f64() / on_empty.as_secs_f64();
        report.bound(
            ratio <= BOUND,
            &format!("a commit of {what}: {on_full:.0?}, {on_empty:.0?} on an empty state: {ratio:.2} times (at most {BOUND})"),
        )?;
    }
    full.close().await?;
    empty.close().await
}

type MeasuredCommit = fn(&Store, usize) -> futures::future::BoxFuture<'static, Result<()>>;

fn delivery(store: &Store, number: usize) -> futures::future::BoxFuture<'static, Result<()>> {
    let (store, identity) = (store.clone(), DeliveryId::new(digits(50, number, 64)));
    let repo = RepoId { host: "github.example.com".into(), owner: "acme".into(), name: "platform".into() };
    let comment = CommentEvent {
        pull: PullId { repo, number: 1 },
        clone_url: "https://github.example.com/acme/platform.git".into(),
        comment_id: 7,
        author: Login::new("alice"),
        body: "atlantis plan".into(),
    };
    let (received, event) = (Timestamp::now(), Event::Comment(comment));
    let delivery = Delivery { identity, host_id: "0-1-2".into(), received, event };
    Box::pin(async move {
        ensure!(store.write(move |tx| tx.accept_delivery(&delivery)).await?, "it was known");
        Ok(())
    })
}

fn audit(store: &Store, number: usize) -> futures::future::BoxFuture<'static, Result<()>> {
    let store = store.clone();
    let pull = crate::records::pull_id(number);
    let entry = AuditEntry {
        at: Timestamp::now(),
        who: crate::records::person(number),
        act: "apply".into(),
        subject: format!("live of {pull} at {}", digits(51, number, 40)),
        result: "applied: 1 added, 2 changed, 0 destroyed".into(),
        pull: Some(pull),
        project: Some("live/default".into()),
        commit: Some(digits(51, number, 40).into()),
        plan: Some(digits(52, number, 64)),
        request: Some(digits(53, number, 64)),
        ..AuditEntry::default()
    };
    Box::pin(async move { store.write(move |tx| tx.audit(&entry)).await })
}
