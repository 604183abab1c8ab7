//! Bodies of unauthenticated requests. All of them share one budget of bytes that have arrived. When it is used up, stalled bodies are
//! given up, first those that claim no signature and those of the address that holds most.

use crate::web::access::throttle::network;
use crate::webhook::MAX_BODY;
use axum::body::Body;
use bytes::Bytes;
use futures::StreamExt as _;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Budget of all bodies that are being read, in bytes.
const BUDGET: usize = 32 << 20;
/// Bytes of one address above which its bodies are given up for those of others.
const SHARE: usize = 8 << 20;
/// Time limit of a body's arrival.
const BODY_LIMIT: Duration = Duration::from_secs(30);
/// Longest time without any byte of a body.
const SILENCE_LIMIT: Duration = Duration::from_secs(10);
/// Longest time that a body waits for room; hosts wait ten seconds for their response.
const PATIENCE: Duration = Duration::from_secs(9);
/// Silence after which a body counts as stalled.
const STALL: Duration = Duration::from_secs(1);
/// Bytes per second below which a body counts as stalled too.
const MIN_RATE: u128 = 16 << 10;
/// Interval of checking for a stalled body while one waits for room.
const LOOK: Duration = Duration::from_millis(100);
/// Smallest room for a body, in bytes.
const FIRST: usize = 4 << 10;

/// Reason for which a body was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyProblem {
    /// The body is too large, or broke off.
    TooLarge,
    /// The body did not arrive in time.
    Late,
    /// There is no room for it now.
    NoRoom,
}

/// Signature in the headers of a request, which is not verified yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClaimedSignature {
    Present,
    Absent,
}

/// A body that is being read.
struct ArrivingBody {
    address: IpAddr,
    /// True if its headers have a signature, which is not verified yet.
    is_signed: bool,
    held: usize,
    began: Instant,
    /// Time at which its last bytes arrived, or it got room for them.
    last: Instant,
    waits: bool,
    given_up: CancellationToken,
}

impl ArrivingBody {
    /// Returns true if the body has stalled or is slow through its sender's fault alone.
    fn is_stalled(&self, now: Instant) -> bool {
        let (silent, age) = (now.saturating_duration_since(self.last), now.saturating_duration_since(self.began));
        let is_slow = age >= 2 * STALL && (self.held as u128) * 1000 < MIN_RATE * age.as_millis();
        !self.waits && (silent >= STALL || is_slow)
    }
}

#[derive(Default)]
struct ArrivingBodies {
    rows: BTreeMap<u64, ArrivingBody>,
    used: usize,
    next: u64,
}

/// Result of a request for room.
#[derive(Debug, PartialEq, Eq)]
enum BodyRoomAnswer {
    Taken,
    Wait,
    GivenUp,
}

impl ArrivingBodies {
    /// Takes room for a body; gives other bodies up if necessary.
    fn reserve(&mut self, id: u64, bytes: usize, now: Instant) -> BodyRoomAnswer {
        while self.used + bytes > BUDGET {
            if let Some(row) = self.rows.get_mut(&id) {
                row.waits = true;
            }
            match self.victim(id, bytes, now) {
                Some(victim) if victim == id => return BodyRoomAnswer::GivenUp,
                Some(victim) => self.give_up(victim),
                None => return BodyRoomAnswer::Wait,
            }
        }
        let Some(row) = self.rows.get_mut(&id) else { return BodyRoomAnswer::GivenUp };
        (row.waits, row.last) = (false, now);
        row.held += bytes;
        self.used += bytes;
        BodyRoomAnswer::Taken
    }

    /// Returns the body to give up for this one, if any: one that has stalled; one without a signature for one with; one of an address
    /// above its share; or one of those that wait for each other. A body that claims a signature is only given up for others that do.
    fn victim(&self, id: u64, bytes: usize, now: Instant) -> Option<u64> {
        let me = self.rows.get(&id)?;
        let mut sums: HashMap<IpAddr, usize> = HashMap::new();
        for row in self.rows.values() {
            *sums.entry(row.address).or_default() += row.held;
        }
        let sum = |row: &ArrivingBody| sums.get(&row.address).copied().unwrap_or_default();
        let holding = || self.rows.iter().filter(|(_, row)| row.held > 0 && (me.is_signed || !row.is_signed));
        let stalled = holding().filter(|(other, row)| **other != id && row.is_stalled(now));
        let stalled = stalled.max_by_key(|(_, row)| (!row.is_signed, sum(row), Reverse(row.last)));
        let unsigned = || holding().filter(|(_, row)| me.is_signed && !row.is_signed).max_by_key(|(_, row)| row.held);
        let heavy = || {
            let others = holding().filter(|(_, row)| row.address != me.address && sum(row) > SHARE);
            others.max_by_key(|(_, row)| (sum(row), row.held)).filter(|_| sum(me) + bytes <= SHARE)
        };
        let waiting = || {
            let everybody = self.rows.values().all(|row| row.waits || row.held == 0);
            holding().filter(|_| everybody).max_by_key(|(_, row)| (!row.is_signed, sum(row), Reverse(row.began)))
        };
        stalled.or_else(unsigned).or_else(heavy).or_else(waiting).map(|(id, _)| *id)
    }

