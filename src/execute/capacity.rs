//! Room for one more command: on the disk that holds checkouts, and in the container's memory. Files that can be made again are removed
//! first. A command for which there is still no room is refused before it begins: a full disk breaks running jobs, and a container that
//! fills its memory is killed without a signal.

use super::admission::Permit;
use super::command_run::CommandRun;
use super::context::Context;
use super::memory::MemoryUse;
use crate::checkout::space::{Space, is_in_memory, taken_by};
use crate::checkout::{Checkouts, Idle};
use crate::comment::command_for;
use crate::domain::command::CommandName;
use crate::domain::outcome::{Fault, Reason};
use crate::domain::{ProjectId, size};
use crate::settings::MachineLimits;
use crate::terraform::install::Installer;
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// Room is made when less than one part in this many of the disk is free ...
const LITTLE_PART: u64 = 5;
/// ... and less than this many bytes: a large disk needs no large reserve.
const LITTLE_MOST: u64 = 2 << 30;
/// Nothing begins when less than one part in this many of the disk is free ...
const FULL_PART: u64 = 20;
/// ... and less than this many bytes.
const FULL_MOST: u64 = 256 << 20;
/// Limit on the time of each walk over files (measuring for `--scratch-quota-mib`, the search for idle files): one part in so many.
const WALK_PART: u32 = 20;
/// Interval at which a plan that waits for memory checks again.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Limits on the use of disk and memory.
#[derive(Default)]
pub struct Capacity {
    data_dir: PathBuf,
    /// Maximum size of the data directory, in bytes; absent for that of the file system.
    quota: Option<u64>,
    /// Percentage of the container's memory in use above which no plan begins; 0 for no limit.
    memory_percent: u64,
    /// Size of the data directory when it was last measured. Locked while room is made.
    measured: Mutex<Option<Measured>>,
    /// Time of the next search for idle files, as long as the disk is not full.
    look_again: std::sync::Mutex<Option<Instant>>,
    /// Held by the plan that checks the memory next: one plan begins, and counts, before the next one checks.
    next: Mutex<()>,
}

struct Measured {
    taken: u64,
    again: Instant,
}

impl Capacity {
    /// Creates it for this data directory; nothing is measured yet.
    pub fn new(data_dir: &Path, limits: &MachineLimits) -> Capacity {
        Capacity {
            data_dir: data_dir.to_owned(),
            quota: (limits.scratch_quota_mib > 0).then_some(limits.scratch_quota_mib << 20),
            memory_percent: limits.max_memory_percent,
            measured: Mutex::default(),
            look_again: std::sync::Mutex::default(),
            next: Mutex::default(),
        }
    }

    /// Returns the free and the total space that this server may use.
    async fn space(&self, measured: &mut Option<Measured>) -> Result<Space> {
        let disk = Space::of(&self.data_dir)?;
        let Some(quota) = self.quota else { return Ok(disk) };
        let taken = match measured.as_ref().filter(|last| Instant::now() < last.again) {
            Some(last) => last.taken,
            None => {
                let began = Instant::now();
                let taken = taken_by(self.data_dir.clone()).await?;
                let again = Instant::now() + began.elapsed() * (WALK_PART - 1);
                *measured = Some(Measured { taken, again });
                taken
            }
        };
        Ok(Space { free: disk.free.min(quota.saturating_sub(taken)), total: disk.total.min(quota) })
    }

    /// Returns true if enough time has passed since the last search for idle files.
    fn may_look(&self, now: Instant) -> bool {
        self.look_again.lock().unwrap_or_else(PoisonError::into_inner).is_none_or(|again| now >= again)
    }

    /// Notes the duration of a search for idle files.
    fn looked(&self, took: Duration) {
        *self.look_again.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + took * (WALK_PART - 1));
    }
}

fn is_little(space: Space) -> bool {
    space.free < (space.total / LITTLE_PART).min(LITTLE_MOST)
}

fn is_full(space: Space) -> bool {
    space.free < (space.total / FULL_PART).min(FULL_MOST)
}

