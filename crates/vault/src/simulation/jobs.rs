//! Search over all schedules of one remote job: two leaders, an engine that starts the job late and twice, attempts that are paused or
//! killed. All of them run the vault's real code against a bucket that loses answers.
//!
//! A process is killed where it is never scheduled again, and paused where it is scheduled late.

mod actors;
mod broken;
mod tests;
mod world;

use self::broken::JobVariant;
use self::world::{ATTEMPTS, JobWorld, LEADERS, PROCESSES, Role};
use super::describe::describe;
use super::history::{At, Histories, hash};
use super::request::{Op, Reply};
use std::collections::{HashSet, VecDeque};
use std::rc::Rc;
pub(super) use world::JobStep;

/// Limits of a search.
#[derive(Debug, Clone, Copy)]
struct JobBounds {
    /// Maximum number of lost or late answers and refusals.
    faults: u32,
    /// Maximum number of states.
    states: usize,
    deposed: Deposed,
}

/// Behaviour of the first leader when a second one takes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deposed {
    /// It does not notice, and goes on until its next commit, which is refused.
    GoesOn,
    /// It is gone. Its open request lands later, or never.
    IsGone,
}

/// Result of a search.
struct JobSchedules {
    states: usize,
    wrong: Option<&'static str>,
    schedule: Vec<String>,
    /// True if all states were visited.
    complete: bool,
}

struct JobLine {
    text: String,
    before: Option<Rc<JobLine>>,
}

#[derive(Clone)]
struct JobNode {
    world: JobWorld,
    at: [Option<(Role, At)>; PROCESSES],
    late: Vec<(usize, Op)>,
    faults: u32,
    line: Option<Rc<JobLine>>,
}

struct JobSearch {
    variant: Option<JobVariant>,
    deposed: Deposed,
    histories: Histories,
}

/// Fault of a request to the bucket.
#[derive(Debug, Clone, Copy)]
enum JobFault {
    None,
    /// It takes effect; its answer is lost.
    Lost,
    /// Its answer is lost; it takes effect later, or never.
    Late,
    /// It is refused, as without permission.
    Refused,
}

/// Tries all schedules within bounds, shortest violation first.
fn search(variant: Option<JobVariant>, bounds: JobBounds) -> JobSchedules {
    let mut search = JobSearch { variant, deposed: bounds.deposed, histories: Histories::default() };
    let mut start = JobNode {
        world: JobWorld::new(),
        at: [const { None }; PROCESSES],
        late: Vec::new(),
        faults: bounds.faults,
        line: None,
    };
    search.begin(&mut start, 0, Role::FirstLeader);
    let mut found = JobSchedules { states: 0, wrong: None, schedule: Vec::new(), complete: true };
    let (mut seen, mut queue) = (HashSet::new(), VecDeque::from([start]));
    while let Some(node) = queue.pop_front() {
        found.states += 1;
        found.wrong = node.world.wrong(node.ended(node.world.lead));
        if found.wrong.is_some() {
            let mut line = node.line.as_ref();
            while let Some(shown) = line {
                found.schedule.insert(0, shown.text.clone());
                line = shown.before.as_ref();
            }
            return found;
        }
        if found.states >= bounds.states {
            found.complete = false;
            return found;
        }
        queue.extend(search.moves(&node).into_iter().filter(|next| seen.insert(next.key())));
    }
    found
}

impl JobNode {
    fn key(&self) -> u64 {
        // The past of a process that has ended does not matter.
        let key = |(role, at): &(Role, At)| at.known.open.is_some().then_some((*role, at.key));
        let at = self.at.each_ref().map(|at| at.as_ref().map(key));
        hash((&self.world, at, &self.late, self.faults))
    }

    /// Returns true if a process has begun and come to its end.
    fn ended(&self, process: usize) -> bool {
        self.at[process].as_ref().is_some_and(|(_, at)| at.known.open.is_none())
    }

    fn say(&mut self, text: String) {
        self.line = Some(Rc::new(JobLine { text, before: self.line.take() }));
    }
}

impl JobSearch {
    fn begin(&mut self, node: &mut JobNode, process: usize, role: Role) {
        node.at[process] = Some((role, self.after(process, role, None, None)));
        self.go_on(node, process);
    }

