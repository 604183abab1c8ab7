//! The code in a plan file. Terraform applies that code, not the code of the checkout, and the text of a plan does not show it: neither
//! provisioners, nor the configuration of providers, nor the expressions of values that are known after the apply. If a job that could have
//! lied made the file, its code has to be that of the checkout.

use super::code::{noted_modules, plain};
use super::made_of::quoted;
use super::ways_out::is_code;
use crate::checkout::folder::Folder;
use crate::checkout::inside;
use anyhow::{Context as _, Result, ensure};
use rustix::fs::FileType;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::io::{Cursor, Read, Write};
use std::path::{Path, PathBuf};
use zip::write::SimpleFileOptions;
use zip::{ZipArchive, ZipWriter};

/// Beginning of the names of all parts that are code.
const CODE: &str = "tfconfig/";
/// Part that names the modules.
const MODULES: &str = "tfconfig/modules.json";
/// Beginning of the names of files of modules. The module's key and the file's name follow.
const MODULE: &str = "tfconfig/m-";
/// Most parts of a plan file.
const MAX_PARTS: usize = 10_000;
/// Most bytes of all code.
const MAX_CODE: u64 = 64 << 20;
/// Most bytes of all parts.
const MAX_PLAN: u64 = 2 << 30;

/// The code in a plan file.
#[derive(Debug, Default)]
pub(super) struct PlannedCode {
    /// Directory of each module by its key, relative to that of the project.
    modules: BTreeMap<String, PathBuf>,
    /// Files by the module's key and their names.
    files: BTreeMap<(String, String), Vec<u8>>,
}

/// The checkout that the code in a plan file is compared with, after `init`.
pub(super) struct ComparedCheckout {
    pub(super) root: PathBuf,
    /// The project's directory in it.
    pub(super) dir: PathBuf,
    /// Terraform's data directory, relative to `dir`.
    pub(super) data_dir: String,
    /// True if files of OpenTofu count.
    pub(super) reads_tofu: bool,
}

/// Returns a plan file that is written anew, and its code. An archive can be written so that two programs find different parts in it: what
/// is compared here has to be what Terraform reads. A file whose code cannot be read is returned as it is, with the reason.
pub(super) fn rewritten(bytes: Vec<u8>) -> (Vec<u8>, Result<PlannedCode>) {
    match parts(&bytes) {
        Ok((written, code)) => (written, Ok(code)),
        Err(error) => (bytes, Err(error)),
    }
}

fn parts(bytes: &[u8]) -> Result<(Vec<u8>, PlannedCode)> {
    let archive = ZipArchive::new(Cursor::new(bytes));
    let mut archive = archive.ok().context("the plan file is encrypted, or has an unknown format")?;
    // Programs differ in which of two parts they read.
    ensure!(!archive.has_duplicate_names(), "the plan file has two parts of one name");
    ensure!(archive.len() <= MAX_PARTS, "the plan file has more than {MAX_PARTS} parts");
    let (mut code, mut modules) = (PlannedCode::default(), None);
    let mut written = ZipWriter::new(Cursor::new(Vec::new()));
    let (mut left, mut left_of_code) = (MAX_PLAN, MAX_CODE);
    for at in 0..archive.len() {
        let mut part = archive.by_index(at).context("a part of the plan file cannot be read")?;
        let name = part.name()?.into_owned();
        written.start_file(&*name, SimpleFileOptions::default().compression_level(Some(1)))?;
        if !name.starts_with(CODE) {
            left -= copy(&mut part, left, &mut written)?;
            continue;
        }
        let mut content = Vec::new();
        left_of_code -= copy(&mut part, left_of_code, &mut content)?;
        written.write_all(&content)?;
        if name == MODULES {
            modules = Some(content);
        } else {
            // As Terraform does, which takes the last part of the path.
            let (key, file) = name.strip_prefix(MODULE).and_then(|name| name.rsplit_once('/')).unwrap_or_default();
            ensure!(!file.is_empty(), "{} is no file of a module", quoted(&name));
            code.files.insert((key.to_owned(), file.to_owned()), content);
        }
    }
    code.modules = module_dirs(&modules.context("the plan file names no modules")?)?;
    Ok((written.finish()?.into_inner(), code))
}

/// Copies at most `limit` bytes; more are an error.
fn copy(from: &mut impl Read, limit: u64, to: &mut impl Write) -> Result<u64> {
    let copied = std::io::copy(&mut from.take(limit + 1), to).context("a part of the plan file cannot be read")?;
    ensure!(copied <= limit, "the plan file is too large");
    Ok(copied)
}

