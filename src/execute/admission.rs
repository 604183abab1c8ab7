//! Limits the number of jobs that run at once over all pull requests. One more than the number of processors may always run, as a job
//! computes nothing between two of its commands. Another one begins while the machine has idle time, or when no running job has ended for a
//! while. So jobs that wait for a cloud overlap, and many short jobs that compute do not slow each other down.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Interval between two samples of the machine's load while a job waits to begin. Longer than a plan that only computes, so that the moment
/// between two of them does not count as idle time.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// One more job may begin if at least this share of one processor was idle since the last sample.
const IDLE_SHARE_OF_ONE: f64 = 0.6;
/// Background work does not begin if processes waited for disks for more than this share of one processor's time.
const DISK_SHARE_OF_ONE: f64 = 0.2;

/// On a busy machine, one more job may begin if none has ended for this long: long jobs mostly wait for other systems.
const PATIENCE: Duration = Duration::from_millis(600);

/// Longest time for which work that nobody waits for lets other jobs begin before it.
const LONGEST_PASSING: Duration = Duration::from_secs(600);

/// Gate that limits the number of running jobs.
pub struct Admission {
    always: usize,
    most: usize,
    running: Mutex<usize>,
    left: Notify,
    /// Held by the job that is next: first come, first served.
    next: tokio::sync::Mutex<()>,
}

/// Permission of a job to run, returned when dropped.
pub(super) struct Permit<'a> {
    gate: &'a Admission,
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        *self.gate.running() -= 1;
        self.gate.left.notify_one();
    }
}

impl Admission {
    /// Creates a gate that lets at most `most` jobs run.
    pub fn new(most: usize) -> Admission {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Admission {
            always: (processors + 1).min(most.max(1)),
            most: most.max(1),
            running: Mutex::new(0),
            left: Notify::new(),
            next: tokio::sync::Mutex::new(()),
        }
    }

    fn running(&self) -> std::sync::MutexGuard<'_, usize> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, below: usize) -> Option<Permit<'_>> {
        let mut running = self.running();
        if *running >= below {
            return None;
        }
        *running += 1;
        Some(Permit { gate: self })
    }

    /// Returns true if no job runs now.
    pub(super) fn is_idle(&self) -> bool {
        *self.running() == 0
    }

    /// Returns true if jobs wait for permission to run.
    fn is_crowded(&self) -> bool {
        *self.running() >= self.always && self.next.try_lock().is_err()
    }

    /// Waits until no job runs, or until no job waits and the processors and disks were mostly idle between two samples.
    pub(super) async fn calm(&self) {
        loop {
            let before = Times::now().await;
            tokio::time::sleep(LOOK_EVERY).await;
            if self.is_idle() {
                return;
            }
            let now = Times::now().await;
            let on_disks = before.as_ref().zip(now.as_ref()).is_some_and(|(before, now)| waits_for_disks(before, now));
            if idle(before.as_ref(), now.as_ref()) && !on_disks && !self.is_crowded() {
                return;
            }
        }
    }

