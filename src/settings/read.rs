//! Reads values from their sources in order of precedence: command line, variables, config file.

use super::SettingsError;
use super::environment::ProcessEnvironment;
use super::table::{self, Setting, Support, ValueKind};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use secrecy::{ExposeSecret, SecretString};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;

/// Only setting whose empty value is not the default.
pub(super) const EMPTY_MEANS_NONE: &str = "emoji-reaction";
/// Largest config file, in bytes.
const MAX_CONFIG_FILE: u64 = 1024 * 1024;
/// Key of the config file without a flag: notifications.
pub(super) const WEBHOOKS: &str = "webhooks";

/// Keys and values of one entry of `webhooks`, unchecked.
pub(super) type WebhookEntry = Vec<(String, Option<String>)>;

/// Values that are set, and their sources.
#[derive(Clone, Default)]
pub(super) struct Values {
    /// `webhooks` of the config file.
    pub(super) webhooks: Vec<WebhookEntry>,
    /// Number of settings and notifications in the config file.
    pub(super) in_file: usize,
    given: BTreeMap<&'static str, Given>,
}

/// One value.
#[derive(Clone)]
pub(super) struct Given {
    pub(super) value: SecretString,
    /// Source for messages: `--port`, `ATLANTIS_PORT`, `port in /etc/atlantis.yaml`.
    pub(super) place: String,
}

impl Values {
    /// Reads all sources.
    pub(super) fn read(
        args: impl IntoIterator<Item = OsString>,
        environment: &ProcessEnvironment,
    ) -> Result<Values, SettingsError> {
        let mut values = Values::default();
        for (name, value) in command_line(args)? {
            values.given.insert(name, Given { value: value.into(), place: format!("--{name}") });
        }
        for (&name, (variable, value)) in &environment.given {
            values.add(name, value.clone(), variable.clone());
        }
        if let Some(config) = values.get("config").map(|given| given.value.expose_secret().to_owned()) {
            let path = super::check::expand(&config, environment).map_err(SettingsError::Invalid)?;
            let shown = path.display().to_string();
            let file = config_file(&path)?;
            values.in_file = file.settings.len() + file.webhooks.len();
            for (name, value) in file.settings {
                values.add(name, value.into(), format!("{name} in {shown}"));
            }
            // Recorded only for its place in messages.
            values.add(WEBHOOKS, String::new().into(), format!("{WEBHOOKS} in {shown}"));
            values.webhooks = file.webhooks;
        }
        Ok(values)
    }

    /// Adds a value, unless a source of higher precedence has one.
    pub(super) fn add(&mut self, name: &'static str, value: SecretString, place: String) {
        self.given.entry(name).or_insert(Given { value, place });
    }

    /// Gives a setting the value that it has in `old`, or none.
    pub(super) fn put_back(&mut self, name: &'static str, old: &Values) {
        match old.given.get(name) {
            Some(given) => self.given.insert(name, given.clone()),
            None => self.given.remove(name),
        };
    }

    /// Returns the value of a setting, if it is set.
    pub(super) fn get(&self, name: &str) -> Option<&Given> {
        self.given.get(name)
    }

    /// Returns the settings that are set.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static Setting, &Given)> {
        self.given.iter().filter_map(|(name, given)| Some((table::find(name)?, given)))
    }
}

/// Parses the flags; the last of several wins.
fn command_line(args: impl IntoIterator<Item = OsString>) -> Result<Vec<(&'static str, String)>, SettingsError> {
    let matches = command().try_get_matches_from(args).map_err(worded)?;
    let value = |setting: &'static Setting| Some((setting.name, matches.get_one::<String>(setting.name)?.clone()));
    Ok(table::all().filter_map(value).collect())
}

