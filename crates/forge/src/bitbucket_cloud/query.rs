//! The language of `q` and `sort` (developer.atlassian.com/cloud/bitbucket/rest/intro, "Filtering and sorting"), on the JSON of rows.

use super::{Refusal, Result};
use serde_json::Value;
use std::cmp::Ordering;

/// Filters rows by an expression, and sorts them by a field, downwards after a `-`.
pub(super) fn select(mut rows: Vec<Value>, q: Option<&str>, sort: Option<&str>) -> Result<Vec<Value>> {
    if let Some(q) = q {
        let expression = Expression::parse(q)?;
        let mut kept = Vec::new();
        for row in rows {
            if expression.holds(&row)? {
                kept.push(row);
            }
        }
        rows = kept;
    }
    if let Some(sort) = sort {
        let (field, is_down) = sort.strip_prefix('-').map_or((sort, false), |field| (field, true));
        rows.sort_by(|one, other| {
            let order = order(&value_of(one, field), &value_of(other, field)).unwrap_or(Ordering::Equal);
            if is_down { order.reverse() } else { order }
        });
    }
    Ok(rows)
}

enum Expression {
    All(Vec<Expression>),
    Any(Vec<Expression>),
    Compare { field: String, operator: String, literal: Value },
}

impl Expression {
    fn parse(text: &str) -> Result<Expression> {
        let tokens = tokens(text).ok_or_else(|| malformed(text))?;
        let mut rest = tokens.as_slice();
        let expression = any(&mut rest).filter(|_| rest.is_empty());
        expression.ok_or_else(|| malformed(text))
    }

    fn holds(&self, row: &Value) -> Result<bool> {
        match self {
            Expression::All(parts) => {
                for part in parts {
                    if !part.holds(row)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Expression::Any(parts) => {
                for part in parts {
                    if part.holds(row)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Expression::Compare { field, operator, literal } => {
                // khbb: 400 "does not support filtering" for participants.
                if field.starts_with("participants") {
                    return Err(Refusal::invalid(format!("{field} does not support filtering")));
                }
                Ok(compare(&value_of(row, field), operator, literal))
            }
        }
    }
}

fn malformed(text: &str) -> Refusal {
    Refusal::invalid(format!("Invalid query: {text}"))
}

/// A field of a row by its dotted name; null if the row has none.
fn value_of(row: &Value, field: &str) -> Value {
    row.pointer(&format!("/{}", field.replace('.', "/"))).cloned().unwrap_or_default()
}

fn compare(value: &Value, operator: &str, literal: &Value) -> bool {
    let contains = || {
        let (Some(text), Some(part)) = (value.as_str(), literal.as_str()) else { return false };
        text.to_lowercase().contains(&part.to_lowercase())
    };
    let is = |wanted: &[Ordering]| order(value, literal).is_some_and(|order| wanted.contains(&order));
    match operator {
        "=" => value == literal || is(&[Ordering::Equal]),
        "!=" => value != literal && !is(&[Ordering::Equal]),
        "~" => contains(),
        "!~" => !contains(),
        ">" => is(&[Ordering::Greater]),
        ">=" => is(&[Ordering::Greater, Ordering::Equal]),
        "<" => is(&[Ordering::Less]),
        _ => is(&[Ordering::Less, Ordering::Equal]),
    }
}

/// Compares times, numbers and texts.
fn order(one: &Value, other: &Value) -> Option<Ordering> {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one.as_f64()?.partial_cmp(&other.as_f64()?),
        (Value::String(one), Value::String(other)) => match (time(one), time(other)) {
            (Some(one), Some(other)) => Some(one.cmp(&other)),
            _ => Some(one.cmp(other)),
        },
        _ => None,
    }
}

/// A time, or the beginning of a day.
fn time(text: &str) -> Option<jiff::Timestamp> {
    text.parse().ok().or_else(|| format!("{text}T00:00:00Z").parse().ok())
}

/// Words, operators, parentheses and quoted texts. A quoted text keeps its first quote as a mark.
fn tokens(text: &str) -> Option<Vec<String>> {
    let mut found = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(first) = chars.next() {
        let mut token = String::from(first);
        match first {
            ' ' | '\n' | '\t' => continue,
            '(' | ')' => {}
            '"' => loop {
                match chars.next()? {
                    '"' => break,
                    '\\' => token.push(chars.next()?),
                    other => token.push(other),
                }
            },
            '=' | '!' | '<' | '>' | '~' => {
                while let Some(next) = chars.next_if(|c| "=~".contains(*c)) {
                    token.push(next);
                }
            }
            _ => {
                while let Some(next) = chars.next_if(|c| !c.is_whitespace() && !"()=!<>~\"".contains(*c)) {
                    token.push(next);
                }
            }
        }
        found.push(token);
    }
    Some(found)
}

fn next<'a>(rest: &mut &'a [String]) -> Option<&'a str> {
    let (first, tail) = rest.split_first()?;
    *rest = tail;
    Some(first)
}

fn any(rest: &mut &[String]) -> Option<Expression> {
    let mut parts = vec![all(rest)?];
    while rest.first().is_some_and(|token| token.eq_ignore_ascii_case("or")) {
        next(rest)?;
        parts.push(all(rest)?);
    }
    Some(Expression::Any(parts))
}

fn all(rest: &mut &[String]) -> Option<Expression> {
    let mut parts = vec![one(rest)?];
    while rest.first().is_some_and(|token| token.eq_ignore_ascii_case("and")) {
        next(rest)?;
        parts.push(one(rest)?);
    }
    Some(Expression::All(parts))
}

fn one(rest: &mut &[String]) -> Option<Expression> {
    let field = next(rest)?;
    if field == "(" {
        let inner = any(rest)?;
        return (next(rest)? == ")").then_some(inner);
    }
    let operator = next(rest)?;
    let literal = match next(rest)? {
        word if word.starts_with('"') => Value::String(word.trim_start_matches('"').to_owned()),
        // Texts must be quoted; times, numbers and three words need not.
        word => match serde_json::from_str(word) {
            Ok(value) => value,
            Err(_) => Value::String(time(word).map(|_| word.to_owned())?),
        },
    };
    let is_known = ["=", "!=", "~", "!~", ">", ">=", "<", "<="].contains(&operator);
    is_known.then(|| Expression::Compare { field: field.to_owned(), operator: operator.to_owned(), literal })
}
