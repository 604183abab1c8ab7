//! Connections of a simulated server: bucket, clock, pull request, deliveries. Each request waits in a slot until an engine answers it.
//! The engine alone decides the time.

use super::request::{Content, Op, Reply};
use super::world::Note;
use crate::bucket::{Body, Bucket, BucketError, Generation, Listed, Object, Written};
use crate::clock::Clock;
use async_trait::async_trait;
use bytes::Bytes;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

struct Slot {
    op: Op,
    reply: Option<Reply>,
    answered: bool,
    waker: Option<Waker>,
}

#[derive(Default)]
struct Inner {
    slots: Vec<Slot>,
    /// Slots with a waiting caller.
    open: BTreeSet<usize>,
    /// Number of slots without an answer, with a waiting caller or without.
    unanswered: usize,
    now: Duration,
    notes: Vec<Note>,
    mail: VecDeque<String>,
    term: bool,
    mail_waker: Option<Waker>,
    random: u64,
    /// True if preconditions of the journal are ignored.
    unfenced: bool,
}

/// One server's connections; cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Port(Arc<Mutex<Inner>>);

/// Result of [`Port::mail`].
pub(super) enum Mail {
    Delivery(String),
    Terminate,
}

struct Ask<'a> {
    port: &'a Port,
    slot: usize,
}

impl Future for Ask<'_> {
    type Output = Reply;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Reply> {
        let mut inner = self.port.lock();
        let slot = &mut inner.slots[self.slot];
        if let Some(reply) = slot.reply.take() {
            return Poll::Ready(reply);
        }
        slot.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Ask<'_> {
    fn drop(&mut self) {
        self.port.lock().open.remove(&self.slot);
    }
}

impl Port {
    pub(super) fn new(random: u64) -> Port {
        let port = Port::default();
        port.lock().random = random;
        port
    }

    pub(super) fn unfence(&self) {
        self.lock().unfenced = true;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    /// Sends a request and waits for its answer. Called by the server.
    pub(super) async fn send(&self, op: Op) -> Reply {
        let slot = {
            let mut inner = self.lock();
            let slot = inner.slots.len();
            inner.slots.push(Slot { op, reply: None, answered: false, waker: None });
            inner.open.insert(slot);
            inner.unanswered += 1;
            slot
        };
        Ask { port: self, slot }.await
    }

    pub(super) fn report(&self, note: Note) {
        self.lock().notes.push(note);
    }

    /// Returns a random number below `bound`.
    pub(super) fn random(&self, bound: u64) -> u64 {
        super::random::next(&mut self.lock().random) % bound
    }

    /// Waits for the next delivery, or for the signal to end.
    pub(super) async fn mail(&self) -> Mail {
        std::future::poll_fn(|cx| match self.try_mail() {
            Some(mail) => Poll::Ready(mail),
            None => {
                self.lock().mail_waker = Some(cx.waker().clone());
                Poll::Pending
            }
        })
        .await
    }

    pub(super) fn try_mail(&self) -> Option<Mail> {
        let mut inner = self.lock();
        if inner.term {
            return Some(Mail::Terminate);
        }
        inner.mail.pop_front().map(Mail::Delivery)
    }

    /// Sets the server's clock. This and the functions below are for the engine.
    pub(super) fn set_now(&self, now: Duration) {
        self.lock().now = now;
    }

    pub(super) fn advance(&self, by: Duration) {
        self.lock().now += by;
    }

    pub(super) fn deliver(&self, delivery: &str) {
        let mut inner = self.lock();
        inner.mail.push_back(delivery.to_owned());
        inner.mail_waker.take().into_iter().for_each(Waker::wake);
    }

    pub(super) fn terminate(&self) {
        let mut inner = self.lock();
        inner.term = true;
        inner.mail_waker.take().into_iter().for_each(Waker::wake);
    }

    pub(super) fn answer(&self, slot: usize, reply: Reply) {
        let mut inner = self.lock();
        inner.open.remove(&slot);
        let answered = &mut inner.slots[slot];
        answered.reply = Some(reply);
        let first = !std::mem::replace(&mut answered.answered, true);
        answered.waker.take().into_iter().for_each(Waker::wake);
        inner.unanswered -= usize::from(first);
    }

    /// Returns the requests from the `from`th on.
    pub(super) fn issued(&self, from: usize) -> Vec<(usize, Op)> {
        self.lock().slots[from..].iter().zip(from..).map(|(slot, i)| (i, slot.op.clone())).collect()
    }

    /// Returns one request.
    pub(super) fn asked(&self, slot: usize) -> Op {
        self.lock().slots[slot].op.clone()
    }

    /// Returns the requests with a waiting caller.
    pub(super) fn open(&self) -> Vec<(usize, Op)> {
        let inner = self.lock();
        inner.open.iter().map(|slot| (*slot, inner.slots[*slot].op.clone())).collect()
    }

    /// Returns true if a request has a waiting caller.
    pub(super) fn is_open(&self) -> bool {
        !self.lock().open.is_empty()
    }

    pub(super) fn take_notes(&self) -> Vec<Note> {
        std::mem::take(&mut self.lock().notes)
    }

    pub(super) fn waits(&self) -> bool {
        let inner = self.lock();
        inner.mail_waker.is_some() || inner.unanswered > 0
    }
}

/// Returns the error for a lost or refused answer.
fn failed(reply: &Reply, doing: &str, name: &str) -> BucketError {
    let (location, doing) = ("sim".to_owned(), format!("{doing} {name}"));
    match reply {
        Reply::Refused => BucketError::Refused { location, doing, reason: "no rights".into() },
        _ => BucketError::Unavailable { location, doing, reason: "the answer was lost".into() },
    }
}

#[async_trait]
impl Bucket for Port {
    fn location(&self) -> &str {
        "sim"
    }

