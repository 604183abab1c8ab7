//! Templates of comments, compiled once; an operator's own override the built-in ones. Values are printed literally unless
//! [`super::markdown`] made them safe, also in an operator's templates: the filters that they can use are listed here.

use super::markdown;
use super::split::left_open;
use crate::wording;
use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, LazyLock};

/// Longest text that an operator's template may produce, in bytes.
const MAX_RENDERED: usize = 16 * 1024 * 1024;
/// Names that every template can print.
pub(super) const COMMON: [&str; 7] =
    ["executable", "number", "mark", "command", "locking", "pull_label", "command_title"];
/// Filters of all templates. Of these only the first five make untrusted text safe, by escaping it.
pub(super) const FILTERS: [&str; 17] = [
    "code",
    "block",
    "html_code",
    "link",
    "s",
    "capital",
    "sentence",
    "length",
    "lower",
    "upper",
    "capitalize",
    "trim",
    "replace",
    "join",
    "first",
    "last",
    "default",
];

macro_rules! templates {
    ($($name:literal),* $(,)?) => {
        /// Name and text of each template.
        pub(super) const TEMPLATES: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../templates/comments/", $name)))),*];
    };
}

templates![
    "macros.md",
    "body.md",
    "one.md",
    "several.md",
    "command_error.md",
    "help.md",
    "usage.md",
    "unknown_command.md",
    "did_you_mean.md",
    "apply_disabled.md",
    "automerging.md",
    "not_merged.md",
    "unlocked.md",
    "owes.md",
    "applied_by_another.md",
    "merge_unknown.md",
    "merge_known.md",
    "merged_onto.md",
    "also_changed.md",
    "plans_fell.md",
    "lock_freed.md",
    "unlocked_by.md",
    "unlocked_others.md",
    "locked.md",
    "not_locked.md",
    "frozen.md",
    "unfrozen.md",
    "unlock_refused.md",
    "cancelled.md",
    "fork_refused.md",
    "not_allowlisted.md",
    "not_permitted.md",
    "closed_pull.md",
    "cleanup.md",
    "discarded.md",
    "outdated_plans.md",
    "hook_failed.md",
    "interrupted.md",
    "state_locks.md",
    "late_end.md",
    "shutting_down.md",
    "no_projects.md",
    "superseded.md",
    "planned_already.md",
];

static BUILT_IN: LazyLock<Result<Environment<'static>, Error>> = LazyLock::new(|| environment(&[]));

/// The templates of a server.
#[derive(Debug, Clone, Default)]
pub struct CommentTemplates {
    /// The operator's own over the built-in ones.
    own: Option<Arc<Environment<'static>>>,
    /// True if the operator's own template of several results tells all of them, and folds none.
    old_sections: bool,
    /// True if the operator's own templates tell each result in full.
    old_bodies: bool,
}

impl CommentTemplates {
    /// Returns true if the operator's own templates have the same names and texts.
    pub fn has_same_texts(&self, other: &CommentTemplates) -> bool {
        let texts = |all: &CommentTemplates| -> BTreeMap<String, String> {
            let own = all.own.iter().flat_map(|own| own.templates());
            own.map(|(name, template)| (name.to_owned(), template.source().to_owned())).collect()
        };
        texts(self) == texts(other)
    }

    /// Creates the operator's templates over the built-in ones, from texts by name. They have been checked.
    pub(super) fn with_own(own: &[(String, String)]) -> Result<CommentTemplates, Error> {
        let lacks = |template: &str, names: &[&str]| {
            own.iter().any(|(name, text)| name == template && !names.iter().any(|name| text.contains(name)))
        };
        Ok(CommentTemplates {
            own: Some(Arc::new(environment(own)?)),
            old_sections: lacks("several.md", &["section"]),
            old_bodies: lacks("body.md", &["same"]) || lacks("several.md", &["same", "body.md"]),
        })
    }

    /// Returns true if they fold results and leave some out where they are told to.
    pub(super) fn know_sections(&self) -> bool {
        !self.old_sections
    }

    /// Returns true if they refer to the result that says the same.
    pub(super) fn know_references(&self) -> bool {
        !self.old_bodies
    }

