//! Reads the settings again while the server runs. Flags and variables of a process stay, so what can change is the config file and the
//! files that settings name. Settings that are not marked as live in the table keep their values until the next start.

use super::read::{EMPTY_MEANS_NONE, Values, WEBHOOKS};
use super::table::{self, Support, ValueKind};
use super::typed::{self, Reader};
use super::{Settings, SettingsDraft, SettingsError, check};
use crate::domain::is_same;
use secrecy::ExposeSecret;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

/// Settings that name files with configuration which is read again when it changes.
const FILES: [&str; 3] = ["config", "repo-config", "language-config-file"];

/// Origin of the settings of a process.
pub struct SettingsSource {
    args: Vec<OsString>,
    variables: Variables,
    /// Values in use.
    values: Values,
    /// Files with configuration that is read again when it changes, each with its setting.
    files: Vec<(&'static str, PathBuf)>,
    /// Directory of comment templates, which need not exist.
    templates: Option<PathBuf>,
}

/// Variables of the settings.
#[derive(Clone)]
pub(super) enum Variables {
    /// Those of this process, which are not kept a second time.
    OfProcess,
    Given(Vec<(OsString, OsString)>),
}

impl Variables {
    pub(super) fn read(&self) -> Vec<(OsString, OsString)> {
        match self {
            Variables::OfProcess => std::env::vars_os().collect(),
            Variables::Given(all) => all.clone(),
        }
    }
}

/// Rules of an allowlist that may change; clones share them.
#[derive(Debug, Clone, Default)]
pub struct ServedRules(Arc<RwLock<Vec<String>>>);

impl ServedRules {
    /// Returns the present rules.
    pub fn get(&self) -> Vec<String> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the rules.
    pub fn set(&self, rules: Vec<String>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = rules;
    }
}

/// Settings that were read again.
pub struct RereadSettings {
    /// The new values of live settings, the old ones of all others.
    pub settings: Settings,
    /// Names of live settings with new values.
    pub changed: Vec<String>,
    /// Names of settings whose new values take effect at the next start.
    pub needs_restart: Vec<String>,
}

/// Returns no source, which is filled after all settings were read.
pub(super) fn no_source(_: &mut Reader) -> Option<Arc<SettingsSource>> {
    None
}

/// Returns no rules, which are filled after all settings were read.
pub(super) fn no_rules(_: &mut Reader) -> ServedRules {
    ServedRules::default()
}

impl SettingsSource {
    pub(super) fn new(args: Vec<OsString>, variables: Variables, reader: &mut Reader) -> SettingsSource {
        let files = FILES.iter().filter_map(|name| Some((*name, reader.path(name)?))).collect();
        let templates = check::expand(&reader.text("markdown-template-overrides-dir"), &reader.environment).ok();
        SettingsSource { args, variables, values: reader.values.clone(), files, templates }
    }

    /// Returns the settings of a reader; an error if there are mistakes.
    fn checked(&self, mut reader: Reader) -> Result<SettingsDraft, SettingsError> {
        for setting in table::all().filter(|setting| setting.kind == ValueKind::Path) {
            if let Some(path) = reader.is_given(setting.name).then(|| reader.path(setting.name)).flatten() {
                may_read(setting.name, &path).map_err(SettingsError::Invalid)?;
            }
        }
        let draft = Settings::of_reader(reader, self.args.clone(), self.variables.clone());
        typed::none_of(&draft.problems).map(|()| draft)
    }
}

impl Settings {
    /// Returns the files with configuration that is read again when it changes.
    pub fn watched_files(&self) -> impl Iterator<Item = &Path> {
        self.source.iter().flat_map(|source| &source.files).map(|(_, path)| path.as_path())
    }

    /// Returns the directory of comment templates, which need not exist.
    pub fn watched_templates(&self) -> Option<&Path> {
        self.source.as_ref().and_then(|source| source.templates.as_deref())
    }

