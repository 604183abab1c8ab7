//! Reads a plan from its JSON (`show -json`): what it destroys, and the code that its file contains.

use super::patterns::protects;
use super::{CodeFact, CodeKind, GuardPart, merge, runs_program, shown, tripped};
use crate::config::guards::Guard;
use crate::domain::guards::TrippedGuard;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Prefixes of `format_version` whose parts are known.
const FORMATS: [&str; 2] = ["0.", "1."];
/// Most addresses of one finding that are named.
const MAX_NAMED: usize = 5;

/// A plan, as far as guards read it.
#[derive(Debug, Deserialize)]
pub struct GuardedPlan {
    format_version: String,
    #[serde(default)]
    resource_changes: Vec<ListedChange>,
    configuration: Configuration,
}

#[derive(Debug, Deserialize)]
struct ListedChange {
    address: String,
    previous_address: Option<String>,
    #[serde(default)]
    mode: String,
    #[serde(default)]
    provider_name: String,
    change: Actions,
}

#[derive(Debug, Deserialize)]
struct Actions {
    actions: Vec<String>,
}

impl Actions {
    fn has(&self, action: &str) -> bool {
        self.actions.iter().any(|own| own == action)
    }
}

#[derive(Debug, Default, Deserialize)]
struct Configuration {
    #[serde(default)]
    provider_config: BTreeMap<String, ProviderConfig>,
    #[serde(default)]
    root_module: Module,
}

#[derive(Debug, Deserialize)]
struct ProviderConfig {
    #[serde(default)]
    full_name: String,
}

#[derive(Debug, Default, Deserialize)]
struct Module {
    #[serde(default)]
    resources: Vec<ConfiguredResource>,
    #[serde(default)]
    actions: Vec<ConfiguredResource>,
    #[serde(default)]
    module_calls: BTreeMap<String, ModuleCall>,
}

#[derive(Debug, Deserialize)]
struct ConfiguredResource {
    #[serde(default)]
    address: String,
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    provisioners: Vec<Provisioner>,
}

#[derive(Debug, Deserialize)]
struct Provisioner {
    #[serde(rename = "type", default)]
    kind: String,
}

#[derive(Debug, Deserialize)]
struct ModuleCall {
    #[serde(default)]
    source: String,
    #[serde(default)]
    module: Module,
}

/// Returns the guards that a plan trips because it cannot be read. A plan that has no file trips only those with limits, as the code was
/// read before.
pub fn unreadable(guards: &[Guard], why: &str, reason: NoPlan) -> Vec<TrippedGuard> {
    let needs_it = |guard: &&Guard| reason == NoPlan::Broken || guard.has_limits();
    let finding = || vec![format!("the plan cannot be checked: {why}")];
    guards.iter().filter(needs_it).filter_map(|guard| tripped(guard, finding(), GuardPart::Plan)).collect()
}

/// Adds that a plan leaves no file in which a guard could see its limits, unless a finding about the plan is there.
pub fn without_file(found: &mut Vec<TrippedGuard>, guard: &Guard) {
    if found.iter().any(|known| known.name == guard.name && !known.of_code) {
        return;
    }
    // An override of the code does not pass the limits.
    for known in found.iter_mut().filter(|known| known.name == guard.name) {
        known.passed = None;
    }
    merge(found, unreadable(std::slice::from_ref(guard), "its workflow leaves no plan file", NoPlan::NoFile));
}

/// Reason for which a plan cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoPlan {
    /// There is no plan file: the workflow makes none, or the run is remote.
    NoFile,
    /// Its file cannot be read.
    Broken,
}

impl GuardedPlan {
    /// Parses the output of `show -json`. The error has no values of the plan.
    pub fn parse(json: &[u8]) -> Result<GuardedPlan, String> {
        let plan: GuardedPlan = serde_json::from_slice(json)
            .map_err(|error| format!("the plan is no valid JSON (line {}, column {})", error.line(), error.column()))?;
        match FORMATS.iter().any(|known| plan.format_version.starts_with(known)) {
            true => Ok(plan),
            false => Err("the plan's format is a newer one".to_owned()),
        }
    }

    /// Returns the guards that the plan trips, in their order: by its changes, and by the code in its file.
    pub fn trips(&self, guards: &[Guard]) -> Vec<TrippedGuard> {
        let facts = self.facts();
        let mut found = Vec::new();
        for guard in guards {
            let mut own: Vec<TrippedGuard> =
                tripped(guard, self.findings(guard), GuardPart::Plan).into_iter().collect();
            super::merge(&mut own, super::of_code(std::slice::from_ref(guard), &facts));
            found.extend(own);
        }
        found
    }