/// Makes room on the disk, if there is little. Returns the fault if there is none, so that this command must not begin.
pub(super) async fn on_disk(ctx: &Context, work: &CommandRun) -> Option<Fault> {
    let space = match not_little(ctx).await {
        Ok(space) => space,
        Err(error) => {
            tracing::warn!(error = format!("{error:#}"), "room on the disk could not be looked after");
            return None;
        }
    };
    if !is_full(space) {
        return None;
    }
    tracing::error!(pull = %work.pull.id, free = space.free, total = space.total, "the disk is nearly full: a command was refused");
    let (free, total, command) = (size(space.free), size(space.total), work.command.name.spoken());
    let message = format!(
        "The server's disk is nearly full: {free} of {total} are free for checkouts, and nothing more can be removed. `{command}` did \
         not begin, and changed nothing. Close pull requests that are done, or ask whoever runs the server for a larger disk \
         (`--data-dir`, `--scratch-quota-mib`); then comment `{} {command}` again",
        ctx.rendering.executable,
    );
    Some(Fault { reason: Reason::Internal, message, output: String::new() })
}

/// Returns the free space, after making room if there was little. A disk that stays near the limit is not searched for each command.
async fn not_little(ctx: &Context) -> Result<Space> {
    let mut measured = ctx.capacity.measured.lock().await;
    let (space, began) = (ctx.capacity.space(&mut measured).await?, Instant::now());
    if !is_little(space) || (!is_full(space) && !ctx.capacity.may_look(began)) {
        return Ok(space);
    }
    let space = Idlers::new(ctx).make_room(&mut measured, |space| !is_little(space)).await?;
    ctx.capacity.looked(began.elapsed());
    if !is_full(space) {
        return Ok(space);
    }
    // No command is refused because of an old measurement.
    *measured = None;
    Idlers::new(ctx).make_room(&mut measured, |space| !is_little(space)).await
}

/// Returns true if so many more bytes fit without removing anything, which is a condition of files that nobody waits for.
pub(super) async fn has_room_for(ctx: &Context, bytes: u64) -> Result<bool> {
    if is_in_memory(&ctx.capacity.data_dir) {
        // Memory is for running jobs.
        return Ok(false);
    }
    let mut measured = ctx.capacity.measured.lock().await;
    let space = ctx.capacity.space(&mut measured).await?;
    Ok(!is_little(Space { free: space.free.saturating_sub(bytes), ..space }))
}

/// Adds so many bytes to the measured size.
pub(super) async fn added(ctx: &Context, bytes: u64) {
    if let Some(measured) = ctx.capacity.measured.lock().await.as_mut() {
        measured.taken = measured.taken.saturating_add(bytes);
    }
}

/// Makes room before a state is restored, if the disk has little: it holds the second copy of the state, and also the bucket if that is a
/// directory. Checkouts with files that are kept nowhere else stay, as they were not searched yet for files of an interrupted apply. To be
/// called while nothing uses the data directory.
pub(crate) async fn before_restore(data_dir: &Path, checkouts: &Checkouts, installer: &Installer) -> Result<()> {
    let room = Capacity { data_dir: data_dir.to_owned(), ..Capacity::default() };
    let idlers = Idlers { room: &room, checkouts, installer, unkept_too: false };
    let space = idlers.make_room(&mut None, |space| !is_little(space)).await?;
    if is_full(space) {
        let (free, total) = (size(space.free), size(space.total));
        tracing::warn!("the disk is nearly full, {free} of {total} are free, and nothing more of it can be made again");
    }
    Ok(())
}

/// Idle files that are removed to make room.
struct Idlers<'a> {
    room: &'a Capacity,
    checkouts: &'a Checkouts,
    installer: &'a Installer,
    /// True to remove also checkouts with files that are kept nowhere else.
    unkept_too: bool,
}

impl Idlers<'_> {
    fn new(ctx: &Context) -> Idlers<'_> {
        Idlers { room: &ctx.capacity, checkouts: &ctx.checkouts, installer: &ctx.installer, unkept_too: true }
    }

    /// Removes idle files until there is `enough`: checkouts first, then binaries, mirrors, and checkouts with files that are kept nowhere
    /// else. Returns the free space after that.
    async fn make_room(&self, measured: &mut Option<Measured>, enough: impl Fn(Space) -> bool) -> Result<Space> {
        let space = self.room.space(measured).await?;
        if enough(space) {
            return Ok(space);
        }
        let (unkept, trees) =
            self.checkouts.idle_trees().await?.into_iter().partition(|idle: &Idle| idle.has_unkept_files);
        let mut space = self.remove(measured, trees, &enough).await?;
        while !enough(space)
            && let Some((binary, bytes)) = self.installer.remove_idle().await?
        {
            removed(measured, &binary, bytes);
            space = self.room.space(measured).await?;
        }
        if !enough(space) {
            space = self.remove(measured, self.checkouts.idle_mirrors().await?, &enough).await?;
        }
        if !enough(space) && self.unkept_too {
            space = self.remove(measured, unkept, &enough).await?;
        }
        Ok(space)
    }

    async fn remove(
        &self,
        measured: &mut Option<Measured>,
        idle: Vec<Idle>,
        enough: &impl Fn(Space) -> bool,
    ) -> Result<Space> {
        let mut space = self.room.space(measured).await?;
        for idle in idle {
            if enough(space) {
                break;
            }
            let (what, bytes) = (idle.to_string(), idle.bytes);
            if self.checkouts.remove_idle(idle).await? {
                removed(measured, &what, bytes);
                space = self.room.space(measured).await?;
            }
        }
        Ok(space)
    }
}

