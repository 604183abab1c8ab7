//! `language-config-file`: titles of commands, and the noun for a pull request, as the operator sets them.

use super::ConfigError;
use super::raw::LocatedText;
use super::yaml::{decode, error_at, quoted};
use crate::domain::command::CommandName;
use crate::domain::language::CommentLanguage;
use serde::Deserialize;
use serde_saphyr::Spanned;
use std::collections::BTreeMap;

/// Longest title or label, in characters.
const MAX_TITLE: usize = 60;

/// Returns the commands that may have a title.
fn titled() -> impl Iterator<Item = &'static str> {
    let commands = CommandName::ALL.into_iter().filter(|name| *name != CommandName::Help);
    commands.map(|name| name.spec().hook_word)
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLanguage {
    pull_request_label: Option<LocatedText>,
    merge_request_label: Option<LocatedText>,
    command_titles: Option<Spanned<BTreeMap<String, Option<LocatedText>>>>,
}

/// Overrides the words of a language with those of a file; words that the file does not set stay.
pub fn with_file(mut language: CommentLanguage, text: &str, file: &str) -> Result<CommentLanguage, ConfigError> {
    let raw: RawLanguage = decode(text, file)?.unwrap_or_default();
    for (key, node, into) in [
        ("pull_request_label", raw.pull_request_label, &mut language.pull_request_label),
        ("merge_request_label", raw.merge_request_label, &mut language.merge_request_label),
    ] {
        if let Some(label) = node.map(|node| title(&node, key, file)).transpose()?.filter(|label| !label.is_empty()) {
            *into = label;
        }
    }
    let Some(titles) = raw.command_titles else { return Ok(language) };
    for (command, node) in &titles.value {
        let name = command.trim().to_lowercase();
        let known: Vec<&str> = titled().collect();
        if !known.contains(&name.as_str()) {
            let message = format!("command_titles: `{}` is no command; there are: {}", quoted(&name), known.join(", "));
            return Err(node
                .as_ref()
                .map_or_else(|| error_at(file, &titles, &message), |node| error_at(file, node, &message)));
        }
        if let Some(node) = node {
            language.set_title(&name, &title(node, &format!("command_titles.{name}"), file)?);
        }
    }
    Ok(language)
}

fn title(node: &LocatedText, key: &str, file: &str) -> Result<String, ConfigError> {
    let text = node.value.trim();
    if text.chars().count() > MAX_TITLE || text.contains(char::is_control) {
        return Err(error_at(file, node, format!("{key}: a title is one line of {MAX_TITLE} characters at most")));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<CommentLanguage, String> {
        with_file(CommentLanguage::from_code("es-MX").unwrap(), text, "words.yaml").map_err(|error| error.0)
    }

    #[test]
    fn a_file_goes_over_the_language_and_says_where_it_is_wrong() {
        let words = read("merge_request_label: MR\ncommand_titles: {Plan: ' Plan de cambios ', apply: '', import: }\n")
            .unwrap();
        assert_eq!(words.title(CommandName::Plan), Some("Plan de cambios"));
        assert_eq!(words.title(CommandName::Apply), Some("Aplicar"));
        assert_eq!(words.title(CommandName::StateRm), Some("Estado"));
        assert_eq!(
            (words.merge_request_label.as_str(), words.pull_request_label.as_str()),
            ("MR", "Solicitud de extracción")
        );
        assert_eq!(read(""), read("command_titles: {}"));
        for (text, error) in [
            ("titles: {}", "words.yaml:1:1: unknown key `titles`"),
            ("command_titles:\n  aply: x", "words.yaml:2:9: command_titles: `aply` is no command"),
            ("pull_request_label: \"a\\nb\"", "words.yaml:1:21: pull_request_label: a title is one line"),
            ("command_titles: [x]", "words.yaml:1:17: `command_titles`: `key: value` pairs are expected here"),
        ] {
            assert!(read(text).unwrap_err().starts_with(error), "{:?}", read(text));
        }
    }

    #[test]
    fn a_language_without_words_for_a_command_has_no_title() {
        assert_eq!(CommentLanguage::from_code("EN_us").unwrap().title(CommandName::Plan), None);
        assert_eq!(CommentLanguage::from_code("de"), None);
    }
}
