//! The templates, compiled once. Their values are printed literally unless [`super::markdown`] made them safe.

use super::markdown;
use crate::reply::wording;
use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value};
use std::sync::LazyLock;

macro_rules! templates {
    ($($name:literal),* $(,)?) => {
        /// Name and text of each template.
        const TEMPLATES: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../../templates/comments/", $name)))),*];
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

static ENVIRONMENT: LazyLock<Result<Environment<'static>, Error>> = LazyLock::new(environment);

fn environment() -> Result<Environment<'static>, Error> {
    let mut env = Environment::new();
    env.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    env.set_undefined_behavior(UndefinedBehavior::Strict);
    env.set_auto_escape_callback(|_| AutoEscape::Custom("markdown".into()));
    env.set_formatter(|out, _state, value| {
        let written = match value.as_str() {
            Some(text) if !value.is_safe() => out.write_str(&markdown::prose(text)),
            Some(text) => out.write_str(text),
            None if value.is_none() => Ok(()),
            None if value.is_undefined() => {
                return Err(Error::new(ErrorKind::UndefinedError, "a template prints a name that is not there"));
            }
            None => write!(out, "{value}"),
        };
        written.map_err(|error| Error::new(ErrorKind::WriteFailure, "cannot write").with_source(error))
    });
    env.add_filter("code", |text: &str| Value::from_safe_string(markdown::code(text)));
    env.add_filter("block", |command: &str| Value::from_safe_string(markdown::block(command)));
    env.add_filter("html_code", |text: &str| Value::from_safe_string(markdown::html_code(text)));
    env.add_filter("link", |text: &str, url: &str| Value::from_safe_string(markdown::link(text, url)));
    env.add_filter("capital", |text: &str| wording::capital(text));
    env.add_filter("sentence", |text: &str| wording::sentence(text));
    env.add_filter("s", |count: u64| if count == 1 { "" } else { "s" });
    for (name, text) in TEMPLATES {
        env.add_template(name, text)?;
    }
    Ok(env)
}

/// Renders one template; an error is logged and gives a comment that says so.
pub(super) fn render(name: &str, context: Value) -> String {
    let text = match &*ENVIRONMENT {
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
        assert!(ENVIRONMENT.is_ok(), "{:?}", ENVIRONMENT.as_ref().err());
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
}
