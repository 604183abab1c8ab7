//! Masks secrets in text, including base64 and percent-encoded forms.

use aho_corasick::AhoCorasick;
use base64::Engine;
use base64::prelude::{BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD};
use regex::Regex;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt::Write;
use std::ops::Range;
use std::sync::Arc;

/// Replacement of a secret.
pub const MASK: &str = "<redacted>";
/// Shortest value that is masked, in bytes: masking shorter ones would mask much of every text.
pub const SHORTEST_SECRET: usize = 4;
/// Shortest value that is searched in base64. Of a shorter one, too few characters are left between the edges.
const SHORTEST_ENCODED: usize = 12;
/// Shortest part of a value that is masked alone, in bytes: a text in a value that is JSON, and words of a value that a program wraps.
const SHORTEST_PART: usize = 8;
/// Shortest word of a value that is masked alone if it has letters only, in bytes: a shorter one may be a common word.
const SHORTEST_WORD: usize = 16;
/// Keys of JSON whose texts say what or where something is, as in keys of Google's service accounts and secrets of databases on AWS. Masked
/// alone, these texts would hide types, addresses and names in plans.
const TELLING: [&str; 17] = [
    "type",
    "project_id",
    "quota_project_id",
    "universe_domain",
    "auth_uri",
    "token_uri",
    "auth_provider_x509_cert_url",
    "client_x509_cert_url",
    "client_email",
    "client_id",
    "audience",
    "subject_token_type",
    "engine",
    "host",
    "dbname",
    "dbInstanceIdentifier",
    "username",
];
/// Longest line whose beginnings and ends are masked alone, in bytes. Of a longer one, only words are.
const LONGEST_WRAPPED: usize = 1 << 10;
/// Deepest part of a value that is JSON.
const DEEPEST: usize = 16;
/// Lengths of the lines into which programs break base64, in characters: that of PEM, and that of `base64`.
const BASE64_COLUMNS: [usize; 2] = [64, 76];
/// Most bytes of all forms of all secrets that are searched at once. A finder for more would be large and slow to build.
const MOST_JOINED: usize = 256 << 10;
/// Most matches of patterns in a line. A line with more is masked as a whole: each search may read all of it.
const MAX_MATCHES: usize = 1000;

/// Masks secrets in every stream.
#[derive(Clone, Default)]
pub struct Redactor {
    needles: Arc<Vec<SecretString>>,
    /// Find them all at once, one for each addition; absent if they are too many to be joined.
    finders: Option<Vec<Arc<AhoCorasick>>>,
    patterns: Option<Arc<Masks>>,
    /// [`Masks::plain`], also if the patterns do not apply.
    plain: Option<fn(&str) -> String>,
}

/// Patterns of what is masked in a line.
pub struct Masks {
    /// The patterns.
    pub regexes: Vec<Regex>,
    /// Removes colours, which may part a value, or what a pattern matches.
    pub plain: fn(&str) -> String,
    /// Returns true for a line that no pattern masks.
    pub spares: fn(&str) -> bool,
}

impl Redactor {
    /// Masks each of these secrets anywhere in a line, also across chunks: unchanged, percent-encoded, as a text of JSON or HCL, and in base64
    /// with any prefix (`user:token`). Of a secret with several lines each line is masked. Values shorter than four bytes are not masked.
    pub fn new(secrets: Vec<SecretString>) -> Redactor {
        Redactor::default().with(secrets)
    }

    /// Returns a redactor that also masks these secrets.
    pub fn with(&self, secrets: Vec<SecretString>) -> Redactor {
        let mut needles: Vec<String> = Vec::new();
        for secret in &secrets {
            add_lines(secret.expose_secret(), SHORTEST_SECRET, &mut needles);
        }
        self.with_needles(needles)
    }

    /// Returns a redactor that also masks these secrets, and what programs show of them in parts: each text in one that is JSON, and parts
    /// of one between breaks of lines.
    pub fn with_parts(&self, secrets: Vec<SecretString>) -> Redactor {
        let mut needles: Vec<String> = Vec::new();
        for secret in &secrets {
            let secret = secret.expose_secret();
            add_lines(secret, SHORTEST_SECRET, &mut needles);
            needles.extend(in_columns_of_base64(secret));
            match serde_json::from_str(secret) {
                Ok(value @ (Value::Object(_) | Value::Array(_))) => add_parts(&value, DEEPEST, &mut needles),
                // Lines of a longer value are masked as such; their words are headings of PEM and keys of YAML.
                _ if secret.trim().lines().count() == 1 => needles.extend(wrapped(secret)),
                _ => {}
            }
        }
        self.with_needles(needles)
    }

