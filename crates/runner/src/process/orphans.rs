//! Processes that a child leaves behind. One that has left the child's process group outlives it, and becomes a child of this process after
//! [`adopt_orphans`]. A variable in its environment tells which child it descends from.

use crate::platform;
use anyhow::{Context, ensure};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::collections::HashSet;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

/// Variable that tells which child a process descends from.
const MARK: &str = "PROCESS_MARK";
/// Time limit for killed processes to end.
const LIMIT: Duration = Duration::from_secs(10);

/// True if orphans become this process's children.
static ADOPTS: AtomicBool = AtomicBool::new(false);
/// Held for reading while a child is started and noted, so that a holder for writing sees no child that is not noted yet.
static STARTING: RwLock<()> = RwLock::new(());
/// Held while orphans are waited for: until one is waited for, its ID names no other process.
static WAITING: Mutex<()> = Mutex::new(());
static KNOWN: LazyLock<Mutex<Started>> = LazyLock::new(Mutex::default);

/// Children that this process has started.
#[derive(Default)]
struct Started {
    /// Children that other code waits for.
    children: HashSet<Pid>,
    /// Marks of the children that may have descendants.
    marks: HashSet<String>,
}

/// Reads children of this process.
type ChildList = fn() -> io::Result<HashSet<Pid>>;

fn lock_started() -> MutexGuard<'static, Started> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes this process the parent of the processes that its children leave behind, and waits for those that end by themselves. Call it once,
/// in a process that starts children through this module only: any other child may be taken for an orphan.
pub fn adopt_orphans() -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    platform::adopt_orphans().context("the kernel does not let it adopt what its children leave behind")?;
    // Without this list the orphans cannot be found.
    platform::adopted().context("the kernel does not list the children of a process")?;
    let mut ended = signal(SignalKind::child()).context("SIGCHLD cannot be handled")?;
    ADOPTS.store(true, Ordering::Release);
    tokio::spawn(async move {
        while ended.recv().await.is_some() {
            if let Ok(Err(error)) = tokio::task::spawn_blocking(reap).await {
                tracing::warn!(error = format!("{error:#}"), "processes that have ended cannot be waited for");
            }
        }
    });
    Ok(())
}

/// Tells the descendants of one child from those of others.
pub(super) struct Lineage(Option<String>);

impl Lineage {
    /// Makes a mark for a child that is about to be started; none if orphans are not adopted.
    pub(super) fn new() -> anyhow::Result<Lineage> {
        if !ADOPTS.load(Ordering::Acquire) {
            return Ok(Lineage(None));
        }
        let mut bits = [0; 16];
        getrandom::fill(&mut bits).context("no random bytes")?;
        let mark = format!("{:032x}", u128::from_ne_bytes(bits));
        lock_started().marks.insert(mark.clone());
        Ok(Lineage(Some(mark)))
    }

    /// The variable of the child's environment.
    pub(super) fn variable(&self) -> Option<(String, String)> {
        self.0.clone().map(|mark| (MARK.to_owned(), mark))
    }

    /// Ends all processes that the child has left behind. The child itself has been waited for.
    pub(super) async fn end(mut self) -> anyhow::Result<()> {
        match self.0.take() {
            Some(mark) => tokio::task::spawn_blocking(move || end_and_forget(&mark, platform::adopted)).await?,
            None => Ok(()),
        }
    }
}

impl Drop for Lineage {
    fn drop(&mut self) {
        if let Some(mark) = self.0.take() {
            std::thread::spawn(move || {
                // The child itself may still be ending. It is in the list of the thread that started it, and keeps its descendants.
                if let Err(error) = end_and_forget(&mark, platform::children) {
                    tracing::error!(error = format!("{error:#}"), "processes are left running");
                }
            });
        }
    }
}

/// Returns a guard that permits starting children. Note each child with [`started`] before the guard is dropped.
pub(super) fn starting() -> RwLockReadGuard<'static, ()> {
    STARTING.read().unwrap_or_else(PoisonError::into_inner)
}

/// Records a child that other code waits for.
pub(super) fn started(child: Pid) {
    lock_started().children.insert(child);
}

/// Records that the child was waited for, or that nobody will wait for it.
pub(super) fn ended(child: Pid) {
    lock_started().children.remove(&child);
}

fn end_and_forget(mark: &str, list: ChildList) -> anyhow::Result<()> {
    let ended = end_all(mark, list);
    lock_started().marks.remove(mark);
    ended
}

/// Ends all processes with this mark that are in a list of children or descend from one.
fn end_all(mark: &str, list: ChildList) -> anyhow::Result<()> {
    let _waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
    let deadline = Instant::now() + LIMIT;
    loop {
        let left: Vec<Pid> = orphans_in(list)?.into_iter().filter(|&pid| is_of(pid, mark)).collect();
        let Some(&first) = left.first() else { return Ok(()) };
        let remaining = deadline.saturating_duration_since(Instant::now());
        ensure!(!remaining.is_zero(), "{} of its processes have not ended within {} s", left.len(), LIMIT.as_secs());
        left.into_iter().try_for_each(kill_with_descendants)?;
        platform::await_end(first, remaining)?;
    }
}

/// Returns true unless the orphan carries the mark of another child that may have descendants. An orphan without a mark has hidden it.
fn is_of(orphan: Pid, mark: &str) -> bool {
    let found = platform::variable_of(orphan, MARK);
    found.is_none_or(|found| found == mark || !lock_started().marks.contains(&found))
}

/// Kills an orphan and its descendants. They would become orphans as well; killed together they have less time to start other processes.
fn kill_with_descendants(orphan: Pid) -> anyhow::Result<()> {
    let mut descendants = vec![orphan];
    while let Some(pid) = descendants.pop() {
        descendants.extend(platform::children_of(pid)?);
        match kill_process(pid, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => return Err(error).context("a process that a step has left behind cannot be killed"),
        }
    }
    Ok(())
}

/// Waits for the orphans that have ended by themselves.
fn reap() -> anyhow::Result<()> {
    let _waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
    orphans_in(platform::adopted).map(drop)
}

/// Returns the orphans of a list that still run, and waits for those that have ended. The caller holds [`WAITING`].
fn orphans_in(list: ChildList) -> anyhow::Result<Vec<Pid>> {
    let children = {
        let _nothing_starts = STARTING.write().unwrap_or_else(PoisonError::into_inner);
        let mut children = list()?;
        let known = lock_started();
        children.retain(|child| !known.children.contains(child));
        children
    };
    let runs = |child: &Pid| matches!(waitpid(Some(*child), WaitOptions::NOHANG), Ok(None));
    Ok(children.into_iter().filter(runs).collect())
}
