//! Masks secrets in text, including base64 and percent-encoded forms.

use base64::Engine;
use base64::prelude::{BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD};
use regex::Regex;
use secrecy::{ExposeSecret, SecretString};
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

/// Masks secrets in every stream.
#[derive(Clone, Default)]
pub struct Redactor {
    needles: Arc<Vec<SecretString>>,
    patterns: Option<Arc<Masks>>,
}

/// Patterns of what is masked in a line.
pub struct Masks {
    /// The patterns.
    pub regexes: Vec<Regex>,
    /// Removes colours, which may part what a pattern matches.
    pub plain: fn(&str) -> String,
    /// Returns true for a line that no pattern masks.
    pub spares: fn(&str) -> bool,
}

impl Redactor {
    /// Masks each of these secrets anywhere in a line, also across chunks: unchanged, percent-encoded, as a text of JSON or HCL, and in base64
    /// with any prefix (`user:token`). Of a secret with several lines each line is masked. Values shorter than four bytes are not masked.
    pub fn new(secrets: Vec<SecretString>) -> Redactor {
        let mut needles: Vec<String> = Vec::new();
        for secret in &secrets {
            for line in
                secret.expose_secret().split(['\n', '\r']).map(str::trim).filter(|line| line.len() >= SHORTEST_SECRET)
            {
                needles.push(line.to_owned());
                needles.push(percent_encoded(line));
                needles.extend(in_quotes(line));
                if line.len() >= SHORTEST_ENCODED {
                    needles.extend(in_base64(line.as_bytes()));
                }
            }
        }
        needles.sort();
        needles.dedup();
        Redactor { needles: Arc::new(needles.into_iter().map(SecretString::from).collect()), patterns: None }
    }

    /// Returns a redactor that also masks these secrets.
    pub fn with(&self, secrets: Vec<SecretString>) -> Redactor {
        let mut needles = Redactor::new(secrets);
        Arc::make_mut(&mut needles.needles).extend(self.needles.iter().cloned());
        needles.patterns.clone_from(&self.patterns);
        needles
    }

    /// Returns a redactor that masks what these patterns match too, if there are any.
    pub fn with_masks(&self, masks: Masks) -> Redactor {
        let patterns = (!masks.regexes.is_empty()).then(|| Arc::new(masks));
        Redactor { needles: Arc::clone(&self.needles), patterns }
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
        let mut found: Vec<Range<usize>> = Vec::new();
        for needle in self.needles.iter() {
            let needle = needle.expose_secret();
            found.extend(text.match_indices(needle).map(|(at, _)| at..at + needle.len()));
        }
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
        let found: Vec<_> = found.filter(|range| !range.is_empty()).collect();
        if found.is_empty() { format!("{line}{end}") } else { without(&plain, found) + end }
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

/// Returns the forms of a text between quotes: that of JSON, as Rust and as Go write it, and that of HCL, in which Terraform shows values.
fn in_quotes(text: &str) -> Vec<String> {
    let quoted = serde_json::Value::from(text).to_string();
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
