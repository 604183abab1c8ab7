//! The judge: the bucket, the pull request, and the history of both. It reads every object that is written.

use super::objects::{self, Journal};
use super::request::{Content, Op, Reply};
use crate::bucket::{Generation, Listed, Written};
use crate::lease::{self, Record};
use crate::{Hash, Position};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hasher};
use std::ops::Bound;
use std::rc::Rc;
use std::sync::Arc;

/// Content of a commit; the state is the list of all facts.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Fact {
    /// A delivery is recorded.
    Delivery(String),
    /// The apply of a delivery is about to start.
    Apply(String),
    /// Outcome of a delivery.
    Out(String, How),
    /// The comment on a delivery is posted.
    Done(String),
}

impl std::fmt::Debug for Fact {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fact::Delivery(d) => write!(f, "delivery {d}"),
            Fact::Apply(d) => write!(f, "apply {d}"),
            Fact::Out(d, how) => write!(f, "outcome {d} {how:?}"),
            Fact::Done(d) => write!(f, "done {d}"),
        }
    }
}

/// End of a delivery.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(super) enum How {
    Fine,
    Interrupted,
}

/// Report of a server about itself, which the judge checks.
#[derive(Clone, Debug)]
pub(super) enum Note {
    /// It answers a delivery with 2xx.
    Ack(String),
    /// It believes that this commit is durable.
    Durable(Position, Vec<Fact>),
    /// It begins to lead with this state.
    Lead(Position, Vec<Fact>),
    /// It leads on the state of its last term.
    WentOn,
    /// It read this state without leading.
    Read(Position, Vec<Fact>),
    Deposed(String),
    Released,
    /// It stops with an error.
    Stopped(String),
    /// A commit of this epoch under this number begins.
    Tried(u64, u64, Vec<Fact>),
    /// A commit counts as not done.
    Undone(u64, u64, Vec<Fact>),
    /// A script reached the point from which all schedules are tried.
    Ready,
    /// A base could not be written or old objects not be deleted.
    Alarm(String),
    /// It found an error, such as wrong kept contents.
    Wrong(String),
}

#[derive(Clone)]
struct Stored {
    generation: Generation,
    content: Content,
    created: Timestamp,
    label: Arc<str>,
    journal: Option<Rc<Journal>>,
    delivery: Option<Rc<str>>,
}

/// Everything outside the servers.
#[derive(Clone, Default)]
pub(super) struct World {
    objects: BTreeMap<Arc<str>, Stored>,
    generations: BTreeMap<Arc<str>, Generation>,
    /// Existing comments (id, delivery), and the deliveries of all posted ones.
    pub(super) comments: Rc<Vec<(u64, Arc<str>)>>,
    pub(super) posts: Rc<Vec<Arc<str>>>,
    chain: Rc<Vec<(Rc<Journal>, u64)>>,
    /// The whole state in order, and the length of its part after each journal object.
    pub(super) order: Rc<Vec<Fact>>,
    ends: Rc<Vec<usize>>,
    pub(super) facts: Rc<BTreeSet<Fact>>,
    pub(super) acked: Rc<BTreeSet<String>>,
    pub(super) spawned: Rc<Vec<Arc<str>>>,
    epochs: Rc<Vec<(u64, String)>>,
    pub(super) status: u64,
    pub(super) regressed: u64,
    pub(super) stale_spawns: u64,
    pub(super) deleted: u64,
    /// Epoch, number and contents of commits that count as not done and were not tried again since.
    undone: Rc<BTreeSet<(u64, u64, Vec<Fact>)>>,
    pub(super) violations: Rc<Vec<String>>,
    /// Present time in milliseconds. If `None`, an object's number gives its time, so that equal buckets compare equal.
    pub(super) now: Option<i64>,
    keep_states: u64,
}

pub(super) fn number(name: &str) -> u64 {
    name.rsplit('/').next().and_then(|n| n.parse().ok()).unwrap_or_default()
}

impl World {
    /// Returns an empty world in which `keep_states` states have to stay restorable, at least the newest.
    pub(super) fn new(keep_states: u64, now: Option<i64>) -> World {
        World { keep_states: keep_states.max(1), now, ..World::default() }
    }

    pub(super) fn bad(&mut self, what: String) {
        Rc::make_mut(&mut self.violations).push(what);
    }

