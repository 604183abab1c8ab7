//! Replies on the host: comments ([`render`]), commit statuses ([`statuses`]), and the outbox that posts them
//! ([`outbox`]).

pub(crate) mod comments;
pub(crate) mod duplicates;
pub(crate) mod marker;
pub(crate) mod outbox;
pub(crate) mod render;
pub(crate) mod statuses;
pub(crate) mod wording;
