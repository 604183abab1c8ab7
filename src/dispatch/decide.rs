//! Decides what an event causes, by the allowlist, the rules of autoplan, and the text of a comment.

use super::inner::Inner;
use super::queues::Task;
use crate::comment::{self, Parsed};
use crate::domain::command::Command;
use crate::domain::reply::Message;
use crate::domain::{CommentEvent, CommitSha, Event, PullAction, PullEvent, PullId, PullRequest};

/// Answer to a delivery of a repository that is not served, for people who view it on the host, and for the log.
pub(super) const NOT_ALLOWLISTED: &str = "This repository is not in --repo-allowlist, so nothing is done for it.";

/// Work that an event causes.
pub(super) enum Decision {
    /// Nothing; the text says why, for the log and the host.
    Ignore(&'static str),
    /// A reply and nothing else.
    Reply(Message),
    /// The same to a command that is not run.
    Refuse(Box<Command>, Message),
    /// Work for the pull request's actor.
    Queue(Task),
    /// A push that is not planned; plans of older heads are superseded.
    Superseded(CommitSha),
    /// A command in an edited comment: it is not run, and gets only a reaction.
    Edited,
}

impl Inner {
    pub(super) fn decide(&self, event: &Event, pull: &PullId) -> Decision {
        match event {
            Event::Comment(comment) => self.decide_comment(comment),
            Event::Pull(event) => self.decide_pull(event),
            Event::MergeGroup(_) if !self.allowlist.allows(&pull.repo) => self.not_allowlisted(pull, None),
            Event::MergeGroup(event) => Decision::Queue(Task::MergeGroup(event.clone())),
            Event::Request(_) => Decision::Ignore("no host asks for this"),
            _ => Decision::Ignore("nothing to do"),
        }
    }

    fn decide_comment(&self, comment: &CommentEvent) -> Decision {
        let Some(names) = self.names_for(&comment.pull.repo) else {
            return Decision::Ignore("the host is not configured");
        };
        if comment.author.is(&names.bot_login) {
            return Decision::Ignore("our own comment");
        }
        let parsed = comment::parse(&comment.body, &comment.author, &names);
        if parsed == Parsed::NotForUs {
            return Decision::Ignore("not a command");
        }
        if !self.allowlist.allows(&comment.pull.repo) {
            return self.not_allowlisted(&comment.pull, Some(Message::NotAllowlisted));
        }
        let message = match parsed {
            Parsed::Command(mut command) => {
                // The pull request's own number alone means the same as no number.
                if command.pulls == [comment.pull.number] {
                    command.pulls.clear();
                }
                return Decision::Queue(Task::Command { comment: comment.clone(), command });
            }
            Parsed::Help(text) => Message::Help { text },
            Parsed::Usage(text) => Message::Usage { text },
            Parsed::Unknown(word) => Message::UnknownCommand { word, allowed: names.allowed },
            Parsed::SwitchedOff(name) => Message::SwitchedOff { name, allowed: names.allowed },
            Parsed::DidYouMean(suggestion) => Message::DidYouMean { suggestion },
            Parsed::NotForUs => return Decision::Ignore("not a command"),
        };
        Decision::Reply(message)
    }

    fn decide_pull(&self, event: &PullEvent) -> Decision {
        let (settings, pull) = (&self.ctx.settings, &event.pull);
        if !self.allowlist.allows(&pull.id().repo) {
            let reply = (event.action == PullAction::Opened).then_some(Message::NotAllowlisted);
            return self.not_allowlisted(pull.id(), reply);
        }
        if matches!(event.action, PullAction::Closed { .. }) {
            return Decision::Queue(Task::Closed(Box::new(event.clone())));
        }
        let superseded = match pull.head() {
            Some(head) => Decision::Superseded(head.clone()),
            None => Decision::Ignore("not planned"),
        };
        if pull.is_fork() && !settings.allow_fork_prs {
            let say = !settings.silence_fork_pr_errors && event.action == PullAction::Opened;
            return if say { Decision::Reply(Message::ForkRefused) } else { superseded };
        }
        match self.no_autoplan(pull.is_open(), pull.is_draft(), pull.labels()) {
            Some(_) => superseded,
            None => Decision::Queue(Task::Autoplan(Box::new(event.clone()))),
        }
    }

    /// Returns the reason not to accept an event of a pull request for autoplan: its state, its labels or the settings.
    fn no_autoplan(&self, is_open: bool, is_draft: bool, labels: &[String]) -> Option<&'static str> {
        let settings = &self.ctx.settings;
        let labelled = |label: &String| labels.contains(label);
        if settings.disable_autoplan {
            Some("autoplan is off on this server (`--disable-autoplan`)")
        } else if is_draft && !settings.allow_draft_prs {
            Some("it is a draft")
        } else if settings.disable_autoplan_label.as_ref().is_some_and(labelled) {
            Some("it has the label that keeps it from being planned (`--disable-autoplan-label`)")
        } else {
            (!is_open).then_some("it is closed")
        }
    }

    /// Returns the reason not to plan a pull request without a command when its turn has come: also the allowlist, forks and the base
    /// branch.
    pub(super) fn autoplan_refusal(&self, pull: &PullRequest) -> Option<&'static str> {
        if !self.allowlist.allows(&pull.id.repo) {
            Some(NOT_ALLOWLISTED)
        } else if pull.fork && !self.ctx.settings.allow_fork_prs {
            Some("it comes from a fork")
        } else if !self.ctx.global.rules(&pull.id.repo, &pull.base.branch).branch_allowed {
            Some("its base branch is not served")
        } else {
            self.no_autoplan(pull.is_open(), pull.draft, &pull.labels)
        }
    }
}
