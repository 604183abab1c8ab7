//! Follows one remote job to its end, from its start or from where an earlier leader left it.

mod sent;
#[cfg(test)]
mod tests;

use super::engine::{Engine, EngineJob, EngineState, NotStarted};
use crate::vault::VaultError;
use crate::vault::jobs::{Claimant, Created, JobObjects, JobResult};
use backon::{BackoffBuilder as _, ExponentialBackoff};
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Pause between two looks at a job: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));
/// Most starts of a job without a claim.
const MAX_STARTS: u32 = 5;
/// Pause before the next start, and the time for which a job of an unknown state may take to claim.
const BETWEEN_STARTS: Duration = Duration::from_secs(5);
/// Time for which starts are tried that the engine refuses for want of a right: granted roles take up to a minute to be in force.
const RIGHTS_WITHIN: Duration = Duration::from_secs(60);
/// First and longest pause after a start that the engine has refused for now, before jitter, and the time for which starts are tried.
const BETWEEN_REFUSALS: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));
const REFUSED_FOR: Duration = Duration::from_secs(1800);
/// Time after the grace time of a stop until the engine ends the job, and until it is given up.
const AFTER_GRACE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(90));
/// Most pieces of a log that are read in one step, and after the result.
const PIECES_A_STEP: u32 = 50;
const MAX_PIECES: u32 = 10_000;

/// The end of a remote job, as far as it was followed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Followed {
    /// It has stored this result.
    Ended(serde_json::Value),
    /// It has not run, and never will, for the reason in the text.
    NotStarted(String),
    /// It has begun and was lost, for the reason in the text.
    Lost(String),
    /// This server stops; the job goes on.
    Left,
}

impl fmt::Display for Followed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Followed::Ended(_) => f.write_str("it has ended"),
            Followed::NotStarted(why) => write!(f, "it has not begun: {why}"),
            Followed::Lost(why) => write!(f, "it was lost: {why}"),
            Followed::Left => f.write_str("it goes on"),
        }
    }
}

/// What a follower is asked for.
#[derive(Debug, Clone)]
pub(crate) struct FollowRequest {
    /// The job is to stop.
    stop: CancellationToken,
    /// The job goes on without this server.
    pub(crate) leave: CancellationToken,
    /// Time after which the job is withdrawn if it has not begun; none: never.
    begins_within: Option<Duration>,
    /// Time for which starts are tried that the engine refuses for want of a right.
    rights_within: Duration,
    /// Why it is to stop, for its log.
    why: Arc<OnceLock<String>>,
}

impl Default for FollowRequest {
    fn default() -> FollowRequest {
        let (stop, leave, begins_within, why) = Default::default();
        FollowRequest { stop, leave, begins_within, rights_within: RIGHTS_WITHIN, why }
    }
}

impl FollowRequest {
    /// Asks for nothing. A right that is missing is told at once.
    pub(crate) fn without_patience() -> FollowRequest {
        FollowRequest { rights_within: Duration::ZERO, ..FollowRequest::default() }
    }

    /// Asks for nothing until this token asks to leave the job.
    pub(crate) fn leaving_with(leave: &CancellationToken) -> FollowRequest {
        FollowRequest { leave: leave.clone(), ..FollowRequest::default() }
    }

    /// Asks for nothing until the job has not begun within this time: then it is withdrawn. Without a limit it may begin at any time.
    pub(crate) fn beginning_within(limit: Option<Duration>) -> FollowRequest {
        FollowRequest { begins_within: limit, ..FollowRequest::default() }
    }

    /// Asks the job to stop; the first reason counts.
    pub(crate) fn stop(&self, why: String) {
        let _ = self.why.set(why);
        self.stop.cancel();
    }

    fn why(&self) -> String {
        self.why.get().cloned().unwrap_or_else(|| "cancelled".to_owned())
    }
}

/// Whether the follower has committed the job's beginning itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beginning {
    /// It has: nobody else has started the job.
    Own,
    /// An earlier leader has, and may have started the job.
    Earlier,
}

