//! Replies other than results: their templates and facts.

use super::RenderOptions;
use super::markdown;
use super::view::cut;
use crate::domain::command::CommandName;
use crate::domain::freeze::Freeze;
use crate::domain::ownership::{InvalidationCause, OwnerState};
use crate::domain::reply::{LeftLock, Message, NextInLine, Reply, UnmergedChange};
use crate::domain::waiting::PlannedAgain;
use crate::domain::{JobId, Login, ProjectId, duration};
use crate::wording;
use minijinja::value::Serde;
use minijinja::{Value, context};

/// Longest word for which a command is suggested, in characters.
const MAX_WORD: usize = 30;

/// Returns the template of a message and its context.
pub(super) fn template(
    message: &Message,
    reply: &Reply,
    options: &RenderOptions,
    budget: usize,
) -> (&'static str, Value) {
    let fenced = |text: &str| Value::from_safe_string(markdown::fence(&cut(text, budget, None), ""));
    let plan = |project: Option<&ProjectId>| wording::command_line(&options.executable, "plan", project, &[], &[]);
    match message {
        Message::Help { text } => ("help.md", context! { text => fenced(text) }),
        Message::Usage { text } => ("usage.md", context! { text => fenced(text) }),
        Message::UnknownCommand { word, allowed } => unknown_command(word, &spoken(allowed)),
        Message::SwitchedOff { name, allowed } => switched_off(*name, &spoken(allowed)),
        Message::DidYouMean { suggestion } => ("did_you_mean.md", context! { suggestion }),
        Message::ApplyDisabled { because } => ("apply_disabled.md", context! { because }),
        Message::UnlockedOthers { lines } => ("unlocked_others.md", context! { lines }),
        Message::UnlockedBy { projects, user, from, why, next } => {
            let told = unlocked_by(projects, user, from, why, &plan(None));
            ("unlocked_by.md", context! { next => Serde(next), ..told })
        }
        Message::Locked { projects, why } => ("locked.md", context! { projects => Serde(projects), why }),
        Message::NotLocked { lines } => ("not_locked.md", context! { lines }),
        Message::Frozen { freeze, already } => ("frozen.md", context! { already, ..frozen(freeze) }),
        Message::Unfrozen { freeze, user } => {
            ("unfrozen.md", context! { words => freeze.as_ref().map(Freeze::describe), user => user.shown() })
        }
        Message::Unlocked { projects, kept, why, next } => unlocked(projects, kept, why, next),
        Message::Owes { state, projects, again } => ("owes.md", context! { again, ..owes(*state, projects, options) }),
        Message::MergeUnknown { because, again } => {
            ("merge_unknown.md", context! { because, again, ..merge_unknown(options) })
        }
        Message::MergeKnown => ("merge_known.md", context! {}),
        Message::MergedOnto { onto, projects } => merged_onto(onto.number, projects),
        Message::AppliedByAnother { project, pull } => applied_by_another(project, pull.number),
        Message::AlsoChanged { projects, pull } => {
            ("also_changed.md", context! { projects => Serde(projects), other => pull.number })
        }
        Message::PlansInvalidated { projects, cause, again } => plans_invalidated(projects, cause, again),
        Message::LockFreed { projects, because } => lock_freed(projects, because, plan),
        Message::UnlockRefused { because, link } => ("unlock_refused.md", context! { because, link }),
        Message::Cancelled { stopped, left } => ("cancelled.md", context! { stopped, left }),
        Message::ForkRefused => ("fork_refused.md", context! {}),
        Message::NotAllowlisted => ("not_allowlisted.md", context! {}),
        Message::NotPermitted { because } => ("not_permitted.md", context! { because }),
        Message::Automerging => ("automerging.md", context! {}),
        Message::NotMerged { because } => ("not_merged.md", context! { because }),
        Message::ClosedPull => ("closed_pull.md", context! {}),
        Message::LateEnd { project, because, output } => {
            late_end(project, because, late_output(output, options, budget), &plan(Some(project)))
        }
        Message::Cleanup { locks, unmerged, remarks, next } => {
            ("cleanup.md", context! { remarks, next => Serde(next), ..freed_at_close(locks, unmerged, options) })
        }
        Message::Discarded { project, user, why, next } => (
            "discarded.md",
            context! { project => Serde(project), user, why, plan => plan(Some(project)), next => Serde(next) },
        ),
        Message::DependentPlansDiscarded { projects, on, number } => {
            dependent_plans_discarded(projects, on, *number, options)
        }
        Message::HookFailed { output } => hook_failed(output, reply, options, budget),
        Message::Interrupted { because } => ("interrupted.md", context! { because }),
        Message::StateLocks { left } => state_locks(left, options),
        Message::ShuttingDown => ("shutting_down.md", context! { again => typed(reply, options) }),
        Message::NoProjects { because } => {
            let told = because.contains(&format!("`{} ", options.executable));
            let wanted = reply.command_name() == Some(CommandName::Apply) && !told;
            ("no_projects.md", context! { because, plan => wanted.then(|| plan(None)) })
        }
        Message::Superseded { head, asked_at } => {
            let asked_at = asked_at.as_ref().map(|head| head.short());
            ("superseded.md", context! { head => head.short(), asked_at, again => typed(reply, options) })
        }
        Message::PlannedAlready { head } => ("planned_already.md", context! { head => head.short() }),
    }
}

