//! Known ways to break the protocol, switched on by the simulation to see that its judge notices. In the server each switch is
//! a constant `false`: no cost, nothing to set.

/// One broken variant (`KNOWN_BAD` of the protocol's model).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mutation {
    /// The journal's creates trust the lease instead of their precondition.
    JournalUnfenced,
}

/// Whether the code at hand is to be wrong in this way.
#[cfg(not(test))]
pub(super) const fn on(_: Mutation) -> bool {
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