/// Settings that every server needs.
const REQUIRED: [&str; 4] = ["gh-user", "gh-token", "gh-webhook-secret", "repo-allowlist"];
/// Settings that most servers have.
const USUAL: [&str; 9] = [
    "atlantis-url",
    "bucket",
    "config",
    "data-dir",
    "gh-hostname",
    "gh-token-file",
    "port",
    "repo-config",
    "web-basic-auth",
];

/// Returns the command line of `tidelock server`, generated from the table, required settings first. `-h` shows the settings of most
/// servers, `--help` all.
pub fn command() -> clap::Command {
    let about = "Serves pull requests. Each setting is a flag, a variable (ATLANTIS_GH_USER or TIDELOCK_GH_USER for \
                 --gh-user) and a key of the --config file; the command line wins over variables, those over the file.";
    clap::Command::new("tidelock server")
        .no_binary_name(true)
        .args_override_self(true)
        .about(about)
        .args(sorted().into_iter().map(flag))
}

/// Returns all settings, in the order of the help.
fn sorted() -> Vec<&'static Setting> {
    let mut settings: Vec<_> = table::all().collect();
    let place = |list: &[&str], name: &str| list.iter().position(|other| *other == name);
    settings.sort_by_key(|Setting { name, .. }| (place(&REQUIRED, name).is_none(), place(&REQUIRED, name), *name));
    settings.sort_by_key(|setting| place(&HEADINGS, heading(setting)));
    settings
}

/// Headings of the help, in this order.
const HEADINGS: [&str; 5] =
    ["Required", "Usual", "Settings", "Settings that Atlantis does not have", "Accepted, without an effect"];

fn heading(setting: &Setting) -> &'static str {
    let [required, usual, atlantis, tidelock, accepted] = HEADINGS;
    match setting.support {
        _ if REQUIRED.contains(&setting.name) => required,
        _ if USUAL.contains(&setting.name) => usual,
        Support::Atlantis => atlantis,
        Support::Tidelock => tidelock,
        Support::Accepted(_) => accepted,
    }
}

fn flag(setting: &'static Setting) -> clap::Arg {
    let mut help = setting.help.to_owned();
    if !setting.default.is_empty() && setting.kind != ValueKind::Secret {
        help += &format!(" [default: {}]", setting.default);
    }
    if setting.is_secret() {
        help += &format!(" Better as {}, which no list of processes shows.", setting.variable("ATLANTIS_"));
    }
    let heading = heading(setting);
    let value_name = match setting.kind {
        ValueKind::Switch => "true|false",
        ValueKind::Text | ValueKind::Secret => "TEXT",
        ValueKind::List => "A,B",
        ValueKind::Number => "NUMBER",
        ValueKind::Duration => "DURATION",
        ValueKind::Path => "PATH",
    };
    let flag = clap::Arg::new(setting.name).long(setting.name).value_name(value_name).help(help).help_heading(heading);
    let flag = flag.hide_short_help(!matches!(heading, "Required" | "Usual"));
    if setting.kind == ValueKind::Switch {
        return flag.num_args(0..=1).require_equals(true).default_missing_value("true");
    }
    flag.allow_hyphen_values(true)
}

/// Converts clap's error without the values, which may be secrets.
fn worded(error: clap::Error) -> SettingsError {
    if error.kind() == ErrorKind::DisplayHelp {
        return SettingsError::Help(error.render().to_string());
    }
    let arg = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(arg)) => arg.split([' ', '=']).next().unwrap_or_default(),
        _ => "",
    };
    let text = match (error.kind(), arg.strip_prefix("--")) {
        (ErrorKind::UnknownArgument, Some(name)) => {
            let hint = table::hint(table::nearest(name), |setting| format!("--{}", setting.name));
            format!("there is no flag {arg}{hint}")
        }
        (ErrorKind::UnknownArgument, None) => "an argument is no flag: settings are written --name=value".to_owned(),
        (ErrorKind::InvalidValue | ErrorKind::NoEquals, _) => format!("{arg} needs a value: {arg}=VALUE"),
        (ErrorKind::InvalidUtf8, _) => "an argument is not UTF-8".to_owned(),
        _ => format!("{arg} is used wrongly: settings are written --name=value"),
    };
    SettingsError::Invalid(text)
}