/// A line for the log of a job that is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FollowedLine<'a> {
    /// The job has sent it.
    Sent(&'a str),
    /// This server notes it.
    Note(&'a str),
}

/// Called with each line as it comes.
pub(crate) type FollowedLines<'a> = &'a (dyn Fn(FollowedLine<'_>) + Send + Sync);

/// A job that is followed.
pub(crate) struct JobFollower<'a> {
    pub(crate) objects: &'a JobObjects,
    pub(crate) engine: &'a dyn Engine,
    /// Random value of this leader.
    pub(crate) leader: &'a str,
    /// Gets the lines of its log.
    pub(crate) log: FollowedLines<'a>,
    pub(crate) asked: &'a FollowRequest,
    /// Time between SIGINT and SIGKILL for its steps.
    pub(crate) grace: Duration,
    pub(crate) beginning: Beginning,
}

/// What is known of a job.
struct FollowProgress {
    /// Time since which it is followed.
    since: Instant,
    claimed: bool,
    starts: u32,
    started: Option<Instant>,
    /// Time from the last start to the next.
    between: Duration,
    /// Time since which the engine refuses starts for now, and the pauses between them.
    refused: Option<(Instant, ExponentialBackoff)>,
    /// Reason of the last start that failed, or of the end of its attempt.
    why: Option<String>,
    /// What the engine has said last of a job that does not run as it should.
    said: Option<String>,
    /// Name or address of the job in its engine, for people.
    started_as: Option<String>,
    /// Next piece of the log, and the bytes of those before it.
    piece: u32,
    log_bytes: u64,
    /// Next sign of life.
    sign: u32,
    /// Time of the last sign of life, and of the last look for one.
    alive: Instant,
    looked: Instant,
    /// Time at which it was asked to stop.
    stopping: Option<Instant>,
    pause: Duration,
}

impl JobFollower<'_> {
    /// Starts the job unless it has begun, and follows it to its end.
    ///
    /// A bucket that does not answer or refuses a call is asked again.
    pub(crate) async fn follow(&self) -> Followed {
        tokio::select! {
            biased;
            followed = self.to_its_end() => followed,
            () = self.asked.leave.cancelled() => {
                if self.asked.stop.is_cancelled() {
                    // For the next leader.
                    self.cancel().await;
                }
                Followed::Left
            }
        }
    }

    /// Asks the job to stop. A failure is only logged.
    async fn cancel(&self) {
        if let Err(error) = self.objects.cancel(&self.asked.why()).await {
            tracing::warn!("a remote job cannot be asked to stop now: {error}");
        }
    }

    async fn to_its_end(&self) -> Followed {
        let now = Instant::now();
        let mut progress = FollowProgress {
            since: now,
            claimed: false,
            starts: 0,
            started: None,
            between: BETWEEN_STARTS,
            refused: None,
            why: None,
            said: None,
            started_as: None,
            piece: 0,
            log_bytes: 0,
            sign: 0,
            alive: now,
            looked: now,
            stopping: None,
            pause: PAUSES.0,
        };
        loop {
            match self.step(&mut progress).await {
                Ok(Some(followed)) => return followed,
                Ok(None) => {}
                // Only who has the key of the job can have written it: nothing better follows.
                Err(VaultError::Damaged(why)) => {
                    self.cancel().await;
                    return Followed::Lost(why);
                }
                Err(error) => {
                    tracing::warn!("a remote job cannot be looked at now: {error}");
                    // Its signs of life could not be seen.
                    (progress.alive, progress.pause) = (Instant::now(), PAUSES.1);
                    tokio::time::sleep(progress.pause).await;
                }
            }
            let is_stopping = progress.stopping.is_some();
            tokio::select! {
                () = self.asked.stop.cancelled(), if !is_stopping => {}
                () = tokio::time::sleep(progress.pause) => progress.pause = (progress.pause * 3 / 2).min(PAUSES.1),
            }
        }
    }

    async fn step(&self, progress: &mut FollowProgress) -> Result<Option<Followed>, VaultError> {
        if !progress.claimed {
            // Before its first start nobody can have claimed it.
            let is_new = self.beginning == Beginning::Own && progress.started.is_none();
            let claimant = if is_new { None } else { self.objects.claimant().await? };
            match claimant {
                Some(claimant) => {
                    if let Some(followed) = claimed(progress, claimant) {
                        return Ok(Some(followed));
                    }
                }
                None => return self.before_claim(progress).await,
            }
        }
        // Before the result is looked for: what the engine says of an end counts only if there is none then.
        let state = self.look(progress).await;
        if self.asked.stop.is_cancelled()
            && let Some(followed) = self.stop(progress).await?
        {
            return Ok(Some(followed));
        }
        let (read, result) = tokio::join!(self.read_log(progress, PIECES_A_STEP), self.objects.result());
        read?;
        if let Some(result) = result? {
            self.read_log(progress, MAX_PIECES).await?;
            return Ok(Some(followed(result)));
        }
        match state {
            EngineState::Ended(why) if self.knows_all_attempts(progress) => self.give_up(progress, why).await.map(Some),
            EngineState::Alive => Ok(None),
            EngineState::Doubtful(why) => self.look_for_life(progress, Some(&why)).await,
            // Where it is claimed, what is held is another attempt.
            EngineState::Ended(_) | EngineState::Held(_) | EngineState::Unknown => {
                self.look_for_life(progress, None).await
            }
        }
    }

    /// Returns true if no other attempt than those that the engine knows can have the claim.
    fn knows_all_attempts(&self, progress: &FollowProgress) -> bool {
        self.engine.knows_all_attempts() || (self.beginning == Beginning::Own && progress.starts == 1)
    }

    /// Asks the engine for the state of the job. A new reason goes to the log, as engines forget reasons.
    async fn look(&self, progress: &mut FollowProgress) -> EngineState {
        let state = self.engine.look(self.job(progress)).await;
        let said = match &state {
            // Of a job that has begun, what is held is another attempt.
            EngineState::Held(_) if progress.claimed => None,
            EngineState::Unknown | EngineState::Alive | EngineState::Ended(_) => None,
            EngineState::Held(why) => Some(format!("the job does not run yet: {why}")),
            EngineState::Doubtful(why) => Some(format!("the job may have been lost: {why}")),
        };
        if let Some(said) = said {
            self.say(progress, said);
        }
        state
    }

    /// Writes a line to the log, unless it was the last one of these.
    fn say(&self, progress: &mut FollowProgress, said: String) {
        if progress.said.as_ref() != Some(&said) {
            (self.log)(FollowedLine::Note(&format!("[tidelock: {said}]")));
            progress.said = Some(said);
        }
    }

    fn job(&self, progress: &FollowProgress) -> EngineJob<'_> {
        let (prefix, is_claimed) = (self.objects.prefix(), progress.claimed);
        EngineJob { prefix, grace: self.grace, beginning: self.beginning, is_claimed }
    }

    /// Starts a job that no attempt has claimed, or withdraws it.
    async fn before_claim(&self, progress: &mut FollowProgress) -> Result<Option<Followed>, VaultError> {
        if self.asked.stop.is_cancelled() {
            return self.withdraw(progress, "it was cancelled before it began").await;
        }
        if let Some(limit) = self.asked.begins_within.filter(|limit| progress.since.elapsed() >= *limit) {
            let why = match (limit.as_secs() / 60, progress.said.as_ref().or(progress.why.as_ref())) {
                (0, _) => "it had not begun when its server ended".to_owned(),
                (minutes, None) => format!("it had not begun after {minutes} minutes"),
                (minutes, Some(why)) => format!("it had not begun after {minutes} minutes: {why}"),
            };
            return self.withdraw(progress, &why).await;
        }
        let state = self.look(progress).await;
        let is_due = progress.started.is_none_or(|at| at.elapsed() >= progress.between);
        match state {
            EngineState::Alive | EngineState::Held(_) => return Ok(None),
            EngineState::Ended(why) => {
                // It may have claimed the job before it ended.
                if self.objects.claimant().await?.is_some() {
                    return Ok(None);
                }
                self.say(progress, format!("the job ended before it began: {why}"));
                progress.why = Some(why);
            }
            EngineState::Doubtful(why) => progress.why = Some(why),
            EngineState::Unknown => {}
        }
        if !is_due {
            return Ok(None);
        }
        if progress.starts == MAX_STARTS {
            let why = progress.why.clone().unwrap_or_else(|| "it did not begin".to_owned());
            return self.withdraw(progress, &why).await;
        }
        progress.starts += 1;
        (progress.started, progress.between) = (Some(Instant::now()), BETWEEN_STARTS);
        progress.pause = PAUSES.0;
        match self.engine.start(self.job(progress), progress.starts).await {
            Ok(what) => {
                progress.refused = None;
                if let Some(what) = what {
                    (self.log)(FollowedLine::Note(&format!("[tidelock: the job was started as {what}]")));
                    progress.started_as = Some(what);
                }
                Ok(None)
            }
            Err(refusal) => self.refused(progress, refusal).await,
        }
    }

    /// Lets the next start wait after a refusal that may pass; withdraws the job if it does not.
    async fn refused(
        &self,
        progress: &mut FollowProgress,
        refusal: NotStarted,
    ) -> Result<Option<Followed>, VaultError> {
        // It is no start.
        progress.starts -= 1;
        let minutes = REFUSED_FOR.as_secs() / 60;
        let (patience, told) = match &refusal {
            NotStarted::NotNow(why) => (REFUSED_FOR, format!("it could not be started for {minutes} minutes: {why}")),
            NotStarted::NoRight(why) => (self.asked.rights_within, why.clone()),
            NotStarted::Never(why) => (Duration::ZERO, why.clone()),
        };
        let waits = || tidelock_retry::jittered(BETWEEN_REFUSALS.0, BETWEEN_REFUSALS.1).build();
        let (since, waits) = progress.refused.get_or_insert_with(|| (Instant::now(), waits()));
        progress.between = waits.next().unwrap_or(BETWEEN_REFUSALS.1);
        if since.elapsed() >= patience {
            return self.withdraw(progress, &told).await;
        }
        self.say(progress, format!("the job cannot be started now, and is tried again: {refusal}"));
        Ok(None)
    }

    /// Makes certain that no attempt runs, unless one has begun meanwhile.
    async fn withdraw(&self, progress: &mut FollowProgress, why: &str) -> Result<Option<Followed>, VaultError> {
        Ok(match self.objects.withdraw(self.leader).await? {
            Created::Ours => Some(Followed::NotStarted(why.to_owned())),
            Created::Theirs(claimant) => claimed(progress, claimant),
        })
    }

    async fn give_up(&self, progress: &FollowProgress, why: String) -> Result<Followed, VaultError> {
        let why = match &progress.started_as {
            Some(what) => format!("{why} ({what})"),
            None => why,
        };
        // Should it wake up, it is to end.
        self.cancel().await;
        Ok(match self.objects.give_up(self.leader, &why).await? {
            Created::Ours => Followed::Lost(why),
            Created::Theirs(result) => followed(result),
        })
    }

    /// Asks the job to stop; ends it where it does not.
    async fn stop(&self, progress: &mut FollowProgress) -> Result<Option<Followed>, VaultError> {
        let Some(since) = progress.stopping else {
            self.objects.cancel(&self.asked.why()).await?;
            (progress.stopping, progress.pause) = (Some(Instant::now()), PAUSES.0);
            return Ok(None);
        };
        let waited = since.elapsed();
        if waited >= self.grace + AFTER_GRACE.1 {
            return self.give_up(progress, "it did not end after it was cancelled".to_owned()).await.map(Some);
        }
        if waited >= self.grace + AFTER_GRACE.0 {
            self.engine.end(self.job(progress)).await;
        }
        Ok(None)
    }
}

fn claimed(progress: &mut FollowProgress, claimant: Claimant) -> Option<Followed> {
    match claimant {
        Claimant::Attempt(_) => {
            (progress.claimed, progress.alive) = (true, Instant::now());
            None
        }
        Claimant::Withdrawn(_) => Some(Followed::NotStarted("it was withdrawn before it began".to_owned())),
    }
}

fn followed(result: JobResult) -> Followed {
    match result {
        JobResult::Ended { result, .. } => Followed::Ended(result),
        JobResult::GivenUp { why, .. } => Followed::Lost(why),
    }
}
