//! Parses YAML into raw types: strict, bounded, and with positions in errors.
//!
//! The fields of a type are the schema: text fields accept unquoted numbers, dates and booleans unchanged.

mod erased;
mod type_error;

use super::ConfigError;
use super::places::FilePlace;
use serde::de::DeserializeOwned;
use serde_saphyr::{Error, Location, Spanned};

/// Largest configuration file, in bytes.
pub const MAX_CONFIG_BYTES: usize = 1024 * 1024;
/// Deepest nesting of lists and mappings.
const MAX_DEPTH: usize = 32;
/// Most nodes in one file.
const MAX_NODES: usize = 100_000;
/// Most parser events that aliases may replay in one file, against alias bombs.
const MAX_REPLAYED_EVENTS: usize = 200_000;
/// Longest quotation of the file in a message, in characters.
const MAX_QUOTED: usize = 80;
/// Longest message, in characters: a list of all keys fits.
const MAX_MESSAGE: usize = 1_200;

/// An error of a document.
pub(super) struct DecodeError {
    pub(super) error: ConfigError,
    /// Its place, as far as the parser knows it.
    pub(super) place: Option<FilePlace>,
    /// True if the YAML is valid, and a key or type is wrong.
    pub(super) is_of_schema: bool,
}

/// Parses one document; `None` for an empty one.
pub fn decode<T: DeserializeOwned>(text: &str, file: &str) -> Result<Option<T>, ConfigError> {
    decode_located(text, file).map_err(|error| error.error)
}

/// Parses one document; `None` for an empty one. The error has its place.
pub(super) fn decode_located<T: DeserializeOwned>(text: &str, file: &str) -> Result<Option<T>, DecodeError> {
    if text.len() > MAX_CONFIG_BYTES {
        let size = text.len();
        let error = ConfigError(format!("{file}: too large: {size} bytes, at most {MAX_CONFIG_BYTES} are read"));
        return Err(DecodeError { error, place: None, is_of_schema: false });
    }
    let options = serde_saphyr::options! {
        with_snippet: false,
        emit_comments: false,
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            max_nodes: MAX_NODES,
            // One anchor may be used by hundreds of projects; the limit of replays follows.
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_REPLAYED_EVENTS,
            max_replay_stack_depth: MAX_DEPTH,
        },
    };
    erased::from_str::<Option<T>>(text, options).map_err(|error| located(&error, text, file))
}

fn located(error: &Error, text: &str, file: &str) -> DecodeError {
    let cause = error.without_snippet();
    let place = cause.location().map(|at| FilePlace { line: at.line(), column: at.column() });
    let is_of_schema = matches!(
        cause,
        Error::SerdeUnknownField { .. }
            | Error::SerdeInvalidType { .. }
            | Error::InvalidScalar { .. }
            | Error::NullIntoString { .. }
            | Error::Unexpected { .. }
    );
    DecodeError { error: worded(error, text, file), place, is_of_schema }
}

/// Creates an error at a position of the file.
pub(super) fn error_at<T>(file: &str, node: &Spanned<T>, message: impl AsRef<str>) -> ConfigError {
    placed(file, node.referenced, message.as_ref())
}

/// Formats `file:line:column: message`, on one line. An error without a position is for the whole file.
fn placed(file: &str, location: Location, message: &str) -> ConfigError {
    let (line, column) = (location.line().max(1), location.column().max(1));
    ConfigError(format!("{file}:{line}:{column}: {}", clipped(message, MAX_MESSAGE)))
}

impl ConfigError {
    /// Creates a message on one line, clipped to fit in a comment.
    pub fn short(message: &str) -> ConfigError {
        ConfigError(clipped(message, MAX_MESSAGE))
    }
}

/// Returns the first characters of a value of a file, on one line, for messages.
pub fn quoted(text: &str) -> String {
    clipped(text, MAX_QUOTED)
}

fn clipped(text: &str, most: usize) -> String {
    let mut short: String = text.chars().take(most).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(most).is_some() {
        short.push('…');
    }
    short
}

