//! `regex.match` of policies. The engine's own function copies the expression for each match, and the copy allocates its memory again,
//! which takes several times as long as the match.

use anyhow::bail;
use regex::{Error, Regex, RegexBuilder};
use regorus::{Extension, Value};
use std::collections::HashMap;

/// Largest compiled expression, in bytes: the engine's own limit.
const SIZE_LIMIT: usize = 100 << 10;
/// Most expressions that are kept compiled.
const MAX_KEPT: usize = 256;

/// Returns the function that replaces the engine's own. Its result is undefined if an argument is not a string, or not a valid expression.
pub(super) fn regex_match() -> Box<dyn Extension> {
    let mut known: HashMap<String, Option<Regex>> = HashMap::new();
    Box::new(move |arguments: Vec<Value>| {
        let [Value::String(pattern), Value::String(text)] = arguments.as_slice() else { return Ok(Value::Undefined) };
        if !known.contains_key(pattern.as_ref()) {
            let made = match RegexBuilder::new(pattern).size_limit(SIZE_LIMIT).build() {
                Err(Error::CompiledTooBig(_)) => bail!("the regular expression is larger than {SIZE_LIMIT} bytes"),
                made => made.ok(),
            };
            if known.len() >= MAX_KEPT {
                known.clear();
            }
            known.insert(pattern.to_string(), made);
        }
        let regex = known.get(pattern.as_ref()).and_then(Option::as_ref);
        Ok(regex.map_or(Value::Undefined, |regex| Value::from(regex.is_match(text))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evaluate(pattern: Value, text: Value) -> Value {
        regex_match()(vec![pattern, text]).unwrap()
    }

    #[test]
    fn it_matches_and_is_undefined_where_something_is_wrong() {
        let text = |text: &str| Value::from(text);
        assert_eq!(evaluate(text("^a+$"), text("aa")), Value::from(true));
        assert_eq!(evaluate(text("^a+$"), text("ab")), Value::from(false));
        assert_eq!(evaluate(text("("), text("a")), Value::Undefined);
        assert_eq!(evaluate(text("a"), Value::from(1_u64)), Value::Undefined);
        let large = vec![text("(a{100}){100}"), text("a")];
        assert!(regex_match()(large).unwrap_err().to_string().contains("larger than"));
        // More expressions than are kept.
        let mut matches = regex_match();
        for number in 0..2 * MAX_KEPT {
            let arguments = vec![Value::from(format!("^{number}$")), Value::from(number.to_string())];
            assert_eq!(matches(arguments).unwrap(), Value::from(true));
        }
    }
}
