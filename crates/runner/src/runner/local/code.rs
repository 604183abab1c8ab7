//! Digest of the code that a plan was made of: the files of the project's directory and of its modules. A plan in JSON does not determine
//! its apply completely. It lacks the provider configuration that a resource uses, the expression of an unknown value, and the place of the
//! state. So plans are compared only if their code is the same.
//!
//! Steps may have left anything here: no link is followed, every read has a limit, and anything that cannot be determined is an error.

use super::made_of::quoted;
use super::ways_out;
use crate::checkout::folder::Folder;
use anyhow::{Context as _, Result, bail, ensure};
use rustix::fs::{FileType, Mode};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path, PathBuf};

/// Terraform's record of the directories of modules, below its data directory.
const MODULES: &str = "modules/modules.json";
/// Largest record of modules, in bytes.
const MAX_MODULES: u64 = 4 << 20;
/// Most files.
const MAX_FILES: usize = 5_000;
/// Most bytes of all files.
const MAX_BYTES: u64 = 64 << 20;
/// Directories that hold no code of the project, unless a module's own directory lies in one.
const SKIPPED_DIRS: [&str; 2] = [".terraform", ".git"];
/// Endings of files that commands write beside the code: plans, states, lock records, and output.
const SKIPPED_ENDINGS: [&str; 6] =
    [".tfplan", ".tfstate", ".tfstate.backup", ".lock.info", "-changes.json", "OUTPUT_STATUS_FILE"];
/// Entries that show use of Terragrunt, whose code is more than its directory.
const OF_TERRAGRUNT: [&str; 2] = ["terragrunt.hcl", ".terragrunt-cache"];

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct NotedModules {
    modules: Vec<NotedModule>,
}

/// A module as `init` has recorded it.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct NotedModule {
    /// Name, with those of the modules around it.
    #[serde(default)]
    pub(super) key: String,
    /// Directory, relative to that of the project.
    pub(super) dir: PathBuf,
}

/// Returns the modules of the project in `own`; `None` if `init` has recorded none.
pub(super) fn noted_modules(top: &Folder, own: &Path, data_dir: &str) -> Result<Option<Vec<NotedModule>>> {
    let Some(text) = top.read_text(&plain(&own.join(data_dir).join(MODULES))?, MAX_MODULES)? else { return Ok(None) };
    let noted: NotedModules = serde_json::from_str(&text).context("Terraform's note of modules is no JSON")?;
    Ok(Some(noted.modules))
}

/// Returns the digest of the code of a project, in hex. `root`: the tree; `dir`: the project's directory in it; `data_dir`: Terraform's,
/// relative to `dir`.
pub(super) fn digest(root: &Path, dir: &Path, data_dir: &str) -> Result<String> {
    let root = root.canonicalize().context("the tree is gone")?;
    let own = dir.strip_prefix(&root).context("the project's directory is not in its tree")?;
    let top = Folder::open(&root)?;
    let mut code = Code::default();
    let folder = top.folder(own)?;
    for name in OF_TERRAGRUNT {
        ensure!(folder.kind(Path::new(name))?.is_none(), "code of Terragrunt is not compared");
    }
    code.add(&folder, own)?;
    match noted_modules(&top, own, data_dir)? {
        Some(noted) => {
            for module in noted {
                let dir = plain(&own.join(module.dir))?;
                if dir != own {
                    code.add(&top.folder(&dir).context("the directory of a module is gone")?, &dir)?;
                }
            }
        }
        None => ensure!(!code.uses_modules, "nobody knows where its modules lie"),
    }
    if let Some(script) = code.scripts.first().filter(|_| code.has_provisioners) {
        let script = quoted(&script.to_string_lossy());
        bail!("its code has provisioners, which may run {script}, and that names files of other directories");
    }
    Ok(code.digest())
}

/// Returns a path from the root without `.` and `..`.
pub(super) fn plain(path: &Path) -> Result<PathBuf> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(part) => plain.push(part),
            Component::CurDir => {}
            Component::ParentDir => ensure!(plain.pop(), "a module lies outside of the tree"),
            Component::RootDir | Component::Prefix(_) => bail!("a module lies outside of the tree"),
        }
    }
    Ok(plain)
}

#[derive(Default)]
struct Code {
    /// Digest of each file by path, and true if it can be executed.
    files: BTreeMap<PathBuf, ([u8; 32], bool)>,
    bytes: u64,
    uses_modules: bool,
    has_provisioners: bool,
    /// Files that may be run, and name files of other directories.
    scripts: Vec<PathBuf>,
}

impl Code {
    /// Adds everything below a directory.
    fn add(&mut self, folder: &Folder, dir: &Path) -> Result<()> {
        let mut found = Vec::new();
        let everything = folder.walk(&mut |entry| {
            if entry.kind == FileType::Directory {
                return Ok(!SKIPPED_DIRS.iter().any(|skipped| entry.name == *skipped));
            }
            let name = entry.name.to_string_lossy();
            if SKIPPED_ENDINGS.iter().any(|ending| name.ends_with(ending)) {
                return Ok(false);
            }
            let stat = entry.stat()?.filter(|_| entry.kind == FileType::RegularFile);
            let stat = stat.ok_or_else(|| io::Error::other("there is more than files and directories"))?;
            found.push((entry.path.to_owned(), Mode::from_raw_mode(stat.st_mode)));
            match found.len() > MAX_FILES {
                true => Err(io::Error::other(format!("there are more than {MAX_FILES} files"))),
                false => Ok(false),
            }
        })?;
        ensure!(everything, "not all of the code can be read");
        for (path, mode) in found {
            let left = MAX_BYTES.saturating_sub(self.bytes);
            let bytes = folder.read(&path, left)?.context("a file is gone")?;
            self.bytes += bytes.len() as u64;
            let path = dir.join(path);
            self.check_file(&path, mode, &bytes)?;
            self.files.insert(path, (Sha256::digest(&bytes).into(), ways_out::can_run(mode)));
        }
        ensure!(self.files.len() <= MAX_FILES, "there are more than {MAX_FILES} files");
        Ok(())
    }