fn worded(error: &Error, text: &str, file: &str) -> ConfigError {
    let error = error.without_snippet();
    let location = error.location().unwrap_or(Location::UNKNOWN);
    let error = match error {
        Error::AliasError { error, .. } => error.without_snippet(),
        direct => direct,
    };
    let message = match error {
        Error::SerdeUnknownField { field, expected, .. } => unknown_key(field, expected),
        Error::DuplicateMappingKey { key: Some(key), .. } => format!("the key `{}` is there twice", quoted(key)),
        Error::DuplicateMappingKey { key: None, .. } => "a key is there twice".to_owned(),
        Error::MultipleDocuments { .. } => "a second document begins here (`---`); only one is allowed".to_owned(),
        Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. }
        | Error::Budget { .. } => "too large once anchors are expanded, or nested too deeply".to_owned(),
        Error::Message { msg, .. } => msg.clone(),
        other => {
            let what = match other {
                Error::InvalidScalar { ty: "boolean", .. } => "true or false is expected here".to_owned(),
                Error::InvalidScalar { ty: "i64", .. } => "a whole number is expected here".to_owned(),
                Error::Unexpected { expected: "sequence start", .. } => "a list is expected here".to_owned(),
                Error::Unexpected { expected: "mapping start", .. } => {
                    "`key: value` pairs are expected here".to_owned()
                }
                Error::Unexpected { expected: "string scalar", .. } => "text is expected here".to_owned(),
                Error::SerdeInvalidType { expected, .. } => format!("expected {expected}"),
                Error::NullIntoString { .. } => "text is expected here, but there is nothing".to_owned(),
                other => syntax(other),
            };
            key_on_line(text, location.line()).map_or(what.clone(), |key| format!("`{key}`: {what}"))
        }
    };
    match tab_after(text, location).filter(|_| message.ends_with(TAB)) {
        // The parser reports the position of the value before it.
        Some((line, column)) => ConfigError(format!("{file}:{line}:{column}: {TAB}")),
        None => placed(file, location, &message),
    }
}

/// Message for a tab.
const TAB: &str = "a tab in the indentation; YAML wants spaces";

/// Returns line and column of the first tab in the indentation at or after a position.
fn tab_after(text: &str, location: Location) -> Option<(usize, usize)> {
    let before = usize::try_from(location.line()).ok()?.saturating_sub(1);
    text.lines().enumerate().skip(before).find_map(|(line, content)| {
        let column = content.find('\t')?;
        content.get(..column)?.trim().is_empty().then_some((line + 1, column + 1))
    })
}

fn unknown_key(key: &str, known: &[&str]) -> String {
    let near = known.iter().find(|other| strsim::levenshtein(key, other) <= 2);
    let hint =
        near.map_or_else(|| format!("known here: {}", known.join(", ")), |near| format!("did you mean `{near}`?"));
    format!("unknown key `{}`; {hint}", quoted(key))
}

/// Returns the parser's message without its `at line 1, column 2`.
fn syntax(error: &Error) -> String {
    let text = error.to_string();
    let end = text.find(" at line ").or_else(|| text.find(" (defined at line ")).unwrap_or(text.len());
    match text[..end].trim() {
        text if text.contains("tabs") || text.ends_with("found a tab") => TAB.to_owned(),
        text if text.contains("recursion limit") => "nested too deeply".to_owned(),
        text => quoted(text),
    }
}

/// Returns the error of a regular expression, on one line.
pub(super) fn regex_problem(error: &regex::Error) -> String {
    let text = error.to_string();
    let last = text.lines().last().unwrap_or_default();
    last.trim().trim_start_matches("error: ").to_owned()
}

/// Returns the key on the line of an error, to name it in the message. Never returns its value, which may be a hook's secret.
pub(super) fn key_on_line(text: &str, line: u64) -> Option<String> {
    let line = text.lines().nth(usize::try_from(line).ok()?.checked_sub(1)?)?;
    let (key, _) = line.trim_start_matches([' ', '\t', '-']).split_once(':')?;
    let plain = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    plain.then(|| quoted(key))
}