fn hook_failed(output: &str, reply: &Reply, options: &RenderOptions, budget: usize) -> (&'static str, Value) {
    let output = markdown::output(&cut(output, budget, None), "", "Log of the hook", options.folding());
    ("hook_failed.md", context! { output => Value::from_safe_string(output), again => typed(reply, options) })
}

fn unknown_command(word: &str, allowed: &[&'static str]) -> (&'static str, Value) {
    ("unknown_command.md", context! { word, meant => meant(word, allowed), allowed => allowed.to_vec(), off => "" })
}

fn switched_off(name: CommandName, allowed: &[&'static str]) -> (&'static str, Value) {
    let (word, off) = (name.spoken(), switch_of(name));
    ("unknown_command.md", context! { word, meant => None::<&str>, allowed => allowed.to_vec(), off })
}

fn merge_unknown(options: &RenderOptions) -> Value {
    context! { way_out => OwnerState::MergedUnknown.way_out(&options.executable) }
}

fn merged_onto(onto: u64, projects: &[ProjectId]) -> (&'static str, Value) {
    ("merged_onto.md", context! { onto, projects => Serde(projects) })
}

fn late_end(project: &ProjectId, because: &str, output: Value, plan: &str) -> (&'static str, Value) {
    ("late_end.md", context! { project => Serde(project), because, output, plan })
}

/// Returns the locks that the closing of a pull request frees, and the applied changes that stay unmerged.
fn freed_at_close(locks: &[(String, Vec<String>)], unmerged: &[UnmergedChange], options: &RenderOptions) -> Value {
    let locks: Vec<_> = locks.iter().map(|(dir, workspaces)| context! { dir, workspaces }).collect();
    let unmerged: Vec<_> = unmerged.iter().map(|change| unmerged_change(change, options)).collect();
    context! { locks, unmerged }
}

fn unmerged_change(change: &UnmergedChange, options: &RenderOptions) -> Value {
    // Our own word for a pull request, which the host links.
    let since = Value::from_safe_string(change.since.clone());
    let (command, partial) = (&change.command, change.partial);
    let log = format!("{}/jobs/{}", options.url, change.job);
    context! { project => Serde(&change.project), command, head => change.head.short(), log, partial, since }
}

fn state_locks(left: &[LeftLock], options: &RenderOptions) -> (&'static str, Value) {
    let log = |job: &JobId| format!("{}/jobs/{job}", options.url);
    let left = left.iter().map(
        |one| context! { project => Serde(&one.project), kind => &one.kind, log => log(&one.job), because => &one.because },
    );
    ("state_locks.md", context! { left => left.collect::<Vec<_>>() })
}

fn frozen(freeze: &Freeze) -> Value {
    context! { words => freeze.describe(), why => &freeze.why, repo => freeze.repo.full_name() }
}

fn unlocked(projects: &[ProjectId], kept: &[ProjectId], why: &str, next: &[NextInLine]) -> (&'static str, Value) {
    ("unlocked.md", context! { projects => Serde(projects), kept => Serde(kept), why, next => Serde(next) })
}

fn applied_by_another(project: &ProjectId, other: u64) -> (&'static str, Value) {
    ("applied_by_another.md", context! { project => Serde(project), other })
}

fn plans_invalidated(projects: &[ProjectId], cause: &InvalidationCause, again: &PlannedAgain) -> (&'static str, Value) {
    let of_cause = match cause {
        InvalidationCause::AppliedBy { pull } => context! { kind => "applied", other => pull.number },
        InvalidationCause::BaseMoved { branch, commit } => {
            context! { kind => "moved", branch, commit => commit.short() }
        }
        InvalidationCause::DependencyApplied { project } => context! { kind => "dependency", on => project.label() },
        InvalidationCause::DriftApplied => context! { kind => "drift" },
        InvalidationCause::TooOld { limit } => context! { kind => "old", limit => duration::format(*limit) },
    };
    let (again, after) = match again {
        PlannedAgain::No => ("no", 0),
        PlannedAgain::Now => ("now", 0),
        PlannedAgain::After(pull) => ("after", pull.number),
    };
    ("plans_fell.md", context! { projects => Serde(projects), again, after, ..of_cause })
}

fn lock_freed(
    projects: &[ProjectId],
    because: &str,
    plan: impl Fn(Option<&ProjectId>) -> String,
) -> (&'static str, Value) {
    let plan = match projects {
        [project] => plan(Some(project)),
        _ => plan(None),
    };
    ("lock_freed.md", context! { projects => Serde(projects), because, plan })
}

fn owes(state: OwnerState, projects: &[ProjectId], options: &RenderOptions) -> Value {
    let (state, way_out) = (state.as_str(), state.way_out(&options.executable));
    context! { state, projects => Serde(projects), way_out }
}

fn unlocked_by(projects: &[ProjectId], user: &Login, from: &str, why: &str, plan: &str) -> Value {
    // Our own word for a pull request, which the host links.
    let from = Value::from_safe_string(from.to_owned());
    context! { projects => Serde(projects), user => user.shown(), from, why, plan }
}

fn dependent_plans_discarded(
    projects: &[ProjectId],
    on: &ProjectId,
    number: u64,
    options: &RenderOptions,
) -> (&'static str, Value) {
    let commands: Vec<_> = (projects.iter())
        .map(|project| wording::command_line(&options.executable, "plan", Some(project), &[], &[]))
        .collect();
    let by = Value::from_safe_string(format!("{}{number}", options.pull_mark));
    ("outdated_plans.md", context! { projects => Serde(projects), on => Serde(on), by, commands })
}

/// Returns the output of Terraform after its command was reported as ended; empty if there is none.
fn late_output(output: &str, options: &RenderOptions, budget: usize) -> Value {
    let output = match output.trim().is_empty() {
        true => String::new(),
        false => markdown::output(&cut(output, budget, None), "", "Output", options.folding()),
    };
    Value::from_safe_string(output)
}

fn spoken(names: &[CommandName]) -> Vec<&'static str> {
    names.iter().map(|name| name.spoken()).collect()
}

/// Returns the setting that allows a command.
fn switch_of(name: CommandName) -> &'static str {
    if name == CommandName::ApprovePolicies { "--enable-policy-checks" } else { "--allow-commands" }
}

/// Returns the command that a mistyped word probably means.
fn meant<'a>(word: &str, allowed: &[&'a str]) -> Option<&'a str> {
    let word: String = word.chars().take(MAX_WORD).collect::<String>().to_lowercase();
    let names = allowed.iter().copied().chain(["help"]);
    let near = names.map(|name| (strsim::damerau_levenshtein(name, &word), name)).min()?;
    (near.0 > 0 && near.0 * 2 < near.1.len()).then_some(near.1)
}

/// Returns the command as it was typed; `plan` for autoplan.
fn typed(reply: &Reply, options: &RenderOptions) -> String {
    let Some(command) = &reply.command else { return format!("{} plan", options.executable) };
    let mut line = format!("{} {}", options.executable, command.name.spoken());
    line.push_str(&wording::target_flags(&command.target));
    line.push_str(&wording::arguments(&command.positional, &command.extra_args));
    line
}