    /// Refuses code that reads files other than these.
    fn check_file(&mut self, path: &Path, mode: Mode, bytes: &[u8]) -> Result<()> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !ways_out::is_code(&name) {
            self.scripts.extend(ways_out::of_script(&name, mode, bytes).then(|| path.to_owned()));
            return Ok(());
        }
        let text = String::from_utf8_lossy(bytes);
        for line in text.lines().map(str::trim_start) {
            self.uses_modules |= line.starts_with("module") || (name.ends_with(".json") && line.contains("\"module\""));
        }
        self.has_provisioners |= ways_out::has_provisioners(&text);
        match ways_out::of_code(&name, &text) {
            Some(problem) => bail!("{problem} ({})", quoted(&path.to_string_lossy())),
            None => Ok(()),
        }
    }

    fn digest(&self) -> String {
        let mut digest = Sha256::new();
        for (path, (content, can_run)) in &self.files {
            let path = path.as_os_str().as_encoded_bytes();
            digest.update((path.len() as u64).to_be_bytes());
            digest.update(path);
            digest.update([u8::from(*can_run)]);
            digest.update(content);
        }
        hex::encode(digest.finalize())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let temp = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = temp.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        temp
    }

    fn digest_of(tree: &tempfile::TempDir) -> Result<String> {
        digest(tree.path(), &tree.path().canonicalize().unwrap().join("net"), ".terraform")
    }

    const NOTED: &str =
        r#"{"Modules": [{"Key": "", "Source": "", "Dir": "."}, {"Key": "m", "Source": "../m", "Dir": "../m"}]}"#;

    #[test]
    fn the_code_is_that_of_the_project_and_its_modules() {
        let files = [
            ("net/main.tf", "module \"m\" {\n  source = \"../m\"\n}\nlocals {\n  x = merge(local.all...)\n}"),
            ("net/.terraform/modules/modules.json", NOTED),
            ("m/main.tf", "one"),
            ("m/sub/policy.json", "one"),
            ("other/main.tf", "one"),
        ];
        let before = digest_of(&tree(&files)).unwrap();
        for (at, is_code) in [(0, true), (2, true), (3, true), (4, false)] {
            let mut files = files;
            let more = format!("{}\n# more", files[at].1);
            files[at].1 = &more;
            assert_eq!(digest_of(&tree(&files)).unwrap() != before, is_code, "{}", files[at].0);
        }
        let grown = tree(&files);
        for left in ["net/default.tfplan", "net/terraform.tfstate", "net/.terraform/x"] {
            fs::write(grown.path().join(left), "left").unwrap();
        }
        assert_eq!(digest_of(&grown).unwrap(), before);
        fs::write(grown.path().join("m/new.tf"), "").unwrap();
        assert_ne!(digest_of(&grown).unwrap(), before);
    }

    #[test]
    fn what_cannot_be_told_is_an_error() {
        for (files, problem) in [
            (&[("net/main.tf", "module \"m\" {")][..], "where its modules lie"),
            (&[("net/main.tf", "x = file(\"../p.json\")")], "other directories"),
            (&[("net/main.tf", "x = file(\"${path.module}/../p.json\")")], "other directories"),
            (&[("net/main.tf", "x = dirname(path.module)")], "other directories"),
            (&[("net/main.tf", "x = file(\"/p\")")], "outside of its directory (`net/main.tf`)"),
            (&[("net/main.tf", "provisioner \"local-exec\" {"), ("net/x.sh", "cat ../p")], "which may run `net/x.sh`"),
            (&[("net/main.tf.json", "{\"x\": \"${file(\\\"../p\\\")}\"}")], "other directories"),
            (&[("net/terragrunt.hcl", "")], "Terragrunt"),
            (&[("net/main.tf", ""), ("net/.terraform/modules/modules.json", "{")], "no JSON"),
            (
                &[("net/main.tf", ""), ("net/.terraform/modules/modules.json", r#"{"Modules": [{"Dir": "../../x"}]}"#)],
                "outside of the tree",
            ),
            (
                &[("net/main.tf", ""), ("net/.terraform/modules/modules.json", r#"{"Modules": [{"Dir": "../gone"}]}"#)],
                "is gone",
            ),
        ] {
            let error = format!("{:#}", digest_of(&tree(files)).unwrap_err());
            assert!(error.contains(problem), "{files:?}: {error}");
        }
        let linked = tree(&[("net/main.tf", ""), ("else", "")]);
        std::os::unix::fs::symlink("../else", linked.path().join("net/link.json")).unwrap();
        assert!(format!("{:#}", digest_of(&linked).unwrap_err()).contains("more than files and directories"));
    }
}