    /// Returns the identity for the search: equal worlds behave equally.
    pub(super) fn key(&self) -> u64 {
        use std::hash::Hash;
        let mut h = DefaultHasher::new();
        for (name, object) in &self.objects {
            (name, object.generation, object.content.digest).hash(&mut h);
        }
        (&self.comments, &self.acked, &self.spawned, self.chain.len(), self.status).hash(&mut h);
        h.finish()
    }

    pub(super) fn holder(&self) -> Option<String> {
        let record: Record = serde_json::from_slice(&self.objects.get(lease::NAME)?.content.bytes).ok()?;
        record.holder.map(|h| h.nonce)
    }

    fn fold(&self, seq: u64) -> &[Fact] {
        match seq {
            0 => &[],
            seq => &self.order[..self.ends[usize::try_from(seq).unwrap() - 1]],
        }
    }

    fn hash_at(&self, seq: u64) -> Option<Hash> {
        match usize::try_from(seq).unwrap() {
            0 => Some(Hash::default()),
            n => self.chain.get(n - 1).map(|(journal, _)| journal.hash),
        }
    }

    fn put(&mut self, name: &Arc<str>, expected: Option<Generation>, content: &Content, label: &Arc<str>) -> Written {
        let present = self.objects.get(name).cloned();
        if expected.is_some_and(|expected| expected != present.as_ref().map_or(0, |o| o.generation)) {
            return Written::Refused;
        }
        let generation = self.generations.get(name).unwrap_or(&0) + 1;
        self.generations.insert(name.clone(), generation);
        let created = match self.now {
            Some(now) => now,
            None => i64::try_from(number(name) % 1_000_000).unwrap() * 1000,
        };
        let mut stored = Stored {
            generation,
            content: content.clone(),
            created: Timestamp::from_millisecond(1_700_000_000_000 + created).unwrap(),
            label: label.clone(),
            journal: None,
            delivery: None,
        };
        if name.starts_with("journal/") {
            stored.journal = self.put_journal(name, present.as_ref(), content);
        } else if name.starts_with("base/") {
            self.put_base(name, content);
        } else if name.starts_with("inbox/delivery/") {
            stored.delivery = objects::delivery(&content.bytes).map(Rc::from);
        } else if &**name == lease::NAME {
            self.put_lease(content);
        }
        self.objects.insert(name.clone(), stored);
        Written::Stored(generation)
    }

    fn put_journal(&mut self, name: &str, present: Option<&Stored>, content: &Content) -> Option<Rc<Journal>> {
        let (seq, end) = (number(name), self.chain.len() as u64);
        let journal = match objects::journal(content) {
            Ok(journal) => journal,
            Err(error) => {
                self.bad(format!("unreadable: {name}: {error}"));
                return None;
            }
        };
        if seq == end + 1 {
            if journal.previous != self.hash_at(end).unwrap() {
                self.bad(format!("fork: {name} does not continue the {end}th"));
            }
            if !journal.seal && self.undone.contains(&(journal.epoch, seq, journal.facts.clone())) {
                self.bad(format!("called undone, comes into the journal: {name}"));
            }
            for fact in &journal.facts {
                if self.facts.contains(fact) && matches!(fact, Fact::Delivery(_) | Fact::Apply(_)) {
                    self.bad(format!("recorded twice: {fact:?}"));
                }
            }
            Rc::make_mut(&mut self.chain).push((journal.clone(), content.digest));
            Rc::make_mut(&mut self.facts).extend(journal.facts.iter().cloned());
            let order = Rc::make_mut(&mut self.order);
            order.extend(journal.facts.iter().cloned());
            let length = order.len();
            Rc::make_mut(&mut self.ends).push(length);
        } else if seq > end + 1 {
            self.bad(format!("gap: {name} created, the journal ends at {end}"));
        } else if present.is_some_and(|o| o.content != *content) {
            self.bad(format!("overwritten: {name}"));
        }
        Some(journal)
    }

    fn put_base(&mut self, name: &str, content: &Content) {
        match objects::base(content) {
            Ok(base) => {
                let seq = base.position.seq;
                let right = seq == number(name)
                    && seq <= self.chain.len() as u64
                    && self.hash_at(seq) == Some(base.position.hash)
                    && self.fold(seq) == base.facts;
                if !right {
                    self.bad(format!("{name} is not the committed state at that place"));
                }
            }
            Err(error) => self.bad(format!("unreadable: {name}: {error}")),
        }
    }

