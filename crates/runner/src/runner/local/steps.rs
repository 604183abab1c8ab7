//! The kinds of steps: the programs that each runs, and the part of its output that people read.

use super::environment::{self, expand};
use super::files;
use super::filters::filtered;
use super::guards::CodeCheck;
use super::made_of;
use super::pairs::{pairs, value};
use super::remote;
use super::sealed::{self, Sealed};
use super::stage::{Broken, Call, Stage};
use super::terragrunt;
use crate::process::Finished;
use crate::runner::result::StepProblem;
use crate::runner::spec::Steps;
use crate::terraform::summary::{plan_text, strip_ansi};
use semver::Version;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidelock_core::config::workflow::{OutputFilter, ShellCommand};

/// First version whose `workspace select` supports `-or-create`.
const SELECT_OR_CREATE: Version = Version::new(1, 4, 0);
/// Switch of a plan that destroys everything.
const DESTROY: &str = "-destroy";
/// Largest plan in JSON, in bytes: the limit of the built-in policy engine.
pub(super) const MAX_JSON: usize = 128 << 20;
/// Name for messages.
pub(super) const SHOW: &str = "terraform show";
/// Bytes that the command of an `env` or `multienv` step may print.
const VALUES_LIMIT: usize = 4 << 20;

impl Stage<'_> {
    /// Returns arguments with the environment's values inserted. Arguments that become empty are left out.
    fn expanded(&self, args: &[String]) -> Vec<String> {
        args.iter().map(|arg| expand(arg, &self.env)).filter(|arg| !arg.is_empty()).collect()
    }

    /// Runs a command of Terraform, in units through Terragrunt.
    pub(super) async fn terraform(&self, what: &str, args: Vec<String>) -> Result<Finished, Broken> {
        let (program, args) = self.program(args);
        self.run_call(Call::new(&format!("{} {what}", self.place.tool.name()), program, args)).await
    }

    /// Returns the program that runs a command of Terraform, with all of its arguments.
    pub(super) fn program(&self, mut args: Vec<String>) -> (&Path, Vec<String>) {
        let Some(terragrunt) = &self.place.tool.terragrunt else { return (&self.place.tool.path, args) };
        if terragrunt.has_run() {
            args.splice(0..0, ["run".to_owned(), "--".to_owned()]);
        }
        (&terragrunt.path, args)
    }

    /// Runs `init`. Its output is shown only if it fails. Extra arguments replace defaults of the same flag.
    pub(super) async fn init(&mut self, extra: &[String]) -> Result<(), Broken> {
        let is_tracked = self.is_tracked(&self.place.dir.join(".terraform.lock.hcl")).await;
        let had_lock = is_tracked || self.place.in_dir(files::drop_generated_lock).await.unwrap_or(false);
        let extra = self.expanded(extra);
        let mut args = vec!["init".to_owned()];
        let defaults = ["-input=false", "-upgrade"].into_iter().take(if had_lock { 1 } else { 2 });
        for default in defaults {
            let flag = default.split('=').next().unwrap_or(default);
            let same = |arg: &String| arg == flag || arg.strip_prefix(flag).is_some_and(|tail| tail.starts_with('='));
            if !extra.iter().any(same) {
                args.push(default.to_owned());
            }
        }
        self.note_arguments("init", &extra).await;
        args.extend(extra);
        let which = self.place.tool.distribution;
        let (directories, root) = (&self.local.directories, &self.place.tree.root);
        let guard = match self.place.tool.terragrunt {
            None => directories.plugin_cache(root, &self.spec.project.id.dir, &self.env, which).await,
            // The providers that it installs are known only after it has fetched its source.
            Some(_) => directories.whole_plugin_cache(&self.env).await,
        };
        let (program, args) = self.program(args);
        let what = format!("{} init", self.place.tool.name());
        let (result, repeats) = self.run_init(&what, program, &args).await;
        drop(guard);
        if let Err(Broken::Problem(mut problem, mut output)) = result {
            if !repeats.is_empty() {
                output = format!("{repeats}\n{output}");
            }
            if let StepProblem::NotStarted { init, .. } | StepProblem::Exit { init, .. } = &mut problem {
                *init = true;
            }
            return Err(Broken::Problem(problem, output));
        }
        result?;
        self.shown.extend((!repeats.is_empty()).then_some(repeats));
        if !had_lock {
            // Without a record the lock file counts as the repository's.
            let _ = self.place.in_dir(files::note_generated_lock).await;
        }
        self.refuse_lost_state().await
    }

    /// Refuses a state that is a file in a tree which is gone after the job. A command of the user may have run `init`, so each step that
    /// reads or writes the state asks. Terragrunt keeps the record of its backends elsewhere.
    async fn refuse_lost_state(&self) -> Result<(), Broken> {
        if !self.spec.keeps_no_files || self.place.tool.terragrunt.is_some() {
            return Ok(());
        }
        let (root, dir) = (self.place.tree.root.clone(), self.place.dir.clone());
        let data_dir = environment::get(&self.env, "TF_DATA_DIR").unwrap_or(".terraform").to_owned();
        let workspace = self.spec.project.id.workspace.clone();
        let reading =
            tokio::task::spawn_blocking(move || made_of::has_state_in_tree(&root, &dir, &data_dir, &workspace));
        match reading.await.unwrap_or(true) {
            true => Err(self.broken(StepProblem::LocalState, "")),
            false => Ok(()),
        }
    }

    /// Returns true if git tracks this file of the tree, or if git cannot tell.
    async fn is_tracked(&self, file: &Path) -> bool {
        match self.local.checkouts.is_tracked(&self.place.tree.git_dir, &self.place.tree.root, file).await {
            Ok(tracked) => tracked,
            Err(error) => {
                tracing::warn!(file = %file.display(), %error, "git does not say whether it tracks a file");
                true
            }
        }
    }

    /// Switches to the project's workspace. Terraform keeps the current one in a file, so no process has to be started to find it.
    async fn switch_workspace(&self) -> Result<(), Broken> {
        let wanted = &self.spec.project.id.workspace;
        // Terraform ignores an empty one.
        match environment::get(&self.env, "TF_WORKSPACE").filter(|set| !set.is_empty()) {
            Some(set) if set == wanted => return Ok(()),
            Some(set) => return Err(self.other_workspace(set)),
            None => {}
        }
        let data = environment::get(&self.env, "TF_DATA_DIR").unwrap_or(".terraform").to_owned();
        let present =
            self.place.in_dir(move |dir| Ok(terragrunt::selected_workspaces(dir, &data))).await.unwrap_or_default();
        if !present.is_empty() && present.iter().all(|present| present.as_ref() == Some(wanted)) {
            return Ok(());
        }
        let select = |flag: &[&str]| {
            let words = ["workspace", "select"].iter().chain(flag).map(|word| (*word).to_owned());
            words.chain([wanted.clone()]).collect::<Vec<_>>()
        };
        if self.place.tool.version >= SELECT_OR_CREATE {
            self.terraform("workspace select", select(&["-or-create=true"])).await?;
        } else if self.terraform("workspace select", select(&[])).await.is_err() {
            let new = vec!["workspace".to_owned(), "new".to_owned(), wanted.clone()];
            self.terraform("workspace new", new).await?;
        }
        Ok(())
    }

    /// Returns the problem that `TF_WORKSPACE` names another workspace. Terraform cannot leave that one, and would plan and apply it.
    fn other_workspace(&self, set: &str) -> Broken {
        let set = self.redactor.redact(set).replace(['`', '\n', '\r'], "'");
        self.broken(StepProblem::OtherWorkspace { set }, "")
    }

    /// Runs `plan -out`, with `env/<workspace>.tfvars` if that exists.
    pub(super) async fn plan(&mut self, extra: &[String]) -> Result<(), Broken> {
        self.refuse_lost_state().await?;
        self.guard_code(CodeCheck::BeforeTerraform).await?;
        self.switch_workspace().await?;
        let mut args: Vec<String> = ["plan", "-input=false", "-refresh", "-out"].map(str::to_owned).into();
        args.push(self.place.plan_file.to_string_lossy().into_owned());
        let mut more = self.expanded(extra);
        more.extend(self.spec.command.extra_args.iter().cloned());
        let vars = self.place.dir.join("env").join(format!("{}.tfvars", self.spec.project.id.workspace));
        if tokio::fs::try_exists(&vars).await.unwrap_or(false) {
            more.extend(["-var-file".to_owned(), vars.to_string_lossy().into_owned()]);
        }
        self.note_arguments("plan", &more).await;
        more.extend(self.destroy_switch());
        args.extend(more.iter().cloned());
        let finished = match self.terraform("plan", args).await {
            Err(Broken::Problem(StepProblem::Exit { .. }, output)) if remote::cannot_be_saved(&output) => {
                return self.plan_remotely(more).await;
            }
            finished => finished?,
        };
        self.shown.push(plan_text(&finished.output));
        Ok(())
    }

    /// Returns the switch for a deleted project. It comes after all other arguments, so that none of them takes it back.
    fn destroy_switch(&self) -> Option<String> {
        self.spec.project.deleted.then(|| DESTROY.to_owned())
    }

    /// Runs `apply` of the plan file. Targets are chosen when planning.
    pub(super) async fn apply(&mut self, extra: &[String]) -> Result<(), Broken> {
        let mut more = self.expanded(extra);
        more.extend(self.spec.command.extra_args.iter().cloned());
        if more.iter().any(|arg| {
            let flag = arg.trim_start_matches('-');
            arg.starts_with('-') && (flag == "target" || flag.starts_with("target="))
        }) {
            return Err(self.broken(StepProblem::TargetOfApply, ""));
        }
        let Some(plan) = self.plan_to_read().await? else {
            return Err(self.broken(StepProblem::PlanFileGone, ""));
        };
        self.refuse_lost_state().await?;
        self.switch_workspace().await?;
        if let Some(text) = remote::text(&plan).await {
            more.extend(self.destroy_switch());
            return self.apply_remotely(text, more).await;
        }
        let mut args: Vec<String> = ["apply", "-input=false"].map(str::to_owned).into();
        args.extend(more);
        // A flag that expects a value takes the dashes, not the plan file.
        args.extend(["--".to_owned(), plan.path()]);
        let (program, args) = self.program(args);
        let what = format!("{} apply", self.place.tool.name());
        let finished = self.run_call(Call { reads: Some(plan), ..Call::new(&what, program, args) }).await?;
        self.shown.push(strip_ansi(&finished.output));
        Ok(())
    }

    /// Returns the plan that this job reads, or else the one in the tree.
    pub(super) async fn plan_to_read(&self) -> Result<Option<Arc<Sealed>>, Broken> {
        if let Some(plan) = &self.plan {
            return Ok(Some(Arc::clone(plan)));
        }
        let (root, file, copies) =
            (self.place.tree.root.clone(), self.place.plan_file.clone(), Arc::clone(&self.copies));
        let sealing = tokio::task::spawn_blocking(move || -> anyhow::Result<_> {
            let bytes = files::read_plan(&root, &file)?;
            Ok(bytes.map(|bytes| sealed::of_tree(&bytes, &file, &copies)).transpose()?)
        });
        let sealed = sealing.await.map_err(anyhow::Error::from).and_then(|sealed| sealed);
        sealed.map_err(|error| self.broken(StepProblem::PlanNotKept { error: format!("{error:#}") }, ""))
    }

    /// Returns the plan in JSON, read from a pipe, with at most `limit` bytes. The JSON is not shown.
    pub(super) async fn json_of(&self, plan: Arc<Sealed>, extra: &[String], limit: usize) -> Result<Vec<u8>, Broken> {
        if remote::text(&plan).await.is_some() {
            // Only Terraform's remote run has the contents of such a plan.
            return Err(self.broken(StepProblem::RemotePlan, ""));
        }
        let mut args = ["show", "-json"].map(str::to_owned).to_vec();
        args.extend(self.expanded(extra));
        args.push(plan.path());
        let (program, args) = self.program(args);
        let call = Call {
            logged: false,
            hides_stdout: true,
            read_limit: limit,
            reads: Some(plan),
            ..Call::new(SHOW, program, args)
        };
        let finished = self.run_call(call).await?;
        let json = finished.read().map(<[u8]>::to_vec);
        json.map_err(|error| {
            self.broken(StepProblem::Values { step: SHOW.to_owned(), error: format!("{error:#}") }, "")
        })
    }

    /// Runs `show -json`, for the policies, and for commands in `SHOWFILE`.
    pub(super) async fn show(&mut self, extra: &[String]) -> Result<(), Broken> {
        let Some(plan) = self.plan_to_read().await? else { return Err(self.broken(StepProblem::PlanFileGone, "")) };
        let json = self.json_of(plan, extra, MAX_JSON).await?;
        let standard = environment::show_file(self.place);
        let set = environment::get(&self.env, "SHOWFILE").map(PathBuf::from).filter(|set| *set != standard);
        let with_copy = self.has_commands() && set.is_none();
        let is_check = self.spec.policies.is_some();
        let (root, copies, file) = (self.place.tree.root.clone(), Arc::clone(&self.copies), standard.clone());
        let keeping = tokio::task::spawn_blocking(move || -> anyhow::Result<_> {
            let name = Path::new(file.file_name().unwrap_or_default());
            let sealed = Sealed::new(&json, sealed::JSON_FD, || copies.add(name, &json))?;
            let copy = match (is_check, with_copy) {
                (true, true) => Some(copies.add(name, &json)?),
                (true, false) => None,
                (false, _) => {
                    files::write_for_steps(&root, &file, &json)?;
                    None
                }
            };
            Ok((json, sealed, copy))
        });
        let kept = keeping.await.map_err(anyhow::Error::from).and_then(|kept| kept);
        let (json, sealed, copy) = kept.map_err(|error| {
            self.broken(StepProblem::Values { step: SHOW.to_owned(), error: format!("{error:#}") }, "")
        })?;
        self.json = Some(Arc::new(sealed));
        if let Some(copy) = copy {
            environment::set(&mut self.env, "SHOWFILE", copy.to_string_lossy());
        }
        if set.is_some() {
            // The user that steps run as writes the file where a step wants it.
            let write = ["-c", r#"umask 077; exec cat > "$SHOWFILE""#].map(str::to_owned);
            let call = Call { logged: false, stdin: Some(json), ..Call::new(SHOW, Path::new("/bin/sh"), write.into()) };
            self.run_call(call).await?;
        }
        Ok(())
    }

    fn has_commands(&self) -> bool {
        matches!(&self.spec.steps, Steps::Stage { steps, .. } if sealed::has_commands(steps))
    }

    /// Runs `import` or `state rm` with the comment's arguments.
    pub(super) async fn state_command(&mut self, words: &[&str], extra: &[String]) -> Result<(), Broken> {
        self.refuse_lost_state().await?;
        self.guard_code(CodeCheck::BeforeTerraform).await?;
        self.switch_workspace().await?;
        let mut args: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        args.extend(self.expanded(extra));
        args.extend(self.spec.command.extra_args.iter().cloned());
        args.extend(self.spec.command.positional.iter().cloned());
        let finished = self.terraform(&words.join(" "), args).await?;
        self.shown.push(strip_ansi(&finished.output));
        Ok(())
    }

    /// Runs `force-unlock` of this lock, in the project's workspace.
    pub(super) async fn force_unlock(&mut self, id: &str) -> Result<(), Broken> {
        self.switch_workspace().await?;
        let args = ["force-unlock", "-force", id].map(str::to_owned).to_vec();
        let finished = self.terraform("force-unlock", args).await?;
        self.shown.push(strip_ansi(&finished.output));
        Ok(())
    }

    /// Runs `version`.
    pub(super) async fn version(&mut self) -> Result<(), Broken> {
        let (tool, args) = (self.place.tool.path.clone(), vec!["version".to_owned()]);
        let finished = self
            .run_call(Call::new(&format!("{} version", self.place.tool.distribution.binary()), &tool, args))
            .await?;
        self.shown.push(strip_ansi(&finished.output));
        self.shown.extend(self.place.tool.terragrunt.iter().map(|by| format!("Terragrunt v{}", by.version)));
        Ok(())
    }

    pub(super) async fn run_step(&mut self, command: &ShellCommand, filters: &[OutputFilter]) -> Result<(), Broken> {
        let what = what_runs(command);
        let is_judged = self.spec.policies.as_ref().is_some_and(|policies| policies.custom);
        let finished = self.run_call(Call { filters, is_judged, ..shell_call(&what, command) }).await?;
        let text = filtered(strip_ansi(&finished.output), filters)
            .map_err(|error| self.broken(StepProblem::OutputFilter { error: error.to_string() }, ""))?;
        if is_judged {
            self.printed.push(text.unwrap_or_default());
        } else {
            self.shown.extend(text);
        }
        Ok(())
    }

    /// Returns the values that the command of an `env` or `multienv` step printed on standard output, which is neither logged nor shown.
    async fn values<T>(
        &self,
        step: &str,
        command: &ShellCommand,
        read: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Result<T, Broken> {
        let what = what_runs(command);
        let call = Call { logged: false, hides_stdout: true, read_limit: VALUES_LIMIT, ..shell_call(&what, command) };
        let finished = self.run_call(call).await?;
        let found = finished.read().map_err(|error| format!("{error:#}")).and_then(read);
        found.map_err(|error| {
            // It may quote a name that the command printed.
            let error = self.redactor.redact(&error);
            self.broken(StepProblem::Values { step: step.to_owned(), error }, "")
        })
    }

    pub(super) async fn env_command(&mut self, name: &str, command: &ShellCommand) -> Result<(), Broken> {
        let value = self.values("env", command, |printed| value(name, printed)).await?;
        environment::set(&mut self.env, name, value);
        Ok(())
    }

    /// Sets the variables that a command prints. Returns their names, to be shown.
    pub(super) async fn multienv(&mut self, command: &ShellCommand) -> Result<String, Broken> {
        let pairs = self.values("multienv", command, pairs).await?;
        let names: Vec<&str> = pairs.iter().map(|(name, _)| name.as_str()).collect();
        let added = if names.is_empty() {
            "No dynamic environment variables added".to_owned()
        } else {
            let names = self.redactor.redact(&names.join("\n"));
            format!("Dynamic environment variables added:\n{names}")
        };
        for (name, value) in pairs {
            environment::set(&mut self.env, &name, value);
        }
        Ok(added)
    }
}

/// Returns the name of a command for messages: its first line.
fn what_runs(command: &ShellCommand) -> String {
    let first = command.command.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    format!("run `{}`", first.chars().take(80).collect::<String>().replace('`', "'"))
}

fn shell_call<'c>(what: &'c str, command: &'c ShellCommand) -> Call<'c> {
    let mut args = command.shell_args.clone();
    args.push(command.command.clone());
    Call { installs: true, ..Call::new(what, Path::new(&command.shell), args) }
}