    fn give_up(&mut self, id: u64) {
        if let Some(row) = self.rows.remove(&id) {
            self.used -= row.held;
            row.given_up.cancel();
        }
    }
}

/// All bodies that are being read.
#[derive(Default)]
pub(in crate::web) struct Bodies {
    table: Mutex<ArrivingBodies>,
    changed: Notify,
}

/// Room of one body; it is released on drop.
pub(super) struct BodyRoom<'a> {
    all: &'a Bodies,
    id: u64,
    given_up: CancellationToken,
}

impl Bodies {
    /// Reads a body of this client. Its room is held until the caller has verified it. `arrived` is called for each piece.
    pub(super) async fn read(
        &self,
        client: IpAddr,
        signature: ClaimedSignature,
        body: Body,
        announced: Option<usize>,
        arrived: impl Fn(),
    ) -> Result<(Bytes, BodyRoom<'_>), BodyProblem> {
        let room = self.enter(client, signature);
        let reading = async {
            let (mut pieces, mut bytes) = (body.into_data_stream(), Vec::new());
            while let Some(piece) = timeout(SILENCE_LIMIT, pieces.next()).await.map_err(|_| BodyProblem::Late)? {
                let piece = piece.map_err(|_| BodyProblem::TooLarge)?;
                let length = bytes.len() + piece.len();
                if length > MAX_BODY {
                    return Err(BodyProblem::TooLarge);
                }
                arrived();
                room.arrived();
                let capacity = bytes.capacity();
                if length > capacity {
                    let wanted = wanted(capacity, length, announced);
                    room.grow(wanted - capacity).await?;
                    bytes.reserve_exact(wanted - bytes.len());
                }
                bytes.extend_from_slice(&piece);
            }
            Ok(Bytes::from(bytes))
        };
        let bytes = tokio::select! {
            biased;
            () = room.given_up.cancelled() => return Err(BodyProblem::NoRoom),
            read = timeout(BODY_LIMIT, reading) => read.map_err(|_| BodyProblem::Late)??,
        };
        Ok((bytes, room))
    }

    fn table(&self) -> std::sync::MutexGuard<'_, ArrivingBodies> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, client: IpAddr, signature: ClaimedSignature) -> BodyRoom<'_> {
        let (mut table, now, given_up) = (self.table(), Instant::now(), CancellationToken::new());
        let id = table.next;
        table.next += 1;
        let address = network(client);
        let row = ArrivingBody {
            address,
            is_signed: matches!(signature, ClaimedSignature::Present),
            held: 0,
            began: now,
            last: now,
            waits: false,
            given_up: given_up.clone(),
        };
        table.rows.insert(id, row);
        BodyRoom { all: self, id, given_up }
    }
}

impl BodyRoom<'_> {
    fn arrived(&self) {
        if let Some(row) = self.all.table().rows.get_mut(&self.id) {
            row.last = Instant::now();
        }
    }

    /// Waits for more room.
    async fn grow(&self, bytes: usize) -> Result<(), BodyProblem> {
        let growing = async {
            loop {
                let changed = self.all.changed.notified();
                let room = self.all.table().reserve(self.id, bytes, Instant::now());
                match room {
                    BodyRoomAnswer::Taken => return Ok(()),
                    BodyRoomAnswer::GivenUp => return Err(BodyProblem::NoRoom),
                    BodyRoomAnswer::Wait => drop(timeout(LOOK, changed).await),
                }
            }
        };
        timeout(PATIENCE, growing).await.unwrap_or(Err(BodyProblem::NoRoom))
    }
}

impl Drop for BodyRoom<'_> {
    fn drop(&mut self) {
        self.all.table().give_up(self.id);
        self.all.changed.notify_waiters();
    }
}

