//! Converts a reply into the comments that the outbox posts, in the wording of its host.

use super::outbox;
use super::render::{RenderOptions, render};
use crate::domain::reply::Reply;
use crate::domain::state::Effect;
use crate::vcs::Hosts;
use jiff::Timestamp;

/// Returns the comments of a reply as effects for the outbox, and the effect that hides the comments that they replace.
pub(crate) fn effects_on(hosts: &Hosts, rendering: &RenderOptions, reply: &Reply) -> Vec<Effect> {
    let options = match hosts.for_repo(&reply.pull.repo) {
        Ok(host) => rendering.on(host.profile()),
        Err(_) => RenderOptions { now: Timestamp::now(), ..rendering.clone() },
    };
    let bodies = render(reply, &options);
    let hiding = outbox::hiding_effect(reply).filter(|_| rendering.hide_replaced && !bodies.is_empty());
    let numbered = bodies.into_iter().zip(1..);
    let comments = numbered.map(|(body, part)| Effect::Comment { run: reply.run.clone(), part, body });
    comments.chain(hiding).collect()
}
