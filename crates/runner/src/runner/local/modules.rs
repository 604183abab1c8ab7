//! git credentials for sources of modules. Only `init` gets them, only for these origins, on the descriptor that git's credential helper
//! reads.

use super::environment::{Environment, get, set};
use crate::checkout::Credentials;
use crate::process::numbered_credential_helper;
use futures::future::BoxFuture;
use secrecy::{ExposeSecret, SecretString};
use std::sync::Arc;

/// An address that sources of modules may begin with, and git's credentials for it.
#[derive(Clone)]
pub struct ModuleOrigin {
    /// `https://HOST`, or `https://HOST/ORGANIZATION`, without a trailing slash.
    pub address: String,
    /// User and token.
    pub credentials: Credentials,
}

/// Returns the origins of `--module-credentials`, with their current tokens.
pub type ModuleOrigins = Arc<dyn Fn() -> BoxFuture<'static, Vec<ModuleOrigin>> + Send + Sync>;

/// Data that `init` gets besides its environment.
pub(super) struct ForInit {
    /// Secret for the child's descriptor; absent if there are no origins.
    pub(super) secret: Option<SecretString>,
    /// The tokens, which its output must not show.
    pub(super) tokens: Vec<SecretString>,
}

/// Adds git's configuration for these origins to the environment of one `init`.
pub(super) fn for_init(origins: &[ModuleOrigin], env: &mut Environment) -> ForInit {
    let mut lines = String::new();
    let mut config: Vec<(String, String)> = Vec::new();
    for (number, ModuleOrigin { address, credentials }) in origins.iter().enumerate() {
        let Credentials { username, password } = credentials;
        lines += &format!("{number} username={username}\n{number} password={}\n", password.expose_secret());
        let helper = format!("credential.{address}.helper");
        // The empty helper removes those of the machine: git would send the token to every helper.
        config.push((helper.clone(), String::new()));
        config.push((helper, numbered_credential_helper(number)));
        // A redirect would lead out of the origin.
        config.push((format!("http.{address}.followRedirects"), "false".to_owned()));
        config.extend(over_ssh(address).map(|from| (format!("url.{address}/.insteadOf"), from)));
    }
    if origins.is_empty() {
        return ForInit { secret: None, tokens: Vec::new() };
    }
    config.push(("core.hooksPath".to_owned(), "/dev/null".to_owned()));
    config.push(("protocol.ext.allow".to_owned(), "never".to_owned()));
    set(env, "GIT_TERMINAL_PROMPT", "0");
    // Added after the entries of earlier steps: the last entry counts.
    let before: usize = get(env, "GIT_CONFIG_COUNT").and_then(|count| count.parse().ok()).unwrap_or_default();
    for (at, (key, value)) in config.iter().enumerate() {
        set(env, &format!("GIT_CONFIG_KEY_{}", before + at), key);
        set(env, &format!("GIT_CONFIG_VALUE_{}", before + at), value);
    }
    set(env, "GIT_CONFIG_COUNT", (before + config.len()).to_string());
    let tokens = origins.iter().map(|origin| origin.credentials.password.clone()).collect();
    ForInit { secret: Some(lines.into()), tokens }
}

/// Returns the SSH forms of an address, for which there is no key here.
fn over_ssh(address: &str) -> impl Iterator<Item = String> {
    let place = address.strip_prefix("https://").map(|place| place.split_once('/').unwrap_or((place, "")));
    let forms = place.map(|(host, path)| {
        let path = if path.is_empty() { String::new() } else { format!("{path}/") };
        [format!("ssh://git@{host}/{path}"), format!("git@{host}:{path}")]
    });
    forms.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(address: &str, token: &str) -> ModuleOrigin {
        let credentials = Credentials { username: "bot".into(), password: token.into() };
        ModuleOrigin { address: address.into(), credentials }
    }

    #[test]
    fn each_origin_has_a_helper_that_answers_with_its_own_token() {
        let mut env = vec![("GIT_CONFIG_COUNT".to_owned(), "1".to_owned())];
        let origins = [origin("https://github.com/acme", "token-a"), origin("https://dev.azure.com", "token-b")];
        let found = for_init(&origins, &mut env);
        let secret = found.secret.unwrap();
        assert_eq!(secret.expose_secret(), "0 username=bot\n0 password=token-a\n1 username=bot\n1 password=token-b\n");
        assert!(env.iter().all(|(name, value)| !name.contains("token-") && !value.contains("token-")), "{env:?}");
        let key = |number: usize| get(&env, &format!("GIT_CONFIG_KEY_{number}")).unwrap_or_default();
        let value = |number: usize| get(&env, &format!("GIT_CONFIG_VALUE_{number}")).unwrap_or_default();
        assert_eq!((key(0), key(1), value(1)), ("", "credential.https://github.com/acme.helper", ""));
        assert_eq!((key(2), value(2)), (key(1), numbered_credential_helper(0).as_str()));
        assert_eq!((key(4), value(4)), ("url.https://github.com/acme/.insteadOf", "ssh://git@github.com/acme/"));
        assert_eq!(get(&env, "GIT_CONFIG_COUNT"), Some("13"));
        assert_eq!((key(12), value(12), key(13)), ("protocol.ext.allow", "never", ""));
    }

    #[test]
    fn without_origins_nothing_changes() {
        let mut env = vec![("A".to_owned(), "1".to_owned())];
        let found = for_init(&[], &mut env);
        assert!(found.secret.is_none() && env.len() == 1);
    }
}
