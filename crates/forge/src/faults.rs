//! Injected faults: the next matching request of the API or of git is refused, delayed, held or reset.

use anyhow::Context;
use globset::GlobMatcher;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// A fault of a request.
#[derive(Debug, Clone)]
pub enum Fault {
    /// Nothing is done, and this is the answer: status, body, headers.
    Status(u16, String, Vec<(String, String)>),
    /// The connection is reset before anything is done.
    Reset,
    /// The usual answer, this much later.
    Stall(Duration),
    /// The usual answer, once the gate is open.
    Hold(Arc<Gate>),
    /// The request is done, and the connection is reset instead of an answer.
    AppliedThenReset,
}

/// Holds requests until it is opened.
#[derive(Debug, Default)]
pub struct Gate {
    reached: watch::Sender<usize>,
    open: watch::Sender<bool>,
}

impl Gate {
    /// Creates a closed gate.
    pub fn new() -> Arc<Gate> {
        Arc::default()
    }

    /// Waits until this many requests have reached it.
    pub async fn reached(&self, times: usize) {
        // This cannot fail: the sender is in `self`.
        let _ = self.reached.subscribe().wait_for(|reached| *reached >= times).await;
    }

    /// Lets all requests through, now and later.
    pub fn open(&self) {
        self.open.send_replace(true);
    }

    pub(super) async fn pass(&self) {
        self.reached.send_modify(|reached| *reached += 1);
        let _ = self.open.subscribe().wait_for(|open| *open).await;
    }
}

/// A fault and the requests that it is for.
pub(super) struct Planned {
    method: String,
    path: GlobMatcher,
    fault: Fault,
    /// Matching requests before those with the fault.
    passed: usize,
    left: usize,
}

impl Planned {
    /// The numbers are those of requests before the fault, and of requests with it.
    pub(super) fn new(
        method: &str,
        path_glob: &str,
        fault: Fault,
        (passed, left): (usize, usize),
    ) -> anyhow::Result<Planned> {
        let path = globset::Glob::new(path_glob).with_context(|| format!("not a glob: {path_glob}"))?;
        Ok(Planned { method: method.to_uppercase(), path: path.compile_matcher(), fault, passed, left })
    }
}

/// Takes the fault for this request: the first injected one that still matches. It counts as used.
pub(super) fn take(faults: &mut Vec<Planned>, method: &str, path: &str) -> Option<Fault> {
    let hit = |planned: &Planned| {
        planned.left > 0 && (planned.method == "*" || planned.method == method) && planned.path.is_match(path)
    };
    let at = faults.iter().position(hit)?;
    let planned = faults.get_mut(at)?;
    if planned.passed > 0 {
        planned.passed -= 1;
        return None;
    }
    planned.left -= 1;
    let fault = planned.fault.clone();
    if planned.left == 0 {
        faults.remove(at);
    }
    Some(fault)
}
