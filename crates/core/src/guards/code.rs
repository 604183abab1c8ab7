//! Reads facts about code from configuration files, before Terraform does. A pull request writes these files: a file that cannot be read
//! as Terraform would read it becomes a fact by itself.

use super::file::File;
use super::json::{members, text};
use super::lexing::ambiguity;
use super::names::{NoLiteral, first_label, is_literal, name_in_json, provider_name, required_source, type_prefix};
use super::{CodeFact, CodeKind, runs_program};
use crate::config::paths::join;
use crate::inputs::{Tree, locked_providers, text_of};
use hcl::edit::Span as _;
use hcl::edit::expr::Expression;
use hcl::edit::structure::{Block, Body};
use serde_json::value::RawValue;
use std::collections::BTreeSet;

/// Most directories whose files are read.
const MAX_DIRS: usize = 2_000;
/// Most facts of one project.
const MAX_FACTS: usize = 10_000;
/// Most bytes of all files.
const MAX_BYTES: usize = 64 << 20;
/// Reason to refuse code beyond these limits.
const TOO_MUCH: &str = "there is too much code";
/// Blocks of OpenTofu's `encryption` that may run a program.
const OF_ENCRYPTION: [&str; 2] = ["key_provider", "method"];
/// Ends of names of files that Terraform or OpenTofu may read.
const ENDINGS: [&str; 4] = [".tf", ".tf.json", ".tofu", ".tofu.json"];
/// Blocks of a provider's types.
const OF_PROVIDERS: [&str; 5] = ["resource", "data", "ephemeral", "action", "list"];
/// Name of the record of provider versions.
const LOCK_FILE: &str = ".terraform.lock.hcl";

/// Directories of a project's code.
pub struct CodePlaces<'a> {
    /// The project's directory, from the root of the tree.
    pub dir: &'a str,
    /// The modules that `init` has recorded, if it has. Some may be no longer in use.
    pub modules: &'a [RecordedModule],
}

/// A module as `init` has recorded it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedModule {
    /// The names of the calls that lead to it, with dots between them.
    pub key: String,
    /// Its directory, from the root of the tree.
    pub dir: String,
}

/// Returns the facts about the code in a project's directory, in its local modules, in the recorded modules, and in its lock file.
pub fn facts(tree: &dyn Tree, places: &CodePlaces<'_>) -> Vec<CodeFact> {
    let mut reader = CodeReader {
        tree,
        facts: Vec::new(),
        waiting: Vec::new(),
        seen: BTreeSet::new(),
        required: BTreeSet::new(),
        used: Vec::new(),
        calls: BTreeSet::new(),
        bytes: 0,
        is_full: false,
    };
    reader.enter(places.dir.to_owned());
    reader.read_all();
    // Each module that is read may have calls of further ones.
    let mut unread: Vec<&RecordedModule> = places.modules.iter().collect();
    loop {
        let (called, others): (Vec<_>, Vec<_>) = unread.into_iter().partition(|module| reader.calls(module));
        if called.is_empty() || reader.is_full {
            break;
        }
        called.iter().for_each(|module| reader.enter(module.dir.clone()));
        reader.read_all();
        unread = others;
    }
    reader.lock_file(places.dir);
    reader.facts
}

struct CodeReader<'a> {
    tree: &'a dyn Tree,
    facts: Vec<CodeFact>,
    waiting: Vec<String>,
    seen: BTreeSet<String>,
    /// Local names of providers to which the present directory gives a source.
    required: BTreeSet<String>,
    /// Local names of providers that the present directory uses, with their places.
    used: Vec<(String, String)>,
    /// Names of all calls of modules so far.
    calls: BTreeSet<String>,
    /// Bytes of all files so far.
    bytes: usize,
    /// True once a limit is exceeded: nothing more is read.
    is_full: bool,
}

