//! The `policy_check` step: checks each policy set separately, by the built-in engine or conftest. If the configuration says so, the
//! outputs of `run` steps are the results of policy sets instead.

use super::environment::{self, expand};
use super::files;
use super::sealed::Sealed;
use super::stage::{Broken, Call, Stage};
use crate::checkout::folder::Folder;
use crate::policy;
use crate::runner::result::{PoliciesRan, PolicySetRan, StepProblem};
use crate::runner::spec::{PolicySetSpec, PolicySpec};
use crate::terraform::summary::strip_ansi;
use anyhow::{Context as _, ensure};
use regex::Regex;
use rustix::fs::FileType;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tidelock_core::config::policies::PolicyEngine;

/// Time limit of one policy set.
const TIME: Duration = Duration::from_secs(60);
/// Exit codes of conftest if policies failed or warned.
const FAILED: &[i32] = &[1, 2];
/// Replacement of the plan's path in outputs, so that approvals of an output also hold for another checkout.
const PLAN: &str = "<redacted plan file>";
/// Name of a result that belongs to no policy set.
pub const EXTRA_POLICY_SET: &str = "Custom";
/// Most entries of a directory with policies that are checked for links.
const MAX_ENTRIES: usize = 10_000;

/// Failures in conftest's counts, and in those of its JSON.
static FAILURES: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r#"(?m)\b[1-9][0-9]* failures?\b|"failures": ?\[\s*[^\]\s]|^FAIL\b"#).ok());
/// conftest's count if no rule was evaluated.
static NO_TESTS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"(?m)^0 tests, ").ok());

/// Returns true if an output reports failures.
fn tells_failures(output: &str) -> bool {
    FAILURES.as_ref().is_none_or(|failures| failures.is_match(output))
}

/// Returns true if an output of conftest says that nothing was tested: then nothing has passed.
fn tells_no_tests(output: &str) -> bool {
    if let Ok(files) = serde_json::from_str::<Vec<serde_json::Value>>(output) {
        return files.iter().all(|file| tests(file) == 0);
    }
    output.trim().is_empty() || NO_TESTS.as_ref().is_none_or(|none| none.is_match(output))
}

/// Returns the number of evaluated rules, by the JSON of one file.
fn tests(file: &serde_json::Value) -> u64 {
    let told = ["warnings", "failures", "exceptions", "skipped"].iter().filter_map(|kind| file.get(kind)?.as_array());
    let told = told.map(|list| u64::try_from(list.len()).unwrap_or(u64::MAX)).fold(0, u64::saturating_add);
    told.saturating_add(file.get("successes").and_then(serde_json::Value::as_u64).unwrap_or_default())
}

/// Returns true if the output of a program that failed reports findings instead of an error.
fn tells_findings(output: &str) -> bool {
    let first = output.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    ["WARN", "FAIL", "EXCP", "["].iter().any(|start| first.starts_with(start))
}

