//! Inputs of a plan besides its code: arguments of the built-in steps, the files that these name, and variables that steps have set. They
//! are recorded while the steps run.

use super::environment;
use super::stage::Stage;
use crate::checkout::folder::Folder;
use crate::runner::spec::PlanUse;
use crate::terraform::parts;
use anyhow::{Context as _, Result, bail, ensure};
use rustix::fs::{Mode, OFlags};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

/// Largest file that an argument names, in bytes.
const MAX_FILE: u64 = 16 << 20;
/// Largest record of a backend, in bytes.
const MAX_BACKEND: u64 = 1 << 20;
/// Flags that read a file of the value's name.
const READING: [&str; 3] = ["var-file", "target-file", "exclude-file"];
/// Flag that reads a file if its value has no `=`.
const BACKEND_CONFIG: &str = "backend-config";
/// Replacement of the tree's directory, whose path differs between servers. No argument and no variable has a zero byte.
const TREE: &str = "\0tree";
/// Terraform's record of its backend, below its data directory.
const BACKEND: &str = "terraform.tfstate";

/// Inputs of the steps of a plan so far.
#[derive(Default)]
pub(super) struct MadeOf {
    /// Arguments of each built-in `init` and `plan`, with those of `TF_CLI_ARGS`; the command first.
    arguments: Vec<Vec<String>>,
    /// The files that they name, with the SHA-256 of their content.
    files: BTreeMap<String, String>,
    /// Reason that not all inputs are known.
    problem: Option<String>,
    /// Flags that make it a plan of a part.
    part: BTreeSet<&'static str>,
    /// True if a built-in `plan` has run.
    is_planned: bool,
    /// Commands of `run` steps.
    commands: Vec<String>,
}

/// The inputs of [`MadeOf`], for a digest.
pub(super) struct BoundInputs {
    pub(super) arguments: String,
    pub(super) files: String,
    pub(super) environment: String,
}

impl MadeOf {
    /// Records the command of a `run` step before it begins.
    pub(super) fn note_command(&mut self, command: &str) {
        self.commands.push(command.to_owned());
    }

    /// Records the flags of a part that the plan in JSON, or its text, shows, if no argument has any.
    pub(super) fn note_part(&mut self, told: impl IntoIterator<Item = &'static str>) {
        if self.part.is_empty() {
            self.part.extend(told);
        }
    }

    /// Returns the flags that make it a plan of a part, in words.
    pub(super) fn part(&self) -> Option<String> {
        let mut part = self.part.clone();
        if !self.is_planned {
            part.extend(self.commands.iter().flat_map(|command| parts::in_command(command)));
        }
        let part: Vec<&str> = part.into_iter().collect();
        (!part.is_empty()).then(|| part.join(", "))
    }
}

