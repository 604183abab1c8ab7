//! The pages of the manual, and the blocks of code in them.

use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag, TagEnd};
use std::fs;
use std::path::{Path, PathBuf};

/// Directories whose Markdown files are documents for people.
const ROOMS: [&str; 11] = [
    "",
    "docs",
    "terraform",
    "charts/tidelock",
    "crates/forge",
    "crates/vault",
    "kubernetes",
    "examples",
    "examples/monorepo",
    "examples/terragrunt-workflow",
    "examples/azure-devops-kubernetes",
];

/// A block of code, and where it is.
pub(crate) struct Block {
    /// File and line, as in an error message.
    pub(crate) place: String,
    /// Info string of the fence; absent for an indented block.
    pub(crate) info: Option<String>,
    pub(crate) text: String,
}

impl Block {
    /// Returns true if the first word of the info string is this one.
    pub(crate) fn is(&self, language: &str) -> bool {
        self.info.as_deref().and_then(|info| info.split(' ').next()) == Some(language)
    }

    pub(crate) fn begins_with(&self, text: &str) -> bool {
        self.text.starts_with(text)
    }
}

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the Markdown files in a directory of the repository, by name.
pub(crate) fn pages_in(room: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join(room)).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|ext| ext == "md")).collect();
    pages.sort();
    pages
}

/// Returns all documents.
pub(crate) fn documents() -> Vec<PathBuf> {
    ROOMS.iter().flat_map(|room| pages_in(room)).collect()
}

/// Returns all documents but the changelog, which names what is no more.
pub(crate) fn pages() -> Vec<PathBuf> {
    documents().into_iter().filter(|path| !path.ends_with("CHANGELOG.md")).collect()
}

/// Returns the blocks of code of a page.
pub(crate) fn blocks(page: &Path) -> Vec<Block> {
    let text = fs::read_to_string(page).unwrap();
    let name = page.strip_prefix(root()).unwrap().display();
    let mut found: Vec<Block> = Vec::new();
    let mut is_inside = false;
    for (event, range) in Parser::new(&text).into_offset_iter() {
        match event {
            Event::Start(Tag::CodeBlock(kind)) => {
                let info = match kind {
                    CodeBlockKind::Fenced(info) => Some(info.into_string()),
                    CodeBlockKind::Indented => None,
                };
                let line = text[..range.start].matches('\n').count() + 1;
                found.push(Block { place: format!("{name}:{line}"), info, text: String::new() });
                is_inside = true;
            }
            Event::End(TagEnd::CodeBlock) => is_inside = false,
            Event::Text(part) if is_inside => found.last_mut().unwrap().text.push_str(&part),
            _ => {}
        }
    }
    found
}