    fn put_lease(&mut self, content: &Content) {
        let Ok(record) = serde_json::from_slice::<Record>(&content.bytes) else {
            return self.bad("unreadable: the lease".into());
        };
        if let Some(holder) = record.holder {
            let given = (record.epoch, holder.nonce);
            if self.epochs.last() != Some(&given) {
                if self.epochs.iter().any(|(epoch, _)| *epoch >= record.epoch) {
                    self.bad(format!("epoch {} given twice", record.epoch));
                }
                Rc::make_mut(&mut self.epochs).push(given);
            }
        }
    }

    fn delete(&mut self, name: &Arc<str>, expected: Option<Generation>) -> bool {
        let Some(present) = self.objects.get(name) else { return true };
        if expected.is_some_and(|expected| expected != present.generation) {
            return false;
        }
        let Some(gone) = self.objects.remove(name) else { return true };
        self.deleted += 1;
        if let Some(delivery) = gone.delivery
            && self.acked.contains(&*delivery)
            && !self.facts.contains(&Fact::Delivery(delivery.to_string()))
        {
            self.bad(format!("acknowledged delivery {delivery} lost"));
        }
        if name.starts_with("journal/") || name.starts_with("base/") {
            let end = self.chain.len() as u64;
            let kept = end.saturating_sub(self.keep_states - 1);
            for seq in kept..=end {
                self.restorable(seq);
            }
        }
        true
    }

    /// Checks that a base and all of the journal from there to `seq` exist.
    fn restorable(&mut self, seq: u64) {
        let base = self.below("base/").map(|(name, _)| number(name)).filter(|base| *base <= seq).max().unwrap_or(0);
        for place in base + 1..=seq {
            let there = self.objects.get(objects::journal_name(place).as_str());
            let index = usize::try_from(place).unwrap() - 1;
            if there.is_none_or(|o| self.chain.get(index).is_none_or(|(_, digest)| *digest != o.content.digest)) {
                return self.bad(format!("not restorable: state {seq} without journal object {place}"));
            }
        }
    }

