//! Open connections: their maximum number, the time limits of their requests, and the choice of the one to close if there are too many.
//! No client is authenticated here, so a waiting connection is closed rather than a new one refused.

mod serve;
mod watched;

pub(crate) use serve::serve;

use super::access::throttle::network;
use rustix::process::{Resource, getrlimit};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Maximum number of open connections.
const MAX_CONNECTIONS: u64 = 1024;
/// Lower bound of that maximum, however few descriptors there are.
const MIN_CONNECTIONS: u64 = 16;
/// Time limit of a request's headers, including the TLS handshake: from the opening of a connection, or the first byte of a later
/// request.
const HEAD_LIMIT: Duration = Duration::from_secs(10);
/// Longest time between two requests of a client.
const IDLE_LIMIT: Duration = Duration::from_secs(75);
/// Longest time between two requests of a proxy, which should be the one to close: load balancers keep connections for 600 s, and answer
/// 502 if the server closes one at the moment of a request.
const PROXY_IDLE_LIMIT: Duration = Duration::from_secs(620);
/// Time after which a client that accepts no bytes of a response is disconnected.
const WRITE_LIMIT: Duration = Duration::from_secs(30);
/// Interval of checking these limits.
const SWEEP: Duration = Duration::from_secs(1);

/// Phase of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Handshake, or the headers of a request.
    Head,
    /// Body of a delivery, not yet authenticated.
    Body,
    /// Processing of a request, or the rest of its response.
    Answer,
    /// Pause between requests.
    Idle,
}

#[derive(Debug, Clone, Copy)]
struct ConnectionProgress {
    address: IpAddr,
    phase: Phase,
    /// Beginning of the phase; for a body, the arrival of its last bytes.
    since: Instant,
    /// Time since which the client accepts no bytes.
    blocked: Option<Instant>,
}

/// One open connection. Its place becomes free when the last copy is dropped.
pub(crate) struct Connection {
    id: u64,
    progress: Mutex<ConnectionProgress>,
    end: CancellationToken,
    all: Arc<Connections>,
}

impl Connection {
    /// Begins a phase.
    pub(crate) fn enter(&self, phase: Phase) {
        self.change(|progress| (progress.phase, progress.since) = (phase, Instant::now()));
    }

    /// Counts the connection as one of this client, which a trusted proxy names.
    pub(crate) fn is_of(&self, client: IpAddr) {
        self.change(|progress| progress.address = network(client));
    }

    /// Records the arrival of bytes: the first ones after an idle time begin a head.
    fn arrived(&self) {
        self.change(|progress| {
            if progress.phase == Phase::Idle {
                (progress.phase, progress.since) = (Phase::Head, Instant::now());
            }
        });
    }

    fn set_blocked(&self, is_blocked: bool) {
        self.change(|progress| progress.blocked = is_blocked.then(Instant::now));
    }

    fn change(&self, how: impl FnOnce(&mut ConnectionProgress)) {
        how(&mut self.progress.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn progress(&self) -> ConnectionProgress {
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.all.open().rows.remove(&self.id);
    }
}

/// Row of the table: the connection itself belongs to its task.
struct ConnectionRow {
    connection: std::sync::Weak<Connection>,
    end: CancellationToken,
}

#[derive(Default)]
struct OpenConnections {
    rows: HashMap<u64, ConnectionRow>,
    next: u64,
}

/// Computers that connect to a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peers {
    /// Each has a share of the connections.
    Clients,
    /// Clients share the addresses of trusted proxies: no address has a share, and idle connections live longer.
    Proxies,
}

/// All open connections of a port.
pub(crate) struct Connections {
    table: Mutex<OpenConnections>,
    peers: Peers,
}

impl Connections {
    /// Creates an empty table.
    pub(crate) fn new(peers: Peers) -> Arc<Connections> {
        Arc::new(Connections { table: Mutex::default(), peers })
    }

    fn open(&self) -> std::sync::MutexGuard<'_, OpenConnections> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a new connection, and closes another one if there are too many. `None` if all others are being answered.
    fn admit(self: &Arc<Self>, peer: IpAddr) -> Option<Arc<Connection>> {
        let (address, limit) = (network(peer), limit());
        let share = if self.peers == Peers::Proxies { limit } else { limit / 2 };
        let mut table = self.open();
        // The last copy of a connection must not be dropped while the table is locked.
        let open: Vec<Arc<Connection>> = table.rows.values().filter_map(|row| row.connection.upgrade()).collect();
        let rows: Vec<(u64, ConnectionProgress)> = open.iter().map(|row| (row.id, row.progress())).collect();
        let is_own = |progress: &ConnectionProgress| progress.address == address;
        let of_address = rows.iter().filter(|(_, progress)| is_own(progress)).count();
        let victim = match (of_address >= share, rows.len() >= limit) {
            (true, _) => Some(victim(rows.iter().filter(|(_, progress)| is_own(progress)))),
            (false, true) => Some(victim(rows.iter())),
            (false, false) => None,
        };
        let place = match victim {
            Some(None) => None,
            other => {
                if let Some(row) = other.flatten().and_then(|id| table.rows.remove(&id)) {
                    row.end.cancel();
                }
                let (id, end) = (table.next, CancellationToken::new());
                table.next += 1;
                let progress = ConnectionProgress { address, phase: Phase::Head, since: Instant::now(), blocked: None };
                let progress = Mutex::new(progress);
                let connection = Arc::new(Connection { id, progress, end: end.clone(), all: Arc::clone(self) });
                table.rows.insert(id, ConnectionRow { connection: Arc::downgrade(&connection), end });
                Some(connection)
            }
        };
        drop(table);
        drop(open);
        place
    }