impl Stage<'_> {
    /// Records the arguments of a built-in `init` or `plan` before it runs.
    pub(super) async fn note_arguments(&mut self, command: &str, args: &[String]) {
        if !matches!(self.spec.plan, PlanUse::Make { .. }) {
            return;
        }
        let variables = ["TF_CLI_ARGS".to_owned(), format!("TF_CLI_ARGS_{command}")];
        let set = variables.iter().filter_map(|name| environment::get(&self.env, name));
        let mut all: Vec<String> = set.flat_map(parts::split_arguments).collect();
        all.extend(args.iter().cloned());
        if command == "plan" {
            self.made_of.is_planned = true;
            let flags = all.iter().filter_map(|arg| parts::flag(arg));
            // All of a deleted project is destroyed.
            self.made_of.part.extend(flags.filter(|flag| *flag != "-destroy" || !self.spec.project.deleted));
        }
        let (root, dir) = (self.place.tree.root.clone(), self.place.dir.clone());
        let named = files_named(&all);
        let reading = move || {
            let of = |name: String| {
                content(&root, &dir, &name).map(|digest| (name.clone(), digest)).map_err(|error| (name, error))
            };
            named.into_iter().map(of).collect::<Vec<_>>()
        };
        match tokio::task::spawn_blocking(reading).await {
            Ok(read) => {
                for one in read {
                    match one {
                        Ok((name, digest)) => drop(self.made_of.files.insert(self.without_tree(&name), digest)),
                        Err((name, error)) => {
                            let name = quoted(&name);
                            self.made_of.problem =
                                Some(format!("the file {name}, which its arguments name, cannot be read: {error:#}"));
                        }
                    }
                }
            }
            Err(error) => {
                self.made_of.problem = Some(format!("the files that its arguments name cannot be read: {error}"))
            }
        }
        let all = std::iter::once(command)
            .chain(all.iter().map(String::as_str))
            .map(|word| self.without_tree(word))
            .collect();
        self.made_of.arguments.push(all);
    }

    /// Returns the inputs of its plan; an error if not all of them are known.
    pub(super) fn bound(&self) -> Result<BoundInputs> {
        let made_of = &self.made_of;
        ensure!(made_of.is_planned, "its workflow plans with a `run` step, whose arguments are not known");
        if let Some(problem) = &made_of.problem {
            bail!("{problem}");
        }
        Ok(BoundInputs {
            arguments: serde_json::to_string(&made_of.arguments)?,
            files: serde_json::to_string(&made_of.files)?,
            environment: serde_json::to_string(&self.environment_set())?,
        })
    }

    /// Returns the variables that steps have set, and all variables of Terraform's inputs and arguments.
    fn environment_set(&self) -> BTreeMap<String, String> {
        let before: BTreeMap<String, String> =
            environment::for_steps(self.local, self.spec, self.place, self.folder.as_deref()).into_iter().collect();
        let is_input = |name: &str| name.starts_with("TF_VAR_") || name.starts_with("TF_CLI_ARGS");
        let counts = |(name, value): &&(String, String)| is_input(name) || before.get(name) != Some(value);
        self.env.iter().filter(counts).map(|(name, value)| (name.clone(), self.without_tree(value))).collect()
    }

    /// Returns a text with the tree's directory replaced.
    pub(super) fn without_tree(&self, text: &str) -> String {
        text.replace(self.place.tree.root.to_string_lossy().as_ref(), TREE)
    }
}

/// Returns the files that arguments name, as they are written.
fn files_named(args: &[String]) -> Vec<String> {
    let of = |(at, arg): (usize, &String)| {
        let name = arg.strip_prefix("--").or_else(|| arg.strip_prefix('-'))?;
        let (name, value) = name.split_once('=').map_or((name, None), |(name, value)| (name, Some(value)));
        let value = value.map(str::to_owned).or_else(|| args.get(at + 1).cloned())?;
        let is_file = READING.contains(&name) || (name == BACKEND_CONFIG && !value.contains('='));
        is_file.then_some(value)
    };
    args.iter().enumerate().filter_map(of).collect()
}

/// Returns the SHA-256 of a file that an argument names, in hex. In the tree no link is followed; elsewhere the operator's may be links.
fn content(root: &Path, dir: &Path, name: &str) -> Result<String> {
    let root = root.canonicalize().context("the tree is gone")?;
    let mut path = if Path::new(name).is_absolute() { PathBuf::new() } else { dir.to_owned() };
    let mut is_below = false;
    for part in Path::new(name).components() {
        match part {
            // A directory before `..` may be a link, which leads elsewhere.
            Component::ParentDir => ensure!(!is_below && path.pop(), "its path goes back and forth"),
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => path.push(part),
            Component::Normal(part) => {
                is_below = true;
                path.push(part);
            }
        }
    }
    let bytes = match path.strip_prefix(&root) {
        Ok(inside) => Folder::open(&root)?.read(inside, MAX_FILE)?.context("it is not there")?,
        Err(_) => read_outside(&path)?,
    };
    Ok(hex::encode(Sha256::digest(&bytes)))
}

