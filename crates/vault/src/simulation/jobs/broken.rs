//! Known ways to break the protocol of jobs, each with one wrong decision of the vault or of the server around it.

use crate::VaultError;
use crate::bucket::{Body, BucketError, Written};
use crate::calls::Calls;
use crate::jobs::{CLAIM, Claimant, Created, JobObjects, JobResult, LATE, RESULT, create_first};
use crate::protocol::{Answered, Doubt, Protocol, Proven};
use bytes::Bytes;

/// One broken variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JobVariant {
    /// A later claim replaces an earlier one.
    ClaimOverwritten,
    /// The claim is deleted with the other objects.
    ClaimDeletedWithTheRest,
    /// The engine is started before the beginning is committed.
    EngineBeforeCommit,
    /// A later result replaces an earlier one.
    ResultOverwritten,
    /// A job is withdrawn without a claim.
    WithdrawnInTheEngineOnly,
    /// A job is given up without a result.
    GivenUpInTheJournalOnly,
    /// A new leader tells every job without a result as interrupted.
    InterruptedAtOnce,
    /// An execution that has succeeded counts as a job that is done.
    EngineIsBelieved,
    /// An attempt claims the job after it has run it.
    ClaimedAfterTheRun,
    /// The result of a job that was given up is deleted with the other objects.
    GivenUpResultDeleted,
    /// The late end of a job that was given up is deleted with the other objects.
    LateEndDeleted,
    /// A new leader tells a job without a specification as not started, and does not withdraw it.
    NoSpecIsBelieved,
    /// A new leader does not take jobs up.
    LeftAlone,
    /// A refused creation counts as done.
    RefusedClaimIsOurs,
    /// A creation without an answer counts as done.
    AnswerToClaimNotAwaited,
}

use JobVariant::{
    AnswerToClaimNotAwaited, ClaimDeletedWithTheRest, ClaimOverwritten, GivenUpInTheJournalOnly, GivenUpResultDeleted,
    LateEndDeleted, RefusedClaimIsOurs, ResultOverwritten, WithdrawnInTheEngineOnly,
};

/// The protocol with at most one wrong decision.
#[derive(Debug, Clone, Copy)]
pub(super) struct BrokenJobs(pub(super) Option<JobVariant>);

impl BrokenJobs {
    pub(super) fn is(&self, variant: JobVariant) -> bool {
        self.0 == Some(variant)
    }
}

impl Protocol for BrokenJobs {
    fn answered(&self, answer: Result<Written, BucketError>, doubt: Doubt) -> Result<Answered, BucketError> {
        match answer {
            Ok(Written::Refused) if self.is(RefusedClaimIsOurs) => Ok(Answered::Stored),
            Err(BucketError::Unavailable { .. }) if self.is(AnswerToClaimNotAwaited) => Ok(Answered::Stored),
            answer => Proven.answered(answer, doubt),
        }
    }

    async fn create_job_object(
        &self,
        calls: &Calls,
        name: &str,
        bytes: Bytes,
        label: &str,
    ) -> Result<Created<Bytes>, BucketError> {
        let overwritten = match self.0 {
            Some(ClaimOverwritten) => name.ends_with(CLAIM),
            Some(ResultOverwritten) => name.ends_with(RESULT),
            _ => false,
        };
        if overwritten {
            loop {
                let there = calls.bucket.get(name).await?.map_or(0, |object| object.generation);
                if let Written::Stored(_) = calls.bucket.put(name, there, Body::Bytes(bytes.clone()), label).await? {
                    return Ok(Created::Ours);
                }
            }
        }
        create_first(self, calls, name, bytes, label).await
    }

    async fn withdraw_job(&self, job: &JobObjects<Self>, leader: &str) -> Result<Created<Claimant>, VaultError> {
        if self.is(WithdrawnInTheEngineOnly) {
            return Ok(Created::Ours);
        }
        job.put_claim(&Claimant::Withdrawn(leader.to_owned())).await
    }

    async fn give_up_job(&self, job: &JobObjects<Self>, end: &JobResult) -> Result<Created<JobResult>, VaultError> {
        if self.is(GivenUpInTheJournalOnly) { Ok(Created::Ours) } else { job.put_given_up(end).await }
    }

    fn outlives_job(&self, object: &str, label: &str) -> bool {
        let deleted = match self.0 {
            Some(ClaimDeletedWithTheRest) => CLAIM,
            Some(GivenUpResultDeleted) => RESULT,
            Some(LateEndDeleted) => LATE,
            _ => "",
        };
        object != deleted && Proven.outlives_job(object, label)
    }
}