impl Stage<'_> {
    /// Checks the plan against each policy set, in the JSON that a built-in `show` step has read. Reads the JSON if there was no such
    /// step. `SHOWFILE` is only for commands.
    pub(super) async fn policy_check(&mut self, extra: &[String]) -> Result<(), Broken> {
        let Some(policies) = self.spec.policies.as_ref() else {
            return Err(self.policies_broken("", "the step belongs into the stage `policy_check` of a workflow"));
        };
        if policies.custom {
            let error = "`custom_policy_check` is on, so the results are what `run` steps print: take the built-in \
                         `policy_check` step out of the workflow's stage, or turn `custom_policy_check` off";
            return Err(self.policies_broken("", error));
        }
        if policies.sets.is_empty() {
            return Err(self.policies_broken("", "there are no `policy_sets` under `policies` in `repos.yaml`"));
        }
        if self.json.is_none() {
            self.show(&[]).await?;
        }
        let Some(json) = self.json.clone() else { return Err(self.policies_broken("", "nothing was shown")) };
        let (program, first) = self.engine(policies).await?;
        let extra = self.split_arguments(extra);
        let mut sets = Vec::new();
        for set in &policies.sets {
            sets.push(self.policy_set(set, &json, &program, &first, &extra).await?);
        }
        self.write_results(&sets).await;
        let before = std::mem::take(&mut self.shown).join("\n");
        self.policies = Some(PoliciesRan { sets, before, after: String::new() });
        Ok(())
    }

    /// Returns the results, with the output of later steps. If `run` steps do the check, each of their outputs is the result of a policy
    /// set.
    pub(super) fn policies_ran(&mut self) -> Result<Option<PoliciesRan>, Broken> {
        let Some(policies) = self.spec.policies.as_ref() else { return Ok(None) };
        let after = std::mem::take(&mut self.shown).join("\n");
        if policies.custom {
            let names = policies.sets.iter().map(|set| set.name.as_str());
            let mut sets = custom(names, std::mem::take(&mut self.printed));
            for set in &mut sets {
                set.output = self.redactor.redact(&set.output);
            }
            return Ok(Some(PoliciesRan { sets, before: String::new(), after: String::new() }));
        }
        match self.policies.take() {
            Some(ran) => Ok(Some(PoliciesRan { after, ..ran })),
            None => Err(self.policies_broken("", "the workflow's stage `policy_check` has no `policy_check` step")),
        }
    }

    fn policies_broken(&self, set: &str, error: &str) -> Broken {
        self.broken(StepProblem::Policies { set: set.to_owned(), error: error.to_owned() }, "")
    }

    /// Splits arguments as a shell would, with the environment's values inserted.
    fn split_arguments(&self, args: &[String]) -> Vec<String> {
        let expanded = args.iter().map(|arg| expand(arg, &self.env));
        expanded.flat_map(|arg| shlex::split(&arg).unwrap_or_else(|| vec![arg])).collect()
    }

    /// Returns the program that evaluates, and its first arguments.
    async fn engine(&self, policies: &PolicySpec) -> Result<(PathBuf, Vec<String>), Broken> {
        if policies.engine == PolicyEngine::Builtin {
            let root = self.place.tree.root.to_string_lossy().into_owned();
            let args = [policy::COMMAND.to_owned(), "--tree".to_owned(), root].to_vec();
            return Ok((self.local.own_program.clone(), args));
        }
        let found = self.local.installer.conftest(policies.conftest_version.as_deref()).await;
        let program = found.map_err(|error| self.policies_broken("", &format!("{error:#}")))?;
        Ok((program, vec!["test".to_owned()]))
    }

    async fn policy_set(
        &self,
        set: &PolicySetSpec,
        json: &Arc<Sealed>,
        program: &Path,
        first: &[String],
        extra: &[String],
    ) -> Result<PolicySetRan, Broken> {
        let Some(path) = set.path.as_ref().map(|path| expand(path, &self.env)).filter(|path| !path.is_empty()) else {
            return Err(self.policies_broken(&set.name, "it has no `path` in `repos.yaml`"));
        };
        let is_builtin = program == self.local.own_program;
        let shown = json.path();
        let mut args = first.to_vec();
        args.extend(["-p".to_owned(), path.clone(), shown.clone(), "--no-color".to_owned()]);
        if !is_builtin {
            self.check_for_links(&set.name, &path).await?;
            args.extend(self.config_of_conftest(extra).await);
            if !extra.iter().any(|arg| arg.starts_with("--parser")) {
                // The name of a descriptor has no extension that names a format.
                args.extend(["--parser".to_owned(), "json".to_owned()]);
            }
        }
        args.extend(extra.iter().cloned());
        let what = if is_builtin { "policy check".to_owned() } else { "conftest test".to_owned() };
        // Policies can read the environment.
        let reads = Some(Arc::clone(json));
        let call = Call {
            failing: FAILED,
            timeout: Some(TIME),
            gets_token: false,
            reads,
            is_judged: true,
            ..Call::new(&what, program, args)
        };
        let finished = self.run_call(call);
        let finished = finished.await.map_err(|broken| match broken {
            Broken::Problem(StepProblem::Exit { ending, .. }, _) if is_builtin => {
                let error = format!("the built-in engine {ending}; it may use {}", policy::LIMITS);
                self.policies_broken(&set.name, &error)
            }
            Broken::Problem(StepProblem::TimedOut { .. }, _) => {
                self.policies_broken(&set.name, &format!("it took longer than {} s", TIME.as_secs()))
            }
            other => other,
        })?;
        let output = strip_ansi(&finished.output).replace(&shown, PLAN).trim().to_owned();
        if !finished.success() && !tells_findings(&output) {
            let output = output.strip_prefix("Error: ").unwrap_or(&output);
            return Err(self.policies_broken(&set.name, &self.redactor.redact(output)));
        }
        let passed = finished.success() && !tells_failures(&output) && !tells_no_tests(&output);
        let shown = self.redactor.redact(&output);
        let output = match tells_no_tests(&output) {
            true => format!(
                "{shown}\nNo rule was evaluated, so this is not taken for passed: see the packages of the policies (`--namespace`, `--all-namespaces`)."
            ),
            false => shown,
        };
        Ok(PolicySetRan { name: set.name.clone(), passed, output })
    }

    /// Returns arguments that give conftest an empty configuration. It would read `conftest.toml` of its directory, which is the pull
    /// request's.
    async fn config_of_conftest(&self, extra: &[String]) -> Vec<String> {
        if extra.iter().any(|arg| arg.starts_with("--config-file") || arg.starts_with("-c")) {
            return Vec::new();
        }
        let empty = self.local.data_dir.join("conftest").join("empty.toml");
        let (dir, file) = (self.local.data_dir.join("conftest"), empty.clone());
        let written = tokio::task::spawn_blocking(move || {
            std::fs::create_dir_all(&dir)?;
            std::fs::write(&file, "")
        });
        if let Ok(Err(error)) = written.await {
            tracing::warn!(%error, "an empty configuration for conftest could not be written");
        }
        let empty = std::path::absolute(&empty).unwrap_or(empty);
        vec!["--config-file".to_owned(), empty.to_string_lossy().into_owned()]
    }

    /// Refuses policies in the tree that are reached through a link of the tree, which conftest would follow.
    async fn check_for_links(&self, set: &str, path: &str) -> Result<(), Broken> {
        let (root, dir, path) = (self.place.tree.root.clone(), self.place.dir.clone(), path.to_owned());
        let looking = tokio::task::spawn_blocking(move || without_links(&root, &dir, &path));
        let looked = looking.await.map_err(anyhow::Error::from).and_then(|looked| looked);
        looked.map_err(|error| self.policies_broken(set, &format!("{error:#}")))
    }

    /// Writes `POLICYCHECKFILE`, in the form of Atlantis, for later steps.
    async fn write_results(&self, sets: &[PolicySetRan]) {
        let rows: Vec<_> = sets
            .iter()
            .map(|set| serde_json::json!({"PolicySetName": set.name, "PolicyOutput": set.output, "Passed": set.passed}))
            .collect();
        let Some(to) = environment::get(&self.env, "POLICYCHECKFILE").map(PathBuf::from) else { return };
        let (root, text) = (self.place.tree.root.clone(), serde_json::Value::from(rows).to_string());
        let written = tokio::task::spawn_blocking(move || files::write_for_steps(&root, &to, text.as_bytes()));
        if let Ok(Err(error)) = written.await {
            tracing::warn!(
                error = format!("{error:#}"),
                "results of policy checks could not be written for later steps"
            );
        }
    }
}

