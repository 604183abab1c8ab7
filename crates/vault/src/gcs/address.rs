//! Address of a bucket of Cloud Storage: `gs://BUCKET/PREFIX`.

use crate::bucket::{MAX_NAME, MAX_SEGMENT};

/// Start of an address of Cloud Storage.
const SCHEME: &str = "gs://";

/// A bucket, and the prefix of all names in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    text: String,
    bucket: String,
    prefix: String,
}

impl Address {
    /// Parses `gs://BUCKET` or `gs://BUCKET/PREFIX`. The text of the error is for the operator.
    pub fn parse(text: &str) -> Result<Address, String> {
        let wrong =
            |why: &str| format!("{text}: {why}; write gs://BUCKET/PREFIX, such as gs://example-tidelock/production");
        let rest = text.strip_prefix(SCHEME).ok_or_else(|| wrong("this is no address of Cloud Storage"))?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        check_bucket(bucket).map_err(|why| wrong(&why))?;
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        check_prefix(prefix).map_err(|why| wrong(&why))?;
        let text = format!("{SCHEME}{bucket}/{prefix}");
        let text = text.trim_end_matches('/').to_owned();
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        Ok(Address { text, bucket: bucket.to_owned(), prefix })
    }

    /// Returns the address for display: `gs://BUCKET/PREFIX`.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the bucket's name.
    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    /// Returns the prefix of all names in the bucket: empty, or ending in `/`.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns the name of the bucket in the service's calls.
    pub(super) fn resource(&self) -> String {
        format!("projects/_/buckets/{}", self.bucket)
    }
}

/// Checks the service's own rules, so that a typo is reported before any request.
fn check_bucket(name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    if name.is_empty() {
        return Err("the bucket's name is missing".into());
    }
    if let Some(wrong) = name.chars().find(|c| !plain(*c) && !['-', '_', '.'].contains(c)) {
        return Err(format!("a bucket's name has only lower-case letters, digits, '-', '_' and '.', not '{wrong}'"));
    }
    let longest = if name.contains('.') { 222 } else { 63 };
    if !(3..=longest).contains(&name.len()) {
        return Err(format!("a bucket's name has 3 to {longest} characters"));
    }
    if !name.starts_with(plain) || !name.ends_with(plain) {
        return Err("a bucket's name begins and ends with a letter or a digit".into());
    }
    Ok(())
}

fn check_prefix(prefix: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || ['.', '_', '-'].contains(&c);
    if prefix.len() > MAX_NAME {
        return Err(format!("the prefix has more than {MAX_NAME} characters"));
    }
    for segment in prefix.split('/').filter(|_| !prefix.is_empty()) {
        if segment.is_empty() || segment.starts_with('.') {
            return Err("the prefix has an empty part, or one that begins with '.'".into());
        }
        if segment.len() > MAX_SEGMENT {
            return Err(format!("a part of the prefix has more than {MAX_SEGMENT} characters"));
        }
        if let Some(wrong) = segment.chars().find(|c| !plain(*c)) {
            return Err(format!("the prefix has only letters, digits, '.', '_', '-' and '/', not '{wrong}'"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Address;

    #[test]
    fn an_address_is_a_bucket_and_a_prefix() {
        for (text, bucket, prefix, shown) in [
            ("gs://acme-tidelock", "acme-tidelock", "", "gs://acme-tidelock"),
            ("gs://acme-tidelock/", "acme-tidelock", "", "gs://acme-tidelock"),
            ("gs://a_b.example.com/x", "a_b.example.com", "x/", "gs://a_b.example.com/x"),
            ("gs://acme/team-1/prod.eu/", "acme", "team-1/prod.eu/", "gs://acme/team-1/prod.eu"),
        ] {
            let address = Address::parse(text).unwrap();
            assert_eq!((address.bucket(), address.prefix(), address.text()), (bucket, prefix, shown), "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_reason() {
        for (text, reason) in [
            ("s3://acme/x", "no address of Cloud Storage"),
            ("acme/x", "no address of Cloud Storage"),
            ("gs://", "name is missing"),
            ("gs:///x", "name is missing"),
            ("gs://Acme/x", "not 'A'"),
            ("gs://ac", "3 to 63"),
            ("gs://-acme/x", "begins and ends"),
            ("gs://acme//x", "an empty part"),
            ("gs://acme/x//", "an empty part"),
            ("gs://acme/../x", "begins with '.'"),
            ("gs://acme/a b", "not ' '"),
            ("gs://acme/x?y=1", "not '?'"),
        ] {
            let error = Address::parse(text).unwrap_err();
            assert!(error.contains(reason) && error.contains("write gs://BUCKET/PREFIX"), "{text}: {error}");
        }
        assert!(Address::parse(&format!("gs://acme/{}", "x".repeat(600))).is_err());
    }
}