    fn below<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a Arc<str>, &'a Stored)> {
        let range = (Bound::Included(prefix), Bound::Unbounded);
        self.objects.range::<str, _>(range).take_while(move |(name, _)| name.starts_with(prefix))
    }

    fn list(&self, prefix: &str, after: &str) -> Reply {
        let names = self.below(prefix).filter(|(name, _)| &***name > after);
        let listed = names.map(|(name, o)| Listed {
            name: name.to_string(),
            generation: o.generation,
            size: o.content.bytes.len() as u64,
            created: o.created,
            label: o.label.to_string(),
        });
        Reply::Listed(Arc::new(listed.collect()))
    }

    fn has_outcome(&self, delivery: &str) -> bool {
        [How::Fine, How::Interrupted].iter().any(|how| self.facts.contains(&Fact::Out(delivery.into(), *how)))
    }

    fn spawn(&mut self, delivery: &Arc<str>) {
        let name = delivery.to_string();
        if !self.facts.contains(&Fact::Apply(name.clone())) {
            self.bad(format!("apply {name} started and no later leader would know"));
        }
        if self.spawned.contains(delivery) {
            self.bad(format!("apply {name} started twice"));
        }
        self.stale_spawns += u64::from(self.facts.contains(&Fact::Out(name, How::Interrupted)));
        Rc::make_mut(&mut self.spawned).push(delivery.clone());
    }

    /// Returns the difference between the state and the comments or the status, once nothing happens any more.
    pub(super) fn at_rest(&self) -> Option<String> {
        let outcomes = self.facts.iter().filter(|f| matches!(f, Fact::Out(..))).count() as u64;
        if self.status != outcomes {
            return Some(format!("at rest the status says {}, not {outcomes}", self.status));
        }
        let done = self.facts.iter().filter_map(|f| if let Fact::Done(d) = f { Some(d) } else { None });
        let comments = done.map(|d| (d, self.comments.iter().filter(|(_, of)| **of == **d).count()));
        let wrong = comments.into_iter().find(|(_, count)| *count != 1);
        wrong.map(|(d, count)| format!("at rest {d} has {count} comments"))
    }

    /// Performs a request.
    pub(super) fn apply(&mut self, op: &Op) -> Reply {
        match op {
            Op::Get(name) => Reply::Object(self.objects.get(name).map(|o| (o.generation, o.content.clone()))),
            Op::Range(name, generation, from, to) => {
                let object = self.objects.get(name).filter(|o| o.generation == *generation);
                Reply::Range(object.map(|o| {
                    let length = o.content.bytes.len();
                    let [from, to] = [from, to].map(|n| usize::try_from(*n).unwrap_or(length).min(length));
                    o.content.bytes.slice(from..to.max(from))
                }))
            }
            Op::Put { name, expected, content, label } => Reply::Written(self.put(name, *expected, content, label)),
            Op::Delete(name, generation) => Reply::Deleted(self.delete(name, *generation)),
            Op::List(prefix, after) => self.list(prefix, after),
            Op::Sleep(_) | Op::Act => Reply::Done,
            Op::Job(step) => panic!("no server of this world takes the step {step:?}"),
            Op::Post(delivery) => {
                if !self.has_outcome(delivery) {
                    self.bad(format!("comment on {delivery} before its outcome is durable"));
                }
                Rc::make_mut(&mut self.posts).push(delivery.clone());
                let id = self.posts.len() as u64;
                Rc::make_mut(&mut self.comments).push((id, delivery.clone()));
                Reply::Done
            }
            Op::Comments(delivery) => {
                Reply::Comments(self.comments.iter().filter(|(_, d)| d == delivery).map(|(id, _)| *id).collect())
            }
            Op::DeleteComment(id) => {
                Rc::make_mut(&mut self.comments).retain(|(there, _)| there != id);
                Reply::Done
            }
            Op::SetStatus(count) => {
                self.regressed += u64::from(*count < self.status);
                self.status = *count;
                Reply::Done
            }
            Op::Status => Reply::Status(self.status),
            Op::Spawn(delivery) => {
                self.spawn(delivery);
                Reply::Done
            }
        }
    }

    /// Checks a server's report about itself.
    pub(super) fn check_report(&mut self, who: &str, note: &Note) {
        match note {
            Note::Ack(delivery) => {
                let stored = self.objects.values().any(|o| o.delivery.as_deref() == Some(delivery.as_str()));
                if !stored && !self.facts.contains(&Fact::Delivery(delivery.clone())) {
                    self.bad(format!("2xx for {delivery} before it is durable"));
                }
                Rc::make_mut(&mut self.acked).insert(delivery.clone());
            }
            Note::Durable(position, facts) => {
                let index = usize::try_from(position.seq).unwrap() - 1;
                let there = self.chain.get(index);
                if there.is_none_or(|(j, _)| j.hash != position.hash || j.facts != *facts) {
                    self.bad(format!("believed durable, is not in the journal: object {} of {who}", position.seq));
                }
            }
            Note::Tried(epoch, seq, facts) => {
                Rc::make_mut(&mut self.undone).remove(&(*epoch, *seq, facts.clone()));
            }
            Note::Undone(epoch, seq, facts) => {
                let there = self.chain.get(usize::try_from(*seq).unwrap() - 1);
                if there.is_some_and(|(there, _)| there.epoch == *epoch && !there.seal && there.facts == *facts) {
                    self.bad(format!("called undone, is in the journal: object {seq} of {who}"));
                }
                Rc::make_mut(&mut self.undone).insert((*epoch, *seq, facts.clone()));
            }
            Note::Lead(position, facts) | Note::Read(position, facts) => {
                let end = self.chain.len() as u64;
                let right = self.hash_at(position.seq) == Some(position.hash) && self.fold(position.seq) == facts;
                if !right {
                    let does = if matches!(note, Note::Lead(..)) { "leads with" } else { "reads" };
                    self.bad(format!("{who} {does} a wrong state (at {}, the journal ends at {end})", position.seq));
                }
            }
            Note::Stopped(why) => self.bad(format!("server stopped on a healthy bucket: {why}")),
            Note::Wrong(what) => self.bad(format!("{who}: {what}")),
            Note::Alarm(why) if self.holder().as_deref() == Some(who) => self.bad(format!("false alarm: {why}")),
            Note::Alarm(_) | Note::Deposed(_) | Note::Released | Note::WentOn | Note::Ready => {}
        }
    }
}
