//! One queue for each pull request, its running command, and the ways to stop it.

mod items;

pub(super) use items::{Item, TakenUpRun, Task};

use crate::domain::command::{Command, CommandName};
use crate::domain::{CommitSha, PullId, PullVersion, RepoId};
use crate::execute::state_locks::OrphanedLocks;
use crate::execute::{Cancel, CancelReason};
use jiff::Timestamp;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

#[derive(Default)]
pub(super) struct Actors {
    queues: Mutex<HashMap<PullId, Queue>>,
    draining: AtomicBool,
    pub(super) ended: Notify,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Item>,
    running: Option<Running>,
    /// Latest version of the pull request that an event had; events with earlier ones are late.
    version: PullVersion,
}

impl Queue {
    fn has_replan(&self) -> bool {
        let is_replan = |item: &Item| matches!(item.task, Task::Replan(_));
        self.running.as_ref().is_some_and(|running| running.is_replan) || self.waiting.iter().any(is_replan)
    }
}

/// Item that an actor handles.
#[derive(Default)]
struct Running {
    /// The command; absent for work that is none, such as a clean-up.
    name: Option<CommandName>,
    /// Time at which its item was received; absent if it has none.
    received: Option<Timestamp>,
    /// True once it runs; before that it is checked, and may be refused.
    begun: bool,
    /// True for an automatic re-plan.
    is_replan: bool,
    /// True for a plan of everything that the pull request changes.
    is_whole: bool,
    /// Head that it works on, if known.
    head: Option<CommitSha>,
    cancel: Cancel,
}

impl Running {
    /// Returns true if this is a running plan of another head.
    fn plans_other_than(&self, head: &CommitSha) -> bool {
        self.name == Some(CommandName::Plan) && self.head.as_ref() != Some(head)
    }

    /// Returns true if it may be stopped without an explicit request for that.
    fn is_interruptible(&self) -> bool {
        !self.begun || self.name.is_none_or(|name| !name.changes_state())
    }
}

