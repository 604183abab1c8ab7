//! Intervals between looks, and the share of a host's requests that they may use.

use std::time::Duration;
use tokio::time::Instant;

/// Longest interval of a quiet repository.
const LONGEST: Duration = Duration::from_secs(120);
/// Longest interval after errors.
const AFTER_ERRORS: Duration = Duration::from_secs(600);
/// The interval is this part of the time without activity.
const PART: u32 = 20;
/// Part of a host's hourly requests that looks may use: answers to commands need the others.
const SHARE: f64 = 0.6;
/// Part of a host's hourly requests that looks may use at once.
const BURST: f64 = 0.15;

/// Returns the time until the next look, by the time without activity and the number of consecutive errors.
pub(super) fn interval(least: Duration, quiet: Duration, failures: u32) -> Duration {
    let usual = (quiet / PART).clamp(least, LONGEST.max(least));
    usual.saturating_mul(1 << failures.min(8)).min(AFTER_ERRORS.max(usual))
}

/// Requests of a quiet repository in an hour.
const OF_QUIET: u32 = 30;

/// Budget of the requests of looks on a host that permits few.
pub(super) struct LookBudget {
    hourly: Option<f64>,
    left: f64,
    at: Instant,
}

impl LookBudget {
    /// Begins with a full burst. `hourly`: absent for no limit.
    pub(super) fn new(hourly: Option<u32>) -> LookBudget {
        let hourly = hourly.map(f64::from);
        LookBudget { hourly, left: hourly.unwrap_or_default() * BURST, at: Instant::now() }
    }

    /// Returns true if it is enough for this many repositories.
    pub(super) fn covers(&self, repos: usize) -> bool {
        let needed = u32::try_from(repos).map_or(f64::MAX, |repos| f64::from(repos) * f64::from(OF_QUIET));
        self.hourly.is_none_or(|hourly| needed <= hourly * SHARE)
    }

    /// Counts requests of a look.
    pub(super) fn spend(&mut self, requests: u64) {
        self.left -= u32::try_from(requests).map_or(0.0, f64::from);
    }

    /// Returns the time until the next look may begin.
    pub(super) fn wait(&mut self) -> Duration {
        let now = Instant::now();
        let Some(hourly) = self.hourly else { return Duration::ZERO };
        let (per_second, most) = (hourly * SHARE / 3600.0, hourly * BURST);
        // A look that took more than a burst delays the next ones by the time of one burst.
        self.left = (self.left + (now - self.at).as_secs_f64() * per_second).clamp(-most, most);
        self.at = now;
        if self.left >= 1.0 { Duration::ZERO } else { Duration::from_secs_f64((1.0 - self.left) / per_second) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quiet_repository_is_asked_seldom_and_a_failing_one_more_seldom() {
        let least = Duration::from_secs(15);
        let after = |minutes: u64, failures| interval(least, Duration::from_secs(60 * minutes), failures).as_secs();
        assert_eq!((after(0, 0), after(5, 0), after(10, 0), after(40, 0), after(6000, 0)), (15, 15, 30, 120, 120));
        assert_eq!((after(0, 1), after(0, 3), after(0, 20), after(6000, 20)), (30, 120, 600, 600));
        assert_eq!(interval(Duration::from_secs(120), Duration::ZERO, 0).as_secs(), 120);
    }

    /// Four repositories that are busy all the time, with two requests in each look.
    #[tokio::test(start_paused = true)]
    async fn an_hour_of_looks_stays_below_the_hosts_limit() {
        let mut budget = LookBudget::new(Some(1000));
        let (begin, mut sent) = (Instant::now(), 0);
        while begin.elapsed() < Duration::from_secs(3600) {
            for _ in 0..4 {
                tokio::time::sleep(budget.wait()).await;
                budget.spend(2);
                sent += 2;
            }
            tokio::time::sleep(Duration::from_secs(15)).await;
        }
        assert!((600..=760).contains(&sent), "{sent}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_of_many_requests_delays_the_next_one_and_no_limit_delays_none() {
        let mut budget = LookBudget::new(Some(1000));
        budget.spend(900);
        assert_eq!(budget.wait().as_secs(), 906);
        let mut unlimited = LookBudget::new(None);
        unlimited.spend(1_000_000);
        assert!(unlimited.wait().is_zero());
        assert!(budget.covers(20) && !budget.covers(21) && unlimited.covers(1_000_000));
    }
}