fn removed(measured: &mut Option<Measured>, what: &str, bytes: u64) {
    tracing::info!(bytes, "removed {what}, which is not in use and can be made again, to free space");
    if let Some(measured) = measured {
        measured.taken = measured.taken.saturating_sub(bytes);
    }
}

/// Waits for permission to run a plan: as for any job, and also while memory is short and running jobs may release some.
pub(super) async fn enter_for_plan<'a>(
    ctx: &'a Context,
    work: &CommandRun,
    project: &ProjectId,
) -> Result<Permit<'a>, Fault> {
    let _next = ctx.capacity.next.lock().await;
    let mut told = false;
    while let Some(memory) = ctx.capacity.short_memory().await {
        if ctx.admission.is_idle() {
            return match ctx.capacity.memory_after_making_room(ctx).await {
                None => Ok(ctx.admission.enter_when_free().await),
                Some(memory) => Err(no_memory(ctx, project, memory)),
            };
        }
        if !told {
            tracing::info!(pull = %work.pull.id, used = memory.used, limit = memory.limit, "a plan waits for memory");
            told = true;
        }
        let looks_again = tokio::time::timeout(LOOK_EVERY, work.cancel.token.cancelled());
        if looks_again.await.is_ok() {
            break;
        }
    }
    Ok(ctx.admission.enter_when_free().await)
}

impl Capacity {
    /// Returns the memory if more of it is in use than a plan may begin with.
    async fn short_memory(&self) -> Option<MemoryUse> {
        if self.memory_percent == 0 {
            return None;
        }
        MemoryUse::now().await.filter(|memory| memory.is_short(self.memory_percent))
    }

    /// Does the same after removing all idle files, if files take memory.
    async fn memory_after_making_room(&self, ctx: &Context) -> Option<MemoryUse> {
        if is_in_memory(&self.data_dir) {
            let mut measured = self.measured.lock().await;
            if let Err(error) = Idlers::new(ctx).make_room(&mut measured, |_| false).await {
                tracing::warn!(error = format!("{error:#}"), "room in memory could not be made");
            }
        }
        self.short_memory().await
    }
}

fn no_memory(ctx: &Context, project: &ProjectId, memory: MemoryUse) -> Fault {
    tracing::error!(used = memory.used, limit = memory.limit, "memory is short while nothing runs: a plan was refused");
    let message = format!(
        "{} of {} of the server's memory are in use while nothing runs, so nothing was planned. Ask an operator for more memory or a \
         data directory on disk (`--max-memory-percent`, now {}); then comment `{}`",
        size(memory.used),
        size(memory.limit),
        ctx.capacity.memory_percent,
        command_for(&ctx.rendering.executable, CommandName::Plan, project, &[]),
    );
    Fault { reason: Reason::Internal, message, output: String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_disk_keeps_a_part_free_and_a_large_one_so_much() {
        const MIB: u64 = 1 << 20;
        for (free, total, little, full) in [
            (100 * MIB, 1000 * MIB, true, false),
            (49 * MIB, 1000 * MIB, true, true),
            (201 * MIB, 1000 * MIB, false, false),
            (2100 * MIB, 1 << 40, false, false),
            (2000 * MIB, 1 << 40, true, false),
            (255 * MIB, 1 << 40, true, true),
            (0, 0, false, false),
        ] {
            let space = Space { free, total };
            assert_eq!((is_little(space), is_full(space)), (little, full), "{space:?}");
        }
    }

    #[test]
    fn looking_for_what_is_idle_takes_a_twentieth_of_the_time() {
        let (room, now) = (Capacity::default(), Instant::now());
        assert!(room.may_look(now));
        room.looked(Duration::from_secs(1));
        assert!(!room.may_look(now + Duration::from_secs(18)));
        assert!(room.may_look(now + Duration::from_secs(20)));
    }
}