fn module_dirs(modules: &[u8]) -> Result<BTreeMap<String, PathBuf>> {
    let modules: Vec<Map<String, Value>> =
        serde_json::from_slice(modules).context("the plan file names its modules in an unknown way")?;
    let mut dirs = BTreeMap::new();
    for module in modules {
        // Terraform ignores the case of names.
        let is_other = |name: &&String| {
            ["Key", "Dir"].iter().any(|known| name.to_lowercase() == known.to_lowercase() && **name != *known)
        };
        ensure!(module.keys().find(is_other).is_none(), "the plan file names a module in two ways");
        let text = |name: &str| module.get(name).and_then(Value::as_str).map(str::to_owned);
        let (key, dir) = (text("Key").unwrap_or_default(), text("Dir").context("a module has no directory")?);
        ensure!(dirs.insert(key, PathBuf::from(dir)).is_none(), "the plan file names a module twice");
    }
    Ok(dirs)
}

impl PlannedCode {
    /// Checks that this is the code of a checkout. The error says where they differ. Blocks.
    pub(super) fn compare(&self, checkout: &ComparedCheckout) -> Result<()> {
        let root = checkout.root.canonicalize().context("the checkout is gone")?;
        let own = checkout.dir.strip_prefix(&root).context("the project's directory is not in its checkout")?;
        let top = Folder::open(&root)?;
        let noted = noted_modules(&top, own, &checkout.data_dir)?.unwrap_or_default();
        let mut dirs = BTreeMap::from([(String::new(), own.to_owned())]);
        for module in noted.into_iter().filter(|module| !module.key.is_empty()) {
            dirs.insert(module.key, plain(&own.join(module.dir))?);
        }
        ensure!(self.modules.contains_key(""), "the plan file has no code of the project");
        for (key, planned) in &self.modules {
            let dir = dirs.get(key).with_context(|| format!("the checkout has no module {}", quoted(key)))?;
            ensure!(plain(&own.join(planned))? == *dir, "the module {} is in another directory", quoted(key));
            self.compare_module(&root, key, dir, checkout.reads_tofu)?;
        }
        let stray = self.files.keys().find(|(key, _)| !self.modules.contains_key(key));
        ensure!(stray.is_none(), "the plan file has code of no module");
        Ok(())
    }

    fn compare_module(&self, root: &Path, key: &str, dir: &Path, reads_tofu: bool) -> Result<()> {
        let real = real(root, dir)?;
        let folder = Folder::open(root)?.folder(&real)?;
        let named = |name: &str| quoted(&dir.join(name).to_string_lossy());
        let entries = folder.entries()?.into_iter().filter(|(_, kind)| *kind != FileType::Directory);
        let names: Vec<String> = entries
            .map(|(name, _)| {
                name.into_string().ok().with_context(|| format!("{} has a name that is no text", named("")))
            })
            .collect::<Result<_>>()?;
        let in_plan = |name: &str| self.files.get(&(key.to_owned(), name.to_owned()));
        for name in names.iter().filter(|name| is_read(name, &names, reads_tofu)) {
            ensure!(in_plan(name).is_some(), "it lacks {}", named(name));
        }
        for ((_, name), planned) in self.files.iter().filter(|((of, _), _)| of == key) {
            ensure!(names.contains(name), "it has {}, which is not in the checkout", named(name));
            let path = self::real(root, &dir.join(name))?;
            let there = Folder::open(root)?.read(&path, MAX_CODE)?;
            ensure!(there.as_ref() == Some(planned), "{} is another one", named(name));
        }
        Ok(())
    }
}

/// Returns a path below the root without links. The code of a checkout may use links, but they have to stay in it.
fn real(root: &Path, path: &Path) -> Result<PathBuf> {
    let text = path.to_str().context("a name is no text")?;
    let real = inside(root, text)?;
    Ok(real.strip_prefix(root)?.to_owned())
}

