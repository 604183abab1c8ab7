//! Leaders and attempts of a job, around the vault's real code.

use super::broken::{BrokenJobs, JobVariant};
use super::world::{BEGUN, Choice, IS_TOLD, JobStep, LEADERS, Role, SeenClaim, Told, prefix};
use crate::VaultError;
use crate::calls::Calls;
use crate::jobs::{Claimant, Created, JobObjects, JobResult};
use crate::simulation::port::Port;
use crate::simulation::process::Process;
use crate::simulation::request::{Op, Reply};
use std::sync::Arc;

/// A leader or an attempt.
struct Actor {
    name: String,
    port: Port,
    job: JobObjects<BrokenJobs>,
    variant: Option<JobVariant>,
}

/// Next step of a leader.
enum AfterLook {
    Tell(Told),
    Look,
}

/// Starts a process of the job in a role.
pub(super) fn start(process: usize, role: Role, port: Port, variant: Option<JobVariant>) -> Process {
    let calls = Calls { bucket: Arc::new(port.clone()), clock: Arc::new(port.clone()) };
    let job = JobObjects::new_as(calls, prefix(), BrokenJobs(variant));
    let actor = Actor { name: process.to_string(), port: port.clone(), job, variant };
    Process::new(port, async move {
        match role {
            Role::FirstLeader => actor.lead_first().await,
            Role::SecondLeader => actor.take_over().await,
            Role::Follower => actor.follow().await,
            Role::Cleaner => actor.clean().await,
            Role::Attempt => actor.attempt().await,
        }
    })
}

/// Returns the name of a process, for people.
pub(super) fn called(process: usize) -> String {
    match process.checked_sub(LEADERS) {
        None => format!("leader {}", process + 1),
        Some(attempt) => format!("attempt {}", attempt + 1),
    }
}

impl Actor {
    fn is(&self, variant: JobVariant) -> bool {
        self.variant == Some(variant)
    }

    async fn step(&self, step: JobStep) -> Reply {
        self.port.send(Op::Job(step)).await
    }

    async fn become_a(&self, role: Role) {
        self.step(JobStep::Become(role)).await;
    }

    /// Repeats a call that fails, as a server does that reads the job again later.
    async fn until_known<T>(&self, call: impl AsyncFn() -> Result<T, VaultError>) -> T {
        loop {
            if let Ok(known) = call().await {
                return known;
            }
        }
    }

    /// Commits the beginning, writes the specification, starts the engine, and follows the job.
    async fn lead_first(&self) {
        let early = self.is(JobVariant::EngineBeforeCommit);
        if !early && !matches!(self.step(JobStep::CommitBeginning).await, Reply::Done) {
            return;
        }
        self.until_known(async || self.job.put_spec(&"plan").await).await;
        self.step(JobStep::StartEngine).await;
        if early && !matches!(self.step(JobStep::CommitBeginning).await, Reply::Done) {
            return;
        }
        self.become_a(Role::Follower).await;
    }

    /// Takes the job up by what is committed and by its objects.
    async fn take_over(&self) {
        match self.step(JobStep::ReadJournal).await {
            Reply::Status(BEGUN) if self.is(JobVariant::LeftAlone) => return,
            Reply::Status(BEGUN) => {}
            Reply::Status(IS_TOLD) => return self.become_a(Role::Cleaner).await,
            _ => return,
        }
        if self.is(JobVariant::InterruptedAtOnce) && self.until_known(async || self.job.result().await).await.is_none()
        {
            return self.tell(Told::Interrupted).await;
        }
        if self.until_known(async || self.job.spec::<String>().await).await.is_none() {
            if self.is(JobVariant::NoSpecIsBelieved) {
                return self.tell(Told::NotStarted).await;
            }
            // The engine was not asked yet. The claim makes sure that a request of the first leader has no effect.
            if let AfterLook::Tell(told) = self.withdraw().await {
                return self.tell(told).await;
            }
        }
        self.become_a(Role::Follower).await;
    }

    /// Looks at the job, and tells its end if that is known.
    async fn follow(&self) {
        match self.look().await {
            AfterLook::Tell(told) => self.tell(told).await,
            AfterLook::Look => self.become_a(Role::Follower).await,
        }
    }

    async fn look(&self) -> AfterLook {
        if let Some(result) = self.until_known(async || self.job.result().await).await {
            return AfterLook::Tell(told(&result));
        }
        let seen = match self.until_known(async || self.job.claimant().await).await {
            Some(Claimant::Withdrawn(_)) => return AfterLook::Tell(Told::NotStarted),
            Some(Claimant::Attempt(_)) => SeenClaim::OfAnAttempt,
            None => SeenClaim::None,
        };
        let Reply::Status(chosen) = self.step(JobStep::Choose(seen)).await else { panic!("not a choice") };
        match chosen {
            chosen if chosen == Choice::StartsItAgain as u64 => {
                self.step(JobStep::StartEngine).await;
                AfterLook::Look
            }
            chosen if chosen == Choice::WithdrawsIt as u64 => self.withdraw().await,
            chosen if chosen == Choice::GivesItUp as u64 => self.give_up().await,
            chosen if chosen == Choice::BelievesTheEngine as u64 => AfterLook::Tell(Told::Done),
            _ => AfterLook::Look,
        }
    }

    async fn withdraw(&self) -> AfterLook {
        match self.until_known(async || self.job.withdraw(&self.name).await).await {
            Created::Ours | Created::Theirs(Claimant::Withdrawn(_)) => AfterLook::Tell(Told::NotStarted),
            Created::Theirs(Claimant::Attempt(_)) => AfterLook::Look,
        }
    }

    async fn give_up(&self) -> AfterLook {
        match self.until_known(async || self.job.give_up(&self.name, "the engine says that it is dead").await).await {
            Created::Ours => AfterLook::Tell(Told::Interrupted),
            Created::Theirs(result) => AfterLook::Tell(told(&result)),
        }
    }

    /// Commits the end, then deletes what is not needed.
    async fn tell(&self, told: Told) {
        if let Reply::Done = self.step(JobStep::CommitEnd(told)).await {
            self.become_a(Role::Cleaner).await;
        }
    }

    async fn clean(&self) {
        // A later sweep deletes what stays.
        let _ = self.job.delete().await;
    }

    /// Reads the specification, claims the job, runs it, and stores its end.
    async fn attempt(&self) {
        let Ok(Some(_)) = self.job.spec::<String>().await else { return };
        if self.is(JobVariant::ClaimedAfterTheRun) {
            self.step(JobStep::Run).await;
        }
        let Ok(Created::Ours) = self.job.claim(&self.name).await else { return };
        if !self.is(JobVariant::ClaimedAfterTheRun) {
            self.step(JobStep::Run).await;
        }
        if self.job.finish(&self.name, serde_json::json!("planned")).await.is_ok() {
            self.step(JobStep::Stored).await;
        }
    }
}

fn told(result: &JobResult) -> Told {
    match result {
        JobResult::Ended { .. } => Told::Done,
        JobResult::GivenUp { .. } => Told::Interrupted,
    }
}