    async fn check(&self) -> Result<Vec<String>, BucketError> {
        Ok(Vec::new())
    }

    async fn get(&self, name: &str) -> Result<Option<Object>, BucketError> {
        match self.send(Op::Get(name.into())).await {
            Reply::Object(object) => Ok(object.map(|(generation, c)| Object { generation, bytes: c.bytes })),
            reply => Err(failed(&reply, "get", name)),
        }
    }

    async fn get_range(
        &self,
        name: &str,
        generation: Generation,
        range: Range<u64>,
    ) -> Result<Option<Bytes>, BucketError> {
        match self.send(Op::Range(name.into(), generation, range.start, range.end)).await {
            Reply::Range(bytes) => Ok(bytes),
            reply => Err(failed(&reply, "read", name)),
        }
    }

    async fn put(&self, name: &str, expected: Generation, body: Body, label: &str) -> Result<Written, BucketError> {
        let bytes = match body {
            Body::Bytes(bytes) => bytes,
            Body::File(path) => std::fs::read(path).unwrap().into(),
        };
        let trusting = self.lock().unfenced && name.starts_with("journal/");
        let op = Op::Put {
            name: name.into(),
            expected: (!trusting).then_some(expected),
            content: Content::new(bytes),
            label: label.into(),
        };
        match self.send(op).await {
            Reply::Written(written) => Ok(written),
            reply => Err(failed(&reply, "put", name)),
        }
    }

    async fn delete(&self, name: &str, generation: Generation) -> Result<bool, BucketError> {
        match self.send(Op::Delete(name.into(), Some(generation))).await {
            Reply::Deleted(gone) => Ok(gone),
            reply => Err(failed(&reply, "delete", name)),
        }
    }

    async fn list(&self, prefix: &str, after: &str) -> Result<Vec<Listed>, BucketError> {
        match self.send(Op::List(prefix.into(), after.into())).await {
            Reply::Listed(list) => Ok(list.to_vec()),
            reply => Err(failed(&reply, "list", prefix)),
        }
    }

    fn requests(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

#[async_trait]
impl Clock for Port {
    fn now(&self) -> Duration {
        self.lock().now
    }

    fn wall(&self) -> jiff::Timestamp {
        jiff::Timestamp::UNIX_EPOCH
    }

    async fn sleep(&self, time: Duration) {
        self.send(Op::Sleep(time)).await;
    }
}
