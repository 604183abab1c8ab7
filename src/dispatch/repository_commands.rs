//! Escape hatches that need no checkout: `freeze`, `unfreeze`, and `unlock` of other pull requests. They are answered beside the queue of
//! the pull request on which they were typed, so that nobody waits for the commands that run there. Those of one repository are answered
//! in the order in which they were accepted.

use super::PageVisitor;
use super::actor::{ended, expired_command_refusal};
use super::confirmed::confirm;
use super::immediate_commands::{answer_later, entry};
use super::inner::Inner;
use super::queues::{Item, Task};
use super::recorder::{self, Commit};
use super::unlock::unlock_others;
use crate::config::permissions::EscapeHatch;
use crate::domain::command::{Command, CommandName};
use crate::domain::freeze::Freeze;
use crate::domain::reply::Message;
use crate::domain::state::AuditEntry;
use crate::domain::{PullId, RepoId};
use crate::execute::permissions::{Asker, Gatekeeper, typed, unanswered_hatch};
use anyhow::Result;
use jiff::Timestamp;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Result of lifting a freeze on the web page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lifted {
    /// The repository is not frozen any more.
    Done,
    /// It was not frozen.
    Absent,
    /// The person has no right to do so.
    NotPermitted {
        /// The people who may, in words.
        because: String,
    },
}

/// Waiting items by repository. A repository is a key only while a task works off its items.
#[derive(Default)]
pub(super) struct RepositoryCommandQueues(Mutex<HashMap<RepoId, VecDeque<(PullId, Item)>>>);

impl RepositoryCommandQueues {
    fn all(&self) -> MutexGuard<'_, HashMap<RepoId, VecDeque<(PullId, Item)>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an item; true if no task works off the items of this repository.
    fn add(&self, pull: PullId, item: Item) -> bool {
        let mut all = self.all();
        let is_first = !all.contains_key(&pull.repo);
        all.entry(pull.repo.clone()).or_default().push_back((pull, item));
        is_first
    }

    fn next(&self, repo: &RepoId) -> Option<(PullId, Item)> {
        let mut all = self.all();
        let next = all.get_mut(repo).and_then(VecDeque::pop_front);
        if next.is_none() {
            all.remove(repo);
        }
        next
    }
}

/// Returns true if a command is answered here, beside the queue.
pub(super) fn is_repository_command(command: &Command) -> bool {
    match command.name {
        CommandName::Freeze | CommandName::Unfreeze => true,
        CommandName::Unlock => !command.pulls.is_empty(),
        _ => false,
    }
}

/// Enqueues an item behind those of its repository that came before it.
pub(super) fn enqueue(inner: &Arc<Inner>, pull: PullId, item: Item) {
    let repo = pull.repo.clone();
    if !inner.repository_commands.add(pull, item) {
        return;
    }
    let ours = Arc::clone(inner);
    let begun = inner.tasks.spawn_work(async move {
        while let Some((pull, item)) = ours.repository_commands.next(&repo) {
            let ours = ours.now();
            if !ended(&ours, &pull, &item.cause, answer(&ours, &pull, &item)).await {
                return;
            }
        }
    });
    if !begun {
        tracing::debug!("an escape hatch waits for the next start: this server stops");
    }
}

async fn answer(inner: &Arc<Inner>, pull: &PullId, item: &Item) -> Result<()> {
    let Task::Command { comment, command } = &item.task else { return Ok(()) };
    if let Some(because) = expired_command_refusal(&comment.body, command.name, item.received) {
        let message = Message::Interrupted { because };
        return inner.answer_delivery(pull, &item.cause, Some(command), Some(message)).await;
    }
    if !confirm(inner, comment, command, &item.cause).await? {
        return Ok(());
    }
    match command.name {
        CommandName::Unlock => unlock_others(inner, pull, item, command).await,
        _ => set_freeze(inner, pull, item, command).await,
    }
}

/// Returns a refusal if the person may not freeze or unfreeze, or the host does not answer.
async fn refusal(inner: &Inner, pull: &PullId, command: &Command, hatch: EscapeHatch) -> Option<String> {
    let mut gatekeeper = Gatekeeper::new(&inner.ctx, &pull.repo, "", Asker::of(command));
    match gatekeeper.escape_hatch_refusal(hatch, None, &typed(&inner.ctx, command)).await {
        Ok(refusal) => refusal,
        Err(error) => Some(unanswered_hatch(&inner.ctx, command, hatch, &error)),
    }
}

