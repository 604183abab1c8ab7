//! A simulated server or attempt by its history. Its next request depends only on the answers so far, so it continues by running again
//! from its start.

use super::port::Port;
use super::process::Process;
use super::request::{Op, Reply};
use super::world::Note;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

/// Requests of one process from which it counts as running in circles.
const LONGEST: usize = 300;

/// Next request and notes of a process after a history.
pub(super) struct Known {
    pub(super) open: Option<(usize, Op)>,
    pub(super) notes: Vec<Note>,
}

struct Answered {
    before: Option<Rc<Answered>>,
    slot: usize,
    reply: Reply,
}

/// One process in one state.
#[derive(Clone)]
pub(super) struct At {
    pub(super) key: u64,
    history: Option<Rc<Answered>>,
    pub(super) known: Rc<Known>,
}

/// All histories so far, by process and key.
#[derive(Default)]
pub(super) struct Histories(HashMap<(usize, u64), Rc<Known>>);

pub(super) fn hash(what: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

impl Histories {
    /// Returns a process after one more answer, or at its start.
    pub(super) fn after(
        &mut self,
        process: usize,
        before: Option<&At>,
        answer: Option<(usize, Reply)>,
        start: impl FnOnce(Port) -> Process,
    ) -> At {
        let (mut key, mut history) = before.map_or((0, None), |at| (at.key, at.history.clone()));
        if let Some((slot, reply)) = answer {
            key = hash((key, slot, reply.digest()));
            history = Some(Rc::new(Answered { before: history, slot, reply }));
        }
        let known = self.0.entry((process, key)).or_insert_with(|| Rc::new(replay(history.as_ref(), start)));
        At { key, known: known.clone(), history }
    }
}

/// Runs a process through a history, to its next request.
fn replay(history: Option<&Rc<Answered>>, start: impl FnOnce(Port) -> Process) -> Known {
    let port = Port::new(0);
    let mut process = start(port.clone());
    let mut answers = Vec::new();
    let mut next = history;
    while let Some(answered) = next {
        answers.push(answered);
        next = answered.before.as_ref();
    }
    assert!(answers.len() < LONGEST, "a process runs in circles");
    settle(&mut process);
    for answered in answers.into_iter().rev() {
        port.take_notes();
        port.answer(answered.slot, answered.reply.clone());
        settle(&mut process);
    }
    let open = port.open().into_iter().find(|(_, op)| !matches!(op, Op::Sleep(_)));
    Known { open, notes: port.take_notes() }
}

/// Runs a process to its next request; sleeps take no time.
fn settle(process: &mut Process) {
    process.run();
    for _ in 0..LONGEST {
        let open = process.port.open();
        let [(slot, Op::Sleep(time)), ..] = &open[..] else { return };
        if open.iter().any(|(_, op)| !matches!(op, Op::Sleep(_))) {
            return; // it does something; the sleep is a time-out
        }
        process.port.advance(*time);
        process.port.answer(*slot, Reply::Done);
        process.run();
    }
    panic!("a process sleeps again and again without asking anything");
}
