//! Splits a comment into words like a shell (the rules of google/shlex), and quotes words so that splitting restores them.

use super::grammar::Positional;
use std::str::Chars;

/// Splits a text into words at Unicode white space. Single quotes are literal, a backslash escapes (also within double quotes), and `#` at
/// the start of a word begins a comment, except in the numbers of [`Positional::Pulls`]. The error names the unclosed quote.
pub(super) fn split(text: &str, positional: Positional) -> Result<Vec<String>, &'static str> {
    let is_number = |rest: &Chars<'_>| {
        positional == Positional::Pulls && rest.clone().next().is_some_and(|char| char.is_ascii_digit())
    };
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        match char {
            _ if char.is_whitespace() => words.extend(word.take()),
            '#' if word.is_none() && !is_number(&chars) => {
                chars.by_ref().find(|&c| c == '\n');
            }
            '\\' => word.get_or_insert_default().push(chars.next().ok_or("a backslash at the end escapes nothing")?),
            '\'' | '"' => quoted(&mut chars, char, word.get_or_insert_default())?,
            _ => word.get_or_insert_default().push(char),
        }
    }
    words.extend(word);
    Ok(words)
}

/// Reads up to the closing quote.
fn quoted(chars: &mut Chars<'_>, quote: char, word: &mut String) -> Result<(), &'static str> {
    let unclosed = if quote == '"' { "a double quote is not closed" } else { "a single quote is not closed" };
    loop {
        match chars.next().ok_or(unclosed)? {
            char if char == quote => return Ok(()),
            '\\' if quote == '"' => word.push(chars.next().ok_or(unclosed)?),
            char => word.push(char),
        }
    }
}

/// Quotes a word so that the parser of comments, or a shell, reads it as one.
pub fn quote(word: &str) -> String {
    let plain = |char: char| char.is_alphanumeric() || "_-./:=@%+,[]*?{}!^~".contains(char);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Quotes words and joins them with spaces.
pub(super) fn join<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    words.into_iter().map(quote).collect::<Vec<_>>().join(" ")
}

/// Returns the first `limit` characters of an untrusted text, for messages; control characters become spaces.
pub(super) fn clip(text: &str, limit: usize) -> String {
    let mut clipped: String = text.chars().take(limit).map(|char| if char.is_control() { ' ' } else { char }).collect();
    if text.chars().nth(limit).is_some() {
        clipped.push('…');
    }
    clipped
}