/// Reads a file that is in no tree. Opening never blocks, and only a regular file is read.
fn read_outside(path: &Path) -> Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    ensure!(file.metadata()?.is_file(), "it is no file");
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    ensure!(bytes.len() as u64 <= MAX_FILE, "it has more than {MAX_FILE} bytes");
    Ok(bytes)
}

/// Returns the backend of a project as `init` has recorded it, with its configuration; empty if it has none.
pub(super) fn backend(root: &Path, dir: &Path, data_dir: &str) -> Result<String> {
    let root = root.canonicalize().context("the tree is gone")?;
    let own = dir.strip_prefix(&root).context("the project's directory is not in its tree")?;
    ensure!(Path::new(data_dir).is_relative(), "Terraform's data directory is outside of the tree");
    let folder = Folder::open(&root)?.folder(own)?;
    let text = match folder.read_text(&Path::new(data_dir).join(BACKEND), MAX_BACKEND) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).context("Terraform's note of its backend");
        }
        found => found.ok().flatten(),
    };
    let Some(text) = text else { return Ok(String::new()) };
    let noted: Value = serde_json::from_str(&text).context("Terraform's note of its backend is no JSON")?;
    Ok(serde_json::json!([noted["backend"]["type"], noted["backend"]["config"]]).to_string())
}

/// Returns true if the state of a project is a file in its tree, as far as `init` has recorded its backend.
pub(super) fn has_state_in_tree(root: &Path, dir: &Path, data_dir: &str, workspace: &str) -> bool {
    // What cannot be read may be a state that would be lost.
    let Ok(noted) = backend(root, dir, data_dir) else { return true };
    // Without any record the backend is `local`.
    let Ok((kind, config)) = serde_json::from_str::<(String, Value)>(&noted) else { return noted.is_empty() };
    let is_elsewhere = |path: &str| Path::new(path).is_absolute() && !Path::new(path).starts_with(root);
    let place = if workspace == "default" { "path" } else { "workspace_dir" };
    kind == "local" && !config[place].as_str().is_some_and(is_elsewhere)
}

/// Quotes a name of the repository's for people, in code marks.
pub(super) fn quoted(name: &str) -> String {
    let plain = |letter: char| if letter.is_control() || letter == '`' { '?' } else { letter };
    format!("`{}`", name.chars().take(MAX_QUOTED).map(plain).collect::<String>())
}

/// Longest name that is quoted, in characters.
const MAX_QUOTED: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_told_from_arguments() {
        let named = |args: &str| files_named(&args.split(' ').map(str::to_owned).collect::<Vec<_>>()).join(" ");
        for (args, want) in [
            ("-var-file=a --var-file b -var x=y", "a b"),
            ("-backend-config=c -backend-config=key=value", "c"),
            ("-backend-config d -target-file=e --exclude-file f", "d e f"),
            ("-lock=false -var-file", ""),
        ] {
            assert_eq!(named(args), want, "{args}");
        }
    }

    #[test]
    fn files_are_read_in_the_tree_without_links_and_outside_of_it() {
        let (tree, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let root = tree.path().canonicalize().unwrap();
        for dir in ["a", "b"] {
            std::fs::create_dir(root.join(dir)).unwrap();
        }
        std::fs::write(root.join("b/x"), "x").unwrap();
        std::fs::write(outside.path().join("x"), "x").unwrap();
        std::os::unix::fs::symlink("../b/x", root.join("a/link")).unwrap();
        let of = |name: &str| content(&root, &root.join("a"), name);
        let want = hex::encode(Sha256::digest("x"));
        assert_eq!(of("../b/x").unwrap(), want);
        assert_eq!(of(root.join("b/x").to_str().unwrap()).unwrap(), want);
        assert_eq!(of(outside.path().join("x").to_str().unwrap()).unwrap(), want);
        for bad in ["link", "gone", "b/../x", "/dev/null", "../b"] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }
}
