//! Tags of projects, and the queries of `--tag`.
//!
//! ```text
//! QUERY = ALL { "or" ALL }
//! ALL   = ONE { "and" ONE }
//! ONE   = "not" ONE | "(" QUERY ")" | TAG
//! ```
//!
//! A tag is compared whole: a colon, as in `env:prod`, is a character like any other. The words `and`, `or` and `not` are
//! recognized in any case.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Most tags of one project.
pub const MAX_TAGS: usize = 50;
/// Longest tag, in characters.
pub const MAX_TAG: usize = 100;
/// Most tags, operators and parentheses of a query.
const MAX_TOKENS: usize = 100;
/// Deepest nesting of parentheses and `not` in a query.
const MAX_DEPTH: usize = 20;
const OPERATORS: [&str; 3] = ["and", "or", "not"];

/// Returns the error in a tag, after the tag in a sentence; `None` if it is valid.
pub fn tag_problem(tag: &str) -> Option<String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.:/@+=".contains(c);
    if OPERATORS.iter().any(|word| word.eq_ignore_ascii_case(tag)) {
        return Some("is a word of tag queries".to_owned());
    }
    if tag.len() > MAX_TAG {
        return Some(format!("is longer than {MAX_TAG} characters"));
    }
    if !tag.starts_with(|c: char| c.is_ascii_alphanumeric()) || !tag.chars().all(allowed) {
        let what = "is no tag: a tag begins with a letter or digit, and consists of letters, digits and `-_.:/@+=`";
        return Some(what.to_owned());
    }
    None
}

/// A parsed query. Its text is the shortest form: [`fmt::Display`] writes it, and parsing that gives an equal query.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum TagQuery {
    /// The project has this tag.
    Tag(String),
    /// The query does not hold.
    Not(Box<TagQuery>),
    /// All hold: two or more, none of which is `All` itself.
    All(Vec<TagQuery>),
    /// At least one holds: two or more, none of which is `Any` itself.
    Any(Vec<TagQuery>),
}

impl TagQuery {
    /// Returns true if the query holds for a project with these tags.
    pub fn holds(&self, tags: &[String]) -> bool {
        match self {
            TagQuery::Tag(tag) => tags.contains(tag),
            TagQuery::Not(query) => !query.holds(tags),
            TagQuery::All(queries) => queries.iter().all(|query| query.holds(tags)),
            TagQuery::Any(queries) => queries.iter().any(|query| query.holds(tags)),
        }
    }

    /// Returns all tags that the query names, in order.
    pub fn tags(&self) -> Vec<&str> {
        match self {
            TagQuery::Tag(tag) => vec![tag],
            TagQuery::Not(query) => query.tags(),
            TagQuery::All(queries) | TagQuery::Any(queries) => queries.iter().flat_map(TagQuery::tags).collect(),
        }
    }
}

impl fmt::Display for TagQuery {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inside = |query: &TagQuery, needs_parentheses: bool| match needs_parentheses {
            true => format!("({query})"),
            false => query.to_string(),
        };
        let is_any = |query: &TagQuery| matches!(query, TagQuery::Any(_));
        match self {
            TagQuery::Tag(tag) => to.write_str(tag),
            TagQuery::Not(query) => {
                write!(to, "not {}", inside(query, is_any(query) || matches!(**query, TagQuery::All(_))))
            }
            TagQuery::All(queries) => {
                let parts: Vec<String> = queries.iter().map(|query| inside(query, is_any(query))).collect();
                to.write_str(&parts.join(" and "))
            }
            TagQuery::Any(queries) => {
                let parts: Vec<String> = queries.iter().map(TagQuery::to_string).collect();
                to.write_str(&parts.join(" or "))
            }
        }
    }
}

impl From<TagQuery> for String {
    fn from(query: TagQuery) -> String {
        query.to_string()
    }
}

impl TryFrom<String> for TagQuery {
    type Error = String;

    fn try_from(text: String) -> Result<TagQuery, String> {
        text.parse()
    }
}

impl FromStr for TagQuery {
    type Err = String;

    /// Parses a query; the error is for people, after the name of the flag.
    fn from_str(text: &str) -> Result<TagQuery, String> {
        let spaced = text.replace('(', " ( ").replace(')', " ) ");
        let tokens: Vec<&str> = spaced.split_whitespace().take(MAX_TOKENS + 1).collect();
        if tokens.len() > MAX_TOKENS {
            return Err(format!("has more than {MAX_TOKENS} words and parentheses"));
        }
        let mut parser = QueryParser { tokens: &tokens, depth: 0 };
        let query = parser.any()?;
        match parser.tokens.first() {
            None => Ok(query),
            Some(&")") => Err("has a `)` too many".to_owned()),
            Some(other) => Err(format!("needs `and` or `or` before `{}`", clip(other))),
        }
    }
}

/// Tokens that are left, and the nesting before them.
struct QueryParser<'a> {
    tokens: &'a [&'a str],
    depth: usize,
}

