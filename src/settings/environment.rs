//! Environment variables: settings by name, and the variables that children receive.

use super::SettingsError;
use super::table::{self, Setting};
use secrecy::SecretString;
use std::collections::BTreeMap;
use std::ffi::OsString;

/// Prefixes of settings; the first wins.
const PREFIXES: [&str; 2] = ["TIDELOCK_", "ATLANTIS_"];
/// Beginnings of the names of variables from which clients of stores of secrets are configured.
const OF_STORES: [&str; 5] = ["AWS_", "AZURE_", "CLOUDSDK_API_ENDPOINT_OVERRIDES_SECRETMANAGER", "IDENTITY_", "VAULT_"];
/// An unknown variable with a prefix of ours is secret if its name contains one of these words, or if it resembles a secret setting: it
/// may be a misspelling.
const SECRET_WORDS: [&str; 4] = ["TOKEN", "SECRET", "PASSWORD", "KEY"];

/// Variables of the process: settings, and the other variables for children.
#[derive(Default)]
pub(super) struct ProcessEnvironment {
    /// Values of settings, with the names of their variables.
    pub(super) given: BTreeMap<&'static str, (String, SecretString)>,
    /// All variables except secret settings.
    pub(super) others: BTreeMap<String, String>,
    /// Values of secret settings.
    pub(super) secrets: Vec<SecretString>,
    /// Variables of the clients of stores of secrets, also those that children do not get.
    pub(super) of_stores: BTreeMap<String, String>,
    pub(super) warnings: Vec<String>,
}

impl ProcessEnvironment {
    /// Sorts variables into settings and others.
    pub(super) fn new(
        all: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<ProcessEnvironment, SettingsError> {
        let mut environment = ProcessEnvironment::default();
        let all: BTreeMap<_, _> = all.into_iter().collect();
        for (name, value) in all {
            environment.sort(name, value)?;
        }
        environment.use_plain_port();
        let is_of_store = |name: &String| OF_STORES.iter().any(|start| name.starts_with(start));
        let of_stores = environment.others.iter().filter(|(name, _)| is_of_store(name));
        environment.of_stores = of_stores.map(|(name, value)| (name.clone(), value.clone())).collect();
        Ok(environment)
    }

    fn sort(&mut self, name: OsString, value: OsString) -> Result<(), SettingsError> {
        let Ok(name) = name.into_string() else {
            self.warnings.push("a variable whose name is not UTF-8 is not passed on to children".to_owned());
            return Ok(());
        };
        let ours = PREFIXES.iter().find_map(|&prefix| Some((prefix, name.strip_prefix(prefix)?)));
        let value = match value.into_string() {
            Ok(value) => value,
            Err(_) if ours.is_some() => return Err(SettingsError::Invalid(format!("{name} is not UTF-8"))),
            Err(_) => {
                self.warnings.push(format!("{name} is not UTF-8 and not passed on to children"));
                return Ok(());
            }
        };
        let Some((prefix, rest)) = ours else {
            self.others.insert(name, value);
            return Ok(());
        };
        let setting =
            table::find(&rest.to_lowercase().replace('_', "-")).filter(|setting| setting.variable(prefix) == name);
        if is_service_link(rest, &value) {
            self.others.insert(name, value);
        } else if let Some(setting) = setting {
            self.set(setting, name, value);
        } else {
            let meant = table::nearest(&rest.to_lowercase().replace('_', "-"));
            let hint = table::hint(meant, |setting| setting.variable(prefix));
            self.warnings.push(format!("{name} is no setting and has no effect{hint}"));
            let may_be_secret =
                SECRET_WORDS.iter().any(|word| rest.contains(word)) || meant.is_some_and(Setting::is_secret);
            if may_be_secret {
                self.secrets.push(value.into());
            } else {
                self.others.insert(name, value);
            }
        }
        Ok(())
    }

    /// Uses `PORT`, which platforms such as Cloud Run set.
    fn use_plain_port(&mut self) {
        let Some(port) = self.others.get("PORT").filter(|port| !is_service_link("", port)) else { return };
        if port.parse::<u16>().is_err() {
            self.warnings.push("PORT is no port and has no effect".to_owned());
        } else {
            self.given.entry("port").or_insert(("PORT".to_owned(), port.as_str().into()));
        }
    }

    /// Records the value of a setting. An empty value counts as unset, except where it means none. Names are sorted, so `TIDELOCK_` comes
    /// last and wins.
    fn set(&mut self, setting: &'static Setting, name: String, value: String) {
        if !value.is_empty() || setting.name == super::read::EMPTY_MEANS_NONE {
            self.given.insert(setting.name, (name.clone(), value.clone().into()));
        }
        if setting.is_secret() {
            self.secrets.push(value.into());
        } else {
            self.others.insert(name, value);
        }
    }

    /// Removes variables from the environment of children, and makes their values secret.
    pub(super) fn mask(&mut self, names: &[String]) {
        for name in names {
            self.secrets.extend(self.others.remove(name).map(SecretString::from));
        }
    }
}

/// Returns true if Kubernetes set the variable for a service called `atlantis` or `tidelock`.
fn is_service_link(rest: &str, value: &str) -> bool {
    let is_port_of = |rest: &str| {
        let (port, protocol) = rest.split_once('_').unwrap_or_default();
        !port.is_empty()
            && port.bytes().all(|byte| byte.is_ascii_digit())
            && ["TCP", "UDP", "SCTP"].iter().any(|name| protocol.starts_with(name))
    };
    value.starts_with("tcp://")
        || value.starts_with("udp://")
        || rest.ends_with("SERVICE_HOST")
        || rest.ends_with("SERVICE_PORT")
        || rest.contains("SERVICE_PORT_")
        || rest.split("PORT_").skip(1).any(is_port_of)
}
