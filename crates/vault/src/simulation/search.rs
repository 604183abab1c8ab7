//! Search over all schedules of a scenario, shortest violation first. There is no common time: a sleep ends at once and moves only the
//! clock of its server. So the search may let a waiter take the lease at any point. A crash is a server that is never scheduled again,
//! a pause one that is scheduled late. A server's next request depends only on the answers so far. So a state is the world and each
//! server's history, and a server continues by running again from its start.

use super::describe::describe;
use super::history::{At, Histories, hash};
use super::process::Process;
use super::request::{Op, Reply};
use super::script::{self, Script, Step};
use super::world::{Note, World};
use super::{Server, Variant};
use crate::lease::Timing;
use std::collections::{HashSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

/// Fault of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Injected {
    /// It takes effect; its answer is lost.
    Lost,
    /// Its answer is lost; it takes effect later, or never.
    Late,
    /// It is refused, as without permission.
    Refused,
}

/// TTL of the lease, so long that retries with growing pauses never outlast it.
const TTL: Duration = Duration::from_secs(100_000);
/// Number of states that stay restorable behind the newest one: none, the hardest case.
const KEEP_STATES: u64 = 0;

/// Limits of a search.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Maximum number of lost or late answers and refusals.
    pub(super) faults: u32,
    /// Maximum number of states.
    pub(super) states: usize,
    /// Maximum number of switches away from a server that could continue.
    pub(super) switches: Option<u32>,
}

/// Result of a search.
pub(super) struct Found {
    pub(super) states: usize,
    pub(super) violation: Option<String>,
    pub(super) schedule: Vec<String>,
    /// True if all states were visited.
    pub(super) complete: bool,
}

struct Line {
    server: usize,
    op: Op,
    reply: Reply,
    fault: &'static str,
    before: Option<Rc<Line>>,
}

#[derive(Clone)]
struct Node {
    world: World,
    at: Vec<At>,
    late: Vec<(usize, Op)>,
    faults: u32,
    last: Option<usize>,
    switches: u32,
    line: Option<Rc<Line>>,
}

struct Search {
    scripts: Vec<Script>,
    variant: Variant,
    histories: Histories,
}

/// Tries all schedules of a scenario within bounds.
pub(super) fn search(name: &str, variant: impl Into<Variant>, bounds: Bounds) -> Found {
    let variant = variant.into();
    let mut search = Search { scripts: script::scenario(name), variant, histories: Histories::default() };
    search.all(bounds)
}

impl Search {
    fn after(&mut self, server: usize, before: Option<&At>, answer: Option<(usize, Reply)>) -> At {
        let ((name, steps), variant) = (&self.scripts[server], self.variant);
        self.histories.after(server, before, answer, |port| {
            let timing = Timing { ttl: TTL, renew: TTL / 4, poll: TTL };
            let simulated = Server::new(name, port.clone(), timing, KEEP_STATES, variant);
            Process::new(port, script::follow(simulated, steps.clone()))
        })
    }

    /// Gives a server an answer and passes its notes to the judge.
    fn advance(&mut self, node: &mut Node, server: usize, slot: usize, reply: Reply) {
        let at = self.after(server, Some(&node.at[server]), Some((slot, reply)));
        node.at[server] = at;
        let known = node.at[server].known.clone();
        for note in &known.notes {
            node.world.check_report(self.scripts[server].0, note);
        }
    }

    fn start(&mut self, faults: u32) -> Node {
        let at = (0..self.scripts.len()).map(|server| self.after(server, None, None)).collect();
        let world = World::new(KEEP_STATES, None);
        let mut node = Node { world, at, late: Vec::new(), faults, last: None, switches: 0, line: None };
        if self.scripts[0].1.iter().any(|step| matches!(step, Step::Ready)) {
            while !node.at[0].known.notes.iter().any(|note| matches!(note, Note::Ready)) {
                let (slot, op) = node.at[0].known.open.clone().unwrap();
                let reply = node.world.apply(&op);
                self.advance(&mut node, 0, slot, reply);
            }
        }
        node
    }

    fn all(&mut self, bounds: Bounds) -> Found {
        let mut found = Found { states: 0, violation: None, schedule: Vec::new(), complete: true };
        let mut queue = VecDeque::from([self.start(bounds.faults)]);
        let mut seen = HashSet::new();
        while let Some(node) = queue.pop_front() {
            found.states += 1;
            if let Some(violation) = node.world.violations.first() {
                found.violation = Some(violation.clone());
                let mut line = node.line.as_ref();
                while let Some(Line { server, op, reply, fault, before }) = line.map(|line| &**line) {
                    let text = describe(self.scripts[*server].0, op, Some(reply));
                    found.schedule.insert(0, format!("{text}{fault}"));
                    line = before.as_ref();
                }
                return found;
            }
            if found.states >= bounds.states {
                found.complete = false;
                return found;
            }
            for next in self.moves(&node, bounds) {
                let at = next.at.iter().map(|at| at.key).collect::<Vec<_>>();
                let counted = bounds.switches.map(|_| (next.last, next.switches));
                let key = hash((next.world.key(), at, &next.late, next.faults, counted));
                if seen.insert(key) || !next.world.violations.is_empty() {
                    queue.push_back(next);
                }
            }
        }
        found
    }

    fn moves(&mut self, node: &Node, bounds: Bounds) -> Vec<Node> {
        let mut moves = Vec::new();
        for server in 0..node.at.len() {
            let Some((slot, op)) = node.at[server].known.open.clone() else { continue };
            let away = node.last.is_some_and(|last| last != server && node.at[last].known.open.is_some());
            let switches = node.switches + u32::from(away);
            if bounds.switches.is_some_and(|most| switches > most) {
                continue;
            }
            let base = Node { last: Some(server), switches, ..node.clone() };
            moves.push(self.step(base.clone(), server, slot, &op, None));
            if node.faults > 0 && op.writes() && !matches!(op, Op::Spawn(_)) {
                let faults: &[Injected] = match op.is_of_bucket() && bounds.faults > 1 {
                    true => &[Injected::Lost, Injected::Late, Injected::Refused],
                    // A refusal matters only together with another fault.
                    false => &[Injected::Lost, Injected::Late],
                };
                for fault in faults {
                    moves.push(self.step(base.clone(), server, slot, &op, Some(*fault)));
                }
            }
        }
        for index in 0..node.late.len() {
            let mut next = node.clone();
            let (server, op) = next.late.remove(index);
            let reply = next.world.apply(&op);
            let fault = " [lands late]";
            next.line = Some(Rc::new(Line { server, op, reply, fault, before: next.line }));
            moves.push(next);
        }
        moves
    }

    fn step(&mut self, mut node: Node, server: usize, slot: usize, op: &Op, fault: Option<Injected>) -> Node {
        let (reply, shown) = match fault {
            None => (node.world.apply(op), ""),
            Some(Injected::Lost) => {
                node.world.apply(op);
                (Reply::Lost, " [took effect]")
            }
            Some(Injected::Late) => {
                node.late.push((server, op.clone()));
                (Reply::Lost, " [may land late]")
            }
            Some(Injected::Refused) => (Reply::Refused, ""),
        };
        node.faults -= u32::from(fault.is_some());
        let before = node.line.take();
        node.line = Some(Rc::new(Line { server, op: op.clone(), reply: reply.clone(), fault: shown, before }));
        self.advance(&mut node, server, slot, reply);
        node
    }
}