impl QueryParser<'_> {
    fn any(&mut self) -> Result<TagQuery, String> {
        let mut parts = Vec::new();
        loop {
            match self.all()? {
                TagQuery::Any(inner) => parts.extend(inner),
                other => parts.push(other),
            }
            if !self.take("or") {
                return Ok(one_or(parts, TagQuery::Any));
            }
        }
    }

    fn all(&mut self) -> Result<TagQuery, String> {
        let mut parts = Vec::new();
        loop {
            match self.one()? {
                TagQuery::All(inner) => parts.extend(inner),
                other => parts.push(other),
            }
            if !self.take("and") {
                return Ok(one_or(parts, TagQuery::All));
            }
        }
    }

    fn one(&mut self) -> Result<TagQuery, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("is nested more than {MAX_DEPTH} times"));
        }
        let query = self.at_depth();
        self.depth -= 1;
        query
    }

    fn at_depth(&mut self) -> Result<TagQuery, String> {
        if self.take("not") {
            return Ok(TagQuery::Not(Box::new(self.one()?)));
        }
        if self.take("(") {
            let query = self.any()?;
            return if self.take(")") { Ok(query) } else { Err("has a `(` that is not closed".to_owned()) };
        }
        let Some((tag, rest)) = self.tokens.split_first() else {
            return Err("ends where a tag is expected".to_owned());
        };
        if [")", "and", "or"].iter().any(|word| word.eq_ignore_ascii_case(tag)) {
            return Err(format!("has `{tag}` where a tag is expected"));
        }
        if tag.contains(',') {
            return Err(format!("has a comma in `{}`: write `or` or `and` between tags", clip(tag)));
        }
        if let Some(problem) = tag_problem(tag) {
            return Err(format!("is wrong: `{}` {problem}", clip(tag)));
        }
        self.tokens = rest;
        Ok(TagQuery::Tag((*tag).to_owned()))
    }

    /// Takes a word or parenthesis, if it is the next token.
    fn take(&mut self, word: &str) -> bool {
        let is_next = self.tokens.first().is_some_and(|token| token.eq_ignore_ascii_case(word));
        if is_next {
            self.tokens = &self.tokens[1..];
        }
        is_next
    }
}

fn one_or(mut parts: Vec<TagQuery>, several: fn(Vec<TagQuery>) -> TagQuery) -> TagQuery {
    match parts.pop() {
        Some(only) if parts.is_empty() => only,
        last => {
            parts.extend(last);
            several(parts)
        }
    }
}

/// Returns the beginning of a typed word, without backticks, which would end inline code.
fn clip(word: &str) -> String {
    word.chars().take(MAX_TAG).map(|c| if c == '`' { '\'' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(text: &str) -> Result<String, String> {
        text.parse::<TagQuery>().map(|query| query.to_string())
    }

    #[test]
    fn queries_hold_for_tags() {
        let tags = ["env:prod", "team:core", "legacy"].map(str::to_owned);
        for (query, expected) in [
            ("env:prod", true),
            ("env:dev", false),
            ("env", false),
            ("ENV:PROD", false),
            ("not env:dev", true),
            ("not not legacy", true),
            ("env:prod and team:core", true),
            ("env:prod and team:web", false),
            ("env:dev or legacy", true),
            ("env:dev or team:web and legacy", false),
            ("(env:dev or legacy) and team:core", true),
            ("not (env:dev or legacy)", false),
            ("not env:dev and legacy", true),
            ("NOT env:dev AND (legacy OR x)", true),
        ] {
            assert_eq!(query.parse::<TagQuery>().unwrap().holds(&tags), expected, "{query}");
        }
        assert_eq!("a and not (b or a)".parse::<TagQuery>().unwrap().tags(), ["a", "b", "a"]);
    }

    #[test]
    fn the_text_is_the_shortest_form() {
        for (typed, text) in [
            ("a", "a"),
            ("  ((a))  ", "a"),
            ("(a)AND(b)", "a and b"),
            ("a and (b and c)", "a and b and c"),
            ("(a or b) or c", "a or b or c"),
            ("(a and b) or c", "a and b or c"),
            ("a and (b or c)", "a and (b or c)"),
            ("not(a and b)", "not (a and b)"),
            ("not not a", "not not a"),
        ] {
            assert_eq!(parsed(typed).unwrap(), text, "{typed}");
        }
    }

    #[test]
    fn wrong_queries_are_named() {
        let deep = format!("{}a{}", "(".repeat(21), ")".repeat(21));
        let long = "a or ".repeat(50) + "a";
        for (typed, error) in [
            ("", "ends where a tag is expected"),
            ("a and", "ends where a tag is expected"),
            ("and a", "has `and` where a tag is expected"),
            ("()", "has `)` where a tag is expected"),
            ("a b", "needs `and` or `or` before `b`"),
            ("(a", "has a `(` that is not closed"),
            ("a)", "has a `)` too many"),
            ("a,b", "has a comma in `a,b`: write `or` or `and` between tags"),
            ("env:*", "is wrong: `env:*` is no tag"),
            ("-a", "is wrong: `-a` is no tag"),
            (&deep, "is nested more than 20 times"),
            (&"not ".repeat(21), "is nested more than 20 times"),
            (&long, "has more than 100 words and parentheses"),
            (&"a".repeat(101), "is longer than 100 characters"),
        ] {
            assert!(parsed(typed).unwrap_err().contains(error), "{typed}: {:?}", parsed(typed));
        }
    }

    fn typed() -> impl Strategy<Value = String> {
        let tag = "[a-c]{1,2}(:[a-c])?";
        tag.prop_recursive(4, 30, 4, |inner| {
            prop_oneof![
                inner.clone().prop_map(|one| format!("not {one}")),
                inner.clone().prop_map(|one| format!("({one})")),
                prop::collection::vec(inner.clone(), 2..4).prop_map(|all| all.join(" and ")),
                prop::collection::vec(inner, 2..4).prop_map(|all| all.join(" or ")),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_parsed_query_prints_back_and_parses_equal(typed in typed()) {
            // Longer ones than a query may be are refused.
            if let Ok(query) = typed.parse::<TagQuery>() {
                prop_assert_eq!(query.to_string().parse::<TagQuery>(), Ok(query));
            }
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in r"(\PC|and|or|not|[ ()a,:]){0,60}") {
            if let Ok(query) = text.parse::<TagQuery>() {
                prop_assert_eq!(query.to_string().parse::<TagQuery>(), Ok(query));
            }
        }
    }
}
