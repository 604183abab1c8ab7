//! The vault's real code in a simulated world: a bucket and clocks with pauses, delays, reordered and lost requests. Servers are
//! killed and rolled over, and a judge reads every object in the bucket. [`search`] tries all schedules of small scenarios,
//! [`random`] runs whole servers with random faults, and [`mutation`] breaks the protocol on purpose.
//! [`jobs`] does the same for the objects of a job that runs elsewhere.
//!
//! A failing test names a profile and a seed, or a scenario, and prints the schedule, one request a line.

mod describe;
mod effects;
mod history;
mod jobs;
mod leading;
mod mutation;
mod objects;
mod port;
mod process;
mod profile;
mod random;
mod request;
mod script;
mod search;
mod server;
mod tests;
mod world;

use super::Vault;
use super::inbox::HandOverKey;
use super::lease::{Identity, Timing};
use super::wording::Wording;
use mutation::{Broken, Mutation};
use port::Port;
use std::sync::Arc;
use std::time::Duration;

/// Errors of the simulated server, not of the vault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    AckEarly,
    DuplicateAnsweredEarly,
    InboxDeletedFirst,
    IdsForgotten,
    SpawnBeforeCommit,
    CommentBeforeCommit,
    ApplyRepeated,
    MarkedFirst,
    BaseDirty,
    /// The base is named after a commit that has no answer yet.
    BaseAhead,
    /// The bucket ignores preconditions of creates in the journal, so that only the lease protects them.
    JournalUnfenced,
}

/// The mutation or flaw of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Variant {
    mutation: Option<Mutation>,
    flaw: Option<Flaw>,
}

impl From<Mutation> for Variant {
    fn from(mutation: Mutation) -> Variant {
        Variant { mutation: Some(mutation), flaw: None }
    }
}

impl From<Flaw> for Variant {
    fn from(flaw: Flaw) -> Variant {
        Variant { mutation: None, flaw: Some(flaw) }
    }
}

/// One simulated server.
struct Server {
    vault: Vault,
    port: Port,
    protocol: Broken,
    flaw: Option<Flaw>,
    /// True if it sometimes does not wait for the end of a commit.
    hasty: bool,
    /// True if it constantly has effects outside the bucket.
    eager: bool,
}

impl Server {
    fn new(name: &str, port: Port, timing: Timing, keep_states: u64, variant: Variant) -> Server {
        let identity = Identity {
            nonce: name.into(),
            url: String::new(),
            machine: name.into(),
            version: String::new(),
            fingerprint: "same".into(),
            force: false,
        };
        let retention =
            super::Retention { base_after_objects: 1, base_after_bytes: u64::MAX, keep_states, keep: Duration::ZERO };
        let vault = Vault {
            bucket: Arc::new(port.clone()),
            clock: Arc::new(port.clone()),
            identity,
            fingerprint: Default::default(),
            timing,
            retention,
            handover: HandOverKey::derive("secret"),
            wording: Wording::default(),
        };
        let Variant { mutation, flaw } = variant;
        if flaw == Some(Flaw::JournalUnfenced) {
            port.unfence();
        }
        Server { vault, port, protocol: Broken(mutation), flaw, hasty: false, eager: false }
    }
}