    pub(super) fn own(&self) -> Option<&Environment<'static>> {
        self.own.as_deref()
    }

    /// Renders one template. If an operator's own fails, the built-in one is used, and the comment says so.
    pub(super) fn render(&self, name: &str, context: Value) -> String {
        let Some(own) = self.own() else { return built_in(name, context) };
        match rendered(own, name, context.clone()) {
            Ok(text) => text,
            Err(error) => {
                tracing::error!(template = name, "a template of markdown-template-overrides-dir fails: {error}");
                let why = markdown::prose(&error);
                format!(
                    "{}\n\n*The server's own template could not word this, so the built-in one did: {why}*\n",
                    built_in(name, context)
                )
            }
        }
    }
}

/// Renders an operator's template; the error is for people.
pub(super) fn rendered(own: &Environment<'_>, name: &str, context: Value) -> Result<String, String> {
    let mut text = LimitedText(Vec::new());
    let made = own.get_template(name).and_then(|template| template.render_captured_to(context, &mut text).map(drop));
    made.map_err(|error| worded(&error))?;
    let text = String::from_utf8(text.0).map_err(|_| format!("{name} makes no text"))?;
    match left_open(&text) {
        Some(what) => Err(format!("{name} leaves {what} open")),
        None => Ok(text),
    }
}

/// Formats an error with template and line.
pub(super) fn worded(error: &Error) -> String {
    let place = error.name().map(|name| error.line().map_or(format!("{name}: "), |line| format!("{name}:{line}: ")));
    let what = error.detail().map_or_else(|| error.kind().to_string(), |detail| format!("{}: {detail}", error.kind()));
    let cause = std::error::Error::source(error).map(|cause| format!(" ({cause})")).unwrap_or_default();
    format!("{}{what}{cause}", place.unwrap_or_default())
}

/// Buffer with a limit, which no comment should reach.
struct LimitedText(Vec<u8>);

impl io::Write for LimitedText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_RENDERED {
            return Err(io::Error::other(format!("it makes more than {MAX_RENDERED} bytes")));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn environment(own: &[(String, String)]) -> Result<Environment<'static>, Error> {
    let mut env = Environment::empty();
    env.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    env.set_undefined_behavior(UndefinedBehavior::Strict);
    env.set_auto_escape_callback(|_| AutoEscape::Custom("markdown".into()));
    let has_own = !own.is_empty();
    env.set_formatter(move |out, _state, value| {
        let written = match value.as_str() {
            Some(text) if !value.is_safe() => out.write_str(&markdown::prose(text)),
            // In the middle of a line it would be no block, and its contents would be Markdown.
            Some(text) if has_own && (text.starts_with("```") || text.starts_with("<details>")) => {
                write!(out, "\n\n{text}\n")
            }
            Some(text) => out.write_str(text),
            None if value.is_none() => Ok(()),
            None if value.is_undefined() => {
                return Err(Error::new(ErrorKind::UndefinedError, "a template prints a name that is not there"));
            }
            None => write!(out, "{value}"),
        };
        written.map_err(|error| Error::new(ErrorKind::WriteFailure, "cannot write").with_source(error))
    });
    add_filters(&mut env);
    env.add_test("defined", minijinja::tests::is_defined);
    env.add_test("none", minijinja::tests::is_none);
    for (name, text) in TEMPLATES {
        env.add_template(name, text)?;
    }
    for (name, text) in own {
        // They live as long as the server.
        env.add_template(String::leak(name.clone()), String::leak(text.clone()))?;
    }
    Ok(env)
}

