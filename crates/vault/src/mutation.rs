//! Known ways to break the protocol, switched on by the simulation to see that its judge notices. In the server each switch is
//! a constant `false`: no cost, nothing to set.

use super::pack::Header;
use super::pack::build::Packed;

/// One broken variant (`KNOWN_BAD` of the protocol's model, and what else the simulation looks for).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mutation {
    /// Old seals are deleted, too.
    SealsCollected,
    /// A new leader leads as soon as its seal is there.
    NoLookAfterSeal,
    /// Bases are not listed again between reading the journal and the seal.
    NoLookBeforeSeal,
    /// As before, and after the seal only a base at or above it counts.
    LooksOnlyAboveSeal,
    /// A new leader does not seal.
    NoSeal,
    /// 412 is read as success.
    RefusedIsSuccess,
    /// A refusal other than 412 is believed although an earlier try had no answer.
    RefusalIsUndone,
    /// 412 is read as failure, and the next place is tried.
    NextPlaceTaken,
    /// A retry carries other bytes than the first try.
    #[cfg(test)]
    RetryRegrouped,
    /// As before, and after a 412 an object of the same writer is taken for one's own.
    #[cfg(test)]
    RetryRegroupedSameWriter,
    /// A commit without an answer counts, and the next one is sent.
    AnswerNotAwaited,
    /// A base may be of a place that no answered commit made.
    BaseUnchecked,
    /// A gap or an object that went away stops a restore at once.
    GapStops,
    /// Release deletes the lease.
    LeaseDeleted,
    /// The lease's deadline counts from the answer to a renewal.
    DeadlineFromAnswer,
    /// A renewal counts although its answer came after the deadline that it gives.
    LateRenewalCounts,
}

/// Whether the code at hand is to be wrong in this way.
#[cfg(not(test))]
pub(super) const fn on(_: Mutation) -> bool {
    false
}

/// What a retry sends: the same.
#[cfg(not(test))]
pub(super) const fn retried(packed: Packed) -> Packed {
    packed
}

/// Whether an object is taken for one's own because of its writer: never.
#[cfg(not(test))]
pub(super) const fn same_writer(_: &Header, _: &Packed) -> bool {
    false
}

#[cfg(test)]
thread_local! {
    static PRESENT: std::cell::Cell<Option<Mutation>> = const { std::cell::Cell::new(None) };
}

#[cfg(test)]
pub(super) fn on(mutation: Mutation) -> bool {
    PRESENT.get() == Some(mutation)
}

/// From here on, on this thread.
#[cfg(test)]
pub(super) fn set(mutation: Option<Mutation>) {
    PRESENT.set(mutation);
}

#[cfg(test)]
pub(super) fn retried(packed: Packed) -> Packed {
    if on(Mutation::RetryRegrouped) || on(Mutation::RetryRegroupedSameWriter) {
        super::pack::build::with_next_counter(&packed)
    } else {
        packed
    }
}

#[cfg(test)]
pub(super) fn same_writer(header: &Header, packed: &Packed) -> bool {
    let super::bucket::Body::Bytes(bytes) = &packed.body else { return false };
    let ours = super::pack::decode_head(bytes, packed.size).is_ok_and(|head| head.header.writer == header.writer);
    on(Mutation::RetryRegroupedSameWriter) && ours
}
