//! Guards of a job: its code is read before the first step, and again before Terraform reads it, when `init` has fetched modules. A plan is
//! read when it is made, and again before a job with other rights applies it.

use super::artifacts::{PLUGIN_NAMES, PLUGINS};
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
use rustix::fs::FileType;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidelock_core::config::guards::Guard;
use tidelock_core::domain::guards::TrippedGuard;
use tidelock_core::guards::code::{CodePlaces, RecordedModule, facts};
use tidelock_core::guards::plan::{GuardedPlan, NoPlan, unreadable};
use tidelock_core::guards::{CodeFact, CodeKind, merge, of_code};

/// Terraform's data directory by default.
const DATA_DIR: &str = ".terraform";

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
        let mut tripped = if self.place.tool.terragrunt.is_some() {
            let why = "Terragrunt makes the code of a unit only when it runs";
            of_code(guards, &[unreadable_code(&self.spec.project.id.dir, why)])
        } else {
            self.read_by_guards(when).await
        };
        self.redact(&mut tripped);
        let open: Vec<TrippedGuard> = tripped.iter().filter(|guard| !self.overrides(guard)).cloned().collect();
        self.code_guards = tripped;
        if open.is_empty() { Ok(()) } else { Err(self.refused_by(open)) }
    }

    /// Returns the guards that the code of the project trips, by its files.
    async fn read_by_guards(&self, when: CodeCheck) -> Vec<TrippedGuard> {
        let (root, dir) = (self.place.tree.root.clone(), self.spec.project.id.dir.clone());
        let data_dir = environment::get(&self.env, "TF_DATA_DIR").filter(|set| !set.is_empty());
        let data_dir = data_dir.unwrap_or(DATA_DIR).to_owned();
        let committed = self.committed_data(&data_dir).await;
        let guards = self.spec.project.guards.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let mut found = committed;
            found.extend(plugins_beside(&root, &dir, &data_dir));
            found.extend(read_code(&root, &dir, &data_dir, when));
            of_code(&guards, &found)
        });
        let failed = || unreadable_code(&self.spec.project.id.dir, "it could not be read");
        reading.await.unwrap_or_else(|_| of_code(&self.spec.project.guards, &[failed()]))
    }

    /// Returns facts about Terraform's data directory if the repository has files there. `init` would take providers from it.
    async fn committed_data(&self, data_dir: &str) -> Vec<CodeFact> {
        let (root, own) = (&self.place.tree.root, Path::new(&self.spec.project.id.dir));
        let mut found = Vec::new();
        for name in BTreeSet::from([DATA_DIR, data_dir]) {
            let Some(path) = in_tree(root, own, name) else { continue };
            let place = path.display().to_string();
            match self.local.checkouts.is_tracked(&self.place.tree.git_dir, root, &root.join(&path)).await {
                Ok(false) => {}
                Ok(true) => {
                    found.push(unreadable_code(&place, "the repository has files in Terraform's data directory"))
                }
                Err(error) => {
                    tracing::warn!(%place, %error, "git does not say whether it tracks files of a data directory");
                    found.push(unreadable_code(&place, "git does not say whether the repository has files there"));
                }
            }
        }
        found
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
            *finding = self.redactor.redact(finding);
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

/// Returns the path of a data directory from the root; `None` if it is outside of the tree.
fn in_tree(root: &Path, own: &Path, data_dir: &str) -> Option<PathBuf> {
    let path = own.join(data_dir);
    let real = root.canonicalize().ok()?;
    let below = path.strip_prefix(&real).or_else(|_| path.strip_prefix(root)).unwrap_or(&path);
    plain(below).ok()
}

/// Returns facts about providers beside the code, which Terraform runs without a download: those below `terraform.d`, and old ones in the
/// project's directory. A link on the way to the data directory could lead to others.
fn plugins_beside(root: &Path, dir: &str, data_dir: &str) -> Vec<CodeFact> {
    let own = Path::new(dir);
    let unlisted = |_: io::Error| vec![unreadable_code(dir, "the directory cannot be listed")];
    let looked = Folder::open(root).and_then(|top| {
        let mut found = Vec::new();
        let folder = if matches!(dir, "" | ".") { Folder::open(root)? } else { top.folder(own)? };
        for (name, _) in folder.entries()? {
            let name = name.to_string_lossy();
            let is_plugin = PLUGIN_NAMES.iter().any(|begin| name.starts_with(begin)) && !name.ends_with(".tf");
            if is_plugin || name == PLUGINS {
                found.push(unreadable_code(&format!("{dir}/{name}"), "providers beside the code are not checked"));
            }
        }
        let path = in_tree(root, own, data_dir);
        for above in path.iter().flat_map(|path| path.ancestors().skip(1)).filter(|path| !path.as_os_str().is_empty()) {
            if top.kind(above)?.is_some_and(|kind| kind == FileType::Symlink) {
                found.push(unreadable_code(&above.display().to_string(), "a link leads to Terraform's data directory"));
            }
        }
        Ok(found)
    });
    looked.unwrap_or_else(unlisted)
}

/// Reads the facts about the code of a project.
fn read_code(root: &Path, dir: &str, data_dir: &str, when: CodeCheck) -> Vec<CodeFact> {
    let modules = match when {
        CodeCheck::BeforeSteps => Ok(None),
        CodeCheck::BeforeTerraform => recorded(root, dir, data_dir),
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

/// Returns the modules that `init` has recorded, with directories from the root; `None` without a record.
fn recorded(root: &Path, dir: &str, data_dir: &str) -> Result<Option<Vec<RecordedModule>>> {
    let (top, own) = (Folder::open(root)?, Path::new(dir));
    let Some(noted) = noted_modules(&top, own, data_dir)? else { return Ok(None) };
    let modules = noted.into_iter().map(|module| {
        let dir = plain(&own.join(module.dir))?;
        let dir = dir.to_str().context("the name of a directory is not UTF-8")?;
        let dir = if dir.is_empty() { ".".to_owned() } else { dir.to_owned() };
        Ok(RecordedModule { key: module.key, dir })
    });
    modules.collect::<Result<_>>().map(Some)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn whys(root: &Path, dir: &str, data_dir: &str) -> Vec<String> {
        plugins_beside(root, dir, data_dir).into_iter().map(|fact| fact.place).collect()
    }

    #[test]
    fn providers_beside_the_code_are_found() {
        let tree = tempfile::tempdir().unwrap();
        let root = tree.path();
        std::fs::create_dir_all(root.join("p/.terraform/providers")).unwrap();
        std::fs::write(root.join("p/terraform-provider-x.tf"), "").unwrap();
        for dir in [".", "p"] {
            assert!(whys(root, dir, ".terraform").is_empty());
        }
        std::fs::create_dir_all(root.join("p/terraform.d/plugins")).unwrap();
        std::fs::write(root.join("p/terraform-provider-x_v1.0.0"), "").unwrap();
        std::os::unix::fs::symlink("p", root.join("terraform.d")).unwrap();
        let mut found = whys(root, "p", ".terraform");
        found.sort();
        assert_eq!(found, ["p/terraform-provider-x_v1.0.0", "p/terraform.d"]);
        assert_eq!(whys(root, ".", ".terraform"), ["./terraform.d"]);
        std::os::unix::fs::symlink("..", root.join("p/link")).unwrap();
        assert!(whys(root, "p", "link/data").contains(&"p/link".to_owned()));
        assert_eq!(whys(root, "gone", ".terraform"), ["gone"]);
    }

    #[test]
    fn code_whose_name_is_not_utf_8_is_refused() {
        use std::os::unix::ffi::OsStrExt as _;
        let tree = tempfile::tempdir().unwrap();
        let (root, name) = (tree.path(), |bytes| tree.path().join(std::ffi::OsStr::from_bytes(bytes)));
        std::fs::write(name(b"note\xff.txt"), "").unwrap();
        std::fs::write(root.join("evil\u{fffd}.tf"), "").unwrap();
        assert_eq!(read_code(root, ".", ".terraform", CodeCheck::BeforeSteps), []);
        std::fs::write(name(b"evil\xff.tf"), "data \"external\" \"x\" {}").unwrap();
        let found = read_code(root, ".", ".terraform", CodeCheck::BeforeSteps);
        assert_eq!(found, [unreadable_code(".", "the directory cannot be listed")]);
    }

    #[test]
    fn data_directories_in_the_tree_are_found() {
        let tree = tempfile::tempdir().unwrap();
        assert_eq!(in_tree(tree.path(), Path::new("p"), "../data"), Some(PathBuf::from("data")));
        assert_eq!(in_tree(tree.path(), Path::new("."), ".terraform"), Some(PathBuf::from(".terraform")));
        let inside = tree.path().join("x/y");
        assert_eq!(in_tree(tree.path(), Path::new("p"), inside.to_str().unwrap()), Some(PathBuf::from("x/y")));
        assert_eq!(in_tree(tree.path(), Path::new("p"), "/elsewhere"), None);
        assert_eq!(in_tree(tree.path(), Path::new("p"), "../../x"), None);
    }
}
