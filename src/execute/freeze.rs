//! Checks that a project may be applied now: its repository is not frozen, and no `freeze` window applies to the person who asked.

use super::command_run::CommandRun;
use super::context::Context;
use super::prepare::Stop;
use crate::config::ProjectConfig;
use crate::config::approvers::Approver;
use crate::config::freeze::FreezeWindow;
use crate::domain::RepoId;
use crate::domain::freeze::Freeze;
use crate::domain::outcome::{Failure, Fault, Reason};
use crate::store::View;
use anyhow::Result;
use jiff::Timestamp;

/// Freezes that may stop the applies of one project.
#[derive(Debug, Clone)]
pub(super) struct FreezeGuard {
    repo: RepoId,
    /// Windows that apply to the person who asked, as far as that is known.
    windows: Vec<FreezeWindow>,
    executable: String,
}

impl FreezeGuard {
    /// Loads the windows. Asks the host about teams only during a window; without an answer, nothing of the project is done.
    pub(super) async fn load(ctx: &Context, work: &CommandRun, config: &ProjectConfig) -> Result<FreezeGuard, Stop> {
        let now = Timestamp::now();
        let mut windows = Vec::new();
        for window in &config.freeze {
            if window.until(now).is_none() || !is_excepted(ctx, work, window).await? {
                windows.push(window.clone());
            }
        }
        let executable = ctx.rendering.executable.clone();
        Ok(FreezeGuard { repo: work.pull.id.repo.clone(), windows, executable })
    }

    /// Creates a guard without any window.
    #[cfg(test)]
    pub(super) fn without_windows(repo: RepoId) -> FreezeGuard {
        FreezeGuard { repo, windows: Vec::new(), executable: "atlantis".into() }
    }

    /// Returns the refusal if nothing of the project may be applied at this moment.
    pub(super) fn refusal(&self, view: &View<'_>, now: Timestamp) -> Result<Option<Failure>> {
        let refused = |because: String| Some(Failure::Refused { reason: Reason::Frozen, because });
        if let Some(freeze) = view.freeze_of(&self.repo)? {
            return Ok(refused(frozen_text(&freeze, &self.executable)));
        }
        let held = self.windows.iter().find_map(|window| window.until(now).map(|end| (window, end)));
        Ok(held.and_then(|(window, end)| refused(window_text(window, end))))
    }
}

/// Returns the text about a freeze by hand and the command that lifts it.
pub(super) fn frozen_text(freeze: &Freeze, executable: &str) -> String {
    format!("{}, so nothing is applied there until somebody who may says `{executable} unfreeze`", freeze.describe())
}

fn window_text(window: &FreezeWindow, end: Timestamp) -> String {
    let why = if window.reason.is_empty() { String::new() } else { format!(" ({})", window.reason) };
    let except: Vec<String> = window.except.iter().map(Approver::describe).collect();
    let except = match except.is_empty() {
        true => String::new(),
        false => format!("; meanwhile only {} may apply", except.join(", ")),
    };
    format!(
        "the configuration (`freeze`) lets nothing of this project be applied until {}{why}{except}",
        window.format_time(end)
    )
}

async fn is_excepted(ctx: &Context, work: &CommandRun, window: &FreezeWindow) -> Result<bool, Stop> {
    let user = &work.command.user;
    for one in &window.except {
        let is_it = match one {
            Approver::User(name) => user.as_str().eq_ignore_ascii_case(name) && !user.is_unknown(),
            Approver::Team(team) if !user.is_unknown() => {
                let asked = ctx.teams.is_member(ctx, &work.pull.id.repo, team, user.as_str()).await;
                asked.map_err(|error| {
                    let say = format!("{} {}", ctx.rendering.executable, work.command.name.spoken());
                    let message = ctx.redactor.redact(&format!(
                        "Applies are frozen now (`freeze`), and the host did not say whether {user} is in team {team}, who may apply \
                         meanwhile: {error}. Then: say `{say}` again"
                    ));
                    Stop::Fault(Fault { reason: Reason::Internal, message, output: String::new() })
                })? == Some(true)
            }
            Approver::Team(_) | Approver::CodeOwners => false,
        };
        if is_it {
            return Ok(true);
        }
    }
    Ok(false)
}
