//! Tokens of scripts, as `tidelock token` makes them: an owner, scopes and an end, authenticated with the API's secret. The server keeps no
//! list of them, so another secret is what ends them early.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use ring::hmac;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};

/// Prefix of every token, by which scanners of secrets find it.
const PREFIX: &str = "tidelock_";
/// What the key is used for: the API's secret authenticates nothing else in this form.
const PURPOSE: &str = "tidelock API token 1\n";
/// Longest token, in bytes.
const MAX_TOKEN: usize = 1024;
/// Shortest secret that authenticates tokens, in bytes: an owner can try secrets against a token without asking the server.
pub(crate) const MIN_SECRET: usize = 32;
/// Longest name of an owner, in characters.
const MAX_OWNER: usize = 100;
/// Longest life of a token.
pub(crate) const MAX_DAYS: u16 = 400;

/// A right of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TokenScope {
    /// Reads everything that the API returns.
    Read,
    /// Plans projects of pull requests.
    Plan,
    /// Plans and applies them, and remediates drift.
    Apply,
    /// Deletes any lock, with its plan.
    Unlock,
    /// Starts drift detections.
    Drift,
}

impl TokenScope {
    /// All scopes.
    pub(crate) const ALL: [TokenScope; 5] =
        [TokenScope::Read, TokenScope::Plan, TokenScope::Apply, TokenScope::Unlock, TokenScope::Drift];

    /// Returns its name.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            TokenScope::Read => "read",
            TokenScope::Plan => "plan",
            TokenScope::Apply => "apply",
            TokenScope::Unlock => "unlock",
            TokenScope::Drift => "drift",
        }
    }
}

/// Content of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ApiToken {
    /// Person or program that has it, for the audit log.
    owner: String,
    scopes: Vec<TokenScope>,
    /// Its end, in seconds since 1970.
    expires: i64,
}

/// Reason for which a token is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TokenRefused {
    /// It is not of this server, or was changed.
    Forged,
    /// It has ended at this time.
    Expired(ApiToken),
}

impl ApiToken {
    /// Creates a token that ends after this number of days. The error says what is wrong.
    pub(crate) fn new(owner: &str, scopes: Vec<TokenScope>, days: u16, now: Timestamp) -> Result<ApiToken, String> {
        let is_name = (1..=MAX_OWNER).contains(&owner.len()) && owner.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_name {
            return Err(format!("an owner has 1 to {MAX_OWNER} letters, digits or signs of ASCII, without spaces"));
        }
        if scopes.is_empty() {
            return Err("a token needs at least one scope".to_owned());
        }
        if !(1..=MAX_DAYS).contains(&days) {
            return Err(format!("a token is valid for 1 to {MAX_DAYS} days"));
        }
        let expires = (now + SignedDuration::from_hours(24 * i64::from(days))).as_second();
        Ok(ApiToken { owner: owner.to_owned(), scopes, expires })
    }

    /// Returns the owner's name in the audit log.
    pub(super) fn name(&self) -> String {
        format!("{} (token)", self.owner)
    }

    /// Returns the refusal of a token that has ended.
    pub(in crate::web) fn expired_text(&self) -> String {
        format!("{} has ended at {}. Make a new one: tidelock token", self.name(), self.end())
    }

    /// Returns the refusal of a token without this right.
    pub(in crate::web) fn lacks_text(&self, scope: TokenScope) -> String {
        let scope = scope.as_str();
        let name = self.name();
        format!(
            "{name} may not do this: it has not the scope `{scope}`. Make one that has: tidelock token --scope {scope}"
        )
    }

    /// Returns true if it has this right.
    pub(super) fn allows(&self, scope: TokenScope) -> bool {
        self.scopes.contains(&scope)
    }

    /// Returns its end.
    pub(crate) fn end(&self) -> Timestamp {
        Timestamp::from_second(self.expires).unwrap_or(Timestamp::UNIX_EPOCH)
    }

    /// Returns the text of the token. The error says why the secret cannot authenticate one.
    pub(crate) fn sign(&self, secret: &SecretString) -> Result<SecretString, String> {
        let content = serde_json::to_vec(self).map_err(|error| error.to_string())?;
        let content = URL_SAFE_NO_PAD.encode(content);
        let key = key(secret)
            .ok_or_else(|| format!("api-secret has to have {MIN_SECRET} bytes or more to authenticate tokens"))?;
        let mac = hmac::sign(&key, format!("{PURPOSE}{content}").as_bytes());
        Ok(format!("{PREFIX}{content}.{}", URL_SAFE_NO_PAD.encode(mac)).into())
    }