    fn with_needles(&self, mut more: Vec<String>) -> Redactor {
        more.sort();
        more.dedup();
        if more.is_empty() {
            return self.clone();
        }
        let is_joined = more.iter().map(String::len).sum::<usize>() <= MOST_JOINED;
        let finder = is_joined.then(|| AhoCorasick::new(&more)).and_then(Result::ok).map(Arc::new);
        let needles: Vec<SecretString> =
            more.into_iter().map(SecretString::from).chain(self.needles.iter().cloned()).collect();
        let known = if self.needles.is_empty() { Some(Vec::new()) } else { self.finders.clone() };
        let finders = known.zip(finder).map(|(known, finder)| known.into_iter().chain([finder]).collect());
        Redactor { needles: Arc::new(needles), finders, ..self.clone() }
    }

    /// Returns a redactor that masks what these patterns match too.
    pub fn with_masks(&self, masks: Masks) -> Redactor {
        let plain = Some(masks.plain);
        let patterns = (!masks.regexes.is_empty()).then(|| Arc::new(masks));
        Redactor { patterns, plain, ..self.clone() }
    }

    /// Returns a redactor that masks secrets, and nothing because of a pattern. What it leaves can be compared, and decided on: a pattern may
    /// match any text.
    pub fn without_masks(&self) -> Redactor {
        Redactor { patterns: None, ..self.clone() }
    }

    /// Returns the text with secrets replaced by `<redacted>`.
    pub fn redact(&self, text: &str) -> String {
        self.mask(text).into_owned()
    }

    /// Like [`Redactor::redact`], without a copy if there is nothing to mask.
    pub(super) fn mask<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let text = self.mask_values(text);
        match &self.patterns {
            Some(patterns) => Cow::Owned(text.split_inclusive('\n').map(|line| patterns.mask(line)).collect()),
            None => text,
        }
    }

    fn mask_values<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let masked = self.mask_needles(text);
        match self.plain {
            Some(plain) if masked.contains('\u{1b}') => {
                Cow::Owned(masked.split_inclusive('\n').map(|line| self.mask_coloured(line, plain)).collect())
            }
            _ => masked,
        }
    }

    /// Masks a line with colours. It loses them if there is a value in it that they part.
    fn mask_coloured(&self, line: &str, plain: fn(&str) -> String) -> String {
        let without_colours = plain(line);
        match self.mask_needles(&without_colours) {
            Cow::Owned(masked) => masked,
            Cow::Borrowed(_) => line.to_owned(),
        }
    }

    fn mask_needles<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let found: Vec<Range<usize>> = match &self.finders {
            Some(finders) => {
                let found = finders.iter().flat_map(|finder| finder.find_overlapping_iter(text));
                found.map(|found| found.range()).collect()
            }
            None => {
                let needles = self.needles.iter().map(ExposeSecret::expose_secret);
                needles.flat_map(|needle| text.match_indices(needle).map(|(at, _)| at..at + needle.len())).collect()
            }
        };
        if found.is_empty() { Cow::Borrowed(text) } else { Cow::Owned(without(text, found)) }
    }
}

impl Masks {
    /// Masks a line, which may end with its newline. A line of which something is masked loses its colours.
    fn mask(&self, line: &str) -> String {
        let (line, end) = match line.strip_suffix('\n') {
            Some(line) => (line, "\n"),
            None => (line, ""),
        };
        let plain = if line.contains('\u{1b}') { (self.plain)(line) } else { line.to_owned() };
        if (self.spares)(&plain) {
            return format!("{line}{end}");
        }
        let found = self.regexes.iter().flat_map(|regex| regex.find_iter(&plain)).map(|found| found.range());
        let found: Vec<_> = found.filter(|range| !range.is_empty()).take(MAX_MATCHES + 1).collect();
        match found.len() {
            0 => format!("{line}{end}"),
            1..=MAX_MATCHES => without(&plain, found) + end,
            _ => format!("{MASK}{end}"),
        }
    }
}

