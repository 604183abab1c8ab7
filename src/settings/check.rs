//! Reads and checks single settings: functions of the reader and the setting's name. The reader collects mistakes.

use super::environment::ProcessEnvironment;
use super::typed::Reader;
use super::{TokenSetting, addresses};
use crate::checkout::Strategy;
use crate::config::global::AutodiscoverMode;
use crate::config::permissions;
use crate::config::policies::PolicyEngine;
use crate::domain::automerge::MERGE_METHODS;
use crate::domain::command::CommandName;
use crate::domain::reply::CommentStyle;
use crate::domain::{Distribution, duration};
use crate::process::{RunAsUsers, SHORTEST_SECRET, StepConfinement};
use secrecy::{ExposeSecret, SecretString};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tidelock_secrets::SecretReader;

/// Reactions that GitHub knows.
const REACTIONS: [&str; 8] = ["+1", "-1", "laugh", "confused", "heart", "hooray", "rocket", "eyes"];
/// Atlantis' default password, which everybody knows.
const DEFAULT_PASSWORD: &str = "atlantis";
/// Default first words of commands.
const EXECUTABLES: [&str; 2] = ["atlantis", "tidelock"];
/// Longest `shutdown-grace`.
const LONGEST_GRACE: Duration = Duration::from_secs(3600);
/// Largest file that a setting names, in bytes.
const MAX_FILE: u64 = 10 * 1024 * 1024;

/// Returns an empty value for a field that is filled after all settings were read.
pub(super) fn filled_later<T>(_: &mut Reader) -> Vec<T> {
    Vec::new()
}

/// Reads text; none if it is empty.
pub(super) fn optional(r: &mut Reader, name: &str) -> Option<String> {
    r.optional(name)
}

/// Reads a method of merging; none if the host's own order decides.
pub(super) fn merge_method(r: &mut Reader, name: &str) -> Option<String> {
    let method = r.optional(name)?;
    if !MERGE_METHODS.contains(&method.as_str()) {
        r.wrong(name, format!("is none of {}", MERGE_METHODS.join(", ")));
    }
    Some(method)
}

/// Reads the time limit of steps that change a state. There is none by default, because an interrupted apply leaves work behind.
pub(super) fn apply_timeout(r: &mut Reader) -> Option<Duration> {
    const NAME: &str = "job-timeout";
    let is_zero = |text: &str| duration::parse(text).is_some_and(|given| given.is_zero());
    // Zero means the default, as for every duration. The reader of the setting itself reports an invalid value.
    let given = r.is_given(NAME) && !is_zero(&r.text(NAME));
    given.then(|| duration::parse(&r.text(NAME))).flatten()
}

/// Reads a switch whose default differs from both its values.
pub(super) fn if_given(r: &mut Reader, name: &str) -> Option<bool> {
    r.is_given(name).then(|| r.switch(name))
}

/// Reads a number within these bounds, which have to fit into `T`. A 0 out of bounds and a value that Kubernetes sets mean the default.
pub(super) fn number<const LEAST: i64, const MOST: i64, T: TryFrom<i64> + Default>(r: &mut Reader, name: &str) -> T {
    T::try_from(r.number(name, LEAST, MOST)).unwrap_or_default()
}

/// Reads a number of days from 1 to `MOST`.
pub(super) fn days<const MOST: i64>(r: &mut Reader, name: &str) -> Duration {
    Duration::from_secs(number::<1, MOST, u64>(r, name) * 24 * 3600)
}

/// A type whose values have names in settings.
pub(super) trait Choice: Copy + 'static {
    const NAMES: &[(&str, Self)];
}

impl Choice for Strategy {
    const NAMES: &[(&str, Strategy)] = &[("branch", Strategy::Branch), ("merge", Strategy::Merge)];
}

impl Choice for CommentStyle {
    const NAMES: &[(&str, CommentStyle)] = &[("short", CommentStyle::Short), ("full", CommentStyle::Full)];
}

impl Choice for StepConfinement {
    const NAMES: &[(&str, StepConfinement)] =
        &[("auto", StepConfinement::Auto), ("required", StepConfinement::Required), ("off", StepConfinement::Off)];
}

impl Choice for Distribution {
    const NAMES: &[(&str, Distribution)] =
        &[("terraform", Distribution::Terraform), ("opentofu", Distribution::OpenTofu)];
}

impl Choice for PolicyEngine {
    const NAMES: &[(&str, PolicyEngine)] = &[("builtin", PolicyEngine::Builtin), ("conftest", PolicyEngine::Conftest)];
}

impl Choice for AutodiscoverMode {
    const NAMES: &[(&str, AutodiscoverMode)] = &[
        ("auto", AutodiscoverMode::Auto),
        ("enabled", AutodiscoverMode::Enabled),
        ("disabled", AutodiscoverMode::Disabled),
    ];
}