    /// Verifies a token. `None` if the text is none.
    pub(super) fn verify(text: &str, secret: &SecretString, now: Timestamp) -> Option<Result<ApiToken, TokenRefused>> {
        let (content, mac) = text.strip_prefix(PREFIX)?.rsplit_once('.')?;
        let authentic = || {
            let mac = URL_SAFE_NO_PAD.decode(mac).ok().filter(|_| text.len() <= MAX_TOKEN)?;
            hmac::verify(&key(secret)?, format!("{PURPOSE}{content}").as_bytes(), &mac).ok()?;
            serde_json::from_slice::<ApiToken>(&URL_SAFE_NO_PAD.decode(content).ok()?).ok()
        };
        Some(match authentic() {
            None => Err(TokenRefused::Forged),
            Some(token) if token.end() <= now => Err(TokenRefused::Expired(token)),
            Some(token) => Ok(token),
        })
    }
}

/// Returns the key that authenticates tokens; none if the secret is too short.
fn key(secret: &SecretString) -> Option<hmac::Key> {
    let secret = Some(secret.expose_secret().as_bytes()).filter(|secret| secret.len() >= MIN_SECRET)?;
    Some(hmac::Key::new(hmac::HMAC_SHA256, secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> SecretString {
        text.repeat(MIN_SECRET).into()
    }

    #[test]
    fn a_token_holds_for_its_secret_until_its_end() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let token = ApiToken::new("ci@acme", vec![TokenScope::Read, TokenScope::Plan], 30, now).unwrap();
        let text = token.sign(&secret("a")).unwrap();
        let verify = |text: &str, key: &str, at: Timestamp| ApiToken::verify(text, &secret(key), at);
        let text = text.expose_secret();
        let read = verify(text, "a", now).unwrap().unwrap();
        assert_eq!(read, token);
        assert!(read.allows(TokenScope::Plan) && !read.allows(TokenScope::Apply));
        assert_eq!(read.name(), "ci@acme (token)");
        assert!(verify(text, "a", token.end() - SignedDuration::from_secs(1)).unwrap().is_ok());
        assert_eq!(verify(text, "a", token.end()), Some(Err(TokenRefused::Expired(token))));
        assert_eq!(verify(text, "b", now), Some(Err(TokenRefused::Forged)), "of another secret");
        assert_eq!(verify("s3cret", "a", now), None, "not a token");
    }

    #[test]
    fn a_changed_token_is_forged() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let sign = |scopes| ApiToken::new("ci", scopes, 30, now).unwrap().sign(&secret("a")).unwrap();
        let (reads, applies) = (sign(vec![TokenScope::Read]), sign(vec![TokenScope::Apply]));
        let (reads, applies) = (reads.expose_secret(), applies.expose_secret());
        let (content, mac) = applies.rsplit_once('.').unwrap();
        let of_other = reads.rsplit_once('.').unwrap().1;
        for text in [
            format!("{content}.{of_other}"),
            format!("{content}."),
            content.to_owned() + ".x",
            format!("{content}.{}", &mac[..mac.len() - 2]),
            format!("{content}=.{mac}"),
            format!("{PREFIX}.{mac}"),
            format!("{}{}.{mac}", PREFIX, "A".repeat(2000)),
        ] {
            let verified = ApiToken::verify(&text, &secret("a"), now);
            assert_eq!(verified, Some(Err(TokenRefused::Forged)), "{text}");
        }
    }

    #[test]
    fn a_short_secret_authenticates_no_token() {
        let now = Timestamp::UNIX_EPOCH;
        let token = ApiToken::new("ci", vec![TokenScope::Read], 1, now).unwrap();
        let short: SecretString = "x".repeat(MIN_SECRET - 1).into();
        assert!(token.sign(&short).is_err());
        assert!(ApiToken::new("", vec![TokenScope::Read], 1, now).is_err());
        assert!(ApiToken::new("a b", vec![TokenScope::Read], 1, now).is_err());
        assert!(ApiToken::new("ci", Vec::new(), 1, now).is_err());
        assert!(ApiToken::new("ci", vec![TokenScope::Read], MAX_DAYS + 1, now).is_err());
    }
}
