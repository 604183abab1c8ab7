//! Counts of what makes code hard to read. None of them may grow: lower a ceiling when its count has fallen.

use super::{PLAYS_ANOTHER, files, without_comments};
use regex::Regex;

/// Parameters that are bools where an enum or two functions would say which is which.
const BOOLS: usize = 45;
/// Functions of traits of other crates, which take a bool as it is.
const TAKE_A_VALUE: [&str; 2] = ["visit_bool", "record_bool"];
/// Parameters that are tuples.
const TUPLES: usize = 8;
/// Results inside of results.
const NESTED_RESULTS: usize = 2;
/// Doc comments that begin with a question in place of a statement.
const QUESTIONS: usize = 145;

/// Returns the parameters of every function of a text as they are written, each with the function's name.
fn parameters(code: &str) -> Vec<(String, String)> {
    let name = Regex::new(r"\bfn (\w+)").unwrap();
    let mut found = Vec::new();
    for function in name.captures_iter(code) {
        let after = &code[function.get(0).unwrap().end()..];
        let Some(list) = in_parentheses(after) else { continue };
        let all = at_commas(list).into_iter().filter(|parameter| parameter.contains(':'));
        found.extend(all.map(|parameter| (function[1].to_owned(), parameter)));
    }
    found
}

/// Returns what stands in the first parentheses that are not in angle brackets.
fn in_parentheses(text: &str) -> Option<&str> {
    let (mut angles, mut depth, mut start, mut before) = (0, 0, 0, ' ');
    for (at, c) in text.char_indices() {
        match c {
            '<' if depth == 0 => angles += 1,
            '>' if depth == 0 && before != '-' => angles -= 1,
            '(' if angles == 0 => {
                depth += 1;
                if depth == 1 {
                    start = at + 1;
                }
            }
            ')' if angles == 0 => {
                depth -= 1;
                if depth == 0 {
                    return Some(&text[start..at]);
                }
            }
            '{' | ';' if angles == 0 && depth == 0 => return None,
            _ => {}
        }
        before = c;
    }
    None
}

/// Splits a list at its commas outside of all brackets.
fn at_commas(list: &str) -> Vec<String> {
    let (mut parts, mut depth, mut before) = (vec![String::new()], 0, ' ');
    for c in list.chars() {
        match c {
            '(' | '[' | '{' | '<' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            '>' if before != '-' => depth -= 1,
            _ => {}
        }
        match (c, depth) {
            (',', 0) => parts.push(String::new()),
            _ => parts.last_mut().unwrap().push(c),
        }
        before = c;
    }
    parts.into_iter().map(|part| part.trim().to_owned()).collect()
}

#[test]
fn what_makes_code_hard_to_read_does_not_grow() {
    let bool = Regex::new(r"^(?:mut )?\w+: bool$").unwrap();
    let tuple = Regex::new(r"(?s)^[^:]+: &?(?:mut )?\(.*,.*\)$").unwrap();
    let nested = Regex::new(r"\bResult<\s*Result<").unwrap();
    let question = Regex::new(r"(?m)^\s*//[/!] (?:What|Whether|Where|Who|Whose|Whom|Why|When|How|Which)\b").unwrap();
    let (mut bools, mut tuples, mut results, mut questions) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (path, text) in files().iter().filter(|(path, _)| PLAYS_ANOTHER.iter().all(|start| !path.starts_with(start))) {
        questions.extend(question.find_iter(text).map(|found| format!("{path}: {}", found.as_str().trim())));
        let code = without_comments(text);
        results.extend(nested.find_iter(&code).map(|_| path.clone()));
        for (function, parameter) in parameters(&code) {
            let place = format!("{path}: {function}({parameter})");
            match parameter.as_str() {
                one if bool.is_match(one) && !TAKE_A_VALUE.contains(&function.as_str()) => bools.push(place),
                one if tuple.is_match(one) => tuples.push(place),
                _ => {}
            }
        }
    }
    for (what, found, ceiling) in [
        ("bool parameters", bools, BOOLS),
        ("tuples as parameters", tuples, TUPLES),
        ("results inside of results", results, NESTED_RESULTS),
        ("doc comments that begin with a question", questions, QUESTIONS),
    ] {
        assert!(found.len() <= ceiling, "{} {what}, of at most {ceiling}:\n{}", found.len(), found.join("\n"));
    }
}

#[test]
fn parameters_are_read_as_they_are_written() {
    let code = "fn a<F: Fn(u8) -> bool>(x: &str, f: F, (a, b): (u8, bool), on: bool) -> u8 {}\nfn b();";
    let found: Vec<String> =
        parameters(code).into_iter().map(|(name, parameter)| format!("{name} {parameter}")).collect();
    assert_eq!(found, ["a x: &str", "a f: F", "a (a, b): (u8, bool)", "a on: bool"]);
}
