//! Replies on the host: the effects that a reply becomes ([`comments`]), and the outbox that posts them ([`outbox`]). Their text is made by
//! [`crate::render`].

pub(crate) mod comments;
pub(crate) mod duplicates;
pub(crate) mod outbox;
