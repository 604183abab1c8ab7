//! The one thread that changes state: takes queued changes, commits those that wait together as one group, then answers.

use super::schema::DirectoryGuard;
use super::{CLOSED, Tx, View};
use anyhow::{Context, Result, anyhow};
use rusqlite::Connection;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tokio::sync::{mpsc, oneshot, watch};

/// Changes that wait for the writer; more callers wait for a place.
const QUEUE_LIMIT: usize = 1024;

/// Changes in one commit: bounds how long the first one of a group waits.
const GROUP_LIMIT: usize = 256;

/// Runs in the writer: on the transaction, or with the reason why there is none.
type Change = Box<dyn FnOnce(Result<&Tx<'_>, &str>) -> Ran + Send>;

/// Tells the caller, once it is known whether the group is durable or why it is not.
type Answer = Box<dyn FnOnce(Result<(), &str>) + Send>;

/// A change that has run and is not durable yet.
struct Ran {
    keep: bool,
    answer: Answer,
}

enum Message {
    Change(Change),
    Close,
}

/// The way to the writer.
pub(super) struct Queue {
    messages: mpsc::Sender<Message>,
    ended: watch::Receiver<Ended>,
}

/// How the writer ended, once it has.
type Ended = Option<Result<(), String>>;

impl Queue {
    /// Queues a change and waits until it is durable.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        change: impl FnOnce(&Tx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (sender, answered) = oneshot::channel();
        let change: Change = Box::new(move |tx| {
            let result = match tx {
                Ok(tx) => catch_unwind(AssertUnwindSafe(|| change(tx))).unwrap_or_else(|panic| Err(described(&*panic))),
                Err(reason) => Err(anyhow!("{reason}")),
            };
            let keep = result.is_ok();
            let answer: Answer = Box::new(move |durable| {
                // A caller that has gone away needs no answer.
                let _ =
                    sender.send(result.and_then(|value| durable.map(|()| value).map_err(|reason| anyhow!("{reason}"))));
            });
            Ran { keep, answer }
        });
        self.messages.send(Message::Change(change)).await.map_err(|_| anyhow!(CLOSED))?;
        answered.await.map_err(|_| anyhow!(CLOSED))?
    }

    /// Waits until all that was queued is durable and the database is closed.
    pub(super) async fn close(&self) -> Result<()> {
        // Refused when somebody else has asked for it already.
        let _ = self.messages.send(Message::Close).await;
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

/// Starts the thread; it ends when it is told to close, or when nobody can reach it any more.
pub(super) fn start(connection: Connection, guard: DirectoryGuard) -> Result<Queue> {
    let (messages, queue) = mpsc::channel(QUEUE_LIMIT);
    let (report, ended) = watch::channel(None);
    let writer = Writer { connection, queue };
    std::thread::Builder::new()
        .name("store".into())
        .spawn(move || writer.run(guard, &report))
        .context("cannot start the thread that keeps the state")?;
    Ok(Queue { messages, ended })
}

struct Writer {
    connection: Connection,
    queue: mpsc::Receiver<Message>,
}

impl Writer {
    fn run(mut self, guard: DirectoryGuard, report: &watch::Sender<Ended>) {
        while let Some(message) = self.queue.blocking_recv() {
            match message {
                Message::Change(first) => self.group(first),
                // Nothing new from here on; what is queued is still done.
                Message::Close => self.queue.close(),
            }
        }
        let closed = self.connection.close().map_err(|(_, error)| error.to_string());
        drop(guard);
        report.send_replace(Some(closed));
    }

    /// A change that waits already.
    fn waiting(&mut self) -> Option<Change> {
        loop {
            match self.queue.try_recv().ok()? {
                Message::Change(change) => return Some(change),
                Message::Close => self.queue.close(),
            }
        }
    }

    /// Runs `first` and what waits behind it in one transaction.
    fn group(&mut self, first: Change) {
        if let Err(error) = self.connection.execute_batch("BEGIN IMMEDIATE") {
            let reason = format!("cannot change the state: {error}");
            return (first(Err(&reason)).answer)(Err(&reason));
        }
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

    /// Runs one change so that it can be undone alone; an error here is the whole group's.
    fn step(&self, change: Change, answers: &mut Vec<Answer>) -> rusqlite::Result<()> {
        let begun = self.statement("SAVEPOINT change");
        let ran = match &begun {
            Ok(()) => change(Ok(&Tx { view: View { connection: &self.connection } })),
            Err(error) => change(Err(&error.to_string())),
        };
        answers.push(ran.answer);
        begun?;
        // A full disk or a failed read may have ended the transaction as a whole; then neither of these works.
        if !ran.keep {
            self.statement("ROLLBACK TO change")?;
        }
        self.statement("RELEASE change")
    }

    fn statement(&self, sql: &str) -> rusqlite::Result<()> {
        self.connection.prepare_cached(sql)?.execute([]).map(drop)
    }

    /// Makes a group durable and then answers its callers: the only place where a change becomes a fact.
    fn commit(&mut self, answers: Vec<Answer>, intact: rusqlite::Result<()>) {
        let committed = intact.and_then(|()| self.connection.execute_batch("COMMIT"));
        // Whatever else has to hold before a change counts (DESIGN §3: the journal in the bucket) goes here: after SQLite's
        // commit, before the answers.
        let durable = committed.map_err(|error| {
            tracing::error!(%error, changes = answers.len(), "a group of changes could not be committed");
            if !self.connection.is_autocommit() {
                let _ = self.connection.execute_batch("ROLLBACK");
            }
            format!("the change could not be recorded and was undone: {error}")
        });
        let durable = durable.as_ref().map_or_else(|reason| Err(reason.as_str()), |()| Ok(()));
        for answer in answers {
            answer(durable);
        }
    }
}