/// Reads the settings of the config file. Messages name the position, never a value.
fn config_file(path: &std::path::Path) -> Result<ConfigFile, SettingsError> {
    let shown = path.display();
    let invalid = |text: String| SettingsError::Invalid(text);
    let cannot = |error: std::io::Error| invalid(format!("the config file {shown} cannot be read: {error}"));
    if std::fs::metadata(path).map_err(cannot)?.len() > MAX_CONFIG_FILE {
        return Err(invalid(format!("the config file {shown} is larger than {MAX_CONFIG_FILE} bytes")));
    }
    let text = std::fs::read_to_string(path).map_err(cannot)?;
    let options = serde_saphyr::options! { with_snippet: false };
    let entries: Option<Entries> = serde_saphyr::from_str_with_options(&text, options).map_err(|error| {
        let place = error.location().map_or(String::new(), |at| format!(":{}:{}", at.line(), at.column()));
        invalid(format!("{shown}{place}: this is not YAML of the form `setting: value`, each setting once"))
    })?;
    let (entries, webhooks) = entries.map(|entries| (entries.settings, entries.webhooks)).unwrap_or_default();
    let mut settings = Vec::new();
    for (key, value) in entries {
        match table::find(&key) {
            Some(setting) => settings.extend(value.map(|value| (setting.name, value))),
            None => {
                let hint = table::hint(table::nearest(&key), |setting| setting.name.to_owned());
                return Err(invalid(format!("{shown}: there is no setting {key:?}{hint}")));
            }
        }
    }
    Ok(ConfigFile { settings, webhooks })
}

/// Settings and notifications of a config file.
struct ConfigFile {
    settings: Vec<(&'static str, String)>,
    webhooks: Vec<WebhookEntry>,
}

/// Keys and values of the config file, unparsed.
struct Entries {
    settings: Vec<(String, Option<String>)>,
    webhooks: Vec<WebhookEntry>,
}

/// One entry of `webhooks`.
struct Pairs(WebhookEntry);

/// One value or several.
struct List(String);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Entries, D::Error> {
        struct Map;
        impl<'de> Visitor<'de> for Map {
            type Value = Entries;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("settings")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let (mut settings, mut webhooks) = (Vec::new(), Vec::new());
                while let Some(key) = map.next_key::<String>()? {
                    if key == WEBHOOKS {
                        let entries = map.next_value::<Option<Vec<Pairs>>>()?.unwrap_or_default();
                        webhooks.extend(entries.into_iter().map(|entry| entry.0));
                        continue;
                    }
                    let value = match table::find(&key).map(|setting| setting.kind) {
                        Some(ValueKind::List) => map.next_value::<Option<List>>()?.map(|list| list.0),
                        Some(_) => map.next_value::<Option<String>>()?,
                        None => map.next_value::<IgnoredAny>().map(|_| None)?,
                    };
                    settings.push((key, value));
                }
                Ok(Entries { settings, webhooks })
            }
        }
        deserializer.deserialize_map(Map)
    }
}

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Pairs, D::Error> {
        struct Map;
        impl<'de> Visitor<'de> for Map {
            type Value = Pairs;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("keys and values")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Map)
    }
}

impl<'de> Deserialize<'de> for List {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<List, D::Error> {
        struct OneOrMany;
        impl<'de> Visitor<'de> for OneOrMany {
            type Value = List;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text or a list of texts")
            }
            fn visit_str<E>(self, text: &str) -> Result<List, E> {
                Ok(List(text.to_owned()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<List, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element::<String>()? {
                    items.push(item);
                }
                Ok(List(items.join(",")))
            }
        }
        deserializer.deserialize_any(OneOrMany)
    }
}
