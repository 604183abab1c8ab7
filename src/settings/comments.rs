//! Reads the settings of the wording of comments: their language, and the operator's own templates.

use super::check::read_file;
use super::typed::Reader;
use crate::config::language::with_file;
use crate::domain::language::{CommentLanguage, LANGUAGES};
use std::path::PathBuf;

/// Reads the titles of commands: those of a built-in language, overridden by those of a file. With a file any language may be set.
pub(super) fn language(r: &mut Reader) -> CommentLanguage {
    const FILE: &str = "language-config-file";
    let built_in = CommentLanguage::from_code(&r.text("language"));
    let Some(path) = r.path(FILE) else {
        if built_in.is_none() {
            let what = format!("is none of {}: name one of these, or give {FILE}", LANGUAGES.join(", "));
            r.wrong("language", what);
        }
        return built_in.unwrap_or_default();
    };
    let read = read_file(&path).and_then(|text| {
        let words = with_file(built_in.unwrap_or_default(), &text, &path.display().to_string());
        words.map_err(|error| format!("names a file that is wrong: {error}"))
    });
    read.map_err(|error| r.wrong(FILE, error)).unwrap_or_default()
}

/// Reads the directory of the operator's own templates. The default directory need not exist.
pub(super) fn templates_dir(r: &mut Reader, name: &str) -> Option<PathBuf> {
    if r.is_given(name) {
        let path = r.path(name)?;
        if !path.is_dir() {
            r.wrong(name, format!("names {}, which is no directory", path.display()));
        }
        return Some(path);
    }
    let path = super::check::expand(&r.text(name), &r.environment).ok()?;
    path.is_dir().then_some(path)
}
