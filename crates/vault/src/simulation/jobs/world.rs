//! The world of one job: its objects in the bucket, the engine, what is committed, and the judge.

use super::broken::JobVariant;
use crate::bucket::{Listed, Written};
use crate::jobs::{GIVEN_UP, JobPrefix, LATE, RESULT};
use crate::simulation::request::{Content, Op, Reply};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Leaders, then attempts, are the processes of a job.
pub(super) const LEADERS: usize = 2;
/// Maximum number of attempts that the engine starts.
pub(super) const ATTEMPTS: usize = 2;
/// Number of processes.
pub(super) const PROCESSES: usize = LEADERS + ATTEMPTS;
/// Maximum number of starts that leaders ask the engine for.
const MAX_STARTS: u8 = 2;

/// What a leader may do about a job without an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    LooksAgain,
    StartsItAgain,
    WithdrawsIt,
    GivesItUp,
    BelievesTheEngine,
}

/// Answers to [`JobStep::ReadJournal`].
pub(super) const NOTHING_BEGUN: u64 = 0;
pub(super) const BEGUN: u64 = 1;
pub(super) const IS_TOLD: u64 = 2;

/// What the pull request reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::simulation) enum Told {
    Done,
    NotStarted,
    Interrupted,
}

/// Claim that a leader has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::simulation) enum SeenClaim {
    None,
    OfAnAttempt,
}

/// A step that is not a request to the bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::simulation) enum JobStep {
    /// Commits the beginning of the job. Refused if another server leads.
    CommitBeginning,
    /// Commits the end of the job, and what is told of it. Refused if another server leads.
    CommitEnd(Told),
    /// Reads what is committed.
    ReadJournal,
    /// Asks the engine to start the job.
    StartEngine,
    /// Decides what to do about a job without an end.
    Choose(SeenClaim),
    /// Terraform begins.
    Run,
    /// The end is stored.
    Stored,
    /// Goes on in another role, without a memory.
    Become(Role),
}

/// Part of a leader or an attempt. It depends on what is read from its beginning only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::simulation) enum Role {
    /// Begins the job.
    FirstLeader,
    /// Takes the job up.
    SecondLeader,
    /// Looks at the job until its end is known.
    Follower,
    /// Deletes what is not needed.
    Cleaner,
    /// Runs the job.
    Attempt,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct JobObject {
    generation: i64,
    content: Content,
    label: Arc<str>,
}

/// Progress of one attempt, for the judge.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct AttemptRecord {
    ran: bool,
    exited: bool,
    stored: bool,
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct JobWorld {
    objects: BTreeMap<Arc<str>, JobObject>,
    /// Last generation of each name that was overwritten or deleted.
    generations: BTreeMap<Arc<str>, i64>,
    /// Process that leads.
    pub(super) lead: usize,
    begun: bool,
    told: Option<Told>,
    starts: u8,
    /// Number of attempts that the engine may still begin.
    pub(super) startable: usize,
    attempts: [AttemptRecord; ATTEMPTS],
    runs: u8,
}

impl JobWorld {
    pub(super) fn new() -> JobWorld {
        JobWorld {
            objects: BTreeMap::new(),
            generations: BTreeMap::new(),
            lead: 0,
            begun: false,
            told: None,
            starts: 0,
            startable: 0,
            attempts: [AttemptRecord::default(); ATTEMPTS],
            runs: 0,
        }
    }

    fn object(&self, name: &str) -> Option<&JobObject> {
        self.objects.get(prefix().object(name).as_str())
    }

    /// Applies a request or step of a process, except for a choice.
    pub(super) fn apply(&mut self, process: usize, op: &Op) -> Reply {
        match op {
            Op::Get(name) => Reply::Object(self.objects.get(name).map(|o| (o.generation, o.content.clone()))),
            Op::Put { name, expected, content, label } => {
                // Terraform has ended where its end is sent.
                if let Some(attempt) = process.checked_sub(LEADERS) {
                    self.attempts[attempt].exited |= name.ends_with(RESULT);
                }
                Reply::Written(self.put(name, expected.unwrap_or(0), content, label))
            }
            Op::Delete(name, generation) => Reply::Deleted(self.delete(name, generation.unwrap_or(0))),
            Op::List(prefix, after) => self.list(prefix, after),
            Op::Job(step) => self.step(process, *step),
            _ => panic!("no process of a job asks for this"),
        }
    }

