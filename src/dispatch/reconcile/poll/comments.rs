//! Comments that a look finds, and which of them may run.
//!
//! A comment is new if no look has handled it; marks know that by id. A command that depends on what the person saw runs only if it is
//! younger than the last change that came with the present head. Otherwise nobody knows which head the person meant, and the answer says so.

use super::PullTurn;
use super::first::changed_at;
use super::look::{Look, advance, heads_after};
use crate::dispatch::decide::Decision;
use crate::dispatch::queues::Task;
use crate::dispatch::reconcile::{HostOrStateError, LOOK_BACK, tolerate};
use crate::dispatch::recorder;
use crate::domain::command::{Command, CommandName};
use crate::domain::reply::Message;
use crate::domain::state::{PollMark, Watermark};
use crate::domain::{CommentEvent, Event, PullRequest, PullState, PullVersion};
use crate::store::{KnownPull, Tx};
use crate::vcs::{Comments, HostComment, OpenPull};
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeSet;
use tokio::time::Instant;

/// Comments may become visible this long after their time. The mark does not pass younger ones.
const LATE: SignedDuration = SignedDuration::from_secs(60);

/// Returns true if a command is about what the person saw: the plan of a head, or its findings.
fn depends_on_head(name: CommandName) -> bool {
    name.changes_state() || name == CommandName::ApprovePolicies
}

/// Returns true if a comment may be older than a moment. Both are of the host's clock, and either may be whole seconds.
fn may_be_before(comment: &HostComment, moment: Timestamp) -> bool {
    comment.created.as_second() <= moment.as_second()
}

/// Returns the answer to a command whose head is not known.
fn unseen(comment: &HostComment, heads: &PollMark) -> Message {
    match &heads.replaced {
        Some(replaced) => Message::Superseded { head: heads.head.clone(), asked_at: Some(replaced.clone()) },
        None => Message::Interrupted {
            because: format!(
                "This command was written before the server saw commit {}, and was not run. To run it for that commit: `{}`",
                heads.head.short(),
                comment.body.trim().trim_matches('`')
            ),
        },
    }
}