/// Adds [`FILTERS`]. Those of minijinja would keep parts of safe text safe, such as one line of a fence.
fn add_filters(env: &mut Environment<'static>) {
    env.add_filter("code", |text: &str| Value::from_safe_string(markdown::code(text)));
    env.add_filter("block", |command: &str| Value::from_safe_string(markdown::block(command)));
    env.add_filter("html_code", |text: &str| Value::from_safe_string(markdown::html_code(text)));
    env.add_filter("link", |text: &str, url: &str| Value::from_safe_string(markdown::link(text, url)));
    env.add_filter("s", |count: u64| if count == 1 { "" } else { "s" });
    env.add_filter("capital", |text: &str| wording::capital(text));
    env.add_filter("sentence", |text: &str| wording::sentence(text));
    env.add_filter("length", minijinja::filters::length);
    env.add_filter("lower", |text: &str| text.to_lowercase());
    env.add_filter("upper", |text: &str| text.to_uppercase());
    env.add_filter("capitalize", |text: &str| {
        let (first, rest) = text.split_at(text.chars().next().map_or(0, char::len_utf8));
        first.to_uppercase() + &rest.to_lowercase()
    });
    env.add_filter("trim", |text: &str| text.trim().to_owned());
    env.add_filter("replace", |text: &str, from: &str, to: &str| text.replace(from, to));
    env.add_filter("join", |list: Vec<String>, between: &str| list.join(between));
    env.add_filter("first", |list: Vec<Value>| list.into_iter().next().unwrap_or_default());
    env.add_filter("last", |list: Vec<Value>| list.into_iter().next_back().unwrap_or_default());
    env.add_filter("default", |value: Value, other: Value| match value.is_undefined() || value.is_none() {
        true => other,
        false => value,
    });
}

fn built_in(name: &str, context: Value) -> String {
    let text = match &*BUILT_IN {
        Ok(env) => env.get_template(name).and_then(|template| template.render(context)),
        Err(error) => Err(Error::new(ErrorKind::InvalidOperation, error.to_string())),
    };
    text.unwrap_or_else(|error| {
        tracing::error!(template = name, "cannot render a comment: {error:#}");
        format!(
            "### This reply failed to be worded\n\nIts facts are on the server's pages. {}",
            markdown::prose(&error.to_string())
        )
    })
}

/// Returns the names that a template of this name may print; any for the operator's own pieces, whose names begin with `_`.
pub(super) fn names_of(template: &str) -> Option<BTreeSet<String>> {
    let env = BUILT_IN.as_ref().ok()?;
    let mut names = env.get_template(template).ok()?.undeclared_variables(false);
    names.extend(COMMON.map(str::to_owned));
    if matches!(template, "one.md" | "several.md" | "body.md") {
        names.extend(["results", "totals"].map(str::to_owned));
    }
    Some(names.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_template_file_is_listed_and_compiles() {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/templates/comments");
        let mut files: Vec<_> =
            std::fs::read_dir(dir).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap()).collect();
        let mut listed: Vec<_> = TEMPLATES.iter().map(|(name, _)| (*name).to_owned()).collect();
        files.sort();
        listed.sort();
        assert_eq!(files, listed);
        environment(&[]).unwrap();
    }

    #[test]
    fn every_template_is_used() {
        let sources = [include_str!("message.rs"), include_str!("../render.rs")]
            .into_iter()
            .chain(TEMPLATES.iter().map(|(_, text)| *text))
            .collect::<String>();
        for (name, _) in TEMPLATES {
            assert!(sources.contains(&format!("\"{name}\"")), "{name} is used nowhere");
        }
    }

    #[test]
    fn filters_are_all_listed_and_keep_nothing_safe_but_what_they_escape() {
        let mut env = environment(&[]).unwrap();
        env.add_global("fence", Value::from_safe_string("```\n@team <b>\n```".to_owned()));
        for filter in FILTERS {
            let args = match filter {
                "link" => "('https://x')",
                "replace" => "('a', 'b')",
                "join" | "default" => "('x')",
                _ => "",
            };
            match env.render_str(&format!("{{{{ fence|{filter}{args} }}}}"), ()) {
                // The fence requested verbatim stays verbatim, and whole.
                Ok(text) if filter == "default" => assert_eq!(text, "```\n@team <b>\n```"),
                Ok(text) => assert!(!text.contains("<b>") || text.starts_with("```"), "{filter}: {text}"),
                Err(error) => assert_ne!(error.kind(), ErrorKind::UnknownFilter, "{filter}"),
            }
        }
        for expression in ["fence|safe", "fence|e", "fence|lines", "fence|tojson", "range(9)", "fence is safe"] {
            assert!(env.render_str(&format!("{{{{ {expression} }}}}"), ()).is_err(), "{expression}");
        }
        for expression in ["fence[4:]", "fence ~ ''", "fence + ''", "fence|replace('`', '')", "fence|trim"] {
            let text = env.render_str(&format!("{{{{ {expression} }}}}"), ()).unwrap();
            assert!(!text.contains("<b>") && !text.contains("@team"), "{expression}: {text}");
        }
    }
}
