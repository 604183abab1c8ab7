//! Masks secrets in text, including base64 and percent-encoded forms.

use base64::Engine;
use base64::prelude::{BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD};
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
}

impl Redactor {
    /// Masks each of these secrets anywhere in a line, also across chunks: unchanged, percent-encoded, and in base64 with any prefix
    /// (`user:token`). Of a secret with several lines each line is masked. Values shorter than four bytes are not masked.
    pub fn new(secrets: Vec<SecretString>) -> Redactor {
        let mut needles: Vec<String> = Vec::new();
        for secret in &secrets {
            for line in
                secret.expose_secret().split(['\n', '\r']).map(str::trim).filter(|line| line.len() >= SHORTEST_SECRET)
            {
                needles.push(line.to_owned());
                needles.push(percent_encoded(line));
                if line.len() >= SHORTEST_ENCODED {
                    needles.extend(in_base64(line.as_bytes()));
                }
            }
        }
        needles.sort();
        needles.dedup();
        Redactor { needles: Arc::new(needles.into_iter().map(SecretString::from).collect()) }
    }

    /// Returns a redactor that also masks these secrets.
    pub fn with(&self, secrets: Vec<SecretString>) -> Redactor {
        let mut needles = Redactor::new(secrets);
        Arc::make_mut(&mut needles.needles).extend(self.needles.iter().cloned());
        needles
    }

    /// Returns the text with secrets replaced by `<redacted>`.
    pub fn redact(&self, text: &str) -> String {
        self.mask(text).into_owned()
    }

    /// Like [`Redactor::redact`], without a copy if there is nothing to mask.
    pub(super) fn mask<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut found: Vec<Range<usize>> = Vec::new();
        for needle in self.needles.iter() {
            let needle = needle.expose_secret();
            found.extend(text.match_indices(needle).map(|(at, _)| at..at + needle.len()));
        }
        if found.is_empty() {
            return Cow::Borrowed(text);
        }
        // Overlapping matches are masked as one, so that no part remains.
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
        Cow::Owned(masked)
    }
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