impl Look<'_> {
    /// Takes up new comments. Returns the mark after them, of which what is not recorded yet may be recorded later; absent if the next look
    /// has to go on.
    pub(super) async fn comments(
        &self,
        known: &KnownPull,
        now: &OpenPull,
        turn: &mut PullTurn,
    ) -> Result<Option<Watermark>, HostOrStateError> {
        let id = &now.pull.id;
        let Some(from) = known.watermark.clone() else { return Ok(None) };
        let Some(polled) = &from.polled else { return Ok(None) };
        let comments = self.round.host.comments(id, from.comments.checked_sub(LOOK_BACK).ok()).await?;
        tolerate(id, self.round.duplicates(id, &comments).await)?;
        let heads = heads_after(polled, now, changed_at(now, Some(&comments.list), self.at));
        let mut handled = polled.handled.clone();
        let mut mark = from.clone();
        for comment in &comments.list {
            if comment.created < from.comments || !handled.insert(comment.id) {
                continue;
            }
            turn.active = Instant::now();
            if self.round.inner.actors.draining() {
                return Ok(None);
            }
            let with = |mark: &Watermark| Watermark {
                polled: mark.polled.clone().map(|polled| PollMark { handled: handled.clone(), ..polled }),
                ..mark.clone()
            };
            let decision = |event: &Event| match self.decision(event, comment, &now.pull) {
                Decision::Queue(Task::Command { command, .. })
                    if depends_on_head(command.name) && may_be_before(comment, heads.seen) =>
                {
                    Decision::Refuse(command, unseen(comment, &heads))
                }
                Decision::Queue(Task::Command { comment, mut command }) if depends_on_head(command.name) => {
                    // A push may follow before the command begins.
                    command.at = Some(heads.head.clone());
                    Decision::Queue(Task::Command { comment, command })
                }
                decision => decision,
            };
            let next = with(&mark);
            self.said(&now.pull, comment, &comments, decision, Some((&mark, &next))).await?;
            match self.mark_of(id).await? {
                Some(present) if present == mark => {}
                Some(present) if present == next => mark = next,
                // Something else was recorded meanwhile.
                _ => return Ok(None),
            }
        }
        Ok(Some(after(mark, &comments, &now.version, PollMark { handled, ..heads })))
    }

    /// Decides on a comment as on its delivery.
    fn decision(&self, event: &Event, comment: &HostComment, pull: &PullRequest) -> Decision {
        match self.round.inner.decide(event, &pull.id) {
            // Others may edit a person's comments, so nobody can tell who wrote it. On some hosts, a reaction looks like an edit.
            Decision::Queue(Task::Command { command, .. }) if comment.edited => {
                let because = format!(
                    "This comment was edited, or got a reaction, before the server read it, and was not run. Comment again: `{}`",
                    comment.body.trim().trim_matches('`')
                );
                Decision::Refuse(command, Message::Interrupted { because })
            }
            _ if comment.edited => Decision::Ignore("it was edited"),
            decision => decision,
        }
    }

    /// Takes up one comment, with the mark if there is one.
    async fn said(
        &self,
        pull: &PullRequest,
        comment: &HostComment,
        comments: &Comments,
        decision: impl FnOnce(&Event) -> Decision + Send,
        marks: Option<(&Watermark, &Watermark)>,
    ) -> Result<(), HostOrStateError> {
        let event = Event::Comment(CommentEvent {
            pull: pull.id.clone(),
            clone_url: pull.clone_url.clone(),
            comment_id: comment.id,
            author: comment.author.clone(),
            body: comment.body.clone(),
        });
        let Some(identity) = self.round.inner.intake.comment_identity(&pull.id, comment.id) else { return Ok(()) };
        let (here, age) = (Timestamp::now(), comments.now.duration_since(comment.created));
        let asked = here.checked_sub(age).unwrap_or(here).min(here);
        let decision = decision(&event);
        let id = &pull.id;
        match marks {
            Some((from, to)) => {
                self.round.take_up(identity, event, asked, decision, advance(id, Some(from), to)).await?;
            }
            None => {
                self.round.take_up(identity, event, asked, decision, |_| Ok(true)).await?;
            }
        }
        Ok(())
    }

    /// Answers commands on a pull request that a look sees open again: they may be of a time when it was closed, so none of them runs.
    /// `mark`: that of this look.
    pub(super) async fn refuse_earlier(
        &self,
        now: &OpenPull,
        known: Option<&KnownPull>,
        mark: &Watermark,
    ) -> Result<(), HostOrStateError> {
        let before = known.and_then(|known| known.watermark.as_ref()).filter(|before| before.polled.is_some());
        let handled = before.and_then(|before| before.polled.as_ref()).map(|polled| &polled.handled);
        let Some(least) = before.map(|before| before.comments).or(self.before) else { return Ok(()) };
        let comments = self.round.host.comments(&now.pull.id, Some(least)).await?;
        let later = mark.polled.as_ref().map(|polled| &polled.handled);
        for comment in &comments.list {
            let is_handled = |ids: Option<&BTreeSet<u64>>| ids.is_some_and(|ids| ids.contains(&comment.id));
            let is_passed_over = comment.created < mark.comments || is_handled(later);
            if comment.created < least || is_handled(handled) || !is_passed_over {
                continue;
            }
            let because = format!(
                "This command was written before the server saw this pull request open, and was not run. To run it now: `{}`",
                comment.body.trim().trim_matches('`')
            );
            let decision = |event: &Event| match self.decision(event, comment, &now.pull) {
                Decision::Queue(Task::Command { command, .. }) => {
                    Decision::Refuse(command, Message::Interrupted { because })
                }
                _ => Decision::Ignore("it is of before"),
            };
            self.said(&now.pull, comment, &comments, decision, None).await?;
        }
        Ok(())
    }

    /// Takes up comments of a pull request that is not open and still owns projects, and records the mark after them.
    pub(super) async fn owing(&self, known: &KnownPull) -> Result<(), HostOrStateError> {
        let Some(after) = self.last_comments(known, &known.pull).await? else { return Ok(()) };
        let (id, before) = (known.pull.id.clone(), known.watermark.clone());
        if before.as_ref() == Some(&after) {
            return Ok(());
        }
        let record = move |tx: &Tx<'_>| match tx.known_pull(&id)? {
            Some(known) if !known.open && known.watermark == before => tx.set_watermark(&id, &after),
            _ => Ok(()),
        };
        Ok(recorder::transaction(self.round.inner, record).await?)
    }

    /// Takes up comments of a pull request that is not open any more. On a merged one they go the usual way. On one that was
    /// closed nothing runs, so that nothing does after it is reopened; `unlock` does. Returns the mark after them; absent if no look has seen
    /// the pull request open.
    pub(super) async fn last_comments(
        &self,
        known: &KnownPull,
        pull: &PullRequest,
    ) -> Result<Option<Watermark>, HostOrStateError> {
        let Some(mark) = &known.watermark else { return Ok(None) };
        let Some(polled) = &mark.polled else { return Ok(None) };
        let is_merged = matches!(pull.state, PullState::Merged { .. });
        let comments = self.round.host.comments(&pull.id, Some(mark.comments)).await?;
        for comment in &comments.list {
            if comment.created < mark.comments || polled.handled.contains(&comment.id) {
                continue;
            }
            let runs = |command: &Command| is_merged || command.name == CommandName::Unlock;
            let decision = |event: &Event| match self.decision(event, comment, pull) {
                Decision::Queue(Task::Command { command, .. }) if !runs(&command) => {
                    Decision::Refuse(command, Message::ClosedPull)
                }
                decision => decision,
            };
            self.said(pull, comment, &comments, decision, None).await?;
        }
        let handled = polled.handled.iter().copied().chain(comments.list.iter().map(|one| one.id)).collect();
        Ok(Some(after(mark.clone(), &comments, &mark.version, PollMark { handled, ..polled.clone() })))
    }
}

/// Returns the mark after all comments of a list. It stays behind young ones, whose ids it names. A host may have comments of the future,
/// which it does not follow.
fn after(mark: Watermark, comments: &Comments, version: &PullVersion, heads: PollMark) -> Watermark {
    let may_move = !heads.handled.is_empty() || mark.version != *version;
    let newest = comments.list.iter().map(|comment| comment.created.min(comments.now)).max().filter(|_| may_move);
    let late = newest.and_then(|newest| newest.checked_sub(LATE).ok());
    let late = late.and_then(|late| Timestamp::from_second(late.as_second()).ok());
    let moved = late.map_or(mark.comments, |late| mark.comments.max(late));
    let young: BTreeSet<u64> = comments.list.iter().filter(|one| one.created >= moved).map(|one| one.id).collect();
    let handled = heads.handled.intersection(&young).copied().collect();
    Watermark { comments: moved, version: version.clone(), polled: Some(PollMark { handled, ..heads }), ..mark }
}
