//! Help and usage texts: plain text for a code fence, at most 80 columns where the server writes it.

use super::ParserSettings;
use super::grammar::{COMMANDS, CommandGrammar};
use crate::domain::command::CommandName;
use std::fmt::Write as _;

/// Returns the general help: allowed commands, and examples.
pub(super) fn help(names: &ParserSettings) -> String {
    let exe = names.executable();
    let offered: Vec<_> = COMMANDS
        .iter()
        .filter(|grammar| {
            names.allowed.contains(&grammar.name) && !(names.apply_disabled && grammar.name == CommandName::Apply)
        })
        .collect();
    let mut text = format!("Usage: {exe} COMMAND [flags] [-- Terraform arguments]\n\nCommands:\n");
    for grammar in &offered {
        line(&mut text, grammar.form, grammar.summary);
    }
    line(&mut text, "help [COMMAND]", "Shows this, or the flags of one command.");
    let examples = offered.iter().flat_map(|grammar| grammar.examples);
    for (index, (what, command)) in examples.enumerate() {
        let title = if index == 0 { "\nExamples:\n" } else { "" };
        _ = write!(text, "{title}  # {what}\n  {exe} {command}\n");
    }
    text.trim_end().to_owned()
}

/// Returns usage and flags of one command.
pub(super) fn usage(grammar: &CommandGrammar, names: &ParserSettings) -> String {
    let flags = if grammar.flags.is_empty() { "" } else { " [flags]" };
    let extra = if grammar.passes_extra_args { " [-- Terraform arguments]" } else { "" };
    let mut text = format!("Usage: {} {}{flags}{extra}\n{}\n", names.executable(), grammar.form, grammar.summary);
    if grammar.flags.is_empty() {
        text.push_str("It takes neither flags nor arguments.\n");
    }
    for (index, flag) in grammar.flags.iter().enumerate() {
        let title = if index == 0 { "\nFlags:\n" } else { "" };
        _ = writeln!(text, "{title}  {:<30}  {}", flag.form(), flag.help);
    }
    text.trim_end().to_owned()
}

/// Returns an error message with the usage and an example.
pub(super) fn mistake(grammar: &CommandGrammar, names: &ParserSettings, what: &str, type_this: &str) -> String {
    let end = if what.ends_with('?') { "" } else { "." };
    format!("Error: {what}{end}\n\n{}\n\nType: {} {type_this}", usage(grammar, names), names.executable())
}

fn line(text: &mut String, form: &str, summary: &str) {
    _ = writeln!(text, "  {form:<19}  {summary}");
}