impl CodeReader<'_> {
    fn add(&mut self, place: String, what: CodeKind) {
        if self.facts.len() >= MAX_FACTS {
            return self.stop(place);
        }
        self.facts.push(CodeFact { place, what });
    }

    /// Notes, once, that there is too much code. Nothing is read after that.
    fn stop(&mut self, place: String) {
        if !std::mem::replace(&mut self.is_full, true) {
            self.facts.push(CodeFact { place, what: CodeKind::Unreadable(TOO_MUCH.to_owned()) });
        }
    }

    fn unreadable(&mut self, place: &str, why: &str) {
        self.add(place.to_owned(), CodeKind::Unreadable(why.to_owned()));
    }

    /// Returns true if the code so far may call a recorded module: each part of its key is the name of a call somewhere.
    fn calls(&self, module: &RecordedModule) -> bool {
        // Versions before 0.12 have other keys.
        module.key.contains([';', '|']) || module.key.split('.').all(|name| self.calls.contains(name))
    }

    fn read_all(&mut self) {
        while let Some(dir) = self.waiting.pop().filter(|_| !self.is_full) {
            self.directory(&dir);
        }
    }

    /// Notes a directory to be read.
    fn enter(&mut self, dir: String) {
        if self.seen.contains(&dir) {
            return;
        }
        if self.seen.len() >= MAX_DIRS {
            return self.unreadable(&dir, "there are too many modules");
        }
        self.seen.insert(dir.clone());
        self.waiting.push(dir);
    }

    fn directory(&mut self, dir: &str) {
        let Some(names) = self.tree.names(dir) else { return self.unreadable(dir, "the directory cannot be listed") };
        for name in names.iter().filter(|name| ENDINGS.iter().any(|ending| name.ends_with(ending))) {
            if self.is_full {
                break;
            }
            let path = join(dir, name);
            match text_of(self.tree, &path) {
                Some(text) if self.bytes + text.len() > MAX_BYTES => self.stop(path),
                None => self.unreadable(&path, "it is no text file of at most 1 MiB inside of the repository"),
                Some(text) => {
                    self.bytes += text.len();
                    self.file(&File::new(path, dir, &text));
                }
            }
        }
        let required = std::mem::take(&mut self.required);
        for (place, name) in std::mem::take(&mut self.used) {
            if !required.contains(&name) {
                self.add(place, CodeKind::Provider(name));
            }
        }
    }

    fn uses(&mut self, place: String, name: &str) {
        if self.used.len() >= MAX_FACTS {
            return self.stop(place);
        }
        self.used.push((place, name.to_owned()));
    }

    fn requires(&mut self, place: String, name: &str, source: String) {
        self.required.insert(name.to_owned());
        self.add(place, CodeKind::Provider(source));
    }

    fn file(&mut self, file: &File<'_>) {
        if file.path.ends_with(".json") {
            let read = serde_json::from_str::<&RawValue>(file.text).and_then(|root| self.json(file, root));
            if let Err(error) = read {
                let why = if error.is_data() { "it has too many lists in one another" } else { "it is no valid JSON" };
                self.unreadable(&format!("{}:{}", file.path, error.line().max(1)), why);
            }
            return;
        }
        if let Some((line, why)) = ambiguity(file.text) {
            return self.unreadable(&format!("{}:{line}", file.path), why);
        }
        match hcl::edit::parser::parse_body(file.text) {
            Ok(body) => self.hcl(file, &body),
            Err(error) => {
                let line = error.location().line();
                self.unreadable(&format!("{}:{line}", file.path), "it does not parse");
            }
        }
    }

    fn hcl(&mut self, file: &File<'_>, body: &Body) {
        for block in body.blocks() {
            let at = file.at(block.span().map(|span| span.start));
            match block.ident.as_str() {
                "terraform" => {
                    block.body.get_blocks("required_providers").for_each(|one| self.required(file, one));
                    block.body.get_blocks("encryption").for_each(|one| self.encryption(file, &one.body));
                }
                "provider" => self.uses(at, first_label(block)),
                "module" => {
                    self.calls.insert(first_label(block).to_owned());
                    self.module(file, &block.body, at);
                }
                "removed" => self.provisioners(file, &block.body),
                // A check may have a data source of its own.
                "check" => block.body.get_blocks("data").for_each(|data| self.typed(file, data)),
                kind if OF_PROVIDERS.contains(&kind) => self.typed(file, block),
                _ => {}
            }
        }
    }

    /// Reads a block `encryption` of OpenTofu, whose keys and methods may come from a program.
    fn encryption(&mut self, file: &File<'_>, body: &Body) {
        for block in body.blocks().filter(|block| OF_ENCRYPTION.contains(&block.ident.as_str())) {
            let kind = first_label(block);
            if runs_program(kind) {
                self.add(file.at(block.span().map(|span| span.start)), CodeKind::Program(kind.to_owned()));
            }
        }
    }

    /// Reads a block of a provider's type.
    fn typed(&mut self, file: &File<'_>, block: &Block) {
        let at = file.at(block.span().map(|span| span.start));
        let kind = first_label(block);
        if runs_program(kind) {
            self.add(at.clone(), CodeKind::Program(kind.to_owned()));
        }
        self.provisioners(file, &block.body);
        match block.body.get_attribute("provider").map(|attribute| provider_name(&attribute.value)) {
            None => self.uses(at, type_prefix(kind)),
            Some(Some(name)) => self.uses(at, &name),
            Some(None) => self.add(at, CodeKind::UnknownProvider),
        }
    }

    fn provisioners(&mut self, file: &File<'_>, body: &Body) {
        for block in body.get_blocks("provisioner") {
            let kind = first_label(block).to_owned();
            self.add(file.at(block.span().map(|span| span.start)), CodeKind::Provisioner(kind));
        }
    }

    fn module(&mut self, file: &File<'_>, body: &Body, at: String) {
        // Blocks of override files need not have one.
        let Some(attribute) = body.get_attribute("source") else { return };
        let at = attribute.span().map_or(at, |span| file.at(Some(span.start)));
        match attribute.value.as_str() {
            Some(source) => self.source(file, source, at),
            None => self.add(at, CodeKind::UnknownModule),
        }
    }

    /// Notes the source of a module. Local ones are read.
    fn source(&mut self, file: &File<'_>, source: &str, at: String) {
        let is_local = source == "." || source == ".." || source.starts_with("./") || source.starts_with("../");
        if !is_local {
            return self.add(at, CodeKind::Module(source.to_owned()));
        }
        match self.tree.resolve(&join(file.dir, source)) {
            Some(real) => self.enter(real.path),
            None => self.unreadable(&at, "the module is not inside of the repository"),
        }
    }

    fn required(&mut self, file: &File<'_>, block: &Block) {
        for attribute in block.body.attributes() {
            let at = file.at(attribute.span().map(|span| span.start));
            let name = attribute.key.as_str();
            match &attribute.value {
                // The old form: a version alone.
                Expression::String(_) => self.uses(at, name),
                Expression::Object(object) => match required_source(object) {
                    Ok(Some(source)) => self.requires(at, name, source),
                    Ok(None) => self.uses(at, name),
                    Err(NoLiteral) => self.add(at, CodeKind::UnknownProvider),
                },
                _ => self.add(at, CodeKind::UnknownProvider),
            }
        }
    }

    fn json(&mut self, file: &File<'_>, root: &RawValue) -> Result<(), serde_json::Error> {
        for (key, blocks) in members(root)?.0 {
            match key.as_str() {
                "terraform" => {
                    for (key, inner) in members(blocks)?.0 {
                        match key.as_str() {
                            "required_providers" => self.required_in_json(file, inner)?,
                            "encryption" => self.encryption_in_json(file, inner)?,
                            _ => {}
                        }
                    }
                }
                "provider" => members(blocks)?.0.iter().for_each(|(name, at)| self.uses(file.at_json(at), name)),
                "module" => {
                    for (name, module) in members(blocks)?.0 {
                        self.calls.insert(name);
                        self.module_in_json(file, module)?;
                    }
                }
                "removed" => self.provisioners_in_json(file, blocks)?,
                "check" => {
                    for (_, check) in members(blocks)?.0 {
                        // Nothing else in a check is a block of a provider, and no check is in another one.
                        for (_, data) in members(check)?.0.iter().filter(|(key, _)| key == "data") {
                            self.types_in_json(file, data)?;
                        }
                    }
                }
                kind if OF_PROVIDERS.contains(&kind) => self.types_in_json(file, blocks)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn encryption_in_json(&mut self, file: &File<'_>, body: &RawValue) -> Result<(), serde_json::Error> {
        for (_, kinds) in members(body)?.0.iter().filter(|(key, _)| OF_ENCRYPTION.contains(&key.as_str())) {
            for (kind, one) in members(kinds)?.0.into_iter().filter(|(kind, _)| runs_program(kind)) {
                self.add(file.at_json(one), CodeKind::Program(kind));
            }
        }
        Ok(())
    }

    /// Reads blocks by their types.
    fn types_in_json(&mut self, file: &File<'_>, types: &RawValue) -> Result<(), serde_json::Error> {
        for (kind, named) in members(types)?.0 {
            self.typed_in_json(file, &kind, named)?;
        }
        Ok(())
    }

    /// Reads the blocks of one type by their names.
    fn typed_in_json(&mut self, file: &File<'_>, kind: &str, named: &RawValue) -> Result<(), serde_json::Error> {
        if runs_program(kind) {
            self.add(file.at_json(named), CodeKind::Program(kind.to_owned()));
        }
        for (_, body) in members(named)?.0 {
            self.provisioners_in_json(file, body)?;
            let (at, found) = (file.at_json(body), members(body)?.0);
            let names: Vec<&RawValue> =
                found.into_iter().filter(|(key, _)| key == "provider").map(|(_, value)| value).collect();
            if names.is_empty() {
                self.uses(at.clone(), type_prefix(kind));
            }
            for name in names {
                match text(name).as_deref().and_then(name_in_json) {
                    Some(name) => self.uses(at.clone(), &name),
                    None => self.add(at.clone(), CodeKind::UnknownProvider),
                }
            }
        }
        Ok(())
    }

    fn provisioners_in_json(&mut self, file: &File<'_>, body: &RawValue) -> Result<(), serde_json::Error> {
        for (_, provisioners) in members(body)?.0.iter().filter(|(key, _)| key == "provisioner") {
            for (kind, one) in members(provisioners)?.0 {
                self.add(file.at_json(one), CodeKind::Provisioner(kind));
            }
        }
        Ok(())
    }

    fn module_in_json(&mut self, file: &File<'_>, module: &RawValue) -> Result<(), serde_json::Error> {
        for (_, value) in members(module)?.0.iter().filter(|(key, _)| key == "source") {
            let at = file.at_json(value);
            match text(value).filter(|source| is_literal(source)) {
                Some(source) => self.source(file, &source, at),
                None => self.add(at, CodeKind::UnknownModule),
            }
        }
        Ok(())
    }

    fn required_in_json(&mut self, file: &File<'_>, required: &RawValue) -> Result<(), serde_json::Error> {
        for (name, value) in members(required)?.0 {
            let at = file.at_json(value);
            let found = members(value)?.0;
            let sources: Vec<&RawValue> =
                found.into_iter().filter(|(key, _)| key == "source").map(|(_, value)| value).collect();
            if sources.is_empty() {
                self.uses(at.clone(), &name);
            }
            for source in sources {
                match text(source).filter(|source| is_literal(source)) {
                    Some(source) => self.requires(at.clone(), &name, source),
                    None => self.add(at.clone(), CodeKind::UnknownProvider),
                }
            }
        }
        Ok(())
    }

    /// Reads the record of the providers that `init` has chosen.
    fn lock_file(&mut self, dir: &str) {
        let is_there = self.tree.names(dir).is_some_and(|names| names.iter().any(|name| name == LOCK_FILE));
        if !is_there {
            return;
        }
        let path = join(dir, LOCK_FILE);
        let text = text_of(self.tree, &path).filter(|text| ambiguity(text).is_none());
        match text.and_then(|text| locked_providers(&text)) {
            Some(locked) => {
                for (source, _) in locked {
                    self.add(path.clone(), CodeKind::Provider(source));
                }
            }
            None => self.unreadable(&path, "it does not parse"),
        }
    }
}
