//! Converts a reply into the comments that the outbox posts, in the wording of its host.

use super::outbox;
use crate::domain::reply::Reply;
use crate::domain::state::Effect;
use crate::domain::{RepoId, RunId};
use crate::render::{RenderOptions, render};
use crate::vcs::Hosts;
use jiff::Timestamp;
use sha2::{Digest, Sha256};

/// Returns the comments of a reply as effects for the outbox, and the effect that hides the comments that they replace.
pub(crate) fn effects_on(hosts: &Hosts, rendering: &RenderOptions, reply: &Reply) -> Vec<Effect> {
    let options = at_present(hosts, rendering, &reply.pull.repo);
    let bodies = render(reply, &options);
    let hiding = outbox::hiding_effect(reply).filter(|_| rendering.hide_replaced && !bodies.is_empty());
    let over = outbox::overwrite_scope(reply).filter(|_| rendering.update_plans);
    let numbered = bodies.into_iter().zip(1..);
    let comments = numbered.map(|(body, part)| Effect::Comment { run: reply.run.clone(), part, body, over });
    comments.chain(hiding).collect()
}

/// Returns the options for the host of a repository, at the present time.
pub(crate) fn at_present(hosts: &Hosts, rendering: &RenderOptions, repo: &RepoId) -> RenderOptions {
    let options = RenderOptions { now: Timestamp::now(), ..rendering.clone() };
    let Ok(host) = hosts.for_repo(repo) else { return options };
    let profile = host.profile();
    RenderOptions {
        commit_address: profile.commit_address.clone(),
        comment_limit: profile.comment_limit,
        html_comments: profile.html_comments,
        pull_mark: profile.pull_mark,
        disable_folding: rendering.disable_folding || !profile.folds,
        ..options
    }
}

/// Returns the id of the reply with the policy checks of a plan's run.
pub(crate) fn policy_reply_of(run: &RunId) -> RunId {
    let digest = Sha256::digest(format!("policy_check of {run}"));
    RunId::from_bits(digest.iter().take(16).fold(0, |bits, byte| bits << 8 | u128::from(*byte)))
}
