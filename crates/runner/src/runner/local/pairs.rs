//! Parses the output of `env` and `multienv` steps: values of variables, byte for byte. They may be secrets, so no message quotes one.

/// Longest variable that Linux accepts, in bytes: name, `=`, value and a final zero (MAX_ARG_STRLEN).
const LONGEST: usize = 128 << 10;

/// Returns the value that an `env` step's command printed, without one final newline.
pub(super) fn value(name: &str, printed: &[u8]) -> Result<String, String> {
    let value = printed.strip_suffix(b"\n").unwrap_or(printed);
    let value = std::str::from_utf8(value).map_err(|_| format!("the value of `{name}` is not UTF-8"))?;
    check(name, value)?;
    Ok(value.to_owned())
}

/// Parses comma-separated `NAME=value` pairs. A value in double quotes may have commas and `\"`. One in single quotes ends at the first
/// quote that has no backslash before it. Every other backslash is literal.
pub(super) fn pairs(printed: &[u8]) -> Result<Vec<(String, String)>, String> {
    let text = std::str::from_utf8(printed).map_err(|_| "what it printed is not UTF-8".to_owned())?;
    let mut pairs = Vec::new();
    let mut rest = text.trim_start().trim_end_matches('\n');
    while !rest.trim().is_empty() {
        let place = || format!("pair {} of what it printed", pairs.len() + 1);
        let (name, tail) =
            rest.split_once('=').ok_or_else(|| format!("{} has no `=`: print NAME=value,NAME2=value2", place()))?;
        let name = name.trim();
        if name.is_empty() || name.contains([',', ' ', '\t', '\n', '"', '\'', '\0']) {
            return Err(format!("{} has no name of a variable before its `=`", place()));
        }
        let (value, left) = match tail.chars().next() {
            Some(quote @ ('"' | '\'')) => quoted(name, &tail[1..], quote)?,
            _ => tail.split_once(',').map_or((tail.to_owned(), ""), |(value, left)| (value.to_owned(), left)),
        };
        check(name, &value)?;
        pairs.push((name.to_owned(), value));
        rest = left;
    }
    Ok(pairs)
}

/// Returns the quoted value of this variable, and the text after its comma.
fn quoted<'t>(name: &str, text: &'t str, quote: char) -> Result<(String, &'t str), String> {
    let mut value = String::new();
    let mut letters = text.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' if letters.next_if(|(_, next)| *next == quote).is_some() => {
                if quote == '\'' {
                    value.push(letter);
                }
                value.push(quote);
            }
            _ if letter == quote => {
                let left = text[at + 1..].trim_start();
                return match left.strip_prefix(',') {
                    Some(left) => Ok((value, left)),
                    None if left.is_empty() => Ok((value, "")),
                    None => Err(format!("text follows the closing quote of `{name}`")),
                };
            }
            _ => value.push(letter),
        }
    }
    Err(format!("the quote of `{name}` is not closed"))
}

/// Refuses values that no environment can hold.
fn check(name: &str, value: &str) -> Result<(), String> {
    if value.contains('\0') {
        return Err(format!("the value of `{name}` has a zero byte, which no variable can have"));
    }
    let bytes = name.len() + value.len() + 2;
    if bytes > LONGEST {
        return Err(format!(
            "the value of `{name}` is too long for a variable: {bytes} bytes, and {LONGEST} is the most"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(String, String)> {
        pairs(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn pairs_may_be_quoted() {
        let want = [("A", "1"), ("B", "x, \"y\""), ("C", "m b"), ("D", "")];
        let want = want.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(found("A=1,B=\"x, \\\"y\\\"\",C='m b',D=\n"), want);
        assert_eq!(found(" \n"), []);
        for bad in ["A", "A=\"x", "=1", "A='x'y", "A=1,B", "A B=1", "A='x\\'", "A=\0"] {
            assert!(pairs(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(pairs(b"A=\xff").is_err());
    }

    #[test]
    fn values_are_taken_as_atlantis_takes_them() {
        for (text, value) in [
            ("KEY=value", "value"),
            ("KEY==", "="),
            (r#"KEY="'""#, "'"),
            (r#"KEY="""#, ""),
            (r#"KEY="va\"l\"ue""#, r#"va"l"ue"#),
            (r#"KEY='va"l"ue'"#, r#"va"l"ue"#),
            ("KEY=a'b", "a'b"),
            (r"KEY='a\'b'", r"a\'b"),
            ("KEY=\"bar\nbaz\"", "bar\nbaz"),
            (r#"KEY="foo='bar',lorem=ipsum""#, "foo='bar',lorem=ipsum"),
            (r#"KEY="{\"ID\":1,\"Colors\":[\"Red\",\"Ruby\"]}""#, r#"{"ID":1,"Colors":["Red","Ruby"]}"#),
        ] {
            assert_eq!(found(text), [("KEY".to_owned(), value.to_owned())], "{text}");
        }
    }

    #[test]
    fn no_backslash_and_no_white_space_of_a_value_is_eaten() {
        for (text, value) in [
            (r#"KEY="C:\new\\table \$x""#, r"C:\new\\table \$x"),
            (r"KEY='C:\new\\table'", r"C:\new\\table"),
            (r"KEY=C:\new\table\", r"C:\new\table\"),
            ("KEY= a b \n", " a b "),
            ("KEY=\" a \"\n", " a "),
        ] {
            assert_eq!(found(text), [("KEY".to_owned(), value.to_owned())], "{text}");
        }
        assert_eq!(value("KEY", b" C:\\new\r\n\n").unwrap(), " C:\\new\r\n");
    }

    #[test]
    fn what_no_environment_can_hold_is_refused_without_quoting_it() {
        let long = "s3cret".repeat(LONGEST / 6 + 1);
        for error in [
            value("KEY", long.as_bytes()).unwrap_err(),
            value("KEY", b"s3cret\0").unwrap_err(),
            pairs(format!("KEY={long}").as_bytes()).unwrap_err(),
            pairs(b"KEY=\"s3cret").unwrap_err(),
            pairs(b"KEY='s3cret's3cret").unwrap_err(),
            pairs(b"KEY=1,s3cret").map_err(|error| error + " KEY").unwrap_err(),
        ] {
            assert!(error.contains("KEY") && !error.contains("s3cret"), "{error}");
        }
        let fits = "x".repeat(LONGEST - "KEY=".len() - 1);
        assert_eq!(value("KEY", fits.as_bytes()).unwrap(), fits);
    }
}