/// Returns true if Terraform reads a file of this name in a directory with these.
fn is_read(name: &str, names: &[String], reads_tofu: bool) -> bool {
    let is_ignored = name.starts_with('.') || name.ends_with('~') || (name.starts_with('#') && name.ends_with('#'));
    if is_ignored || !is_code(name) {
        return false;
    }
    let tofu = |ending: &str, own: &str| name.strip_suffix(ending).map(|name| format!("{name}{own}"));
    match tofu(".tf", ".tofu").or_else(|| tofu(".tf.json", ".tofu.json")) {
        // OpenTofu reads its own file instead.
        Some(own) => !(reads_tofu && names.contains(&own)),
        None => reads_tofu,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an archive of these parts.
    fn archive(parts: &[(&str, &str)]) -> Vec<u8> {
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, content) in parts {
            zip.start_file(*name, SimpleFileOptions::default()).unwrap();
            zip.write_all(content.as_bytes()).unwrap();
        }
        zip.finish().unwrap().into_inner()
    }

    const ROOT_ONLY: &str = r#"[{"Key": "", "Dir": "."}]"#;
    const WITH_MODULE: &str = r#"[{"Key": "", "Dir": "."}, {"Key": "m", "Source": "../m", "Dir": "../m"}]"#;

    /// Compares a plan file of these parts with a checkout of these files, whose project is in `net`.
    fn compared(parts: &[(&str, &str)], files: &[(&str, &str)], reads_tofu: bool) -> Result<()> {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        for (path, content) in files {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            match content.strip_prefix("-> ") {
                Some(target) => std::os::unix::fs::symlink(target, path).unwrap(),
                None => std::fs::write(path, content).unwrap(),
            }
        }
        let (_, code) = rewritten(archive(parts));
        let (dir, data_dir) = (root.join("net"), ".terraform".to_owned());
        code?.compare(&ComparedCheckout { root, dir, data_dir, reads_tofu })
    }

    const CODE_OF_ROOT: (&str, &str) = ("tfconfig/m-/main.tf", "a");

    #[test]
    fn the_code_in_a_plan_file_is_that_of_the_checkout() {
        let main = ("net/main.tf", "a");
        let notes =
            r#"{"Modules": [{"Key": "", "Source": "", "Dir": "."}, {"Key": "m", "Source": "../m", "Dir": "../m"}]}"#;
        let noted = ("net/.terraform/modules/modules.json", notes);
        let root = (MODULES, ROOT_ONLY);
        let both = (MODULES, WITH_MODULE);
        let of_module = ("tfconfig/m-m/x.tf", "m");
        let same: [(&[_], &[_], bool); 5] = [
            (&[root, CODE_OF_ROOT, ("tfplan", "p")], &[main, ("net/.x.tf", "b"), ("net/x.tofu", "b")], false),
            (&[both, CODE_OF_ROOT, of_module], &[main, noted, ("m/x.tf", "m"), ("m/README", "r")], false),
            (&[root, ("tfconfig/m-/main.tofu", "t")], &[main, ("net/main.tofu", "t")], true),
            (&[root, CODE_OF_ROOT], &[("net/main.tf", "-> ../common/main.tf"), ("common/main.tf", "a")], false),
            (&[both, CODE_OF_ROOT, of_module], &[main, noted, ("m", "-> n"), ("n/x.tf", "m")], false),
        ];
        for (parts, files, reads_tofu) in same {
            compared(parts, files, reads_tofu).unwrap();
        }
        let elsewhere = r#"[{"Key": "", "Dir": "../m"}]"#;
        let aliased = r#"[{"Key": "", "Dir": ".", "dir": "../m"}]"#;
        let differing: [(&[_], &[_], &str); 11] = [
            (&[root, ("tfconfig/m-/main.tf", "b")], &[main], "`net/main.tf` is another one"),
            (
                &[root, CODE_OF_ROOT, ("tfconfig/m-/x.tf", "b")],
                &[main],
                "it has `net/x.tf`, which is not in the checkout",
            ),
            (&[root, CODE_OF_ROOT], &[main, ("net/x.tf.json", "b")], "it lacks `net/x.tf.json`"),
            (&[both, CODE_OF_ROOT, of_module], &[main, ("m/x.tf", "m")], "the checkout has no module `m`"),
            (&[both, CODE_OF_ROOT, of_module], &[main, noted, ("m/x.tf", "n")], "`m/x.tf` is another one"),
            (&[root, CODE_OF_ROOT, of_module], &[main, noted, ("m/x.tf", "m")], "the plan file has code of no module"),
            (
                &[(MODULES, elsewhere), CODE_OF_ROOT],
                &[main, ("m/main.tf", "a")],
                "the module `` is in another directory",
            ),
            (&[(MODULES, aliased), CODE_OF_ROOT], &[main], "the plan file names a module in two ways"),
            (&[(MODULES, "[]"), CODE_OF_ROOT], &[main], "the plan file has no code of the project"),
            (&[CODE_OF_ROOT], &[main], "the plan file names no modules"),
            (&[root, ("tfconfig/m-/../m/main.tf", "a")], &[main], "it lacks `net/main.tf`"),
        ];
        for (parts, files, why) in differing {
            assert_eq!(format!("{:#}", compared(parts, files, false).unwrap_err()), why);
        }
    }

    #[test]
    fn a_plan_file_is_written_anew_with_what_was_read() {
        let parts = [("tfplan", "p"), (MODULES, ROOT_ONLY), CODE_OF_ROOT];
        // A second archive, which a reader that searches from the beginning would find.
        let bytes = [archive(&[("tfplan", "another")]), archive(&parts)].concat();
        let (written, code) = rewritten(bytes);
        assert_eq!(code.unwrap().files.len(), 1);
        let mut read = ZipArchive::new(Cursor::new(&written)).unwrap();
        let mut text = String::new();
        read.by_name("tfplan").unwrap().read_to_string(&mut text).unwrap();
        assert_eq!((text.as_str(), read.len()), ("p", 3));
        assert!(!written.windows(7).any(|window| window == b"another"));
        let (same, code) = rewritten(b"no archive".to_vec());
        assert!(same == b"no archive" && code.is_err());
    }
}
