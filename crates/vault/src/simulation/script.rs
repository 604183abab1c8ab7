//! Scenarios for the search over all schedules: a few servers, each with a short script.

use super::Server;
use super::leading::Leading;
use super::server::to_inbox;
use super::world::Note;
use crate::{VaultError, lease};
use std::cell::RefCell;

/// One step of a scripted server.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step {
    Acquire,
    Restore,
    /// Start of the search; all steps before it are done by then.
    Ready,
    Direct(&'static [&'static str]),
    Inbox(&'static [&'static str]),
    Tick,
    RecordInbox,
    Work,
    Outbox,
    Base,
    Collect,
    Release,
}

use Step::{Acquire, Base, Collect, Direct, Inbox, Outbox, Ready, RecordInbox, Release, Restore, Tick, Work};

/// A server's name and its steps.
pub(super) type Script = (&'static str, Vec<Step>);

pub(super) const SCENARIOS: [&str; 13] = [
    "fence", "stale", "starters", "fresh", "inbox", "dup", "apply", "release", "asleep", "base", "gcread", "stray",
    "twice",
];

/// Returns the servers of a scenario. A server with the step `Ready` is the old leader `A`.
pub(super) fn scenario(name: &str) -> Vec<Script> {
    let start = |rest: &[Step]| [&[Acquire, Restore], rest].concat();
    let old = |rest: &[Step]| ("A", start(&[&[Ready], rest].concat()));
    let d1 = Direct(&["d1"]);
    match name {
        // the old leader against one new leader that compacts
        "fence" => vec![old(&[d1, Direct(&["d2"])]), ("B", start(&[Direct(&["d3"]), Base, Collect]))],
        // a starting server that lists, sleeps, and seals a number below a newer base
        "stale" => vec![old(&[d1, Base, Collect, Direct(&["d2"])]), ("B", start(&[Direct(&["d3"])]))],
        // two starting servers, a sleeping old leader
        "starters" => vec![old(&[d1]), ("B", start(&[Direct(&["d2"])])), ("C", start(&[Direct(&["d3"])]))],
        // two starting servers on an empty prefix, one of them compacts
        "fresh" => vec![("B", start(&[d1, Base, Collect])), ("C", start(&[Direct(&["d2"])]))],
        // standby and redelivery against recording and deletion, hand-over to a new leader
        "inbox" => {
            vec![old(&[Tick, RecordInbox, d1]), ("S", vec![Inbox(&["d1", "d1"])]), ("B", start(&[Tick, RecordInbox]))]
        }
        // the same delivery twice in one group, sleeping leader
        "dup" => vec![old(&[Direct(&["d1", "d1"])]), ("B", start(&[]))],
        "apply" => vec![("A", start(&[Direct(&["a1"]), Ready, Work, Outbox])), ("B", start(&[Work, Outbox]))],
        // release, two servers that take the lease, one of them with a late create
        "release" => vec![old(&[d1, Release]), ("B", start(&[Release])), ("C", start(&[]))],
        // a leader that releases and leads again, against one that leads meanwhile and compacts
        "asleep" => vec![
            old(&[d1, Release, Acquire, Restore, Direct(&["d2"])]),
            ("B", start(&[Direct(&["d3"]), Base, Collect, Release])),
        ],
        // a base that is stored after the leader was deposed, third reader
        "base" => vec![old(&[d1, Base, Direct(&["d2"])]), ("B", start(&[Direct(&["d3"])])), ("C", start(&[]))],
        // a restore in the middle of base and deletion, with ordinary commits on both sides
        "gcread" => vec![
            old(&[d1, Direct(&["d2"]), Base, Collect, Direct(&["d4"]), Base, Collect]),
            ("B", start(&[Direct(&["d3"])])),
        ],
        // one starting server sleeps before its seal, the leader compacts, a second one reads
        "stray" => vec![old(&[d1, Base, Collect]), ("B", start(&[])), ("C", start(&[Direct(&["d3"])]))],
        // the old leader and a new one both compact, a third one reads
        "twice" => vec![
            old(&[d1, Base, Collect]),
            ("B", start(&[Direct(&["d3"]), Base, Collect])),
            ("C", start(&[Direct(&["d5"])])),
        ],
        _ => panic!("no scenario {name}"),
    }
}

/// Runs a server by its script.
pub(super) async fn follow(server: Server, steps: Vec<Step>) {
    let hand = RefCell::new(Vec::<String>::new());
    match steps_of(&server, &hand, steps).await {
        Ok(()) | Err(VaultError::Bucket(_)) => {}
        Err(VaultError::Deposed(why)) => {
            server.port.report(Note::Deposed(why));
            for delivery in hand.take() {
                to_inbox(&server, &delivery).await;
            }
        }
        Err(error) => server.port.report(Note::Stopped(error.to_string())),
    }
}

async fn steps_of(server: &Server, hand: &RefCell<Vec<String>>, steps: Vec<Step>) -> Result<(), VaultError> {
    let (mut lease, mut leading, mut kept) = (None, None, None);
    for step in steps {
        match (step, &leading) {
            (Acquire, _) => lease = Some(lease::acquire(&server.vault, server.protocol).await?),
            (Restore, _) => match Leading::begin(server, hand, lease.take().unwrap(), kept.take()).await? {
                None => return Ok(()),
                begun => leading = begun,
            },
            (Ready, _) => server.port.report(Note::Ready),
            (Inbox(deliveries), _) => {
                for delivery in deliveries {
                    to_inbox(server, delivery).await;
                }
            }
            (Direct(deliveries), Some(leading)) => {
                let deliveries: Vec<String> = deliveries.iter().map(|d| (*d).to_owned()).collect();
                leading.direct(&deliveries).await?;
            }
            (Tick, Some(leading)) => leading.tick().await?,
            (RecordInbox, Some(leading)) => leading.record_inbox().await?,
            (Work, Some(leading)) => leading.work().await?,
            (Outbox, Some(leading)) => leading.outbox().await?,
            (Base, Some(leading)) => leading.base().await?,
            (Collect, Some(leading)) => leading.collect().await?,
            (Release, Some(leading)) => kept = leading.release().await?,
            (step, None) => panic!("{step:?} needs a leader"),
        }
    }
    Ok(())
}