/// Replaces these parts of a text. Overlapping ones are masked as one, so that no part remains.
fn without(text: &str, mut found: Vec<Range<usize>>) -> String {
    found.sort_by_key(|range| (range.start, range.end));
    let (mut masked, mut done) = (String::with_capacity(text.len()), 0);
    for range in found {
        if range.start >= done {
            masked.push_str(&text[done..range.start]);
            masked.push_str(MASK);
        }
        done = done.max(range.end);
    }
    masked.push_str(&text[done..]);
    masked
}

/// Adds the forms of each line of a text that has at least `shortest` bytes.
fn add_lines(text: &str, shortest: usize, needles: &mut Vec<String>) {
    for line in text.split(['\n', '\r']).map(str::trim).filter(|line| line.len() >= shortest) {
        needles.push(line.to_owned());
        let percent_encoded = percent_encoded(line);
        // In a form of HTML, and by Terraform's `urlencode`.
        needles.push(percent_encoded.replace("%20", "+"));
        needles.push(percent_encoded);
        needles.extend(in_quotes(line));
        if line.len() >= SHORTEST_ENCODED {
            needles.extend(in_base64(line.as_bytes()));
        }
    }
}

/// Adds the forms of the texts in a value that is JSON: Terraform shows the attributes of an object line by line.
fn add_parts(value: &Value, depth: usize, needles: &mut Vec<String>) {
    let Some(depth) = depth.checked_sub(1) else { return };
    match value {
        Value::String(text) => add_lines(text, SHORTEST_PART, needles),
        Value::Array(list) => list.iter().for_each(|value| add_parts(value, depth, needles)),
        Value::Object(map) => {
            let secret = map.iter().filter(|(key, _)| !TELLING.contains(&key.as_str()));
            secret.for_each(|(_, value)| add_parts(value, depth, needles));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns the parts of a line between places where a program may break it: Terraform wraps its messages.
fn wrapped(line: &str) -> Vec<String> {
    let line = line.trim();
    let breaks = line.match_indices(char::is_whitespace).filter(|_| line.len() <= LONGEST_WRAPPED);
    let ends = breaks.flat_map(|(at, _)| [line[..at].trim_end(), line[at..].trim_start()]);
    let words = line.split_whitespace().filter(|word| word.len() < line.len());
    let is_common = |part: &str| part.len() < SHORTEST_WORD && part.bytes().all(|byte| byte.is_ascii_alphabetic());
    ends.chain(words).filter(|part| part.len() >= SHORTEST_PART && !is_common(part)).map(str::to_owned).collect()
}

/// Returns the lines of a text in base64 that is broken into lines.
fn in_columns_of_base64(text: &str) -> Vec<String> {
    let encoded = BASE64_STANDARD_NO_PAD.encode(text);
    let columns = BASE64_COLUMNS.into_iter().filter(|columns| encoded.len() > *columns);
    let lines = columns.flat_map(|columns| encoded.as_bytes().chunks(columns));
    let lines = lines.filter(|line| line.len() >= SHORTEST_PART);
    lines.map(|line| String::from_utf8_lossy(line).into_owned()).collect()
}

/// Returns the forms of a text between quotes: that of JSON, as Rust and as Go write it, and that of HCL, in which Terraform shows values.
fn in_quotes(text: &str) -> Vec<String> {
    let quoted = Value::from(text).to_string();
    let json = quoted[1..quoted.len() - 1].to_owned();
    let of_go = json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    let hcl = json.replace("${", "$${").replace("%{", "%%{");
    [json, of_go, hcl].into_iter().filter(|form| form != text).collect()
}

fn percent_encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
        encoded
    })
}

/// Returns the characters that every base64 text with these bytes contains, for each of the three alignments.
fn in_base64(bytes: &[u8]) -> Vec<String> {
    let mut needles = Vec::new();
    for before in 0..3 {
        let padded = [vec![0; before], bytes.to_vec()].concat();
        for engine in [&BASE64_STANDARD_NO_PAD, &BASE64_URL_SAFE_NO_PAD] {
            let encoded = engine.encode(&padded);
            // The first character that depends on these bytes only, and the last complete group of six bits.
            let start = (before * 8).div_ceil(6);
            let end = padded.len() * 8 / 6;
            needles.push(encoded[start..end].to_owned());
        }
    }
    needles
}
