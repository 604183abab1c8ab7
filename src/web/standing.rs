//! What this server is just now, for pages, probes and deliveries: its role, who leads, and the services while state is its own.
//! `app` says it in one place; all else looks.

use crate::dispatch::Handle;
use crate::store::Store;
use crate::store::logs::Logs;
use crate::vault::leader::Leader;
use crate::vault::lease::Identity;
use jiff::Timestamp;
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tokio::sync::Notify;

/// DESIGN §3: `standby → restoring → leading → draining`, and back to `standby`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Waits for the lease; takes deliveries into the inbox.
    Standby,
    /// Has the lease, and makes the data directory equal the state in the bucket.
    Restoring,
    /// The one server that acts.
    Leading,
    /// Ends its work, to give the lead up.
    Draining,
}

impl Role {
    /// All, in their order.
    pub const ALL: [Role; 4] = [Role::Standby, Role::Restoring, Role::Leading, Role::Draining];

    /// Its name in logs and in `/status`.
    pub fn name(self) -> &'static str {
        match self {
            Role::Standby => "standby",
            Role::Restoring => "restoring",
            Role::Leading => "leading",
            Role::Draining => "draining",
        }
    }
}

/// What this server is, since when and why.
#[derive(Clone)]
pub struct Standing {
    /// Its role.
    pub role: Role,
    /// Since when.
    pub since: Timestamp,
    /// Why it does not lead, or what it waits for; one sentence, which everybody may read. Empty while it leads.
    pub why: String,
    /// Who leads, as this server last saw it; itself, while it does.
    pub leader: Option<Identity>,
    /// Epoch of that leader.
    pub epoch: Option<u64>,
    /// It never leads after that leader, because host, account or allowlist differ.
    pub mismatch: bool,
    /// Present while the restored state is this server's own: pages show it.
    pub services: Option<Arc<Ready>>,
    /// Deliveries go straight into the state, and not into the inbox.
    pub intake: bool,
}

impl Standing {
    /// At the very start.
    pub fn starting() -> Standing {
        Standing {
            role: Role::Standby,
            since: Timestamp::now(),
            why: "it has just started, and looks who leads".into(),
            leader: None,
            epoch: None,
            mismatch: false,
            services: None,
            intake: false,
        }
    }
}

/// What is there while state is open.
pub struct Ready {
    /// State.
    pub store: Store,
    /// Logs.
    pub logs: Logs,
    /// Commands.
    pub dispatch: Handle,
    /// The way to the journal, for figures.
    pub leader: Leader,
    /// Asks for a look into the inbox now: something of this server's own is there.
    pub look: Arc<Notify>,
}

/// Counters that outlive a role.
#[derive(Debug, Default)]
pub struct Meters {
    /// Deliveries answered by the leader itself, whether they caused work or not.
    pub accepted: AtomicU64,
    /// Deliveries stored in the inbox before they were answered.
    pub stored: AtomicU64,
    /// Deliveries turned away as not authentic or not readable.
    pub rejected: AtomicU64,
    /// Deliveries that could not be made durable: answered 503.
    pub failed: AtomicU64,
    /// Objects in the inbox at the last look.
    pub waiting: AtomicU64,
    /// Objects in the inbox that this leader cannot use: signed with a webhook secret that it does not know, or damaged.
    pub unusable: AtomicU64,
    /// How often this server took the lead.
    pub leads: AtomicU64,
    /// How often it was deposed.
    pub deposed: AtomicU64,
    /// When the last commit was seen, in seconds since 1970; 0: none yet.
    pub last_commit: AtomicU64,
}