/// Lifts a freeze for a person on the web page. An operator may do so whatever the rules are.
pub(super) async fn lift_freeze(
    inner: &Arc<Inner>,
    named: &str,
    by: AuditEntry,
    visitor: PageVisitor,
) -> Result<Lifted> {
    let named = named.to_owned();
    let find = inner.ctx.store.read(move |view| {
        let frozen = view.freezes()?.into_iter().map(|freeze| freeze.repo);
        Ok(frozen.into_iter().find(|repo| repo.to_string() == named))
    });
    let Some(repo) = find.await? else { return Ok(Lifted::Absent) };
    if visitor != PageVisitor::Operator {
        let person = Asker::of_page(&inner.ctx, &repo, &by.who);
        let mut gatekeeper = Gatekeeper::new(&inner.ctx, &repo, "", person);
        let say = format!("{} unfreeze", inner.ctx.rendering.executable);
        if let Some(because) = gatekeeper.escape_hatch_refusal(EscapeHatch::Unfreeze, None, &say).await? {
            let refused = AuditEntry { result: "refused: not permitted".into(), ..by };
            recorder::transaction(inner, move |tx| tx.audit(&refused)).await?;
            return Ok(Lifted::NotPermitted { because });
        }
    }
    let lifted = recorder::transaction(inner, move |tx| {
        let Some(freeze) = tx.unfreeze(&repo)? else { return Ok(Lifted::Absent) };
        tx.audit(&AuditEntry { result: format!("lifted: {}", freeze.describe()), ..by })?;
        Ok(Lifted::Done)
    });
    lifted.await
}

/// Runs `freeze` or `unfreeze`.
async fn set_freeze(inner: &Arc<Inner>, pull: &PullId, item: &Item, command: &Command) -> Result<()> {
    let freezes = command.name == CommandName::Freeze;
    let hatch = if freezes { EscapeHatch::Freeze } else { EscapeHatch::Unfreeze };
    if let Some(because) = refusal(inner, pull, command, hatch).await {
        let message = Message::NotPermitted { because };
        return inner.answer_delivery(pull, &item.cause, Some(command), Some(message)).await;
    }
    let freeze = Freeze {
        repo: pull.repo.clone(),
        user: command.user.described(),
        why: command.why.clone().unwrap_or_default(),
        since: Timestamp::now(),
        pull: Some(pull.clone()),
    };
    let entry = AuditEntry {
        why: command.why.clone(),
        subject: pull.repo.to_string(),
        ..entry(&command.asked_by(), command.name.spoken(), pull, &item.cause, "done")
    };
    let (answer, id, user) = (answer_later(inner, Some(command)), pull.clone(), command.user.clone());
    let commit = Commit::about(pull).done(&item.cause, command.name.spoken());
    let recorded = commit.record_with(inner, move |tx| {
        let message = match (freezes, tx.freeze_of(&freeze.repo)?) {
            (true, Some(known)) => Message::Frozen { freeze: known, already: true },
            (true, None) => {
                tx.freeze(&freeze)?;
                Message::Frozen { freeze, already: false }
            }
            (false, _) => Message::Unfrozen { freeze: tx.unfreeze(&freeze.repo)?, user },
        };
        let did_nothing =
            matches!(message, Message::Frozen { already: true, .. } | Message::Unfrozen { freeze: None, .. });
        let result = if did_nothing { "it was so already" } else { "done" };
        tx.audit(&AuditEntry { result: result.into(), ..entry })?;
        tx.post(&id, answer(&id, message))
    });
    recorded.await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::CommentEvent;
    use crate::domain::command::Trigger;
    use crate::domain::state::Cause;

    fn item(pull: &PullId, name: CommandName, delivery: &str) -> (PullId, Item) {
        let (clone_url, body) = Default::default();
        let comment = CommentEvent { pull: pull.clone(), clone_url, comment_id: 1, author: "alice".into(), body };
        let command = Box::new(Command::new(name, Trigger::Comment, "alice"));
        let task = Task::Command { comment, command };
        (pull.clone(), Item { cause: Cause::Delivery(delivery.into()), received: Timestamp::now(), task })
    }

    #[test]
    fn those_of_one_repository_are_answered_in_their_order_by_one() {
        let pull = |name: &str, number| PullId {
            repo: RepoId { host: "github.com".into(), owner: "acme".into(), name: name.into() },
            number,
        };
        let queues = RepositoryCommandQueues::default();
        let add = |pull: &PullId, name, delivery| {
            let (pull, item) = item(pull, name, delivery);
            queues.add(pull, item)
        };
        let (first, second, other) = (pull("infra", 1), pull("infra", 2), pull("other", 1));
        assert!(add(&first, CommandName::Unfreeze, "a"), "somebody has to begin");
        assert!(!add(&second, CommandName::Freeze, "b"), "somebody is at it");
        assert!(add(&other, CommandName::Freeze, "c"), "another repository does not wait");
        let next = || queues.next(&first.repo).map(|(pull, item)| (pull.number, item.cause.to_string()));
        assert_eq!(next(), Some((1, "a".to_owned())));
        assert!(!add(&first, CommandName::Unlock, "d"), "it goes on with what comes meanwhile");
        assert_eq!((next(), next()), (Some((2, "b".to_owned())), Some((1, "d".to_owned()))));
        assert_eq!(next(), None);
        assert!(add(&first, CommandName::Freeze, "e"), "whoever was at it has ended");
    }
}