    fn findings(&self, guard: &Guard) -> Vec<String> {
        let managed = || self.resource_changes.iter().filter(|one| one.mode != "data");
        let destroyed: Vec<&str> =
            managed().filter(|one| one.change.has("delete")).map(|one| one.address.as_str()).collect();
        let replaced = self.replaced();
        let limits = [
            (guard.max_destroys, &destroyed, "to destroy", "max_destroys"),
            (guard.max_replacements, &replaced, "to replace", "max_replacements"),
        ];
        let mut findings = Vec::new();
        for (limit, found, what, key) in limits {
            let count = found.len() as u64;
            if let Some(most) = limit.filter(|most| count > *most) {
                findings.push(format!("{count} {what}, at most {most} allowed (`{key}`): {}", named(found)));
            }
        }
        findings.extend(managed().filter_map(|one| lost(guard, one)));
        findings
    }

    /// Returns the addresses that the plan both destroys or forgets, and creates again.
    fn replaced(&self) -> Vec<&str> {
        let mut by_address: BTreeMap<&str, (bool, bool)> = BTreeMap::new();
        for one in self.resource_changes.iter().filter(|one| one.mode != "data") {
            let (ends, begins) = by_address.entry(&one.address).or_default();
            *ends |= one.change.has("delete") || one.change.has("forget");
            *begins |= one.change.has("create");
        }
        by_address.into_iter().filter(|(_, (ends, begins))| *ends && *begins).map(|(address, _)| address).collect()
    }

    /// Returns the facts about the code in the plan file.
    fn facts(&self) -> Vec<CodeFact> {
        let mut facts = Vec::new();
        for (key, config) in &self.configuration.provider_config {
            facts.push(CodeFact { place: key.clone(), what: CodeKind::Provider(config.full_name.clone()) });
        }
        for one in self.resource_changes.iter().filter(|one| !one.provider_name.is_empty()) {
            facts.push(CodeFact { place: one.address.clone(), what: CodeKind::Provider(one.provider_name.clone()) });
        }
        add_module(&self.configuration.root_module, "", &mut facts);
        facts
    }
}

/// Returns what a change does to a protected resource, in words; `None` for nothing.
fn lost(guard: &Guard, one: &ListedChange) -> Option<String> {
    let by = |address: &str| guard.protect.iter().find(|pattern| protects(pattern, address));
    let before = one.previous_address.as_deref().unwrap_or(&one.address);
    let pattern = by(&one.address).or_else(|| by(before))?;
    let ends = ["delete", "forget"].iter().any(|action| one.change.has(action));
    let what = match (one.change.has("delete"), one.change.has("create"), ends) {
        (_, true, true) => "would be replaced",
        (true, ..) => "would be destroyed",
        (false, false, true) => "would be removed from the state",
        // Under its new address nothing would protect it any more.
        _ if by(&one.address).is_none() => {
            return Some(format!(
                "`{}` would be moved to `{}`, which is not protected (`protect: {pattern}`)",
                shown(before),
                shown(&one.address)
            ));
        }
        _ => return None,
    };
    Some(format!("`{}` {what} (`protect: {pattern}`)", shown(before)))
}

fn named(addresses: &[&str]) -> String {
    let first: Vec<String> = addresses.iter().take(MAX_NAMED).map(|address| format!("`{}`", shown(address))).collect();
    let more = addresses.len().saturating_sub(MAX_NAMED);
    let rest = if more == 0 { String::new() } else { format!(" and {more} more") };
    first.join(", ") + &rest
}

fn add_module(module: &Module, prefix: &str, facts: &mut Vec<CodeFact>) {
    for resource in module.resources.iter().chain(&module.actions) {
        let place = format!("{prefix}{}", resource.address);
        if runs_program(&resource.kind) {
            facts.push(CodeFact { place: place.clone(), what: CodeKind::Program(resource.kind.clone()) });
        }
        for provisioner in &resource.provisioners {
            facts.push(CodeFact { place: place.clone(), what: CodeKind::Provisioner(provisioner.kind.clone()) });
        }
    }
    for (name, call) in &module.module_calls {
        let place = format!("{prefix}module.{name}");
        if !call.source.starts_with("./") && !call.source.starts_with("../") {
            facts.push(CodeFact { place: place.clone(), what: CodeKind::Module(call.source.clone()) });
        }
        add_module(&call.module, &format!("{place}."), facts);
    }
}