    /// Reads the settings again from where these came from. Blocks.
    ///
    /// # Errors
    ///
    /// The mistakes, as at a start. A file that is no regular file is one: reading it may not end, or give nothing the second time.
    pub fn read_again(&self) -> Result<RereadSettings, SettingsError> {
        let Some(source) = &self.source else {
            return Err(SettingsError::Invalid(
                "these settings cannot be read again: they came from no process".into(),
            ));
        };
        let invalid = SettingsError::Invalid;
        // The config file is read before anything else is known.
        source.files.iter().try_for_each(|(name, path)| may_read(name, path)).map_err(invalid)?;
        let variables = source.variables.read();
        let reader = Reader::new(source.args.iter().cloned(), variables.iter().cloned())?;
        if reader.values.in_file == 0 && source.values.in_file > 0 {
            return Err(invalid(
                "config names a file without settings, and it had some: write them again, or restart the server to go on \
                 without them"
                    .to_owned(),
            ));
        }
        let mut values = reader.values.clone();
        // Mistakes in settings that wait for a restart would stop it.
        source.checked(reader)?;
        let (changed, needs_restart) = values.keep(&source.values);
        let draft = source.checked(Reader::of(values, variables)?)?;
        let settings = Settings { served: self.served.clone(), ..draft.settings };
        Ok(RereadSettings { settings, changed, needs_restart })
    }
}

/// Returns an error if the path is neither a regular file nor a directory. A missing file is no error here: its reader reports it.
fn may_read(name: &str, path: &Path) -> Result<(), String> {
    let shown = path.display();
    match std::fs::metadata(path) {
        Ok(found) if found.is_file() || found.is_dir() => Ok(()),
        Ok(_) => Err(format!(
            "{name} names {shown}, which is no regular file and is not read again: put a file there, or restart the server"
        )),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(format!("{name} names {shown}, which cannot be read: {error}")),
    }
}

impl Values {
    /// Puts back the old values of settings that are not live. Returns the names of live settings with new values, and of those that were
    /// put back.
    fn keep(&mut self, old: &Values) -> (Vec<String>, Vec<String>) {
        let (mut changed, mut kept) = (Vec::new(), Vec::new());
        for setting in table::all() {
            // A default that is written out may mean more than one that is not.
            let written = |values: &Values| {
                let given = values.get(setting.name).map(|given| given.value.expose_secret().to_owned());
                given.filter(|value| !value.is_empty() || setting.name == EMPTY_MEANS_NONE)
            };
            let is_unchanged = match (written(self), written(old)) {
                (Some(now), Some(before)) => is_same(&now, &before),
                (now, before) => now.is_none() && before.is_none(),
            };
            if is_unchanged || matches!(setting.support, Support::Accepted(_)) {
                continue;
            }
            if setting.is_live {
                changed.push(setting.name.to_owned());
            } else {
                self.put_back(setting.name, old);
                kept.push(setting.name.to_owned());
            }
        }
        if self.webhooks != old.webhooks {
            self.webhooks.clone_from(&old.webhooks);
            self.put_back(WEBHOOKS, old);
            kept.push(WEBHOOKS.to_owned());
        }
        changed.sort_unstable();
        kept.sort_unstable();
        (changed, kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::tests::NEEDED;
    use std::time::Duration;

    /// Loads the settings of a config file with this text.
    fn load(file: &tempfile::NamedTempFile, text: &str) -> Settings {
        std::fs::write(file.path(), text).unwrap();
        let args = [OsString::from(format!("--config={}", file.path().display()))];
        let variables = NEEDED.iter().filter(|(name, _)| *name != "ATLANTIS_REPO_ALLOWLIST");
        Settings::load(args, variables.map(|(name, value)| (name.into(), value.into()))).unwrap()
    }

    fn again(settings: &Settings, file: &tempfile::NamedTempFile, text: &str) -> Result<RereadSettings, String> {
        std::fs::write(file.path(), text).unwrap();
        settings.read_again().map_err(|error| error.to_string())
    }

    #[test]
    fn live_settings_change_and_all_others_stay() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let start = load(&file, "repo-allowlist: github.com/acme/*\nport: 5000\nautomerge: true\n");
        let text = "repo-allowlist: [github.com/acme/*, github.com/more/*]\nport: 6000\nplan-max-age: 24h\n\
                    tfe-token: hunter2\nslack-token: xoxb\nwebhooks: [{kind: slack, event: apply, channel: x}]\n";
        let read = again(&start, &file, text).unwrap();
        assert_eq!(read.changed, ["automerge", "plan-max-age", "repo-allowlist"]);
        assert_eq!(read.needs_restart, ["port", "slack-token", "tfe-token", "webhooks"]);
        let settings = read.settings;
        assert_eq!(settings.repo_allowlist, ["github.com/acme/*", "github.com/more/*"]);
        assert_eq!((settings.port, settings.automerge), (5000, false));
        assert_eq!(settings.plan_max_age, Duration::from_secs(24 * 3600));
        assert!(settings.tfe.is_none() && settings.notifications.receivers.is_empty());
        // A third reading compares with the second, and still knows what waits for a restart.
        let read = again(&settings, &file, text).unwrap();
        assert_eq!((read.changed, read.needs_restart.len()), (Vec::new(), 4));
        let text = "repo-allowlist: github.com/acme/*\nautomerge: true\n";
        let read = again(&settings, &file, text).unwrap();
        assert_eq!(read.changed, ["automerge", "plan-max-age", "repo-allowlist"]);
        assert_eq!(read.needs_restart, ["port"], "the port is that of the start, not the default");
    }

    #[test]
    fn a_default_that_is_written_out_and_a_moved_configuration_are_changes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let allowlist = "repo-allowlist: github.com/acme/*\n";
        let start = load(&file, allowlist);
        let text = format!("{allowlist}emoji-reaction: ''\nsilence-allowlist-errors: false\nredis-port: 1\n");
        let read = again(&start, &file, &text).unwrap();
        assert_eq!(read.changed, ["emoji-reaction", "silence-allowlist-errors"]);
        assert_eq!(read.settings.silence_allowlist_errors, Some(false));
        let repos = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(repos.path(), "repos: []").unwrap();
        let named = format!("{allowlist}repo-config: {}\n", repos.path().display());
        let read = again(&read.settings, &file, &named).unwrap();
        assert!(read.changed.contains(&"repo-config".to_owned()), "{:?}", read.changed);
        let read = again(&read.settings, &file, &format!("{allowlist}repo-config-json: '{{}}'\n")).unwrap();
        assert_eq!(read.changed, ["repo-config", "repo-config-json"]);
        assert_eq!(read.settings.repo_config.unwrap().1, "{}");
    }

