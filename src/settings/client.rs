//! Settings of the commands that call a server: its address, and the caller's tokens. And of the one that makes such tokens.

use super::SettingsError;
use super::addresses::is_loopback;
use super::typed::Reader;
use secrecy::SecretString;
use std::ffi::OsString;
use url::Url;

/// Variable with the server's address.
pub(crate) const SERVER_VARIABLE: &str = "TIDELOCK_SERVER";
/// Variable with the token of `tidelock token`, or the server's api-secret.
pub(crate) const TOKEN_VARIABLE: &str = "TIDELOCK_TOKEN";
/// Variable with an OpenID Connect token for Identity-Aware Proxy.
pub(crate) const IAP_VARIABLE: &str = "TIDELOCK_IAP_TOKEN";

/// Settings of one call. Tokens come from variables alone: other users of a machine can read the arguments of a program.
#[derive(Debug)]
pub struct ClientSettings {
    /// Address of the server, which ends with a slash.
    pub server: Url,
    /// Sent as `X-Atlantis-Token`.
    pub token: Option<SecretString>,
    /// Sent as `Proxy-Authorization`, which Identity-Aware Proxy reads.
    pub iap_token: Option<SecretString>,
}

impl ClientSettings {
    /// Loads the settings from the value of `--server` and these variables.
    pub fn load(
        server: Option<String>,
        env: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<ClientSettings, SettingsError> {
        let mut named = [server, None, None];
        for (name, value) in env {
            let known = [SERVER_VARIABLE, TOKEN_VARIABLE, IAP_VARIABLE].iter().position(|known| name == *known);
            let Some(slot) = known.and_then(|place| named.get_mut(place)) else { continue };
            let value = value.into_string().ok().map(|text| text.trim().to_owned());
            *slot = slot.take().or(value.filter(|text| !text.is_empty()));
        }
        let [server, token, iap_token] = named;
        let wrong = |text: String| SettingsError::Invalid(text);
        let server = server.ok_or_else(|| {
            wrong(format!("name the server: --server https://HOST, or the variable {SERVER_VARIABLE}"))
        })?;
        let mut url = Url::parse(&server).map_err(|error| wrong(format!("the server's address: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") || !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("the server's address begins with https:// and names no user".to_owned()));
        }
        if (token.is_some() || iap_token.is_some()) && url.scheme() == "http" && !is_loopback(&url) {
            return Err(wrong(format!("{server} has no TLS, so no token is sent there: use https")));
        }
        url.set_query(None);
        url.set_fragment(None);
        if !url.path().ends_with('/') {
            url.set_path(&format!("{}/", url.path()));
        }
        Ok(ClientSettings {
            server: url,
            token: token.map(SecretString::from),
            iap_token: iap_token.map(SecretString::from),
        })
    }

    /// Loads like [`ClientSettings::load`], with the variables of this process.
    pub fn from_process(server: Option<String>) -> Result<ClientSettings, SettingsError> {
        ClientSettings::load(server, std::env::vars_os())
    }
}

/// Returns the server's `api-secret`, of the variables of this process or of this configuration file.
pub fn api_secret(config: Option<OsString>) -> Result<Option<SecretString>, SettingsError> {
    let args = config.map(|path| [OsString::from("--config="), path].into_iter().collect::<OsString>());
    Ok(Reader::new(args, std::env::vars_os())?.secret("api-secret"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use secrecy::ExposeSecret as _;

    fn load(server: Option<&str>, env: &[(&str, &str)]) -> Result<ClientSettings, String> {
        let env = env.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        ClientSettings::load(server.map(str::to_owned), env).map_err(|error| error.to_string())
    }

    #[test]
    fn a_flag_wins_and_tokens_come_from_variables() {
        let env = [(SERVER_VARIABLE, "https://a.example/tide"), (TOKEN_VARIABLE, " t0ken\n"), (IAP_VARIABLE, "")];
        let settings = load(None, &env).unwrap();
        assert_eq!(settings.server.as_str(), "https://a.example/tide/");
        assert_eq!(settings.token.unwrap().expose_secret(), "t0ken");
        assert!(settings.iap_token.is_none());
        assert_eq!(load(Some("https://b.example?x=1#y"), &env).unwrap().server.as_str(), "https://b.example/");
    }

    #[test]
    fn a_token_is_not_sent_without_tls_but_to_this_machine() {
        let token = [(TOKEN_VARIABLE, "t0ken")];
        for server in ["http://127.0.0.1:4141", "http://localhost:4141", "http://[::1]:4141", "https://a.example"] {
            assert!(load(Some(server), &token).is_ok(), "{server}");
        }
        for server in ["http://a.example", "http://127.0.0.1.example", "http://localhost.example"] {
            assert!(load(Some(server), &token).unwrap_err().contains("no TLS"), "{server}");
            assert!(load(Some(server), &[]).is_ok(), "{server}");
        }
        for server in ["ftp://a.example", "https://user@a.example", "a.example"] {
            assert!(load(Some(server), &[]).is_err(), "{server}");
        }
        assert!(load(None, &[]).unwrap_err().contains("TIDELOCK_SERVER"));
    }
}
