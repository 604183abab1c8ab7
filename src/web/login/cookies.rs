//! Signed cookies: keys, values and attributes. A cookie is believed because of its HMAC; the server remembers none.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as B64;
use http::{HeaderMap, HeaderValue, header};
use ring::hmac;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// Longest value, in bytes: browsers keep 4,096 with name and attributes.
const MAX_VALUE: usize = 3_800;

/// Key of one kind of cookie.
pub(super) struct CookieKey(hmac::Key);

impl CookieKey {
    /// Derives the key of a kind of cookie, so that one kind cannot pass for another.
    pub(super) fn derive(secret: &str, kind: &str) -> CookieKey {
        let root = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        CookieKey(hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&root, kind.as_bytes()).as_ref()))
    }

    /// Returns the value of a cookie with this content; `None` if it is too long.
    pub(super) fn seal(&self, content: &impl Serialize) -> Option<String> {
        let content = B64.encode(serde_json::to_vec(content).ok()?);
        let proof = B64.encode(hmac::sign(&self.0, content.as_bytes()));
        let value = format!("{content}.{proof}");
        (value.len() <= MAX_VALUE).then_some(value)
    }

    /// Returns the content of a value that this key has signed.
    pub(super) fn open<T: DeserializeOwned>(&self, value: &str) -> Option<T> {
        let (content, proof) = value.split_once('.').filter(|_| value.len() <= MAX_VALUE)?;
        hmac::verify(&self.0, content.as_bytes(), &B64.decode(proof).ok()?).ok()?;
        serde_json::from_slice(&B64.decode(content).ok()?).ok()
    }
}

/// Name and attributes of a cookie.
pub(super) struct CookieName {
    name: String,
    secure: bool,
}

/// A cookie of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum GivenCookie<'a> {
    Absent,
    Value(&'a str),
    /// Unreadable, or several of one name: another site of the domain may have set one of them.
    Unusable,
}

impl CookieName {
    /// With https the name has a prefix with which browsers take the cookie from this host alone, and over https alone.
    pub(super) fn new(name: &str, secure: bool) -> CookieName {
        CookieName { name: if secure { format!("__Host-{name}") } else { name.to_owned() }, secure }
    }

    /// Returns the cookie of a request.
    pub(super) fn find<'a>(&self, headers: &'a HeaderMap) -> GivenCookie<'a> {
        let mut found = GivenCookie::Absent;
        for line in headers.get_all(header::COOKIE) {
            let Ok(line) = line.to_str() else { return GivenCookie::Unusable };
            for (name, value) in line.split(';').filter_map(|pair| pair.trim().split_once('=')) {
                if name != self.name {
                    continue;
                }
                if found != GivenCookie::Absent {
                    return GivenCookie::Unusable;
                }
                found = GivenCookie::Value(value);
            }
        }
        found
    }

    /// Returns the header that sets the cookie. Browsers send it with links from other sites, such as those of comments and of the
    /// provider, and with no form of another site.
    pub(super) fn set(&self, value: &str, age: Duration) -> HeaderValue {
        let CookieName { name, secure } = self;
        let secure = if *secure { "; Secure" } else { "" };
        let text = format!("{name}={value}; Path=/; Max-Age={}; HttpOnly; SameSite=Lax{secure}", age.as_secs());
        crate::web::header_value(&text)
    }

    /// Returns the header that deletes the cookie.
    pub(super) fn delete(&self) -> HeaderValue {
        self.set("", Duration::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[&str]) -> HeaderMap {
        lines.iter().map(|line| (header::COOKIE, HeaderValue::from_str(line).unwrap())).fold(
            HeaderMap::new(),
            |mut headers, (name, value)| {
                headers.append(name, value);
                headers
            },
        )
    }

    #[test]
    fn only_what_the_same_key_has_signed_is_opened() {
        let key = CookieKey::derive("a secret", "session");
        let value = key.seal(&("ada", 7)).unwrap();
        assert_eq!(key.open::<(String, i32)>(&value), Some(("ada".into(), 7)));
        let (content, proof) = value.split_once('.').unwrap();
        let other = B64.encode(r#"["eve",7]"#);
        let forged = [
            String::new(),
            ".".into(),
            content.into(),
            format!("{content}."),
            format!("{other}.{proof}"),
            format!("{content}.{}", B64.encode([0; 32])),
            format!("{content}.{}", &proof[..20]),
            format!("{value}.{proof}"),
            format!("{value}="),
            format!("{}{value}", "A".repeat(MAX_VALUE)),
        ];
        for value in forged {
            assert_eq!(key.open::<(String, i32)>(&value), None, "{value}");
        }
        for key in [CookieKey::derive("another", "session"), CookieKey::derive("a secret", "attempt")] {
            assert_eq!(key.open::<(String, i32)>(&value), None);
        }
        assert_eq!(CookieKey::derive("a secret", "session").open::<(String, i32)>(&value), Some(("ada".into(), 7)));
        assert_eq!(key.seal(&"x".repeat(MAX_VALUE)), None);
    }

    #[test]
    fn a_cookie_of_its_name_is_found_and_two_are_not_believed() {
        let name = CookieName::new("tide", true);
        let value = |text| GivenCookie::Value(text);
        let vectors: [(&[&str], GivenCookie<'_>); 8] = [
            (&[], GivenCookie::Absent),
            (&["tide=a; x__Host-tide=b"], GivenCookie::Absent),
            (&["__Host-tide=a.b"], value("a.b")),
            (&["x=1; __Host-tide=a=b ;y"], value("a=b")),
            (&["x=1", "__Host-tide=a"], value("a")),
            (&["__Host-tide=a; __Host-tide=b"], GivenCookie::Unusable),
            (&["__Host-tide=a", "__Host-tide=a"], GivenCookie::Unusable),
            (&["__Host-tide="], value("")),
        ];
        for (lines, expected) in vectors {
            assert_eq!(name.find(&headers(lines)), expected, "{lines:?}");
        }
    }

    #[test]
    fn its_attributes_keep_it_from_scripts_and_other_sites() {
        let set = CookieName::new("tide", true).set("a.b", Duration::from_secs(60));
        assert_eq!(set, "__Host-tide=a.b; Path=/; Max-Age=60; HttpOnly; SameSite=Lax; Secure");
        let here = CookieName::new("tide", false).delete();
        assert_eq!(here, "tide=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax");
    }
}
