//! Steps that wait for the test, and files that steps write for it.

use super::Ctx;
use std::sync::Arc;
use tidelock_forge::{Fault, Gate};

/// Returns a `run` step that counts itself in `{tmp}/NAME.reached` and then waits for `{tmp}/NAME.open`; it fails after a minute.
pub(crate) fn gate(name: &str) -> String {
    format!(
        "echo reached >> {{tmp}}/{name}.reached; n=0; while [ ! -e {{tmp}}/{name}.open ]; do n=$((n+1)); [ $n -gt 1200 ] && exit 1; sleep 0.05; done"
    )
}

impl Ctx {
    /// Counts the lines of a file in the test's directory; 0 if there is no such file.
    pub(crate) fn lines(&self, file: &str) -> usize {
        std::fs::read_to_string(self.tmp.join(file)).map(|text| text.lines().count()).unwrap_or_default()
    }

    /// Waits until a gate was reached this often in all.
    pub(crate) async fn reached(&self, gate: &str, times: usize) {
        let file = format!("{gate}.reached");
        self.until(&format!("gate {gate} is reached {times} times"), async || self.lines(&file) >= times).await;
    }

    /// Lets steps through, now and later.
    pub(crate) fn open_gate(&self, gate: &str) {
        std::fs::write(self.tmp.join(format!("{gate}.open")), "").unwrap();
    }

    /// Makes the second of the next two requests that read this path wait for the gate.
    pub(crate) fn hold_second(&self, path: &str) -> Arc<Gate> {
        let (first, second) = (Gate::new(), Gate::new());
        first.open();
        for gate in [first, Arc::clone(&second)] {
            self.forge.fail_next("GET", path, Fault::Hold(gate), 1).unwrap();
        }
        second
    }

    /// Blocks reads of the host's git while this is done: a look at a branch meanwhile sees the state afterwards.
    pub(crate) async fn unseen_by_git<T>(&self, act: impl Future<Output = T>) -> T {
        let gate = Gate::new();
        self.forge.fail_next("GET", "*/info/refs", Fault::Hold(Arc::clone(&gate)), usize::MAX).unwrap();
        let done = act.await;
        gate.open();
        done
    }

    /// Blocks changes of the state until the result is dropped; after five seconds they fail.
    pub(crate) fn hold_state(&self) -> rusqlite::Connection {
        let state = rusqlite::Connection::open(self.server.data("tidelock.db")).unwrap();
        state.busy_timeout(super::LIMIT).unwrap();
        state.execute_batch("BEGIN IMMEDIATE").unwrap();
        state
    }

    /// Sends the server other requests until an earlier one must have come as far as it can.
    pub(crate) async fn let_pass(&self) {
        for _ in 0..30 {
            self.json("/status").await;
        }
    }
}

/// `chmod +x`.
pub(crate) fn make_executable(path: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}
