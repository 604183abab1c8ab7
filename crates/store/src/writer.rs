//! The thread that changes the state: it runs queued changes, commits waiting ones together as one group, then answers
//! their callers.

use super::audit::PendingAudit;
use super::base::Pin;
use super::files::KeptFiles;
use super::rows::ChangeRecorder;
use super::schema::{self, DirectoryGuard};
use super::{CLOSED, CommitSignals, Tx, View};
use anyhow::{Context, Result, anyhow};
use rusqlite::Connection;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use tidelock_vault::leader::Leader;
use tidelock_vault::{Changes, VaultError};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, oneshot, watch};

/// Maximum number of queued changes; further callers wait.
const QUEUE_LIMIT: usize = 1024;

/// Maximum number of changes in one commit, which bounds the wait of the first one.
const GROUP_LIMIT: usize = 256;

/// A change that runs in the writer: with the transaction, or with the reason why there is none.
type Change = Box<dyn FnOnce(Result<&Tx<'_>, &GroupError>) -> ExecutedChange + Send>;

/// Function that answers the caller with the result of the group's commit.
type Completion = Box<dyn FnOnce(Result<(), &GroupError>) + Send>;

/// Reason why a group of changes was not committed.
#[derive(Debug, Clone)]
enum GroupError {
    /// This group failed; a later one may succeed.
    Failed(String),
    /// Another server leads or may lead: all further groups fail.
    Deposed(String),
}

impl GroupError {
    fn error(&self) -> anyhow::Error {
        match self {
            GroupError::Failed(reason) => anyhow!("{reason}"),
            GroupError::Deposed(reason) => VaultError::Deposed(reason.clone()).into(),
        }
    }
}

/// Reason why this process must not act any more, once it was deposed.
pub(super) type Deposed = Arc<OnceLock<String>>;

/// An executed change that is not durable yet.
struct ExecutedChange {
    keep: bool,
    answer: Completion,
}

enum WriterMessage {
    Change(Change),
    /// Request to begin a read transaction between two groups.
    Pin(Pin),
    Close,
}

/// The queue of the writer.
pub(super) struct WriteQueue {
    messages: mpsc::Sender<WriterMessage>,
    ended: watch::Receiver<WriterResult>,
    /// Number of commits that queue an automatic re-plan or record unapplied merged changes.
    pub(super) replans_recorded: watch::Receiver<u64>,
    /// Number of commits that end a delivery.
    pub(super) deliveries_finished: watch::Receiver<u64>,
    /// Number of commits.
    pub(super) commits: watch::Receiver<u64>,
}

/// Result of closing the database, once the writer has ended.
type WriterResult = Option<Result<(), String>>;

impl WriteQueue {
    /// Queues a change and waits until it is durable.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        change: impl FnOnce(&Tx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (sender, answered) = oneshot::channel();
        let change: Change = Box::new(move |tx| {
            let result = match tx {
                Ok(tx) => catch_unwind(AssertUnwindSafe(|| change(tx))).unwrap_or_else(|panic| Err(described(&*panic))),
                Err(undone) => Err(undone.error()),
            };
            let keep = result.is_ok();
            let answer: Completion = Box::new(move |durable| {
                // The caller may have stopped waiting.
                let _ = sender.send(result.and_then(|value| durable.map(|()| value).map_err(GroupError::error)));
            });
            ExecutedChange { keep, answer }
        });
        self.messages.send(WriterMessage::Change(change)).await.map_err(|_| anyhow!(CLOSED))?;
        answered.await.map_err(|_| anyhow!(CLOSED))?
    }

    /// Requests a pin of the state between two groups; the pin's own receiver gets the answer.
    pub(super) async fn pin(&self, pin: Pin) -> Result<()> {
        self.messages.send(WriterMessage::Pin(pin)).await.map_err(|_| anyhow!(CLOSED))
    }

    /// Waits until all queued changes are durable and the database is closed.
    pub(super) async fn close(&self) -> Result<()> {
        // Fails if another caller has requested it already.
        let _ = self.messages.send(WriterMessage::Close).await;
        let mut ended = self.ended.clone();
        let ended = ended.wait_for(Option::is_some).await.context("the thread that keeps the state is gone")?;
        match &*ended {
            Some(Err(reason)) => Err(anyhow!("cannot close the state: {reason}")),
            _ => Ok(()),
        }
    }
}

fn described(panic: &(dyn Any + Send)) -> anyhow::Error {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    anyhow!("a change of state panicked, and was undone: {}", text.unwrap_or("no message"))
}