impl Actors {
    fn queues(&self) -> MutexGuard<'_, HashMap<PullId, Queue>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn count(&self) -> usize {
        self.queues().values().map(|queue| queue.waiting.len() + usize::from(queue.running.is_some())).sum()
    }

    /// Adds an item to its pull request's queue, and stops running work that it supersedes.
    pub(super) fn add(&self, pull: &PullId, item: Item) {
        let mut queues = self.queues();
        let queue = queues.entry(pull.clone()).or_default();
        if let Task::Autoplan(event) | Task::Closed(event) = &item.task {
            if event.version != PullVersion::default() && !event.version.is_before(&queue.version) {
                queue.version = event.version.clone();
            }
            if let Some(running) =
                queue.running.as_ref().filter(|running| running.name.is_none_or(|name| !name.changes_state()))
            {
                match (&item.task, event.pull.head()) {
                    (Task::Closed(_), _) => running.cancel.cancel(CancelReason::Closed),
                    (_, Some(head)) if running.plans_other_than(head) => {
                        running.cancel.cancel(CancelReason::Push { head: head.clone(), is_planned: true });
                    }
                    _ => {}
                }
            }
            if let Some(running) = &queue.running {
                running.cancel.note_change();
            }
        }
        queue.waiting.push_back(item);
    }

    /// Puts an item in front of those that wait, while the actor runs.
    pub(super) fn requeue_front(&self, pull: &PullId, item: Item) {
        if let Some(queue) = self.queues().get_mut(pull) {
            queue.waiting.push_front(item);
        }
    }

    /// Registers an actor for this pull request; false where it has one, or the server drains.
    pub(super) fn try_start_actor(&self, pull: &PullId) -> bool {
        let mut queues = self.queues();
        let queue = queues.entry(pull.clone()).or_default();
        if queue.running.is_some() || self.draining() {
            return false;
        }
        queue.running = Some(Running::default());
        true
    }

    /// Returns true if a later event of this pull request than that of `version` has come, or may have.
    pub(super) fn is_late(&self, pull: &PullId, version: &PullVersion) -> bool {
        self.queues().get(pull).is_some_and(|queue| version.may_be_before(&queue.version))
    }

    /// Returns when that came which is handled now for a pull request.
    pub(super) fn received(&self, pull: &PullId) -> Option<Timestamp> {
        self.queues().get(pull)?.running.as_ref()?.received
    }

    /// Registers a command that runs from now on, on this head. Returns the means to stop it.
    pub(super) fn run(&self, pull: &PullId, name: CommandName, head: &CommitSha) -> Cancel {
        let mut queues = self.queues();
        let queue = queues.entry(pull.clone()).or_default();
        let received = queue.running.as_ref().and_then(|before| before.received);
        let (is_replan, is_whole) = queue.running.as_ref().map_or((false, false), |old| (old.is_replan, old.is_whole));
        let (command, head, cancel) = (Some(name), Some(head.clone()), Cancel::default());
        let running = Running { name: command, received, begun: true, is_replan, is_whole, head, cancel };
        let cancel = running.cancel.clone();
        if queue.running.as_ref().is_some_and(|before| before.cancel.take_change()) {
            cancel.note_change();
        }
        if self.draining() {
            cancel.leave();
            cancel.cancel(CancelReason::Shutdown);
        }
        // Reasons to stop that arrived while the command was being prepared. A push of the very head that is planned now is none.
        match queue.running.as_ref().and_then(|before| before.cancel.reason()) {
            Some(CancelReason::Push { head, .. }) if running.head.as_ref() == Some(head) => {}
            // The person who cancelled it has been answered already.
            Some(why) if !name.changes_state() || matches!(why, CancelReason::Person(_)) => cancel.cancel(why.clone()),
            _ => {}
        }
        queue.running = Some(running);
        cancel
    }

    /// From now on nobody can cancel the item in hand; false where somebody has cancelled it already.
    pub(super) fn make_uncancellable(&self, pull: &PullId) -> bool {
        let mut queues = self.queues();
        let Some(running) = queues.get_mut(pull).and_then(|queue| queue.running.as_mut()) else { return true };
        let stopped = matches!(running.cancel.reason(), Some(CancelReason::Person(_)));
        if !stopped {
            *running = Running::default();
        }
        !stopped
    }

    /// Drops the queue of a pull request.
    pub(super) fn remove_queue(&self, pull: &PullId) {
        self.queues().remove(pull);
    }

    /// Returns true if something of this pull request runs or waits.
    pub(super) fn busy(&self, pull: &PullId) -> bool {
        self.queues().contains_key(pull)
    }

    /// Returns true if something of any pull request of this repository runs or waits.
    pub(super) fn busy_in(&self, repo: &RepoId) -> bool {
        self.queues().keys().any(|pull| pull.repo == *repo)
    }

    /// Returns true if an automatic re-plan of this pull request runs or waits.
    pub(super) fn replans(&self, pull: &PullId) -> bool {
        self.queues().get(pull).is_some_and(Queue::has_replan)
    }

    /// Returns true if a look for automatic applies of this pull request waits.
    pub(super) fn looks_for_auto_apply(&self, pull: &PullId) -> bool {
        let is_look = |item: &Item| matches!(item.task, Task::AutoApply(_));
        self.queues().get(pull).is_some_and(|queue| queue.waiting.iter().any(is_look))
    }

    /// Returns the number of pull requests of which such a plan runs or waits.
    pub(super) fn replans_in_hand(&self) -> usize {
        self.queues().values().filter(|queue| queue.has_replan()).count()
    }

    /// Returns the head at which everything of a pull request is planned last: that of the last push that waits, else of a plan that runs
    /// and that nobody has stopped.
    pub(super) fn newest_head(&self, pull: &PullId) -> Option<CommitSha> {
        let queues = self.queues();
        let queue = queues.get(pull)?;
        let pushed = |item: &Item| match &item.task {
            Task::Autoplan(event) => event.pull.head().cloned(),
            _ => None,
        };
        let is_planned = |running: &&Running| running.is_whole && running.cancel.reason().is_none();
        let running = || queue.running.as_ref().filter(is_planned)?.head.clone();
        queue.waiting.iter().rev().find_map(pushed).or_else(running)
    }

    /// Returns true if a command of this pull request runs or waits.
    pub(super) fn has_command(&self, pull: &PullId) -> bool {
        self.queues().get(pull).is_some_and(|queue| {
            queue.running.as_ref().is_some_and(|running| running.name.is_some())
                || queue
                    .waiting
                    .iter()
                    .any(|item| !matches!(item.task, Task::Closed(_) | Task::MergeGroup(_) | Task::Replan(_)))
        })
    }

    pub(super) fn draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// Returns true if an apply of this pull request runs, and is not answered yet.
    pub(super) fn applying(&self, pull: &PullId) -> bool {
        let queues = self.queues();
        let running = queues.get(pull).and_then(|queue| queue.running.as_ref());
        running.is_some_and(|running| !running.is_interruptible() && !running.cancel.is_answered())
    }

    /// Returns the command of this pull request that has begun and runs.
    pub(super) fn running(&self, pull: &PullId) -> Option<CommandName> {
        let queues = self.queues();
        let running = queues.get(pull).and_then(|queue| queue.running.as_ref());
        running.filter(|running| running.begun).and_then(|running| running.name)
    }

    /// Stops a running plan of another head than this one; any other running command checks again before its next project.
    pub(super) fn cancel_superseded_plan(&self, pull: &PullId, head: &CommitSha) {
        let queues = self.queues();
        let Some(running) = queues.get(pull).and_then(|queue| queue.running.as_ref()) else { return };
        running.cancel.note_change();
        if running.plans_other_than(head) {
            running.cancel.cancel(CancelReason::Push { head: head.clone(), is_planned: false });
        }
    }

    /// Drops the waiting commands and stops the running one, as far as they were accepted up to `until` (inclusive). `by` is the `cancel`.
    /// Returns the commands that were dropped, stopped, and left running.
    pub(super) fn cancel(&self, pull: &PullId, by: &Command, until: Timestamp) -> Cancelled {
        let mut queues = self.queues();
        let mut cancelled = Cancelled::default();
        let Some(queue) = queues.get_mut(pull) else { return cancelled };
        let has_begun = |task: &Task| matches!(task, Task::Closed(_) | Task::MergeGroup(_) | Task::TakeUp(_));
        let stays = |item: &Item| item.received > until || has_begun(&item.task);
        let (mut stay, waiting): (VecDeque<Item>, VecDeque<Item>) = queue.waiting.drain(..).partition(stays);
        for item in stay.iter_mut().filter(|item| item.received <= until) {
            let Task::TakeUp(taken_up) = &mut item.task else { continue };
            if by.interrupt_apply {
                taken_up.cancelled_by = Some(by.user.clone());
                cancelled.stopped = Some((taken_up.command.name, true));
            } else {
                cancelled.left = Some(taken_up.command.name);
            }
        }
        (queue.waiting, cancelled.waiting) = (stay, waiting);
        let running =
            queue.running.as_ref().filter(|running| running.received.is_none_or(|received| received <= until));
        if let Some((running, name)) = running.and_then(|running| Some((running, running.name?))) {
            if running.is_interruptible() || by.interrupt_apply {
                running.cancel.cancel(CancelReason::Person(by.user.clone()));
                cancelled.stopped = Some((name, running.begun));
            } else {
                cancelled.left = Some(name);
            }
        }
        cancelled
    }

    /// Returns the next work of a pull request's actor, and deletes the queue at its end. Orphaned locks are settled before the end.
    pub(super) fn next(&self, pull: &PullId, orphaned: &OrphanedLocks) -> Next {
        let mut queues = self.queues();
        let Some(queue) = queues.get_mut(pull) else { return Next::End };
        // Commands of people come before re-plans.
        let asked = queue.waiting.iter().position(|item| !matches!(item.task, Task::Replan(_)));
        match queue.waiting.remove(asked.unwrap_or_default()).filter(|_| !self.draining()) {
            Some(item) => {
                let (head, received) = (item.task.head().cloned(), Some(item.received));
                let (name, is_replan) = (item.task.command(), matches!(item.task, Task::Replan(_)));
                let is_whole = item.task.plans_everything();
                // A command that is taken up had begun: nobody interrupts its jobs unasked.
                let begun = matches!(item.task, Task::TakeUp(_));
                queue.running =
                    Some(Running { name, received, begun, is_replan, is_whole, head, ..Running::default() });
                Next::Item(item)
            }
            None if orphaned.any(pull) && !self.draining() => {
                queue.running = Some(Running::default());
                Next::Settle
            }
            None => {
                queues.remove(pull);
                Next::End
            }
        }
    }

    /// Begins no new work, and stops running work, except for work that must not be interrupted unasked. Jobs on executors go on.
    pub(super) fn wind_down(&self) {
        self.draining.store(true, Ordering::SeqCst);
        for running in self.queues().values().filter_map(|queue| queue.running.as_ref()) {
            running.cancel.leave();
            if running.is_interruptible() {
                running.cancel.cancel(CancelReason::Shutdown);
            }
        }
    }

    /// Begins no new work, and stops all running work.
    pub(super) fn interrupt_all(&self) {
        self.draining.store(true, Ordering::SeqCst);
        for running in self.queues().values().filter_map(|queue| queue.running.as_ref()) {
            running.cancel.cancel(CancelReason::Shutdown);
        }
    }

    /// Waits until no actor runs.
    pub(super) async fn ended(&self) {
        loop {
            let notified = self.ended.notified();
            if self.queues().values().all(|queue| queue.running.is_none()) {
                return;
            }
            notified.await;
        }
    }
}