/// Reads one of the names of a type's values.
pub(super) fn choice<T: Choice>(r: &mut Reader, name: &str) -> T {
    r.choice(name, T::NAMES)
}

pub(super) fn log_level(r: &mut Reader, name: &str) -> String {
    r.choice(name, &["debug", "info", "warn", "error"].map(|level| (level, level))).to_owned()
}

/// Reads `stats-namespace`, the prefix of the names of metrics.
pub(super) fn stats_namespace(r: &mut Reader, name: &str) -> String {
    let text = r.text(name);
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if !text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') || !text.chars().all(is_part) {
        r.wrong(name, format!("is {text:?}: write letters, digits, `_`, `-` and `.`, a letter first"));
    }
    text
}

/// Reads `allow-commands`.
pub(super) fn allow_commands(r: &mut Reader, name: &str) -> Vec<CommandName> {
    let (names, has_policies) = (r.list(name), r.switch("enable-policy-checks"));
    let known: Vec<CommandName> =
        CommandName::ALL.into_iter().filter(|known| known.spec().is_in_allow_commands).collect();
    for command in &names {
        match command.as_str() {
            // Atlantis knows it as a command that comments cannot use.
            "all" | "policy_check" => {}
            "approve_policies" if r.is_given(name) && !has_policies => {
                r.warnings.push("approve_policies has no effect without --enable-policy-checks".to_owned());
            }
            command if known.iter().any(|known| known.spec().first_word() == command) => {}
            command => r.wrong(name, format!("names no command: {command}")),
        }
    }
    let is_allowed = |name: &str| {
        names.iter().any(|allowed| allowed == name || allowed == "all") && (name != "approve_policies" || has_policies)
    };
    known.into_iter().filter(|command| is_allowed(command.spec().first_word())).collect()
}

pub(super) fn atlantis_url(r: &mut Reader, name: &str) -> String {
    if r.is_given(name) {
        return address(r, name);
    }
    let port: u16 = number::<1, 65_535, _>(r, "port");
    let scheme = if r.is_given("ssl-cert-file") { "https" } else { "http" };
    format!("{scheme}://{}:{port}", rustix::system::uname().nodename().to_string_lossy())
}

/// Reads an address without its trailing slash.
pub(super) fn address(r: &mut Reader, name: &str) -> String {
    addresses::address(&r.text(name)).map_err(|what| r.wrong(name, what)).unwrap_or_default()
}

/// Reads an address that may be missing.
pub(super) fn optional_address(r: &mut Reader, name: &str) -> Option<String> {
    let text = optional(r, name)?;
    addresses::address(&text).map_err(|what| r.wrong(name, what)).ok()
}

/// Reads globs, with `!` in front of those that exclude.
pub(super) fn globs(r: &mut Reader, name: &str) -> Vec<String> {
    let globs = r.list(name);
    for glob in &globs {
        // Atlantis' globs have no alternatives in braces: a brace is an ordinary character.
        let plain = glob.strip_prefix('!').unwrap_or(glob).trim().replace('{', "\\{").replace('}', "\\}");
        let parsed = globset::GlobBuilder::new(&plain).literal_separator(true).backslash_escape(true).build();
        if plain.is_empty() || parsed.is_err() {
            r.wrong(name, format!("has an invalid pattern: {glob}"));
        }
    }
    globs
}

/// Reads globs whose default depends on `autoplan-modules`.
pub(super) fn modules(r: &mut Reader, name: &str) -> Vec<String> {
    let globs = globs(r, name);
    if r.switch("autoplan-modules") && globs.is_empty() { r.list("autoplan-file-list") } else { globs }
}

pub(super) fn bind(r: &mut Reader, name: &str) -> IpAddr {
    r.text(name).parse().unwrap_or_else(|_| {
        r.wrong(name, "is no IP address");
        Ipv4Addr::LOCALHOST.into()
    })
}

/// Reads a version without its `v`.
pub(super) fn default_version(r: &mut Reader, name: &str) -> Option<String> {
    let text = r.optional(name)?;
    let version = text.strip_prefix('v').unwrap_or(&text);
    let is_sound = version.starts_with(|char: char| char.is_ascii_digit())
        && version.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-+".contains(&byte));
    if !is_sound {
        r.wrong(name, "is no version such as 1.11.4");
    }
    Some(version.to_owned())
}

/// Runs the checks that come before reading any setting.
pub(super) fn beforehand(r: &mut Reader) {
    r.check_support();
    old_distribution(r);
    mask(r);
}