    /// Waits until no job waits to run, for work that nobody waits for. Returns after a while in any case, so that it is done some day.
    pub(super) async fn let_others_pass(&self) {
        let waiting = async {
            while self.is_crowded() {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        // The limit is not reached as a rule, and an error says no more than that.
        let _ = tokio::time::timeout(LONGEST_PASSING, waiting).await;
    }

    /// Waits until jobs wait to run.
    pub(super) async fn crowded(&self) {
        while !self.is_crowded() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Waits for permission to run.
    pub(super) async fn enter_when_free(&self) -> Permit<'_> {
        let _first_in_line = self.next.lock().await;
        let mut before = None;
        let mut since = Instant::now();
        loop {
            let left = self.left.notified();
            if let Some(permit) = self.enter(self.always) {
                return permit;
            }
            // Only a waiting job samples the load, so that a job that need not wait costs nothing.
            let now = Times::now().await;
            if (idle(before.as_ref(), now.as_ref()) || since.elapsed() >= PATIENCE)
                && let Some(permit) = self.enter(self.most)
            {
                return permit;
            }
            before = now;
            if tokio::time::timeout(LOOK_EVERY, left).await.is_ok() {
                since = Instant::now();
            }
        }
    }
}

/// Time that all processors spent so far, in ticks of `/proc/stat` (proc_stat(5)).
struct Times {
    idle: u64,
    /// Idle while a process waits for a disk; part of `idle`.
    disk: u64,
    all: u64,
    processors: u64,
}

impl Times {
    async fn now() -> Option<Times> {
        Times::parse(&tokio::fs::read_to_string("/proc/stat").await.ok()?)
    }

    fn parse(text: &str) -> Option<Times> {
        let processors = text.lines().filter(|line| line.starts_with("cpu")).count().checked_sub(1)?;
        let numbers: Vec<u64> =
            text.lines().next()?.split_whitespace().skip(1).map_while(|word| word.parse().ok()).collect();
        // user nice system idle iowait irq softirq steal; guest time is in user already.
        let all = numbers.iter().take(8).sum();
        let (nothing, disk) = (numbers.get(3)?, *numbers.get(4)?);
        Some(Times { idle: nothing + disk, disk, all, processors: processors.max(1) as u64 })
    }
}

/// Returns true if enough of a processor was idle between two samples; false if a sample is missing.
fn idle(before: Option<&Times>, now: Option<&Times>) -> bool {
    let (Some(before), Some(now)) = (before, now) else { return false };
    let (idle, all) = (now.idle.saturating_sub(before.idle), now.all.saturating_sub(before.all));
    all > 0 && idle as f64 * now.processors as f64 / all as f64 >= IDLE_SHARE_OF_ONE
}

/// Returns true if processes waited for disks between two samples.
fn waits_for_disks(before: &Times, now: &Times) -> bool {
    let (disk, all) = (now.disk.saturating_sub(before.disk), now.all.saturating_sub(before.all));
    disk as f64 * now.processors as f64 / all.max(1) as f64 > DISK_SHARE_OF_ONE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(idle: u64, busy: u64) -> Option<Times> {
        let text = format!("cpu  {busy} 0 0 {idle} 0 0 0 0 0 0\ncpu0 0\ncpu1 0\nintr 0\n");
        Times::parse(&text)
    }

    #[test]
    fn work_for_nobody_waits_for_disks() {
        let at = |nothing: u64, disk: u64, busy: u64| {
            Times::parse(&format!("cpu  {busy} 0 0 {nothing} {disk} 0 0 0 0 0\ncpu0 0\ncpu1 0\nintr 0\n")).unwrap()
        };
        let before = at(100, 10, 100);
        assert!(waits_for_disks(&before, &at(105, 15, 110)));
        assert!(!waits_for_disks(&before, &at(118, 11, 101)));
        assert!(!waits_for_disks(&before, &before));
    }

    #[tokio::test]
    async fn work_for_nobody_begins_where_no_job_runs() {
        let gate = Admission::new(1);
        gate.calm().await;
        let running = gate.enter_when_free().await;
        let waits = gate.enter_when_free();
        tokio::pin!(waits);
        assert!(futures::poll!(&mut waits).is_pending());
        gate.crowded().await;
        assert!(tokio::time::timeout(LOOK_EVERY * 3, gate.calm()).await.is_err());
        drop(running);
        drop(waits.await);
        gate.calm().await;
    }

    #[test]
    fn more_jobs_begin_only_on_an_idle_machine() {
        for (idle_ticks, busy_ticks, want) in [(10, 0, true), (4, 6, true), (2, 8, false), (0, 10, false)] {
            let (before, now) = (times(100, 100), times(100 + idle_ticks, 100 + busy_ticks));
            assert_eq!(idle(before.as_ref(), now.as_ref()), want, "{idle_ticks} of {}", idle_ticks + busy_ticks);
        }
        assert!(!idle(None, times(1, 1).as_ref()));
    }

    #[tokio::test]
    async fn the_most_is_never_passed_and_a_free_place_is_taken() {
        let gate = Admission { always: 1, most: 1, ..Admission::new(1) };
        let first = gate.enter_when_free().await;
        let waiting = gate.enter_when_free();
        tokio::pin!(waiting);
        assert!(futures::poll!(&mut waiting).is_pending());
        drop(first);
        waiting.await;
    }
}