    /// Closes connections that have exceeded a limit.
    fn sweep(&self, now: Instant) {
        let open: Vec<Arc<Connection>> = self.open().rows.values().filter_map(|row| row.connection.upgrade()).collect();
        let idle = if self.peers == Peers::Proxies { PROXY_IDLE_LIMIT } else { IDLE_LIMIT };
        for connection in open {
            if is_over(&connection.progress(), idle, now) {
                connection.end.cancel();
            }
        }
    }
}

fn is_over(progress: &ConnectionProgress, idle: Duration, now: Instant) -> bool {
    let waited = now.saturating_duration_since(progress.since);
    let is_late = match progress.phase {
        Phase::Head => waited >= HEAD_LIMIT,
        Phase::Idle => waited >= idle,
        // A body has limits of its own, and a response may take long.
        Phase::Body | Phase::Answer => false,
    };
    is_late || progress.blocked.is_some_and(|since| now.saturating_duration_since(since) >= WRITE_LIMIT)
}

/// Returns the connection to close: idle ones first, then the one that has waited longest, of the address that has most of them.
fn victim<'a>(rows: impl Iterator<Item = &'a (u64, ConnectionProgress)>) -> Option<u64> {
    let rows: Vec<_> = rows.collect();
    let mut counts: HashMap<IpAddr, usize> = HashMap::new();
    for (_, progress) in &rows {
        *counts.entry(progress.address).or_default() += 1;
    }
    let waiting = rows.into_iter().filter(|(_, progress)| progress.phase != Phase::Answer);
    let first = waiting.max_by_key(|(_, ConnectionProgress { address, phase, since, .. })| {
        (*phase == Phase::Idle, counts.get(address).copied(), std::cmp::Reverse(*since))
    });
    first.map(|(id, _)| *id)
}

/// Returns the maximum number of connections: at most half of this process' descriptors, because plans, git and the lease need the
/// others.
fn limit() -> usize {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from((descriptors / 2).clamp(MIN_CONNECTIONS, MAX_CONNECTIONS)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(address: &str, phase: Phase, since: Instant) -> ConnectionProgress {
        ConnectionProgress { address: address.parse().unwrap(), phase, since, blocked: None }
    }

    #[test]
    fn the_connection_that_has_waited_longest_of_the_busiest_address_is_closed_first() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut rows = vec![
            (0, progress("192.0.2.1", Phase::Head, at(0))),
            (1, progress("192.0.2.2", Phase::Body, at(2))),
            (2, progress("192.0.2.2", Phase::Head, at(1))),
            (3, progress("192.0.2.3", Phase::Answer, at(0))),
            (4, progress("192.0.2.4", Phase::Idle, at(9))),
        ];
        assert_eq!(victim(rows.iter()), Some(4), "idle ones cost nobody anything");
        rows.pop();
        assert_eq!(victim(rows.iter()), Some(2));
        rows.remove(2);
        assert_eq!(victim(rows.iter()), Some(0));
        rows.drain(..2);
        assert_eq!(victim(rows.iter()), None, "an answer is not cut");
    }

    #[test]
    fn heads_idle_times_and_answers_that_nobody_takes_have_limits() {
        let start = Instant::now();
        let after = |progress: &ConnectionProgress, seconds| {
            is_over(progress, IDLE_LIMIT, start + Duration::from_secs(seconds))
        };
        let head = progress("192.0.2.1", Phase::Head, start);
        assert!(!after(&head, 9) && after(&head, 10));
        let idle = ConnectionProgress { phase: Phase::Idle, ..head };
        assert!(!after(&idle, 74) && after(&idle, 75));
        let answer = ConnectionProgress { phase: Phase::Answer, ..head };
        assert!(!after(&answer, 3600), "somebody follows a log");
        assert!(after(&ConnectionProgress { blocked: Some(start), ..answer }, 30));
    }

    #[test]
    fn half_of_the_places_are_for_one_address_unless_it_is_a_proxy() {
        let peer: IpAddr = "192.0.2.1".parse().unwrap();
        for (peers, most) in [(Peers::Clients, limit() / 2), (Peers::Proxies, limit())] {
            let all = Connections::new(peers);
            let open: Vec<_> = (0..most + 1).map(|_| all.admit(peer).unwrap()).collect();
            assert!(open[0].end.is_cancelled(), "the oldest one gives way");
            assert!(open[1..].iter().all(|connection| !connection.end.is_cancelled()));
            open[1..].iter().for_each(|connection| connection.enter(Phase::Answer));
            assert!(all.admit(peer).is_none(), "all others are being answered");
            drop(open);
            assert!(all.admit(peer).is_some() && all.open().rows.is_empty());
        }
    }
}
