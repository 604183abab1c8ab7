//! The one table of settings: flags, variables, keys of the config file and the reference page derive from it.

mod built;
mod moot;
mod unbuilt;

/// One setting.
pub(super) struct Setting {
    /// Flag and key of the config file; its variables derive from it.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// As one would write it; empty: none, or worked out at the start.
    pub(super) default: &'static str,
    /// One sentence without its full stop.
    pub(super) help: &'static str,
    pub(super) effect: Effect,
    /// Atlantis does not have it.
    pub(super) ours: bool,
}

/// What its value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// true or false
    Switch,
    Text,
    /// Text that nobody may see.
    Secret,
    /// Separated by commas.
    List,
    Number,
    /// `90s`, `10m`, `1h` or seconds
    Duration,
    Path,
}

/// What it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    Built,
    /// Stops the start unless it has its default value.
    NotBuilt,
    /// Taken without an effect; the warning says why. Empty: no warning is needed.
    Accepted(&'static str),
}

impl Setting {
    pub(super) fn is_secret(&self) -> bool {
        self.kind == Kind::Secret
    }

    /// `ATLANTIS_GH_USER` for `gh-user`.
    pub(super) fn variable(&self, prefix: &str) -> String {
        format!("{prefix}{}", self.name.to_uppercase().replace('-', "_"))
    }
}

const fn new(name: &'static str, kind: Kind, default: &'static str, help: &'static str, effect: Effect) -> Setting {
    Setting { name, kind, default, help, effect, ours: false }
}

const fn built(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Setting {
    new(name, kind, default, help, Effect::Built)
}

const fn ours(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Setting {
    Setting { ours: true, ..new(name, kind, default, help, Effect::Built) }
}

const fn accepted(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    help: &'static str,
    why: &'static str,
) -> Setting {
    new(name, kind, default, help, Effect::Accepted(why))
}

const fn unbuilt(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Setting {
    new(name, kind, default, help, Effect::NotBuilt)
}

/// All settings.
pub(super) fn all() -> impl Iterator<Item = &'static Setting> {
    built::SETTINGS.iter().chain(moot::SETTINGS).chain(unbuilt::SETTINGS)
}

/// The setting of that name.
pub(super) fn find(name: &str) -> Option<&'static Setting> {
    all().find(|setting| setting.name == name)
}

/// The name that was probably meant: the nearest, or one that ends alike (`atlantis-url` for `url`).
pub(super) fn nearest(name: &str) -> &'static str {
    let distance = |setting: &Setting| strsim::damerau_levenshtein(setting.name, name);
    let ends_alike = |setting: &&Setting| setting.name.strip_suffix(name).is_some_and(|start| start.ends_with('-'));
    let nearest = all().min_by_key(|setting| distance(setting)).filter(|setting| 2 * distance(setting) <= name.len());
    nearest
        .or_else(|| all().find(ends_alike))
        .or_else(|| all().min_by_key(|s| distance(s)))
        .map_or("config", |s| s.name)
}
