//! Parses flags as pflag does: interspersed, `-wfoo`, `-w=foo`, `-w foo`, `--workspace=foo`; `--` ends them. If a switch is repeated, the
//! last one wins. A repeated value is refused, unless the flag may be repeated.

use super::grammar::{CommandGrammar, Flag, FlagSpec};
use super::words::clip;

/// Longest value in a message, in characters.
const SHORT: usize = 40;

/// The parsed flags and arguments of a command.
#[derive(Default)]
pub(super) struct Typed {
    values: Vec<(Flag, String)>,
    /// Positional arguments before `--`.
    pub(super) positional: Vec<String>,
    /// Arguments after `--`.
    pub(super) extra: Vec<String>,
}

impl Typed {
    /// Returns the last value given; an empty one counts as not given.
    pub(super) fn value(&self, flag: Flag) -> Option<&str> {
        let (_, value) = self.values.iter().rev().find(|(given, _)| *given == flag)?;
        Some(value.as_str()).filter(|value| !value.is_empty())
    }

    /// Returns all values of a flag that may be repeated, each once, in order.
    pub(super) fn values(&self, flag: Flag) -> Vec<&str> {
        let mut values: Vec<&str> = Vec::new();
        for (given, value) in &self.values {
            if *given == flag && !value.is_empty() && !values.contains(&value.as_str()) {
                values.push(value);
            }
        }
        values
    }

    /// Returns true if the flag is given with an empty value.
    pub(super) fn has_empty(&self, flag: Flag) -> bool {
        self.values.iter().any(|(given, value)| *given == flag && value.is_empty())
    }

    /// Returns an error message if a flag that takes one value has two different ones.
    pub(super) fn contradiction(&self, grammar: &CommandGrammar) -> Option<String> {
        grammar.flags.iter().filter(|flag| flag.value.is_some() && !flag.repeats).find_map(|flag| {
            let [first, second, ..] = self.values(flag.flag)[..] else { return None };
            Some(format!("{} is given twice, as {} and as {}", flag.spoken(), clip(first, SHORT), clip(second, SHORT)))
        })
    }

    /// Returns true if the switch is on.
    pub(super) fn is_on(&self, flag: Flag) -> bool {
        self.value(flag) == Some("true")
    }
}

/// Error while parsing flags.
#[derive(Debug)]
pub(super) enum FlagError {
    /// `-h` or `--help`.
    Help,
    /// An unknown flag at this index.
    Unknown { what: String, at: usize },
    /// A known flag with a missing or wrong value.
    Wrong(String),
}

/// Parses all arguments of a command.
pub(super) fn read(grammar: &CommandGrammar, args: &[String]) -> Result<Typed, FlagError> {
    let mut typed = Typed::default();
    let mut at = 0;
    while let Some(arg) = args.get(at) {
        let next = args.get(at + 1);
        if arg == "--" {
            typed.extra.extend_from_slice(&args[at + 1..]);
            break;
        }
        at += if let Some(long) = arg.strip_prefix("--") {
            read_long(grammar, long, next, &mut typed, at)?
        } else if let Some(short) = arg.strip_prefix('-').filter(|short| !short.is_empty()) {
            read_short(grammar, short, next, &mut typed, at)?
        } else {
            typed.positional.push(arg.clone());
            1
        };
    }
    Ok(typed)
}

/// Parses `--name`, `--name=value` or `--name value`; returns the number of consumed arguments.
fn read_long(
    grammar: &CommandGrammar,
    long: &str,
    next: Option<&String>,
    typed: &mut Typed,
    at: usize,
) -> Result<usize, FlagError> {
    let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
    let Some(flag) = grammar.flags.iter().find(|flag| flag.long == name) else {
        if name == "help" {
            return Err(FlagError::Help);
        }
        return Err(FlagError::Unknown { what: format!("unknown flag --{name}"), at });
    };
    let (value, used) = match (flag.value, value, next) {
        (None, None, _) => ("true", 1),
        (None, Some(value), _) => (switch(flag, value)?, 1),
        (Some(_), Some(value), _) => (value, 1),
        (Some(_), None, Some(next)) => (next.as_str(), 2),
        (Some(_), None, None) => return Err(needs_value(flag, &format!("--{name}"))),
    };
    typed.values.push((flag.flag, value.to_owned()));
    Ok(used)
}

/// Parses `-wvalue`, `-w=value` or `-w value`; returns the number of consumed arguments.
fn read_short(
    grammar: &CommandGrammar,
    short: &str,
    next: Option<&String>,
    typed: &mut Typed,
    at: usize,
) -> Result<usize, FlagError> {
    let name = short.split('=').next().unwrap_or(short);
    if grammar.flags.iter().any(|flag| flag.long == name) {
        return Err(FlagError::Wrong(format!("-{name} needs two dashes: --{name}")));
    }
    let Some(letter) = short.chars().next() else { return Ok(1) };
    let rest = &short[letter.len_utf8()..];
    let Some(flag) = grammar.flags.iter().find(|flag| flag.short == Some(letter)) else {
        if letter == 'h' {
            return Err(FlagError::Help);
        }
        return Err(FlagError::Unknown { what: format!("unknown flag -{letter} in -{short}"), at });
    };
    let (value, used) = match (rest, next) {
        ("", Some(next)) => (next.as_str(), 2),
        ("", None) => return Err(needs_value(flag, &format!("-{letter}"))),
        _ => (rest.strip_prefix('=').unwrap_or(rest), 1),
    };
    typed.values.push((flag.flag, value.to_owned()));
    Ok(used)
}

fn needs_value(flag: &FlagSpec, typed: &str) -> FlagError {
    FlagError::Wrong(format!("{typed} needs a value: {typed} {}", flag.value.unwrap_or_default()))
}

/// Parses a boolean as Go does.
fn switch(flag: &FlagSpec, value: &str) -> Result<&'static str, FlagError> {
    match value {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok("true"),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok("false"),
        _ => Err(FlagError::Wrong(format!("--{} is true or false", flag.long))),
    }
}