/// Resources that the writer thread owns.
pub(super) struct WriterParts {
    pub(super) connection: Connection,
    pub(super) guard: DirectoryGuard,
    /// Kept files of the data directory.
    pub(super) kept: KeptFiles,
    /// Journal that receives commits before SQLite.
    pub(super) journal: Option<Journal>,
}

/// Access to the journal in the bucket.
pub(super) struct Journal {
    pub(super) leader: Leader,
    pub(super) runtime: Handle,
    pub(super) deposed: Deposed,
    /// Notified after each commit that leaves a base due.
    pub(super) base_due: Arc<Notify>,
}

/// Starts the thread. It ends when the queue is closed or dropped.
pub(super) fn start(mut work: WriterParts) -> Result<WriteQueue> {
    let (messages, queue) = mpsc::channel(QUEUE_LIMIT);
    let (report, ended) = watch::channel(None);
    let (replan_counter, replans_recorded) = watch::channel(0);
    let (delivery_counter, deliveries_finished) = watch::channel(0);
    let (commit_counter, commits) = watch::channel(0);
    let recorder = work.journal.as_ref().map(|_| ChangeRecorder::attach(&mut work.connection)).transpose()?;
    let WriterParts { connection, guard, kept, journal } = work;
    let writer = WriterThread {
        connection,
        queue,
        kept,
        journal,
        pending_audit: PendingAudit::default(),
        recorder: recorder.unwrap_or_default(),
        deferred_pin: None,
        signals: CommitSignals::default(),
        replan_counter,
        delivery_counter,
        commit_counter,
    };
    std::thread::Builder::new()
        .name("store".into())
        .spawn(move || writer.run(guard, &report))
        .context("cannot start the thread that keeps the state")?;
    Ok(WriteQueue { messages, ended, replans_recorded, deliveries_finished, commits })
}

struct WriterThread {
    connection: Connection,
    queue: mpsc::Receiver<WriterMessage>,
    kept: KeptFiles,
    journal: Option<Journal>,
    /// Rows that the group changed so far; empty without a journal.
    recorder: ChangeRecorder,
    /// Audit entries of the group.
    pending_audit: PendingAudit,
    /// A pin that arrived while a group was collected and waits for its end.
    deferred_pin: Option<Pin>,
    /// Properties of the group that tasks wait for.
    signals: CommitSignals,
    replan_counter: watch::Sender<u64>,
    delivery_counter: watch::Sender<u64>,
    commit_counter: watch::Sender<u64>,
}

impl WriterThread {
    fn run(mut self, guard: DirectoryGuard, report: &watch::Sender<WriterResult>) {
        while let Some(message) = self.queue.blocking_recv() {
            match message {
                WriterMessage::Change(first) => self.group(first),
                WriterMessage::Pin(pin) => self.pin(pin),
                // Accepts no new changes; queued ones still run.
                WriterMessage::Close => self.queue.close(),
            }
            if let Some(pin) = self.deferred_pin.take() {
                self.pin(pin);
            }
        }
        let closed = self.connection.close().map_err(|(_, error)| error.to_string());
        drop(guard);
        report.send_replace(Some(closed));
    }

    /// Takes the next queued change, without waiting.
    fn waiting(&mut self) -> Option<Change> {
        while self.deferred_pin.is_none() {
            match self.queue.try_recv().ok()? {
                WriterMessage::Change(change) => return Some(change),
                WriterMessage::Pin(pin) => self.deferred_pin = Some(pin),
                WriterMessage::Close => self.queue.close(),
            }
        }
        None
    }

    fn pin(&self, pin: Pin) {
        if let Some(journal) = &self.journal {
            pin.take(journal.leader.position(), journal.deposed.get());
        }
    }

    /// Returns the reason why no change is possible any more; absent if there is none.
    fn deposed(&self) -> Option<GroupError> {
        self.journal.as_ref().and_then(|journal| journal.deposed.get()).cloned().map(GroupError::Deposed)
    }

    /// Runs `first` and the queued changes behind it in one transaction.
    fn group(&mut self, first: Change) {
        let begun = match self.deposed() {
            Some(deposed) => Err(deposed),
            None => (self.connection.execute_batch("BEGIN IMMEDIATE"))
                .map_err(|error| GroupError::Failed(format!("cannot change the state: {error}"))),
        };
        if let Err(undone) = begun {
            return (first(Err(&undone)).answer)(Err(&undone));
        }
        self.recorder.clear();
        self.kept.clear();
        self.pending_audit.clear();
        self.signals = CommitSignals::default();
        let mut answers = Vec::new();
        let mut next = Some(first);
        let mut intact = Ok(());
        while let (Some(change), Ok(())) = (next.take(), &intact) {
            intact = self.step(change, &mut answers);
            if answers.len() < GROUP_LIMIT && intact.is_ok() {
                next = self.waiting();
            }
        }
        self.commit(answers, intact);
    }

