//! The leader's heartbeat in the log: one line a minute, and one at each change of role. `terraform/monitoring.tf` derives metrics and
//! alerts from it.

use crate::server_status::{Meters, Role, ServerStatus};
use crate::vault::leader::Figures;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

/// Interval between two lines of a leader.
pub(super) const INTERVAL: Duration = Duration::from_secs(60);
/// Message of the line, by which the metrics select it.
const MESSAGE: &str = "heartbeat";

/// Writes heartbeats until the sender of the status is dropped.
pub(super) async fn beat(mut server_status: watch::Receiver<Arc<ServerStatus>>, meters: Arc<Meters>, every: Duration) {
    let (mut last, mut commits) = (None, 0);
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let turned = tokio::select! {
            changed = server_status.changed() => match changed {
                Ok(()) => true,
                Err(_) => return,
            },
            _ = ticks.tick() => false,
        };
        let now = Arc::clone(&server_status.borrow_and_update());
        let (new, leads) = (last != Some(now.role), matches!(now.role, Role::Leading | Role::Draining));
        // The status changes for other reasons than its role. If both branches are ready, the tick may be taken first and then sees the
        // change.
        if new || (leads && !turned) {
            line(&now, &meters, &mut commits);
            last = Some(now.role);
        }
        if new {
            ticks.reset();
        }
    }
}

fn line(now: &ServerStatus, meters: &Meters, commits: &mut u64) {
    let services = now.services.as_ref();
    let figures = services.map(|ready| ready.leader.figures());
    let in_progress = services.map_or(0, |ready| ready.dispatch.in_progress());
    let waiting = meters.waiting.load(Ordering::Relaxed);
    let refused = services.and_then(|ready| ready.dispatch.refused_posts()).map_or(0, |all| all.waiting);
    let unusable = meters.unusable.load(Ordering::Relaxed);
    let counts = Counts { inbox_waiting: waiting, inbox_unusable: unusable, in_progress, refused_by_host: refused };
    write(now.role, now.epoch, figures.as_ref(), &counts, commits);
}

/// Counts of waiting and running work.
#[derive(Default)]
struct Counts {
    inbox_waiting: u64,
    /// Of those, objects that this leader cannot use.
    inbox_unusable: u64,
    in_progress: usize,
    /// Comments, statuses and reactions that the host refuses until the operator corrects the token or its rights.
    refused_by_host: usize,
}

/// Writes one line. `commits` is the number of commits at the previous line.
fn write(role: Role, epoch: Option<u64>, figures: Option<&Figures>, counts: &Counts, commits: &mut u64) {
    let commit_lag_ms = figures.map(|figures| millis(lag(figures, *commits)));
    let lease_age_ms = figures.map(|figures| millis(figures.lease_age));
    *commits = figures.map_or(0, |figures| figures.commits);
    let role = role.name();
    let Counts { inbox_waiting, inbox_unusable, in_progress, refused_by_host } = *counts;
    tracing::info!(
        role,
        epoch,
        commit_lag_ms,
        lease_age_ms,
        inbox_waiting,
        inbox_unusable,
        in_progress,
        refused_by_host,
        "{MESSAGE}"
    );
}

/// Returns the time that somebody waits, or has just waited, for the bucket. Zero for a server without work.
fn lag(figures: &Figures, commits_before: u64) -> Duration {
    let last = if figures.commits == commits_before { Duration::ZERO } else { figures.last_commit };
    figures.ongoing.unwrap_or_default().max(last)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
