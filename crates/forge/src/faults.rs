//! Faults that tests order: the next matching request of the API or git is refused, stalled or dropped.

use anyhow::Context;
use globset::GlobMatcher;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// What goes wrong with a request.
#[derive(Debug, Clone)]
pub enum Fault {
    /// This answer instead, nothing is done: status, body, headers.
    Status(u16, String, Vec<(String, String)>),
    /// The connection is reset before anything is done.
    Reset,
    /// Answered as always, this much later.
    Stall(Duration),
    /// Answered as always, once the gate is open.
    Hold(Arc<Gate>),
    /// It is done, then the connection is reset instead of an answer.
    AppliedThenReset,
}

/// Holds requests until it is opened.
#[derive(Debug, Default)]
pub struct Gate {
    reached: watch::Sender<usize>,
    open: watch::Sender<bool>,
}

impl Gate {
    /// A closed one.
    pub fn new() -> Arc<Gate> {
        Arc::default()
    }

    /// Waits until so many requests have come to it.
    pub async fn reached(&self, times: usize) {
        // An error is not possible: the sender is here.
        let _ = self.reached.subscribe().wait_for(|reached| *reached >= times).await;
    }

    /// Lets all of them through, now and later.
    pub fn open(&self) {
        self.open.send_replace(true);
    }

    pub(super) async fn pass(&self) {
        self.reached.send_modify(|reached| *reached += 1);
        let _ = self.open.subscribe().wait_for(|open| *open).await;
    }
}

/// A fault that waits for its requests.
pub(super) struct Planned {
    method: String,
    path: GlobMatcher,
    fault: Fault,
    left: usize,
}

impl Planned {
    pub(super) fn new(method: &str, path_glob: &str, fault: Fault, times: usize) -> anyhow::Result<Planned> {
        let path = globset::Glob::new(path_glob).with_context(|| format!("not a glob: {path_glob}"))?;
        Ok(Planned { method: method.to_uppercase(), path: path.compile_matcher(), fault, left: times })
    }
}

/// The fault that hits this request; the first one planned goes first and is used up.
pub(super) fn take(faults: &mut Vec<Planned>, method: &str, path: &str) -> Option<Fault> {
    let hit = |planned: &Planned| {
        planned.left > 0 && (planned.method == "*" || planned.method == method) && planned.path.is_match(path)
    };
    let at = faults.iter().position(hit)?;
    let planned = faults.get_mut(at)?;
    planned.left -= 1;
    let fault = planned.fault.clone();
    if planned.left == 0 {
        faults.remove(at);
    }
    Some(fault)
}