    #[test]
    fn mistakes_are_those_of_a_start_and_pipes_are_not_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let good = "repo-allowlist: github.com/acme/*\n";
        let start = load(&file, good);
        let error = again(&start, &file, "repo-allowlist: github.com/acme/*\nplan-max-age: soon\n").err().unwrap();
        assert!(error.contains("plan-max-age in ") && error.contains("is no duration"), "{error}");
        let error = again(&start, &file, "repo-allowlist: https://github.com/acme\n").err().unwrap();
        assert!(error.contains("rules are written without a scheme"), "{error}");
        // It would take effect at the next start only, and stop it.
        let error = again(&start, &file, &format!("{good}port: banana\n")).err().unwrap();
        assert!(error.contains("port in ") && error.contains("is no number"), "{error}");
        for emptied in ["", "# nothing\n"] {
            let error = again(&start, &file, emptied).err().unwrap();
            assert!(error.contains("a file without settings"), "{error}");
        }
        std::fs::remove_file(file.path()).unwrap();
        assert!(start.read_again().err().unwrap().to_string().contains("cannot be read"));
        rustix::fs::mknodat(rustix::fs::CWD, file.path(), rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
            .unwrap();
        let error = start.read_again().err().unwrap().to_string();
        assert!(error.contains("is no regular file"), "{error}");
        std::fs::remove_file(file.path()).unwrap();
        std::os::unix::fs::symlink(file.path(), file.path()).unwrap();
        let error = start.read_again().err().unwrap().to_string();
        assert!(error.contains("cannot be read"), "{error}");
        std::fs::remove_file(file.path()).unwrap();
        std::fs::File::create(file.path()).unwrap().set_len(1 << 30).unwrap();
        let error = start.read_again().err().unwrap().to_string();
        assert!(error.contains("is larger than"), "{error}");
        std::fs::remove_file(file.path()).unwrap();
        assert!(again(&start, &file, good).unwrap().changed.is_empty());
    }
}