    /// Runs one change so that it can be undone alone. An error concerns the whole group.
    fn step(&self, change: Change, answers: &mut Vec<Completion>) -> rusqlite::Result<()> {
        let marks = (self.recorder.mark(), self.kept.mark(), self.pending_audit.mark());
        let begun = self.statement("SAVEPOINT change");
        let ran = match &begun {
            Ok(()) => {
                let view = View { connection: &self.connection };
                change(Ok(&Tx { view, kept: &self.kept, pending_audit: &self.pending_audit, signals: &self.signals }))
            }
            Err(error) => change(Err(&GroupError::Failed(error.to_string()))),
        };
        answers.push(ran.answer);
        begun?;
        // A full disk or a failed read may have ended the whole transaction; then neither statement works.
        if !ran.keep {
            self.statement("ROLLBACK TO change")?;
            self.recorder.rewind(marks.0);
            self.kept.rewind(marks.1);
            self.pending_audit.rewind(marks.2);
        }
        self.statement("RELEASE change")
    }

    fn statement(&self, sql: &str) -> rusqlite::Result<()> {
        self.connection.prepare_cached(sql)?.execute([]).map(drop)
    }

    /// Commits a group and answers its callers. This is the only place where changes become durable.
    fn commit(&mut self, answers: Vec<Completion>, intact: rusqlite::Result<()>) {
        let failed = |error: anyhow::Error| {
            GroupError::Failed(format!("the change could not be recorded and was undone: {error:#}"))
        };
        let durable = intact.map_err(|error| failed(error.into())).and_then(|()| self.durable());
        if let Err(undone) = &durable {
            let reason = undone.error();
            tracing::error!(error = format!("{reason:#}"), changes = answers.len(), "a group of changes was undone");
            if !self.connection.is_autocommit() {
                let _ = self.connection.execute_batch("ROLLBACK");
            }
        }
        if durable.is_ok() {
            self.pending_audit.say();
            let signals = &self.signals;
            let counters = [
                (&signals.replan_recorded, &self.replan_counter),
                (&signals.delivery_finished, &self.delivery_counter),
            ];
            for (_, counter) in counters.into_iter().filter(|(is_there, _)| is_there.get()) {
                counter.send_modify(|count| *count += 1);
            }
            self.commit_counter.send_modify(|count| *count += 1);
        }
        for answer in answers {
            answer(durable.as_ref().copied());
        }
    }

    /// Commits to the journal before SQLite, so that readers see only what is in the bucket.
    fn durable(&self) -> Result<(), GroupError> {
        let failed = |error: anyhow::Error| {
            GroupError::Failed(format!("the change could not be recorded and was undone: {error:#}"))
        };
        let mut journalled = false;
        if let Some(journal) = &self.journal
            && let Some(changes) = self.changes().map_err(failed)?
        {
            journal.commit(changes)?;
            journalled = true;
        }
        let committed = self.connection.execute_batch("COMMIT");
        match (committed, &self.journal) {
            (Err(error), Some(journal)) if journalled => {
                let reason = format!(
                    "this server's database did not take what the bucket has ({error}): it has to be restored by a restart"
                );
                journal.leader.stand_down(&reason);
                Err(journal.depose(reason))
            }
            (committed, _) => committed.map_err(|error| failed(error.into())),
        }
    }

    /// Returns the changes of the group; `None` if it changed no row.
    fn changes(&self) -> Result<Option<Changes>> {
        let Some(rows) = self.recorder.capture(&self.connection)? else { return Ok(None) };
        let blobs = self.kept.blobs(&self.connection)?;
        Ok(Some(Changes { schema: schema::newest(), rows: rows.into(), blobs }))
    }
}

impl Journal {
    fn commit(&self, changes: Changes) -> Result<(), GroupError> {
        match self.runtime.block_on(self.leader.commit(changes)) {
            Ok(_) => {
                if self.leader.base_due() {
                    self.base_due.notify_one();
                }
                Ok(())
            }
            Err(VaultError::Deposed(reason)) => Err(self.depose(reason)),
            Err(error) => Err(GroupError::Failed(format!("the change could not be recorded and was undone: {error}"))),
        }
    }

    /// Records that this process was deposed: no further change or external effect.
    fn depose(&self, reason: String) -> GroupError {
        GroupError::Deposed(self.deposed.get_or_init(|| reason).clone())
    }
}
