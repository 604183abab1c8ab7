//! Reads the operator's own comment templates.

use crate::render::{CommentTemplates, TemplateFile, with_own};
use anyhow::{Context as _, Result, anyhow, ensure};
use std::path::Path;

/// Endings of the files that are read: ours, and those of Atlantis, which are refused by name.
const ENDINGS: [&str; 2] = [".md", ".tmpl"];
/// Maximum number of files.
const MAX_FILES: usize = 200;
/// Largest file, in bytes.
const MAX_BYTES: u64 = 256 * 1024;

/// Returns true for the name of a file that is read.
pub(super) fn is_template(name: &str) -> bool {
    !name.starts_with('.') && ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// Returns the templates of a directory over the built-in ones; an error names file and line.
pub(super) fn read(dir: Option<&Path>) -> Result<CommentTemplates> {
    let Some(dir) = dir else { return Ok(CommentTemplates::default()) };
    let at = || format!("markdown-template-overrides-dir: {}", dir.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).with_context(at)? {
        let path = entry.with_context(at)?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if !is_template(&name) {
            continue;
        }
        let shown = path.display().to_string();
        let metadata = path.metadata().with_context(|| shown.clone())?;
        ensure!(metadata.is_file(), "{shown} is no regular file");
        ensure!(metadata.len() <= MAX_BYTES, "{shown} is larger than {MAX_BYTES} bytes");
        let text = std::fs::read_to_string(&path).with_context(|| shown.clone())?;
        files.push(TemplateFile { path: shown, name, text });
        ensure!(files.len() <= MAX_FILES, "{} has more than {MAX_FILES} templates", dir.display());
    }
    if files.is_empty() {
        return Ok(CommentTemplates::default());
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    let names: Vec<_> = files.iter().map(|file| file.name.clone()).collect();
    let templates = with_own(files).map_err(|error| anyhow!("{error}"))?;
    tracing::info!("comments are worded by {} of {}", names.join(", "), dir.display());
    Ok(templates)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_error(name: &str, text: &[u8]) -> String {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(name), text).unwrap();
        format!("{:#}", read(Some(dir.path())).unwrap_err()).replace(&dir.path().display().to_string(), "DIR")
    }

    #[test]
    fn a_directory_without_templates_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("notes.txt"), "{{ .Foo }}").unwrap();
        assert!(format!("{:?}", read(Some(dir.path())).unwrap()).contains("None"));
        assert!(format!("{:?}", read(None).unwrap()).contains("None"));
    }

    #[test]
    fn a_template_that_cannot_be_used_stops_the_start_by_file_and_line() {
        assert!(
            read_error("plan.tmpl", b"{{ define \"x\" }}").starts_with("DIR/plan.tmpl:1: this is a template of Go")
        );
        assert!(read_error("one.md", b"ok\n{{ r.x }").starts_with("DIR/one.md:2: "));
        assert!(read_error("one.md", &vec![b'x'; 300_000]).contains("DIR/one.md is larger than 262144 bytes"));
        assert!(read_error("one.md", b"\xff").contains("DIR/one.md"));
    }
}
