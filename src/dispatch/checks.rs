//! Buttons of checks, and the host's own button that repeats them. Each press is one command in the name of the person who pressed it:
//! recorded like a delivery, under the rules for comments, and answered on the pull request. It is bound to the commit of the check.

use super::Handle;
use super::decide::Decision;
use super::delivery_outcome::DeliveryOutcome;
use super::immediate_commands::entry;
use super::inner::Inner;
use super::page_commands::target_of;
use super::requests;
use crate::domain::command::{Command, CommandName, Target, Trigger};
use crate::domain::reply::Message;
use crate::domain::state::Delivery;
use crate::domain::{CheckEvent, DeliveryId, Event, ProjectId, PullId, RequestEvent};
use crate::store::{Tx, View};
use anyhow::Result;
use jiff::Timestamp;

/// Commands whose statuses exist for each project.
const OF_PROJECTS: [CommandName; 3] = [CommandName::Plan, CommandName::Apply, CommandName::PolicyCheck];

/// Facts of the state about a pressed check.
struct PressedCheck {
    pull: PullId,
    /// Projects of the pull request.
    projects: Vec<ProjectId>,
    /// True if another open pull request has the commit of the check as its head, and shows the same check.
    is_shared: bool,
}

impl Handle {
    /// Records the command of a pressed button.
    pub(super) async fn accept_check(
        &self,
        event: &CheckEvent,
        identity: DeliveryId,
        host_id: String,
        received: Timestamp,
    ) -> DeliveryOutcome {
        let inner = &self.inner();
        let Some(names) = inner.names_for(&event.repo) else {
            return DeliveryOutcome::Ignored("the host is not configured");
        };
        if event.sender.is(&names.bot_login) {
            return DeliveryOutcome::Ignored("our own press of a button");
        }
        let about = event.clone();
        let pressed = match inner.ctx.store.read(move |view| pressed_check(view, &about)).await {
            Ok(Some(pressed)) => pressed,
            Ok(None) => return DeliveryOutcome::Ignored("No open pull request has this check."),
            Err(error) => {
                return DeliveryOutcome::unrecorded(
                    &error,
                    &event.repo,
                    "the pull request of a check could not be read",
                );
            }
        };
        let pull = pressed.pull.clone();
        let mut command = Command {
            at: Some(event.head.clone()),
            ..Command::new(event.command, Trigger::Comment, event.sender.clone())
        };
        let decision = if !inner.allowlist.allows(&event.repo) {
            inner.not_allowlisted(&pull, Some(Message::NotAllowlisted))
        } else if !names.allowed.contains(&event.command) {
            Decision::Reply(Message::SwitchedOff { name: event.command, allowed: names.allowed })
        } else {
            match inner.target_of_check(event, &pressed) {
                Ok(target) => {
                    command.target = target;
                    let request = RequestEvent { pull: pull.clone(), command: Box::new(command.clone()) };
                    Decision::Queue(requests::task(inner, &request))
                }
                Err(because) => Decision::Reply(Message::Interrupted { because }),
            }
        };
        if let Decision::Ignore(why) = decision {
            return DeliveryOutcome::Ignored(why);
        }
        let asked_for = entry(
            &command.user,
            command.name.spoken(),
            &pull,
            &identity.clone().into(),
            "asked for by a check's button",
        );
        let event = Event::Request(RequestEvent { pull: pull.clone(), command: Box::new(command) });
        let delivery = Delivery { identity, host_id, received, event };
        inner.record(delivery, pull, decision, move |tx: &Tx<'_>| tx.audit(&asked_for).map(|()| true)).await
    }
}

/// Returns the pull request of a check: the one that it names, or the open one with the lowest number that has its commit as its head.
fn pressed_check(view: &View<'_>, event: &CheckEvent) -> Result<Option<PressedCheck>> {
    let open = view.open_pulls_of(&event.repo)?.into_iter();
    let with_head: Vec<PullId> =
        open.filter(|known| known.pull.head.commit == event.head).map(|known| known.pull.id).collect();
    let pull = match event.number {
        Some(number) => view.pull(&PullId { repo: event.repo.clone(), number })?.map(|pull| pull.id),
        None => with_head.iter().min().cloned(),
    };
    let Some(pull) = pull else { return Ok(None) };
    let is_shared = with_head.iter().any(|other| *other != pull);
    let projects = view.project_statuses(&pull)?.into_iter().map(|status| status.project).collect();
    Ok(Some(PressedCheck { pull, projects, is_shared }))
}

impl Inner {
    /// Returns the target of a check: its project, or all for a check whose name says exactly that. A check that got its name under another
    /// `--vcs-status-name`, or from another server of the App, is unknown: its button must not do more than the check was about.
    ///
    /// # Errors
    ///
    /// The reason and the next command, if nothing of the pull request has this name, or if the person may have meant another pull request.
    fn target_of_check(&self, event: &CheckEvent, pressed: &PressedCheck) -> Result<Target, String> {
        let executable = &self.ctx.rendering.executable;
        if pressed.is_shared && event.command == CommandName::Apply {
            return Err(format!(
                "Refused: several open pull requests have this commit and show this button. To apply the plans of this one, comment: \
                 `{executable} apply`"
            ));
        }
        let Some(check) = &event.check else { return Ok(Target::default()) };
        let statuses = &self.ctx.statuses;
        let named = |project: &&ProjectId| OF_PROJECTS.iter().any(|name| statuses.name_of(*name, project) == *check);
        if let Some(project) = pressed.projects.iter().find(named) {
            return target_of(project);
        }
        if statuses.is_of_all(check) || event.command == CommandName::Plan && statuses.is_of_hook(check) {
            return Ok(Target::default());
        }
        Err(format!(
            "Refused: the button belongs to the check `{}`, and the pull request has no such project now. To plan its projects: \
             `{executable} plan`",
            check.replace('`', "'")
        ))
    }
}