/// Next work of an actor.
#[expect(clippy::large_enum_variant, reason = "one at a time")]
pub(super) enum Next {
    Item(Item),
    /// Nothing waits, but state locks may have to be reported.
    Settle,
    End,
}

/// Result of `cancel`.
#[derive(Default)]
pub(super) struct Cancelled {
    pub(super) waiting: VecDeque<Item>,
    /// The command that was stopped, and true if it had begun.
    pub(super) stopped: Option<(CommandName, bool)>,
    pub(super) left: Option<CommandName>,
}

/// Returns true if a person has to repeat the command when it could not be run in time: circumstances may have changed.
pub(super) fn is_late_by_itself(name: CommandName) -> bool {
    name.changes_state() || matches!(name, CommandName::Unlock | CommandName::Unfreeze | CommandName::ForceUnlock)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::command::{Target, Trigger};
    use crate::domain::state::{Cause, Job, JobState, StateLockTrace};
    use crate::domain::waiting::ReplanId;
    use crate::domain::{CommentEvent, DeliveredPull, Login, PartialPull, PullAction, PullEvent, PullState, RepoId};

    fn pull() -> PullId {
        PullId { repo: RepoId { host: "github.com".into(), owner: "acme".into(), name: "infra".into() }, number: 1 }
    }

    /// A command that was accepted at this second.
    fn item(name: CommandName, second: i64) -> Item {
        let comment = CommentEvent {
            pull: pull(),
            clone_url: String::new(),
            comment_id: 1,
            author: "alice".into(),
            body: String::new(),
        };
        let command = Box::new(Command::new(name, Trigger::Comment, "alice"));
        let task = Task::Command { comment, command };
        Item { cause: Cause::Delivery("d".into()), received: at(second), task }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn cancel() -> Command {
        Command::new(CommandName::Cancel, Trigger::Comment, "bob")
    }

    fn cancel_with_apply() -> Command {
        Command { interrupt_apply: true, ..cancel() }
    }

    fn next(actors: &Actors) -> Next {
        actors.next(&pull(), &OrphanedLocks::default())
    }

    /// A job whose Terraform was killed.
    fn killed() -> Job {
        Job {
            id: "1".into(),
            run: "r".into(),
            pull: pull(),
            kind: "apply".into(),
            project: None,
            user: "alice".into(),
            head: "head".into(),
            state: JobState::Interrupted,
            summary: String::new(),
            outcome: None,
            started: at(1),
            finished: Some(at(2)),
            state_lock: StateLockTrace { untold: true, ..StateLockTrace::default() },
            remote: None,
        }
    }

    /// Actors of which one has just begun to handle this command.
    fn taken(name: CommandName) -> Actors {
        let actors = Actors::default();
        assert!(actors.try_start_actor(&pull()));
        actors.add(&pull(), item(name, 1));
        assert!(matches!(next(&actors), Next::Item(_)));
        actors
    }

    #[test]
    fn what_people_ask_for_comes_before_what_nobody_asked_for() {
        let actors = Actors::default();
        assert!(actors.try_start_actor(&pull()));
        let id = ReplanId(1);
        actors.add(&pull(), Item { cause: Cause::Replan(id), received: at(1), task: Task::Replan(id) });
        actors.add(&pull(), item(CommandName::Apply, 2));
        assert!(matches!(next(&actors), Next::Item(item) if matches!(item.task, Task::Command { .. })));
        assert_eq!((actors.replans(&pull()), actors.replans_in_hand()), (true, 1));
        assert!(matches!(next(&actors), Next::Item(item) if matches!(item.task, Task::Replan(_))));
        actors.run(&pull(), CommandName::Plan, &"head".into());
        assert_eq!((actors.replans(&pull()), actors.replans_in_hand()), (true, 1));
        assert!(matches!(next(&actors), Next::End));
        assert!(!actors.replans(&pull()));
    }

    #[test]
    fn the_newest_head_is_that_of_the_last_push_or_of_a_plan_that_goes_on() {
        let pushed = |head: &str| {
            let part = PartialPull {
                id: pull(),
                state: PullState::Open,
                head: Some(head.into()),
                head_start: None,
                draft: Some(false),
                fork: Some(false),
                labels: None,
            };
            let (sender, version) = (Login::unknown(), PullVersion::default());
            let event = PullEvent { action: PullAction::Pushed, pull: DeliveredPull::Part(part), sender, version };
            Item { cause: Cause::Delivery("d".into()), received: at(1), task: Task::Autoplan(Box::new(event)) }
        };
        let newest = |actors: &Actors| actors.newest_head(&pull()).map(|head| head.as_str().to_owned());
        let actors = Actors::default();
        assert!(actors.try_start_actor(&pull()));
        actors.add(&pull(), pushed("a"));
        assert!(matches!(next(&actors), Next::Item(_)));
        assert_eq!(newest(&actors).as_deref(), Some("a"));
        let cancel = actors.run(&pull(), CommandName::Plan, &"a".into());
        assert_eq!(newest(&actors).as_deref(), Some("a"));
        actors.add(&pull(), pushed("b"));
        assert!(cancel.reason().is_some());
        assert_eq!(newest(&actors).as_deref(), Some("b"), "while the plan of the other head is being stopped");
        // Somebody cancels it all.
        actors.cancel(&pull(), &cancel_with_apply(), Timestamp::MAX);
        assert_eq!(newest(&actors), None);
        // A plan of a part says nothing about the rest.
        let mut of_part = item(CommandName::Plan, 1);
        if let Task::Command { command, .. } = &mut of_part.task {
            command.target = Target { dirs: vec!["net".into()], ..Target::default() };
        }
        for (item, expected) in [(of_part, None), (item(CommandName::Plan, 1), Some("c"))] {
            let actors = Actors::default();
            assert!(actors.try_start_actor(&pull()));
            actors.add(&pull(), item);
            assert!(matches!(next(&actors), Next::Item(_)));
            actors.run(&pull(), CommandName::Plan, &"c".into());
            assert_eq!(newest(&actors).as_deref(), expected);
        }
    }

    #[test]
    fn an_apply_that_is_only_looked_at_is_not_running() {
        let actors = taken(CommandName::Apply);
        assert!(!actors.applying(&pull()));
        assert_eq!(actors.running(&pull()), None);
        actors.run(&pull(), CommandName::Apply, &"head".into());
        assert!(actors.applying(&pull()));
        assert_eq!(actors.running(&pull()), Some(CommandName::Apply));
    }

    #[test]
    fn what_is_cancelled_while_it_is_looked_at_does_not_begin() {
        for cancel in [cancel(), cancel_with_apply()] {
            let actors = taken(CommandName::Apply);
            assert_eq!(actors.cancel(&pull(), &cancel, Timestamp::MAX).stopped, Some((CommandName::Apply, false)));
            let cancel = actors.run(&pull(), CommandName::Apply, &"head".into());
            assert_eq!(cancel.reason(), Some(&CancelReason::Person("bob".into())));
        }
    }

    #[test]
    fn what_was_said_after_a_cancel_is_left_alone() {
        for (second, stopped) in [(1, Some((CommandName::Plan, true))), (0, None)] {
            let actors = taken(CommandName::Plan);
            let cancel = actors.run(&pull(), CommandName::Plan, &"head".into());
            actors.add(&pull(), item(CommandName::Plan, second));
            actors.add(&pull(), item(CommandName::Plan, second + 1));
            let cancelled = actors.cancel(&pull(), &cancel_with_apply(), at(second));
            assert_eq!((cancelled.stopped, cancelled.waiting.len()), (stopped, 1));
            assert_eq!(cancel.token.is_cancelled(), stopped.is_some());
            assert_eq!(actors.count(), 2);
        }
    }

    #[test]
    fn what_goes_through_is_not_told_as_cancelled_and_what_was_cancelled_does_not_go_through() {
        let actors = taken(CommandName::Unlock);
        assert!(actors.make_uncancellable(&pull()));
        assert_eq!(actors.cancel(&pull(), &cancel(), Timestamp::MAX).stopped, None);
        let actors = taken(CommandName::Unlock);
        assert_eq!(actors.cancel(&pull(), &cancel(), Timestamp::MAX).stopped, Some((CommandName::Unlock, false)));
        assert!(!actors.make_uncancellable(&pull()));
    }

    #[test]
    fn a_clean_up_and_a_look_for_what_is_in_doubt_are_nothing_to_cancel() {
        let actors = Actors::default();
        assert!(actors.try_start_actor(&pull()));
        let orphaned = OrphanedLocks::default();
        orphaned.add(&killed());
        assert!(matches!(actors.next(&pull(), &orphaned), Next::Settle));
        let cancelled = actors.cancel(&pull(), &cancel_with_apply(), Timestamp::MAX);
        assert_eq!((cancelled.stopped, cancelled.left), (None, None));
    }
}