    fn put(&mut self, name: &Arc<str>, expected: i64, content: &Content, label: &Arc<str>) -> Written {
        let there = self.objects.get(name).map_or(0, |object| object.generation);
        if there != expected {
            return Written::Refused;
        }
        let generation = self.generations.get(name).copied().unwrap_or(0).max(there) + 1;
        self.objects.insert(name.clone(), JobObject { generation, content: content.clone(), label: label.clone() });
        Written::Stored(generation)
    }

    fn delete(&mut self, name: &Arc<str>, generation: i64) -> bool {
        match self.objects.get(name) {
            Some(object) if object.generation != generation => false,
            Some(_) => {
                self.objects.remove(name);
                self.generations.insert(name.clone(), generation);
                true
            }
            None => true,
        }
    }

    fn list(&self, prefix: &str, after: &str) -> Reply {
        let listed = self.objects.iter().filter(|(name, _)| name.starts_with(prefix) && &***name > after);
        let listed = listed.map(|(name, object)| Listed {
            name: name.to_string(),
            generation: object.generation,
            size: object.content.bytes.len() as u64,
            created: Timestamp::UNIX_EPOCH,
            label: object.label.to_string(),
        });
        Reply::Listed(Arc::new(listed.collect()))
    }

    fn step(&mut self, process: usize, step: JobStep) -> Reply {
        match step {
            JobStep::CommitBeginning | JobStep::CommitEnd(_) if process != self.lead => return Reply::Refused,
            JobStep::CommitBeginning => self.begun = true,
            JobStep::CommitEnd(told) => self.told = self.told.or(Some(told)),
            JobStep::ReadJournal if self.told.is_some() => return Reply::Status(IS_TOLD),
            JobStep::ReadJournal => return Reply::Status(if self.begun { BEGUN } else { NOTHING_BEGUN }),
            JobStep::StartEngine => {
                self.starts += 1;
                self.startable = ATTEMPTS;
            }
            JobStep::Choose(_) | JobStep::Become(_) => panic!("the search answers this"),
            JobStep::Run => {
                self.attempts[process - LEADERS].ran = true;
                self.runs += 1;
            }
            JobStep::Stored => self.attempts[process - LEADERS].stored = true,
        }
        Reply::Done
    }

    /// Returns what a leader may do that has seen this claim and no result. It looks again only if it would see more.
    pub(super) fn choices(&self, seen: SeenClaim, an_attempt_ended: bool, variant: Option<JobVariant>) -> Vec<Choice> {
        let more =
            self.object(RESULT).is_some() || (seen == SeenClaim::None && self.object(crate::jobs::CLAIM).is_some());
        let mut choices = vec![match seen {
            SeenClaim::None => Choice::WithdrawsIt,
            SeenClaim::OfAnAttempt => Choice::GivesItUp,
        }];
        choices.extend(more.then_some(Choice::LooksAgain));
        choices.extend((seen == SeenClaim::None && self.starts < MAX_STARTS).then_some(Choice::StartsItAgain));
        let believes = variant == Some(JobVariant::EngineIsBelieved) && an_attempt_ended;
        choices.extend(believes.then_some(Choice::BelievesTheEngine));
        choices
    }

    /// Returns what is wrong in this state. `leader_ended`: true if the process of the present leader has come to its end.
    pub(super) fn wrong(&self, leader_ended: bool) -> Option<&'static str> {
        let any = |of: fn(&AttemptRecord) -> bool| self.attempts.iter().any(of);
        let given_up = self.object(RESULT).is_some_and(|result| &*result.label == GIVEN_UP);
        let late = self.object(LATE).is_some();
        let has_run = any(|attempt| attempt.ran);
        if self.runs > 1 {
            return Some("terraform ran twice");
        }
        if has_run && !self.begun {
            return Some("terraform runs of which nothing is recorded");
        }
        if has_run && self.told == Some(Told::NotStarted) {
            return Some("told as not started, and it runs");
        }
        if self.told == Some(Told::Done) && !any(|attempt| attempt.exited) {
            return Some("told as done, and it is not");
        }
        if any(|attempt| attempt.stored) && self.told == Some(Told::Interrupted) && !late {
            return Some("its end is stored, and 'interrupted' was told");
        }
        if any(|attempt| attempt.stored) && self.told.is_none() && given_up && !late {
            return Some("its result is overwritten");
        }
        (leader_ended && self.begun && self.told.is_none()).then_some("nothing is told for ever")
    }
}

/// The prefix of the job.
pub(super) fn prefix() -> JobPrefix {
    JobPrefix::new("plans", "0123456789abcdef0123456789abcdef").unwrap()
}
