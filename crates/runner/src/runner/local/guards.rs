//! Guards of a job: its code is read before the first step, and again before Terraform reads it, when `init` has fetched modules. A plan is
//! read when it is made, and again before a job with other rights applies it.

use super::changes::{NotShown, PlanInJson};
use super::code::{noted_modules, plain};
use super::environment;
use super::sealed::Sealed;
use super::stage::{Broken, Stage};
use crate::checkout::disk::DiskTree;
use crate::checkout::folder::Folder;
use crate::runner::result::StepProblem;
use crate::runner::spec::PlanUse;
use anyhow::{Context as _, Result};
use std::path::Path;
use std::sync::Arc;
use tidelock_core::config::guards::Guard;
use tidelock_core::domain::guards::TrippedGuard;
use tidelock_core::guards::code::{CodePlaces, facts};
use tidelock_core::guards::plan::{GuardedPlan, NoPlan, unreadable};
use tidelock_core::guards::{CodeFact, CodeKind, merge, of_code};

/// Time of a check of code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CodeCheck {
    /// Before the first step: only the repository is there.
    BeforeSteps,
    /// Before Terraform reads the code: `init` has recorded where modules lie.
    BeforeTerraform,
}

impl Stage<'_> {
    /// Checks the code of the project by its guards. A plan or check that exists already is not checked again.
    pub(super) async fn guard_code(&mut self, when: CodeCheck) -> Result<(), Broken> {
        let guards = &self.spec.project.guards;
        let reads_plan = matches!(self.spec.plan, PlanUse::Apply(_) | PlanUse::Check(_));
        if reads_plan || !guards.iter().any(Guard::has_code_rules) {
            return Ok(());
        }
        let facts = if self.place.tool.terragrunt.is_some() {
            let why = "Terragrunt makes the code of a unit only when it runs";
            vec![unreadable_code(&self.spec.project.id.dir, why)]
        } else {
            let (root, dir) = (self.place.tree.root.clone(), self.spec.project.id.dir.clone());
            let data_dir = environment::get(&self.env, "TF_DATA_DIR").filter(|set| !set.is_empty());
            let data_dir = data_dir.unwrap_or(".terraform").to_owned();
            let reading = tokio::task::spawn_blocking(move || read_code(&root, &dir, &data_dir, when));
            reading.await.unwrap_or_else(|_| vec![unreadable_code(&self.spec.project.id.dir, "it could not be read")])
        };
        let mut tripped = of_code(guards, &facts);
        self.redact(&mut tripped);
        let open: Vec<TrippedGuard> = tripped.iter().filter(|guard| !self.overrides(guard)).cloned().collect();
        self.code_guards = tripped;
        if open.is_empty() { Ok(()) } else { Err(self.refused_by(open)) }
    }

    /// Returns the guards that the plan trips, besides those that its code was found to trip.
    pub(super) async fn plan_guards(&self, mut found: Vec<TrippedGuard>, shown: &Arc<PlanInJson>) -> Vec<TrippedGuard> {
        let (guards, shown) = (self.spec.project.guards.clone(), Arc::clone(shown));
        let judged = tokio::task::spawn_blocking(move || of_plan(&guards, &shown)).await;
        let judged =
            judged.unwrap_or_else(|_| unreadable(&self.spec.project.guards, "it could not be read", NoPlan::Broken));
        merge(&mut found, judged);
        self.redact(&mut found);
        for guard in &found {
            (self.io.log)(&format!("[tidelock: guard {}: {}]", guard.name, guard.describe()));
        }
        found
    }

    /// Checks the plan file of an apply, if the job that made it could have given back another one than it described.
    pub(super) async fn guard_approved(&mut self) -> Result<(), Broken> {
        let (Some(plan), PlanUse::Apply(reference)) = (self.plan.clone(), &self.spec.plan) else { return Ok(()) };
        if self.spec.project.guards.is_empty() {
            return Ok(());
        }
        let known = reference.guards.clone();
        let shown = Arc::new(self.shown_json(Some(plan)).await?);
        let found = self.plan_guards(Vec::new(), &shown).await;
        // What the plan was overridden for is its code.
        let was_passed = |guard: &TrippedGuard| {
            guard.of_code && known.iter().any(|known| known.name == guard.name && known.passed.is_some())
        };
        let open: Vec<TrippedGuard> =
            found.into_iter().filter(|guard| !self.overrides(guard) && !was_passed(guard)).collect();
        if open.is_empty() { Ok(()) } else { Err(self.refused_by(open)) }
    }

    /// Masks secrets in findings, which quote the code.
    fn redact(&self, guards: &mut [TrippedGuard]) {
        for finding in guards.iter_mut().flat_map(|guard| &mut guard.findings) {
            *finding = self.local.redactor.redact(finding);
        }
    }

    /// Returns true if the command overrides a guard; the server has checked that its person may.
    fn overrides(&self, guard: &TrippedGuard) -> bool {
        self.spec.command.overrides.contains(&guard.name)
    }

    fn refused_by(&self, guards: Vec<TrippedGuard>) -> Broken {
        for guard in &guards {
            (self.io.log)(&format!("[tidelock: guard {}: {}]", guard.name, guard.describe()));
        }
        self.broken(StepProblem::Guarded { guards }, "")
    }
}