/// Replaces `tf-distribution`, the old name, by the new one, which takes precedence.
fn old_distribution(r: &mut Reader) {
    let Some(given) = r.values.get("tf-distribution").filter(|_| r.is_given("tf-distribution")) else { return };
    let (value, place) = (given.value.clone(), given.place.clone());
    r.warnings.push(format!("{place} is the old name of default-tf-distribution"));
    r.values.add("default-tf-distribution", value, place);
}

/// Returns the reader of projects' secrets.
pub(super) fn secret_reader(r: &mut Reader) -> Arc<SecretReader> {
    Arc::new(SecretReader::new(std::mem::take(&mut r.environment.of_stores)))
}

/// Makes values secret: children still get the variables of `--masked-values-from`, but not those of `--masked-variables`.
pub(super) fn mask(r: &mut Reader) {
    let from = "masked-values-from";
    for name in r.list(from) {
        let Some(value) = r.environment.others.get(&name).cloned() else {
            r.warn(from, format!("names {name}, which is not set: nothing is masked for it"));
            continue;
        };
        if value.trim().len() < SHORTEST_SECRET {
            let short = "bytes and is not masked";
            r.warn(from, format!("names {name}, whose value is shorter than {SHORTEST_SECRET} {short}"));
        }
        r.environment.secrets.push(value.into());
    }
    let names = r.list("masked-variables");
    r.environment.mask(&names);
}

pub(super) fn shutdown_grace(r: &mut Reader, name: &str) -> Duration {
    let grace = r.duration(name);
    if grace > LONGEST_GRACE {
        r.wrong(name, "is longer than 1h");
    }
    grace.min(LONGEST_GRACE)
}

/// Reads the reaction; none if GitHub does not have it.
pub(super) fn reaction(r: &mut Reader, name: &str) -> Option<String> {
    let reaction = r.optional(name)?;
    if !REACTIONS.contains(&reaction.as_str()) {
        r.warn(name, format!("has no effect: GitHub's reactions are {}", REACTIONS.join(", ")));
        return None;
    }
    Some(reaction)
}

pub(super) fn executable_names(r: &mut Reader, name: &str) -> Vec<String> {
    let Some(word) = r.optional(name) else { return EXECUTABLES.map(str::to_owned).to_vec() };
    if word.contains(|char: char| char.is_whitespace() || char.is_control() || char == '`') {
        r.wrong(name, "is not one word");
    }
    vec![word.to_lowercase()]
}

/// Reads the project of Cloud Logging. Its format is on if a project is set, and on Cloud Run, which sets `K_SERVICE`.
pub(super) fn cloud_logging(r: &mut Reader, name: &str) -> Option<Option<String>> {
    let project = r.optional(name);
    (project.is_some() || r.environment.others.contains_key("K_SERVICE")).then_some(project)
}

pub(super) fn data_dir(r: &mut Reader, name: &str) -> PathBuf {
    r.path(name).unwrap_or_default()
}

pub(super) fn repo_allowlist(r: &mut Reader, name: &str) -> Vec<String> {
    let rules = r.list(name);
    if rules.is_empty() {
        r.wrong(name, "is missing: name the repositories to serve, such as github.com/acme/*");
    }
    if rules.iter().any(|rule| rule.contains("://")) {
        r.wrong(name, "contains ://: rules are written without a scheme, such as github.com/acme/*");
    }
    for rule in &rules {
        let host = rule.trim().trim_start_matches('!').split('/').next().unwrap_or_default();
        if !host.contains(['.', '*', ':']) && !host.eq_ignore_ascii_case("localhost") && !host.is_empty() {
            r.warnings.push(format!(
                "repo-allowlist: {rule} names no host, so that it fits no repository: rules are HOST/OWNER/NAME, such as \
                 github.com/acme/*"
            ));
        }
    }
    rules
}

/// Reads `ignore-vcs-status-names`.
pub(super) fn ignored_statuses(r: &mut Reader, name: &str) -> Vec<String> {
    if r.is_given(name) && !r.switch("gh-allow-mergeable-bypass-apply") {
        r.warn(name, "has no effect without gh-allow-mergeable-bypass-apply");
    }
    r.list(name)
}

/// Reads rules of teams and users, each with its command.
pub(super) fn team_allowlist(r: &mut Reader, name: &str) -> Vec<String> {
    let rules = r.list(name);
    for rule in &rules {
        match permissions::check(rule) {
            Ok(()) if rule.contains(':') => {}
            Ok(()) => r.wrong(name, format!("has no command in {rule}: rules are TEAM:COMMAND, such as sre:apply")),
            Err(problem) => r.wrong(name, format!("has {rule}: {problem}")),
        }
    }
    rules
}

