//! The server's current role, the leader, and the services that exist while it leads. `app::roles` publishes it; pages, probes and the
//! intake of deliveries read it.

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

/// A server's role. The order is `standby → restoring → leading → draining`, then `standby` again, or `asleep` and then `standby`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Waits for the lease and stores deliveries in the inbox.
    Standby,
    /// Holds the lease and restores the data directory from the bucket.
    Restoring,
    /// The only server that runs commands.
    Leading,
    /// Finishes its work and then gives up the lease.
    Draining,
    /// Has nothing to do, no lease, and makes no request until it is woken.
    Asleep,
}

impl Role {
    /// All roles, in order.
    pub const ALL: [Role; 5] = [Role::Standby, Role::Restoring, Role::Leading, Role::Draining, Role::Asleep];

    /// Returns the name in logs and in `/status`.
    pub fn name(self) -> &'static str {
        match self {
            Role::Standby => "standby",
            Role::Restoring => "restoring",
            Role::Leading => "leading",
            Role::Draining => "draining",
            Role::Asleep => "asleep",
        }
    }
}

/// Role of this server, its beginning, and its reason.
#[derive(Clone)]
pub struct ServerStatus {
    /// The role.
    pub role: Role,
    /// Time at which the role began.
    pub since: Timestamp,
    /// Reason for which the server does not lead, or the event that it waits for: one sentence without secrets. Empty while it leads.
    pub why: String,
    /// Leader that this server last saw; itself while it leads.
    pub leader: Option<Identity>,
    /// Epoch of that leader.
    pub epoch: Option<u64>,
    /// True if this server never succeeds that leader, because host, account or allowlist differ.
    pub mismatch: bool,
    /// Services; present while this server owns the restored state, so that pages can show it.
    pub services: Option<Arc<Services>>,
    /// True if deliveries are recorded in the state directly, without the inbox.
    pub intake: bool,
}

impl ServerStatus {
    /// Returns the status of a process that has just started.
    pub fn starting() -> ServerStatus {
        ServerStatus {
            role: Role::Standby,
            since: Timestamp::now(),
            why: "it has just started, and checks which server leads".into(),
            leader: None,
            epoch: None,
            mismatch: false,
            services: None,
            intake: false,
        }
    }
}

/// Services of a leader; they exist while the state is open.
pub struct Services {
    /// The state.
    pub store: Store,
    /// Logs of jobs.
    pub logs: Logs,
    /// Accepts deliveries and runs commands.
    pub dispatch: Handle,
    /// The journal's writer, for metrics.
    pub leader: Leader,
    /// Requests an immediate check of the inbox: this server has stored a delivery there.
    pub look: Arc<Notify>,
}

/// The last readings of the configuration.
#[derive(Debug, Clone)]
pub struct ConfigurationStatus {
    /// Time of the last reading without a mistake.
    pub read: Timestamp,
    /// The mistake in the files; absent if they are what is in effect.
    pub fault: Option<ConfigurationFault>,
    /// Names of what has changed in the files and takes effect at the next start.
    pub needs_restart: Vec<String>,
}

/// A mistake in files of the configuration that are not in effect for it.
#[derive(Debug, Clone)]
pub struct ConfigurationFault {
    /// Time of the first reading with a mistake.
    pub since: Timestamp,
    /// The mistake, with names of the server's files: not for everyone.
    pub error: String,
}

impl ConfigurationStatus {
    /// Returns the status of a process that has just started.
    pub fn starting() -> ConfigurationStatus {
        ConfigurationStatus { read: Timestamp::now(), fault: None, needs_restart: Vec::new() }
    }
}

/// Counters of the whole process, whatever its role.
#[derive(Debug, Default)]
pub struct Meters {
    /// Deliveries that the leader answered itself, whether they caused work or not.
    pub accepted: AtomicU64,
    /// Deliveries that were stored in the inbox before they were answered.
    pub stored: AtomicU64,
    /// Deliveries rejected because they are not authentic or not readable.
    pub rejected: AtomicU64,
    /// Deliveries answered with 503 because they could not be made durable.
    pub failed: AtomicU64,
    /// Objects in the inbox at the last check.
    pub waiting: AtomicU64,
    /// Objects in the inbox that this leader cannot use: damaged, or signed with an unknown webhook secret.
    pub unusable: AtomicU64,
    /// Number of times this server became the leader.
    pub leads: AtomicU64,
    /// Number of times this server was deposed.
    pub deposed: AtomicU64,
    /// Time of the last commit, in seconds since 1970; 0 before the first.
    pub last_commit: AtomicU64,
}