fn unreadable_code(place: &str, why: &str) -> CodeFact {
    CodeFact { place: place.to_owned(), what: CodeKind::Unreadable(why.to_owned()) }
}

/// Reads the facts about the code of a project.
fn read_code(root: &Path, dir: &str, data_dir: &str, when: CodeCheck) -> Vec<CodeFact> {
    let modules = match when {
        CodeCheck::BeforeSteps => Ok(None),
        CodeCheck::BeforeTerraform => module_dirs(root, dir, data_dir),
    };
    let tree = DiskTree { root: root.to_owned() };
    let noted = modules.as_ref().ok().and_then(Option::as_deref).unwrap_or_default();
    let mut found = facts(&tree, &CodePlaces { dir, modules: noted });
    match modules {
        Err(error) => found.push(unreadable_code(dir, &format!("its modules cannot be found: {error:#}"))),
        Ok(None) if when == CodeCheck::BeforeTerraform => {
            let remote: Vec<String> =
                found.iter().filter(|fact| is_remote(fact)).map(|fact| fact.place.clone()).collect();
            let why = "`init` has not recorded where its modules lie";
            found.extend(remote.iter().map(|place| unreadable_code(place, why)));
        }
        Ok(_) => {}
    }
    found
}

fn is_remote(fact: &CodeFact) -> bool {
    matches!(fact.what, CodeKind::Module(_) | CodeKind::UnknownModule)
}

/// Returns the directories of the modules that `init` has recorded, from the root; `None` without a record.
fn module_dirs(root: &Path, dir: &str, data_dir: &str) -> Result<Option<Vec<String>>> {
    let (top, own) = (Folder::open(root)?, Path::new(dir));
    let Some(noted) = noted_modules(&top, own, data_dir)? else { return Ok(None) };
    let dirs = noted.into_iter().map(|module| {
        let dir = plain(&own.join(module.dir))?;
        let dir = dir.to_str().context("the name of a directory is not UTF-8")?;
        Ok(if dir.is_empty() { ".".to_owned() } else { dir.to_owned() })
    });
    dirs.collect::<Result<_>>().map(Some)
}

fn of_plan(guards: &[Guard], shown: &PlanInJson) -> Vec<TrippedGuard> {
    match shown {
        Ok(json) => match GuardedPlan::parse(json.as_bytes()) {
            Ok(plan) => plan.trips(guards),
            Err(why) => unreadable(guards, &why, NoPlan::Broken),
        },
        Err(NotShown::NoFile(why)) => unreadable(guards, why, NoPlan::NoFile),
        Err(NotShown::Broken(why)) => unreadable(guards, why, NoPlan::Broken),
    }
}

/// Returns true if a job needs its plan in JSON for guards.
pub(super) fn need_json(guards: &[Guard], made: Option<&Arc<Sealed>>) -> bool {
    !guards.is_empty() && (made.is_some() || guards.iter().any(Guard::has_limits))
}