/// Reads the name and text of the server-side configuration.
pub(super) fn repo_config(r: &mut Reader) -> Option<(String, String)> {
    let json = r.optional("repo-config-json");
    let Some(path) = r.path("repo-config") else { return json.map(|json| ("repo-config-json".to_owned(), json)) };
    if json.is_some() {
        r.wrong("repo-config", "and repo-config-json are both given: leave one out");
        return None;
    }
    let text = read_file(&path).map_err(|error| r.wrong("repo-config", error)).ok()?;
    Some((path.display().to_string(), text))
}

/// Reads `UID` or `FIRST:LAST`.
pub(super) fn run_as_user(r: &mut Reader, name: &str) -> Option<RunAsUsers> {
    let text = r.optional(name)?;
    let (first, last) = text.split_once(':').unwrap_or((&text, &text));
    match (first.parse(), last.parse()) {
        (Ok(0), _) => r.wrong(name, "is root: choose a user with fewer rights than ours"),
        (Ok(first), Ok(last)) => match RunAsUsers::new(first, last) {
            Some(users) => return Some(users),
            None => r.wrong(name, "names no user: the last one of FIRST:LAST comes before the first"),
        },
        _ => r.wrong(name, "is not of the form UID or FIRST:LAST, in numbers"),
    }
    None
}

/// Reads the directories from which `-var-file` may read.
pub(super) fn var_file_allowlist(r: &mut Reader, name: &str) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for text in r.list(name) {
        match expand(&text, &r.environment) {
            Ok(path) => paths.push(path),
            Err(what) => r.wrong(name, what),
        }
    }
    if paths.is_empty() { vec![data_dir(r, "data-dir")] } else { paths }
}

/// Reads user and password of the pages, if basic auth is on.
pub(super) fn web_basic_auth(r: &mut Reader) -> Option<(String, SecretString)> {
    if !r.switch("web-basic-auth") {
        if r.is_given("web-password") {
            r.warn("web-password", "has no effect without web-basic-auth");
        }
        return None;
    }
    let password = r.secret("web-password")?;
    if password.expose_secret() == DEFAULT_PASSWORD {
        r.wrong("web-password", "is the default password, which everybody knows: set another one for web-basic-auth");
    }
    Some((r.text("web-username"), password))
}

/// Reads exactly one of the two settings, the token or its file; `missing` is the error if both are unset.
pub(super) fn token(r: &mut Reader, value: &str, file: &str, missing: &str) -> Option<TokenSetting> {
    match (r.secret(value), r.path(file)) {
        (Some(_), Some(_)) => r.wrong(file, format!("and {value} are both given: leave one out")),
        (None, None) if r.switch("events-only") => {}
        (None, None) => r.wrong(value, missing),
        (Some(token), None) => {
            let trimmed = token.expose_secret().trim();
            if trimmed.contains(['\n', '\r']) {
                r.wrong(value, "contains line breaks");
            }
            return Some(TokenSetting::Value(trimmed.into()));
        }
        (None, Some(path)) => match read_file(&path) {
            Ok(text) if text.trim().is_empty() => r.wrong(file, "names an empty file"),
            Ok(text) => {
                r.environment.secrets.push(text.trim().into());
                return Some(TokenSetting::File(path));
            }
            Err(error) => r.wrong(file, error),
        },
    }
    None
}

/// Shortest password or token that deliveries carry, or secret that signs them, in characters. Requests with the right one are accepted
/// however many with a wrong one come from the same address, since the host delivers for strangers from there as well. It must therefore be
/// too long to guess.
pub(super) const SHORTEST_PROOF: usize = 16;

/// Returns true if a password or token of deliveries is short enough to guess.
pub(super) fn is_guessable(proof: &SecretString) -> bool {
    proof.expose_secret().chars().count() < SHORTEST_PROOF
}

/// Reads a small file; the error follows the setting's name.
pub(super) fn read_file(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let size = std::fs::metadata(path).map_err(|error| format!("names {shown}, which cannot be read: {error}"))?.len();
    if size > MAX_FILE {
        return Err(format!("names {shown}, which is larger than {MAX_FILE} bytes"));
    }
    let bytes = std::fs::read(path).map_err(|error| format!("names {shown}, which cannot be read: {error}"))?;
    String::from_utf8(bytes).map_err(|error| {
        let before = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        format!("names {shown}, which is no text in UTF-8: see line {line}")
    })
}

/// Replaces `~/` by the home directory, and makes any other path absolute.
pub(super) fn expand(path: &str, environment: &ProcessEnvironment) -> Result<PathBuf, String> {
    let path = match path.strip_prefix("~/").or((path == "~").then_some("")) {
        None => PathBuf::from(path),
        Some(rest) => match environment.others.get("HOME").filter(|home| !home.is_empty()) {
            Some(home) => Path::new(home).join(rest),
            None => return Err("begins with ~/, but the variable HOME is not set".to_owned()),
        },
    };
    std::path::absolute(path).map_err(|error| format!("cannot be made absolute: {error}"))
}