    fn after(&mut self, process: usize, role: Role, before: Option<&At>, answer: Option<(usize, Reply)>) -> At {
        let (variant, key) = (self.variant, process + PROCESSES * role as usize);
        self.histories.after(key, before, answer, |port| actors::start(process, role, port, variant))
    }

    fn answer(&mut self, node: &mut JobNode, process: usize, slot: usize, reply: Reply) {
        if let Some((role, at)) = &node.at[process] {
            node.at[process] = Some((*role, self.after(process, *role, Some(at), Some((slot, reply)))));
        }
        self.go_on(node, process);
    }

    /// Takes the steps of a process at once whose moment makes no difference to others, nor to the judge.
    fn go_on(&mut self, node: &mut JobNode, process: usize) {
        let Some((slot, Op::Job(step))) = node.at[process].as_ref().and_then(|(_, at)| at.known.open.clone()) else {
            return;
        };
        match step {
            JobStep::Become(role) => self.begin(node, process, role),
            JobStep::Run | JobStep::Stored | JobStep::ReadJournal => {
                let reply = node.world.apply(process, &Op::Job(step));
                node.say(format!("{} {step:?}", actors::called(process)));
                self.answer(node, process, slot, reply);
            }
            _ => {}
        }
    }

    fn moves(&mut self, node: &JobNode) -> Vec<JobNode> {
        let mut moves = Vec::new();
        if node.world.lead == 0 {
            let mut next = node.clone();
            next.world.lead = 1;
            next.say("leader 2 takes over".into());
            if self.deposed == Deposed::IsGone
                && let Some((_, op)) = next.at[0].take().and_then(|(_, at)| at.known.open.clone())
            {
                next.late.extend(op.writes().then_some((0, op)));
            }
            self.begin(&mut next, 1, Role::SecondLeader);
            moves.push(next);
        }
        if let Some(attempt) = (LEADERS..PROCESSES).find(|attempt| node.at[*attempt].is_none())
            && node.world.startable > 0
        {
            let mut next = node.clone();
            next.world.startable -= 1;
            next.say(format!("{} begins", actors::called(attempt)));
            self.begin(&mut next, attempt, Role::Attempt);
            moves.push(next);
        }
        for process in 0..PROCESSES {
            let Some((slot, op)) = node.at[process].as_ref().and_then(|(_, at)| at.known.open.clone()) else {
                continue;
            };
            if let Op::Job(JobStep::Choose(seen)) = op {
                let an_attempt_ended = (LEADERS..LEADERS + ATTEMPTS).any(|attempt| node.ended(attempt));
                for choice in node.world.choices(seen, an_attempt_ended, self.variant) {
                    let mut next = node.clone();
                    next.say(format!("{} {choice:?}", actors::called(process)));
                    self.answer(&mut next, process, slot, Reply::Status(choice as u64));
                    moves.push(next);
                }
                continue;
            }
            moves.push(self.request(node.clone(), process, slot, &op, JobFault::None));
            if node.faults > 0 && matches!(op, Op::Put { .. }) {
                for fault in [JobFault::Lost, JobFault::Late, JobFault::Refused] {
                    moves.push(self.request(node.clone(), process, slot, &op, fault));
                }
            }
        }
        for index in 0..node.late.len() {
            let mut next = node.clone();
            let (process, op) = next.late.remove(index);
            let reply = next.world.apply(process, &op);
            next.say(format!("{} [lands late]", describe(&actors::called(process), &op, Some(&reply))));
            moves.push(next);
        }
        moves
    }

    fn request(&mut self, mut node: JobNode, process: usize, slot: usize, op: &Op, fault: JobFault) -> JobNode {
        let (reply, shown) = match fault {
            JobFault::None => (node.world.apply(process, op), ""),
            JobFault::Lost => {
                node.world.apply(process, op);
                (Reply::Lost, " [took effect]")
            }
            JobFault::Late => {
                node.late.push((process, op.clone()));
                (Reply::Lost, " [may land late]")
            }
            JobFault::Refused => (Reply::Refused, ""),
        };
        node.faults -= u32::from(!matches!(fault, JobFault::None));
        node.say(format!("{}{shown}", describe(&actors::called(process), op, Some(&reply))));
        self.answer(&mut node, process, slot, reply);
        node
    }
}
