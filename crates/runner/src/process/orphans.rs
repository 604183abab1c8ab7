//! Processes that a child leaves behind. One that has left the child's process group outlives it, and becomes a child of this process
//! once [`adopt_orphans`] was called; whose it was is told by an entry of its environment.

use crate::platform;
use anyhow::{Context, ensure};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

/// The variable that tells which child a process descends from.
const MARK: &str = "PROCESS_MARK";
/// How long processes that were killed may take to end.
const LIMIT: Duration = Duration::from_secs(10);

/// Whether orphans become this process's children.
static ADOPTS: AtomicBool = AtomicBool::new(false);
/// Held for reading while a child is started and noted, so that whoever holds it for writing sees no child that nobody knows yet.
static STARTING: RwLock<()> = RwLock::new(());
/// Held by whoever waits for orphans: until one is waited for, its id names no other process.
static WAITING: Mutex<()> = Mutex::new(());
static KNOWN: LazyLock<Mutex<Started>> = LazyLock::new(Mutex::default);

/// What this process has started.
#[derive(Default)]
struct Started {
    /// Children that somebody waits for.
    children: HashSet<Pid>,
    /// Marks of those that may have descendants.
    marks: HashSet<String>,
}

fn known() -> MutexGuard<'static, Started> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes this process the parent of whatever its children leave behind, and waits for those that end by themselves. Call it once, in a
/// process that starts children through this module alone: any other child is taken for an orphan.
pub fn adopt_orphans() -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    platform::adopt_orphans().context("the kernel does not let it adopt what its children leave behind")?;
    // Without this list the kernel does not say who they are.
    platform::children().context("the kernel does not list the children of a process")?;
    let mut ended = signal(SignalKind::child()).context("SIGCHLD cannot be handled")?;
    ADOPTS.store(true, Ordering::Release);
    tokio::spawn(async move {
        while ended.recv().await.is_some() {
            if let Ok(Err(error)) = tokio::task::spawn_blocking(|| orphans().map(drop)).await {
                tracing::warn!(error = format!("{error:#}"), "processes that have ended cannot be waited for");
            }
        }
    });
    Ok(())
}

/// Tells the descendants of one child from those of others.
pub(super) struct Lineage(Option<String>);

impl Lineage {
    /// A mark for a child that is about to be started; nothing where orphans are not adopted.
    pub(super) fn new() -> anyhow::Result<Lineage> {
        if !ADOPTS.load(Ordering::Acquire) {
            return Ok(Lineage(None));
        }
        let mut bits = [0; 16];
        getrandom::fill(&mut bits).context("no random bytes")?;
        let mark = format!("{:032x}", u128::from_ne_bytes(bits));
        known().marks.insert(mark.clone());
        Ok(Lineage(Some(mark)))
    }

    /// The variable of the child's environment.
    pub(super) fn variable(&self) -> Option<(String, String)> {
        self.0.clone().map(|mark| (MARK.to_owned(), mark))
    }

    /// Ends whatever the child has left behind. The child itself was waited for.
    pub(super) async fn end(mut self) -> anyhow::Result<()> {
        match self.0.take() {
            Some(mark) => tokio::task::spawn_blocking(move || end_and_forget(&mark)).await?,
            None => Ok(()),
        }
    }
}

impl Drop for Lineage {
    fn drop(&mut self) {
        if let Some(mark) = self.0.take() {
            std::thread::spawn(move || {
                if let Err(error) = end_and_forget(&mark) {
                    tracing::error!(error = format!("{error:#}"), "processes are left running");
                }
            });
        }
    }
}

/// While it is held, children may be started; note each with [`started`] before it is dropped.
pub(super) fn starting() -> RwLockReadGuard<'static, ()> {
    STARTING.read().unwrap_or_else(PoisonError::into_inner)
}

/// Somebody waits for this child.
pub(super) fn started(child: Pid) {
    known().children.insert(child);
}

/// The child was waited for, or nobody will.
pub(super) fn ended(child: Pid) {
    known().children.remove(&child);
}

fn end_and_forget(mark: &str) -> anyhow::Result<()> {
    let ended = end_all(mark);
    known().marks.remove(mark);
    ended
}

fn end_all(mark: &str) -> anyhow::Result<()> {
    let _waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
    let deadline = Instant::now() + LIMIT;
    loop {
        let left: Vec<Pid> = orphans_while_waiting()?.into_iter().filter(|&pid| is_of(pid, mark)).collect();
        let Some(&first) = left.first() else { return Ok(()) };
        let remaining = deadline.saturating_duration_since(Instant::now());
        ensure!(!remaining.is_zero(), "{} of its processes have not ended within {} s", left.len(), LIMIT.as_secs());
        left.into_iter().try_for_each(kill_with_descendants)?;
        platform::await_end(first, remaining)?;
    }
}

/// An orphan belongs to another child only if it carries the mark of one that may have descendants. One without a mark has hidden it.
fn is_of(orphan: Pid, mark: &str) -> bool {
    let found = platform::variable_of(orphan, MARK);
    found.is_none_or(|found| found == mark || !known().marks.contains(&found))
}

/// Descendants of a process that is killed become orphans; killing them with it leaves them less time to start others.
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

/// The orphans that run. Those that have ended are waited for.
fn orphans() -> anyhow::Result<Vec<Pid>> {
    let _waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
    orphans_while_waiting()
}

fn orphans_while_waiting() -> anyhow::Result<Vec<Pid>> {
    let children = {
        let _nothing_starts = STARTING.write().unwrap_or_else(PoisonError::into_inner);
        let mut children = platform::children()?;
        let known = known();
        children.retain(|child| !known.children.contains(child));
        children
    };
    let runs = |child: &Pid| matches!(waitpid(Some(*child), WaitOptions::NOHANG), Ok(None));
    Ok(children.into_iter().filter(runs).collect())
}
