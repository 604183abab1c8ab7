//! Limits failures by address, so that secrets cannot be guessed. Memory is bounded: there is one row per address, and the oldest is
//! dropped first.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Failures of one address within [`WINDOW`] before it is throttled.
const FAILURES: u32 = 20;
/// Time since the first counted failure after which counting starts again.
const WINDOW: Duration = Duration::from_secs(60);
/// Maximum number of remembered addresses.
const MAX_ADDRESSES: usize = 4096;

/// Failures of one kind.
#[derive(Default)]
pub(crate) struct Throttle(Mutex<HashMap<IpAddr, Failures>>);

#[derive(Clone, Copy)]
struct Failures {
    since: Instant,
    count: u32,
}

impl Throttle {
    /// Returns the seconds until requests of this address are accepted again; `None` if they are now.
    pub(crate) fn wait(&self, address: IpAddr) -> Option<u32> {
        self.wait_at(address, Instant::now())
    }

    /// Counts a failure.
    pub(crate) fn failed(&self, address: IpAddr) {
        self.failed_at(address, Instant::now());
    }

    fn wait_at(&self, address: IpAddr, now: Instant) -> Option<u32> {
        let rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let failures = rows.get(&network(address))?;
        let left = WINDOW.checked_sub(now.saturating_duration_since(failures.since))?;
        (failures.count >= FAILURES).then(|| u32::try_from(left.as_secs()).unwrap_or_default() + 1)
    }

    fn failed_at(&self, address: IpAddr, now: Instant) {
        let mut rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let network = network(address);
        if rows.len() >= MAX_ADDRESSES && !rows.contains_key(&network) {
            let is_old = |failures: &Failures| now.saturating_duration_since(failures.since) >= WINDOW;
            rows.retain(|_, failures| !is_old(failures));
            let oldest = rows.iter().min_by_key(|(_, failures)| failures.since).map(|(address, _)| *address);
            if let Some(oldest) = oldest.filter(|_| rows.len() >= MAX_ADDRESSES) {
                rows.remove(&oldest);
            }
        }
        let row = rows.entry(network).or_insert(Failures { since: now, count: 0 });
        if now.saturating_duration_since(row.since) >= WINDOW {
            *row = Failures { since: now, count: 0 };
        }
        row.count = row.count.saturating_add(1);
    }
}

/// Returns the address by which a client is counted; for IPv6 that of its /64 network, which has a single owner.
pub(in crate::web) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_fails_too_often_waits_for_the_end_of_its_window() {
        let throttle = Throttle::default();
        let start = Instant::now();
        let (one, other): (IpAddr, IpAddr) = ("2001:db8::1".parse().unwrap(), "203.0.113.7".parse().unwrap());
        for _ in 0..FAILURES {
            assert_eq!(throttle.wait_at(one, start), None);
            throttle.failed_at(one, start);
        }
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        assert_eq!(throttle.wait_at("2001:db8::2".parse().unwrap(), at(20)), Some(41), "the same network");
        assert_eq!(throttle.wait_at(other, at(20)), None);
        assert_eq!(throttle.wait_at(one, at(61)), None);
        throttle.failed_at(one, at(61));
        assert_eq!(throttle.wait_at(one, at(61)), None, "a new window begins");
    }

    #[test]
    fn it_remembers_no_more_than_it_may_and_forgets_the_oldest() {
        let throttle = Throttle::default();
        let start = Instant::now();
        let address = |number: usize| IpAddr::from(std::net::Ipv4Addr::from_bits(u32::try_from(number).unwrap()));
        for number in 0..MAX_ADDRESSES + 10 {
            throttle.failed_at(address(number), start + Duration::from_micros(number as u64));
        }
        let rows = throttle.0.lock().unwrap();
        assert_eq!(rows.len(), MAX_ADDRESSES);
        assert!(!rows.contains_key(&address(9)) && rows.contains_key(&address(10)));
    }
}
