//! Replies on the host: comments ([`render`]), commit statuses ([`statuses`]), and the outbox that posts them
//! ([`outbox`]).

pub mod comments;
pub mod duplicates;
pub mod marker;
pub mod outbox;
pub mod render;
pub mod statuses;
pub(crate) mod wording;
