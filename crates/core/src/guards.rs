//! Guards: what a plan and its code must not do by `guards` of `repos.yaml`. Pure: reads the checkout through `inputs::Tree`, and a plan
//! from its JSON. Both come from a pull request, so whatever cannot be read trips the guards that need it.

pub mod code;
mod file;
mod json;
mod lexing;
mod names;
mod patterns;
pub mod plan;

use crate::config::guards::{Forbidden, Guard};
use crate::domain::guards::TrippedGuard;
use patterns::{allows_module, allows_provider};
use std::collections::HashSet;

/// Most findings of one guard that are kept; the rest is counted.
const MAX_FINDINGS: usize = 10;
/// Longest name of the pull request in a finding, in characters.
const MAX_SHOWN: usize = 120;

/// A fact about code that guards may refuse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeFact {
    /// Its place: `FILE:LINE`, or the address of a resource or module.
    pub place: String,
    /// What is there.
    pub what: CodeKind,
}

/// Kind of a fact about code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CodeKind {
    /// A data source or action of this type, which runs a program.
    Program(String),
    /// A provisioner of this type.
    Provisioner(String),
    /// A module from outside of the repository, by its source.
    Module(String),
    /// A module whose source is no literal text.
    UnknownModule,
    /// A provider, by its source as written or in full.
    Provider(String),
    /// A provider whose source is no literal text.
    UnknownProvider,
    /// Code that cannot be read, with the reason.
    Unreadable(String),
}

/// Types that run a program of the code's choice on the machine of the plan.
const PROGRAMS: [&str; 2] = ["external", "local_command"];

/// Returns true if blocks of this type run a program.
pub(crate) fn runs_program(kind: &str) -> bool {
    PROGRAMS.contains(&kind)
}

/// Returns the guards that code with these facts trips, in their order.
pub fn of_code(guards: &[Guard], facts: &[CodeFact]) -> Vec<TrippedGuard> {
    let with_rules = guards.iter().filter(|guard| guard.has_code_rules());
    let tripped = with_rules.filter_map(|guard| {
        let (mut found, mut seen) = (Vec::new(), HashSet::new());
        for fact in facts {
            if let Some(problem) = problem(guard, &fact.what) {
                let finding = format!("{}: {problem}", shown(&fact.place));
                if seen.insert(finding.clone()) {
                    found.push(finding);
                }
            }
        }
        tripped(guard, found, GuardPart::Code)
    });
    tripped.collect()
}

/// Part of a guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GuardPart {
    Code,
    Plan,
}

/// Returns the tripped guard of these findings; `None` without findings.
fn tripped(guard: &Guard, mut findings: Vec<String>, part: GuardPart) -> Option<TrippedGuard> {
    let more = findings.len().saturating_sub(MAX_FINDINGS);
    findings.truncate(MAX_FINDINGS);
    let (name, of_code) = (guard.name.clone(), part == GuardPart::Code);
    let who = guard.people();
    (!findings.is_empty()).then_some(TrippedGuard { name, findings, more, of_code, who, passed: None })
}

/// Adds guards to others. A guard is listed once, with the findings of both.
pub fn merge(into: &mut Vec<TrippedGuard>, others: Vec<TrippedGuard>) {
    for other in others {
        match into.iter_mut().find(|known| known.name == other.name) {
            None => into.push(other),
            Some(known) => {
                let new: Vec<String> =
                    other.findings.into_iter().filter(|finding| !known.findings.contains(finding)).collect();
                let room = MAX_FINDINGS.saturating_sub(known.findings.len());
                known.more += other.more + new.len().saturating_sub(room);
                known.findings.extend(new.into_iter().take(room));
                // A limit that trips as well is not passed with the code.
                known.of_code &= other.of_code;
            }
        }
    }
}

/// Returns what a guard has against a fact, in words; `None` for nothing.
fn problem(guard: &Guard, what: &CodeKind) -> Option<String> {
    let forbids = |kind| guard.forbid.contains(&kind);
    match what {
        CodeKind::Program(kind) => {
            forbids(Forbidden::External).then(|| format!("`{}` runs a program (`forbid: external`)", shown(kind)))
        }
        CodeKind::Provisioner(kind) => {
            forbids(Forbidden::Provisioners).then(|| format!("provisioner `{}` (`forbid: provisioners`)", shown(kind)))
        }
        CodeKind::Module(source) => {
            let allowed = guard.modules.as_ref()?;
            (!allows_module(allowed, source))
                .then(|| format!("the module source `{}` is not in `modules`", shown(source)))
        }
        CodeKind::UnknownModule => {
            guard.modules.as_ref().map(|_| "a module whose source is not a literal text".to_owned())
        }
        CodeKind::Provider(source) => {
            let allowed = guard.providers.as_ref()?;
            (!allows_provider(allowed, source))
                .then(|| format!("the provider `{}` is not in `providers`", shown(source)))
        }
        CodeKind::UnknownProvider => {
            guard.providers.as_ref().map(|_| "a provider whose source is not a literal text".to_owned())
        }
        CodeKind::Unreadable(why) => Some(format!("it cannot be checked: {why}")),
    }
}

/// Returns a name of the pull request for a finding: one line without backticks, shortened.
fn shown(text: &str) -> String {
    let plain = |c: char| match c {
        '`' => '\'',
        c if c.is_control() => ' ',
        c => c,
    };
    let mut short: String = text.chars().take(MAX_SHOWN).map(plain).collect();
    if text.chars().nth(MAX_SHOWN).is_some() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests;
