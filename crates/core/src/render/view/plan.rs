//! Facts of a plan: counts, dangers, and resources by action.

use crate::domain::guards::TrippedGuard;
use crate::domain::outcome::{Planned, ResourceAction, ResourceChange};
use crate::wording;
use minijinja::Value;
use serde::Serialize;

/// Maximum number of listed attributes of each resource.
const ATTRIBUTES: usize = 4;

#[derive(Serialize)]
pub(super) struct PlanView {
    counts: String,
    /// True if Terraform printed totals.
    totals: bool,
    no_changes: bool,
    outputs_only: bool,
    danger: Option<String>,
    /// What the plan destroys; absent if the pull request does not delete the project's directory.
    deleted: Option<&'static str>,
    guards: Vec<GuardRow>,
    outside: bool,
    merged_again: bool,
    saved: bool,
    base: Option<Value>,
    resources: Vec<ActionRow>,
}

/// A guard that the plan trips.
#[derive(Serialize)]
struct GuardRow {
    name: String,
    findings: Vec<String>,
    more: usize,
    /// People who may override it; empty for nobody.
    who: String,
    /// Command that overrides it; empty if it is overridden, or if nobody may.
    command: String,
    /// The person who has overridden it; empty for nobody.
    by: String,
    why: String,
}

/// Resources of one action.
#[derive(Serialize)]
struct ActionRow {
    action: &'static str,
    shown: Vec<Resource>,
    more: usize,
}

/// One resource.
#[derive(Serialize)]
struct Resource {
    address: String,
    attributes: Vec<String>,
    /// Number of attributes that are not listed.
    more: usize,
    /// True if the attributes force a replacement.
    forced: bool,
}

impl PlanView {
    /// Builds the view. `base` is the formatted commit that the head was planned on; `listed` is the maximum number of listed resources of
    /// each action; `apply` is the command line that applies it.
    pub(super) fn new(planned: &Planned, base: Option<Value>, listed: usize, apply: &str) -> PlanView {
        let s = &planned.summary;
        let replaced = planned.resources.iter().filter(|r| r.action == ResourceAction::Replace).count();
        PlanView {
            counts: wording::plan_counts(s),
            totals: wording::has_totals(s),
            no_changes: s.no_changes,
            outputs_only: s.outputs_only,
            danger: (s.destroy > 0).then(|| danger(s.destroy, replaced as u64)),
            deleted: planned.deleted.then_some(match planned.part {
                _ if s.no_changes => "nothing",
                Some(_) => "a part of what is in its state",
                None => "everything in its state",
            }),
            guards: planned.guards.iter().map(|guard| guard_row(guard, apply)).collect(),
            outside: s.changes_outside,
            merged_again: planned.merged_again,
            saved: planned.saved,
            base,
            resources: rows(&planned.resources, listed),
        }
    }

    /// Returns the result in a few words.
    pub(super) fn state(&self) -> String {
        let open: Vec<&str> =
            self.guards.iter().filter(|guard| guard.by.is_empty()).map(|guard| guard.name.as_str()).collect();
        if !open.is_empty() {
            return format!("⚠ guard {} tripped", open.join(", "));
        }
        match &self.danger {
            Some(danger) if self.deleted.is_some() => format!("⚠ deleted project: {danger}"),
            None if self.deleted.is_some() => "deleted project: nothing to destroy".to_owned(),
            Some(danger) => format!("⚠ {danger}"),
            None if self.no_changes => "no changes".to_owned(),
            None if self.outputs_only => "outputs change".to_owned(),
            None if self.totals => "changes".to_owned(),
            None => "planned".to_owned(),
        }
    }
}

fn guard_row(guard: &TrippedGuard, apply: &str) -> GuardRow {
    let command = if guard.passed.is_some() || guard.who.is_empty() { String::new() } else { guard.command(apply) };
    let (by, why) =
        guard.passed.as_ref().map(|pass| (pass.by.shown().to_owned(), pass.why.clone())).unwrap_or_default();
    GuardRow {
        name: guard.name.clone(),
        findings: guard.findings.clone(),
        more: guard.more,
        who: guard.who.clone(),
        command,
        by,
        why,
    }
}

fn danger(destroyed: u64, replaced: u64) -> String {
    let s = if destroyed == 1 { "" } else { "s" };
    match replaced {
        0 => format!("destroys {destroyed} resource{s}"),
        n if n >= destroyed => format!("replaces {destroyed} resource{s}"),
        n => format!("destroys {destroyed} resource{s}, {n} of them to replace"),
    }
}

/// Returns the resources by action, the most dangerous first, without data sources that are read.
fn rows(resources: &[ResourceChange], listed: usize) -> Vec<ActionRow> {
    use ResourceAction::{Create, Destroy, Forget, Import, Move, Replace, Update};
    let actions = [
        (Destroy, "destroy"),
        (Replace, "replace"),
        (Update, "update"),
        (Create, "create"),
        (Import, "import"),
        (Move, "move"),
        (Forget, "forget"),
    ];
    let row = |(action, word)| {
        let all: Vec<_> = resources.iter().filter(|resource| resource.action == action).collect();
        let shown = all.iter().take(listed).map(|resource| Resource {
            address: resource.address.clone(),
            attributes: resource.attributes.iter().take(ATTRIBUTES).cloned().collect(),
            more: resource.attributes.len().saturating_sub(ATTRIBUTES),
            forced: action == Replace,
        });
        ActionRow { action: word, shown: shown.collect(), more: all.len().saturating_sub(listed) }
    };
    actions.into_iter().map(row).filter(|row| !row.shown.is_empty()).collect()
}