/// Returns the room in bytes for a body of this length so far: twice as much as before, but no more than announced.
fn wanted(capacity: usize, length: usize, announced: Option<usize>) -> usize {
    let most = announced.unwrap_or(MAX_BODY).clamp(length, MAX_BODY.max(length));
    (2 * capacity).max(FIRST).max(length).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ClaimedSignature::{Absent, Present};

    const MIB: usize = 1 << 20;

    struct Play {
        bodies: Bodies,
        start: Instant,
    }

    impl Play {
        fn reserve(&self, room: &BodyRoom<'_>, bytes: usize, millis: u64) -> BodyRoomAnswer {
            self.bodies.table().reserve(room.id, bytes, self.start + Duration::from_millis(millis))
        }
    }

    fn play() -> Play {
        Play { bodies: Bodies::default(), start: Instant::now() }
    }

    fn from(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn a_body_that_has_stalled_gives_way_and_one_that_comes_on_does_not() {
        let play = play();
        let [one, two, host] = [(); 3].map(|()| play.bodies.enter(from(1), Present));
        assert_eq!(play.reserve(&one, 16 * MIB, 0), BodyRoomAnswer::Taken);
        assert_eq!(play.reserve(&two, 16 * MIB, 900), BodyRoomAnswer::Taken);
        assert_eq!(play.reserve(&host, MIB, 950), BodyRoomAnswer::Wait);
        assert_eq!(play.reserve(&host, MIB, 1100), BodyRoomAnswer::Taken);
        assert!(one.given_up.is_cancelled() && !two.given_up.is_cancelled());
    }

    #[test]
    fn a_body_without_a_signature_gives_way_to_one_that_claims_one() {
        let play = play();
        let [first, second] = [(); 2].map(|()| play.bodies.enter(from(1), Absent));
        for room in [&first, &second] {
            assert_eq!(play.reserve(room, 16 * MIB, 0), BodyRoomAnswer::Taken);
        }
        assert_eq!(play.reserve(&play.bodies.enter(from(1), Absent), MIB, 100), BodyRoomAnswer::Wait);
        assert_eq!(play.reserve(&play.bodies.enter(from(1), Present), MIB, 100), BodyRoomAnswer::Taken);
    }

    #[test]
    fn a_body_that_claims_a_signature_does_not_give_way_to_one_without() {
        let play = play();
        let (host, stranger) = (play.bodies.enter(from(1), Present), play.bodies.enter(from(2), Absent));
        assert_eq!(play.reserve(&host, BUDGET, 0), BodyRoomAnswer::Taken);
        assert_eq!(play.reserve(&stranger, MIB, 5000), BodyRoomAnswer::Wait, "its host is slow, and nobody else");
        assert_eq!(play.reserve(&play.bodies.enter(from(3), Present), MIB, 5000), BodyRoomAnswer::Taken);
        assert!(host.given_up.is_cancelled());
    }

    #[test]
    fn an_address_above_its_share_gives_way_to_another() {
        let play = play();
        let (many, host) = (play.bodies.enter(from(1), Present), play.bodies.enter(from(2), Present));
        assert_eq!(play.reserve(&many, 24 * MIB, 0), BodyRoomAnswer::Taken);
        assert_eq!(play.reserve(&host, 7 * MIB, 100), BodyRoomAnswer::Taken);
        assert_eq!(play.reserve(&host, MIB, 200), BodyRoomAnswer::Taken);
        assert!(!many.given_up.is_cancelled());
        assert_eq!(play.reserve(&play.bodies.enter(from(3), Present), MIB, 300), BodyRoomAnswer::Taken);
        assert!(many.given_up.is_cancelled());
    }

    #[test]
    fn bodies_that_wait_for_each_other_do_not_wait_for_ever() {
        let play = play();
        let (one, two) = (play.bodies.enter(from(1), Present), play.bodies.enter(from(1), Present));
        for room in [&one, &two] {
            assert_eq!(play.reserve(room, 16 * MIB, 0), BodyRoomAnswer::Taken);
        }
        assert_eq!(play.reserve(&one, MIB, 100), BodyRoomAnswer::Wait);
        assert_eq!(play.reserve(&two, MIB, 200), BodyRoomAnswer::Taken, "the older one gives way");
        assert!(one.given_up.is_cancelled());
        drop((one, two));
        assert_eq!(play.bodies.table().used, 0);
    }

    #[test]
    fn bytes_that_are_announced_take_no_room() {
        assert_eq!(wanted(0, 10, Some(20 * MIB)), FIRST);
        assert_eq!(wanted(0, 10, Some(10)), 10);
        assert_eq!(wanted(4096, 5000, None), 8192);
        assert_eq!(wanted(16 * MIB, 17 * MIB, Some(20 * MIB)), 20 * MIB);
        assert_eq!(wanted(16 * MIB, 17 * MIB, None), MAX_BODY);
    }
}
