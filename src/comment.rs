//! Comment text → [`Command`], help, or what is wrong with it. One table holds commands and flags; help derives from it.
//! Grammar: atlantis.md §5, Appendix B.

use crate::domain::command::{Command, CommandName};

/// What the parser has to know about us.
#[derive(Debug, Clone)]
pub struct Names {
    /// First words that we answer to, lower case; the first is used in suggestions.
    pub executables: Vec<String>,
    /// Whether `executables` is the default, so that near-misses are answered.
    pub is_default: bool,
    /// Our login, for `@login plan`.
    pub bot_login: String,
    /// Commands that may be used.
    pub allowed: Vec<CommandName>,
    /// `--blocked-extra-args`.
    pub blocked_extra_args: Vec<String>,
    /// Whether apply is possible at all, for the help text.
    pub apply_disabled: bool,
}

/// What a comment is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parsed {
    /// Nothing for us.
    NotForUs,
    /// A command.
    Command(Box<Command>),
    /// Help is asked for; the text.
    Help(String),
    /// Wrong flags or arguments; the text says what, with the usage.
    Usage(String),
    /// No such command, or not allowed.
    Unknown(String),
    /// A near-miss of our name; what to type instead.
    DidYouMean(String),
}

/// Parses one comment by `user`.
pub fn parse(_text: &str, _user: &str, _names: &Names) -> Parsed {
    todo!()
}

/// The command that plans a project again: `atlantis plan -p name`, with `extra` after ` -- `.
pub fn command_for(
    _executable: &str,
    _name: CommandName,
    _project: &crate::domain::ProjectId,
    _extra: &[String],
) -> String {
    todo!()
}