/// Turns outputs of `run` steps into results, in the order of the sets. A set without an output has not passed.
fn custom<'a>(names: impl Iterator<Item = &'a str>, printed: Vec<String>) -> Vec<PolicySetRan> {
    let mut names = names.peekable();
    let mut sets: Vec<PolicySetRan> = Vec::new();
    for output in printed {
        let name = names.next().unwrap_or(EXTRA_POLICY_SET).to_owned();
        let output = output.trim().to_owned();
        let passed = !output.is_empty() && !tells_failures(&output);
        let output = if output.is_empty() { "The step printed nothing.".to_owned() } else { output };
        sets.push(PolicySetRan { name, passed, output });
    }
    let unchecked = |name: &str| PolicySetRan {
        name: name.to_owned(),
        passed: false,
        output: "No `run` step has printed a result for it.".to_owned(),
    };
    sets.extend(names.map(unchecked));
    sets
}

/// Fails if a path from `dir` leads below `root`, and there is a link on it or below it.
fn without_links(root: &Path, dir: &Path, path: &str) -> anyhow::Result<()> {
    let root = root.canonicalize().context("the tree is gone")?;
    let mut whole = PathBuf::new();
    for part in dir.join(path).components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(whole.pop()),
            part => whole.push(part),
        }
    }
    let Ok(relative) = whole.strip_prefix(&root) else { return Ok(()) };
    let folder = Folder::open(&root)?;
    let mut way = PathBuf::new();
    for part in relative.components() {
        way.push(part);
        ensure!(folder.kind(&way)? != Some(FileType::Symlink), "`{path}` leads through a link of the repository");
    }
    if folder.kind(relative)? != Some(FileType::Directory) {
        return Ok(());
    }
    let (mut open, mut seen) = (vec![relative.to_owned()], 0);
    while let Some(next) = open.pop() {
        for (name, kind) in folder.folder(&next)?.entries()? {
            seen += 1;
            ensure!(seen <= MAX_ENTRIES, "`{path}` has more than {MAX_ENTRIES} entries");
            ensure!(kind != FileType::Symlink, "`{path}` has a link in it, which is not followed");
            if kind == FileType::Directory {
                open.push(next.join(name));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn counts_and_lines_tell_failures() {
        for (output, failures) in [
            ("FAIL - p - main - no\n\n1 test, 0 passed, 0 warnings, 1 failure, 0 exceptions", true),
            ("1 test, 0 passed, 0 warnings, 12 failures", true),
            ("PASS - gate - 0 failures, 1 passed", false),
            ("2 tests, 2 passed, 0 warnings, 0 failures, 0 exceptions", false),
            ("[{\"failures\": [{\"msg\": \"x\"}]}]", true),
            ("[{\"failures\": []}]", false),
            ("something\nFAIL: no", true),
            ("FAILSAFE is on", false),
            ("", false),
        ] {
            assert_eq!(tells_failures(output), failures, "{output}");
        }
        assert!(tells_no_tests("\n0 tests, 0 passed, 0 warnings, 0 failures, 0 exceptions\n"));
        assert!(!tells_no_tests("10 tests, 10 passed"));
        for (output, none) in [
            (r#"[{"filename": "p", "namespace": "main", "successes": 0}]"#, true),
            ("[]", true),
            (r#"[{"filename": "p", "successes": 0}, {"filename": "p", "successes": 1}]"#, false),
            (r#"[{"filename": "p", "successes": 0, "warnings": [{"msg": "x"}]}]"#, false),
        ] {
            assert_eq!(tells_no_tests(output), none, "{output}");
        }
        assert!(tells_findings("\nWARN - x") && !tells_findings("Error: running test"));
    }

    #[test]
    fn outputs_belong_to_sets_in_their_order() {
        let row = |set: &PolicySetRan| (set.name.clone(), set.passed);
        let sets = custom(["a", "b", "c"].into_iter(), vec!["fine".into(), "2 failures".into()]);
        assert_eq!(
            sets.iter().map(row).collect::<Vec<_>>(),
            [("a".into(), true), ("b".into(), false), ("c".into(), false)]
        );
        let sets = custom(["a"].into_iter(), vec![" \n".into(), "fine".into()]);
        assert_eq!(sets.iter().map(row).collect::<Vec<_>>(), [("a".into(), false), ("Custom".into(), true)]);
    }

    proptest! {
        #[test]
        fn any_count_above_zero_fails_and_zero_does_not(failures in 0_u32..2000, passed in 0_u32..2000, noise in "[ -E-~\n]{0,40}") {
            let tests = failures + passed;
            let output = format!("{noise}\n{tests} tests, {passed} passed, 0 warnings, {failures} failures, 0 exceptions");
            prop_assume!(!tells_failures(&noise));
            prop_assert_eq!(tells_failures(&output), failures > 0);
        }
    }

    #[test]
    fn a_link_on_the_way_or_below_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("a/policies")).unwrap();
        std::fs::write(root.join("a/policies/x.rego"), "package main").unwrap();
        std::os::unix::fs::symlink("/etc", root.join("etc")).unwrap();
        without_links(&root, &root.join("a"), "policies").unwrap();
        without_links(&root, &root.join("a"), "policies/x.rego").unwrap();
        without_links(&root, &root.join("a"), "/somewhere/else").unwrap();
        for path in ["../etc", "../etc/passwd", ".."] {
            assert!(without_links(&root, &root.join("a"), path).is_err(), "{path}");
        }
    }
}
