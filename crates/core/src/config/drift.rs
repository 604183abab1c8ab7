//! `drift`: when the server looks for drift by itself. Only `repos.yaml` has it: a pull request neither begins nor stops detections. Pure:
//! the caller gives the time.
//!
//! ```yaml
//! repos:
//!   - id: /.*/
//!     drift: {schedule: "0 3 * * *", timezone: Europe/Berlin, projects: ["prod/**", net], window: 6h, notify: drift, branch: main}
//!   - id: github.com/acme/sandbox
//!     drift: {schedule: none}
//! ```

use super::ConfigError;
use super::executors::dir_glob;
use super::paths::Glob;
use super::raw::LocatedText;
use super::workflow::raw::OneOrMany;
use super::yaml::{error_at, quoted};
use crate::domain::drift::DriftCheck;
use crate::domain::{ProjectId, RepoId, duration};
use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_saphyr::Spanned;
use sha2::{Digest, Sha256};

#[cfg(test)]
mod tests;

/// Value of `schedule` for no detections.
const NEVER: &str = "none";
/// Values of `notify`.
const NOTIFY: [&str; 2] = ["drift", "none"];
/// Number of fields of a cron expression.
const FIELDS: usize = 5;
/// Problem of a field, with the values of all fields.
const RANGES: &str = "a field is malformed or out of its range; there are: minute 0-59, hour 0-23, day of month 1-31, month 1-12 or jan-dec, \
                      day of week 0-7 or sun-sat";
/// Longest cron expression, and longest name of a branch, in bytes.
const MAX_TEXT: usize = 250;
/// Most entries of `projects`.
pub(super) const MAX_PATTERNS: usize = 100;
/// Most entries of `issue_labels`.
pub(super) const MAX_LABELS: usize = 5;
/// Longest label, in characters: the limit of hosts.
const MAX_LABEL: usize = 50;
/// Shortest time between two scheduled times of a day, in minutes.
const SHORTEST_INTERVAL: u32 = 10;
/// Minutes of a day.
const DAY: u32 = 24 * 60;
/// Default of `window`: a check of the night is caught up in the morning.
const WINDOW: SignedDuration = SignedDuration::from_hours(12);
/// Shortest `window`.
const SHORTEST_WINDOW: SignedDuration = SignedDuration::from_mins(10);
/// Number of seconds over which detections of the same scheduled time are spread.
const SPREAD: u64 = 300;
/// Longest time by which the clocks of two servers differ.
const SKEW: SignedDuration = SignedDuration::from_hours(1);
/// Most times that a detection of one scheduled time begins: once, and once more if the server ended meanwhile.
const MAX_ATTEMPTS: u32 = 2;

/// `drift` of an entry.
#[derive(Debug, Clone)]
pub enum DriftRule {
    /// `schedule: none`: the repository is left alone, whatever earlier entries say.
    Never,
    /// A schedule.
    Scheduled(Box<DriftSchedule>),
}

impl DriftRule {
    /// Returns its schedule.
    pub fn schedule(&self) -> Option<&DriftSchedule> {
        match self {
            DriftRule::Never => None,
            DriftRule::Scheduled(schedule) => Some(schedule),
        }
    }
}

/// A schedule of detections.
#[derive(Debug, Clone)]
pub struct DriftSchedule {
    cron: Cron,
    zone: TimeZone,
    /// Cron expression and timezone, for people.
    pub text: String,
    /// `projects`: which projects are looked at; all if absent.
    pub projects: Option<ProjectPatterns>,
    window: SignedDuration,
    /// `notify`: receivers of `event: drift` are told.
    pub notifies: bool,
    /// `branch`; the default branch of the repository if absent.
    pub branch: Option<String>,
    /// `issue`: the server keeps an issue for each drifted project; absent if it keeps none.
    pub issue: Option<IssueRule>,
}

/// `issue` and `issue_labels` of a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssueRule {
    /// Labels of new issues.
    pub labels: Vec<String>,
}

/// Names of projects, and globs of directories.
#[derive(Debug, Clone)]
pub struct ProjectPatterns {
    texts: Vec<String>,
    globs: Vec<Glob>,
}

impl ProjectPatterns {
    /// Returns true if one of them is the project's name, or matches its directory.
    pub fn matches(&self, project: &ProjectId) -> bool {
        let is_named = |name: &String| self.texts.contains(name);
        project.name.as_ref().is_some_and(is_named) || self.globs.iter().any(|glob| glob.matches(&project.dir))
    }

    /// Returns them for people.
    pub fn describe(&self) -> String {
        self.texts.join(", ")
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawDrift {
    schedule: Option<LocatedText>,
    timezone: Option<LocatedText>,
    projects: Option<Spanned<OneOrMany<String>>>,
    window: Option<LocatedText>,
    notify: Option<LocatedText>,
    branch: Option<LocatedText>,
    issue: Option<Spanned<bool>>,
    issue_labels: Option<Spanned<OneOrMany<String>>>,
}

/// Checks the values in the file.
pub(super) fn rule(raw: &Spanned<RawDrift>, file: &str) -> Result<DriftRule, ConfigError> {
    let RawDrift { schedule, timezone, projects, window, notify, branch, issue, issue_labels } = &raw.value;
    let Some(text) = schedule else {
        let message = "drift: `schedule` is missing; write a cron expression such as `0 3 * * *`, or `none`";
        return Err(error_at(file, raw, message));
    };
    if text.value.trim() == NEVER {
        return Ok(DriftRule::Never);
    }
    let wrong = |text: &LocatedText, key: &str, problem: &str| {
        error_at(file, text, format!("drift.{key}: \"{}\": {problem}", quoted(&text.value)))
    };
    let cron = parse_cron(&text.value).map_err(|problem| wrong(text, "schedule", &problem))?;
    let name = timezone.as_ref().map_or("UTC", |text| text.value.trim());
    let zone = match (TimeZone::get(name), timezone) {
        (Ok(zone), _) => zone,
        (Err(_), at) => {
            let problem = "no such timezone; write a name such as Europe/Berlin or UTC";
            return Err(wrong(at.as_ref().unwrap_or(text), "timezone", problem));
        }
    };
    let projects = projects.as_ref().map(|list| patterns(list, file)).transpose()?;
    let window = match window {
        Some(text) => parse_window(&text.value).ok_or_else(|| {
            let problem = "it is no duration of at least 10m, such as 6h; a check that is later than that is left out";
            wrong(text, "window", problem)
        })?,
        None => WINDOW,
    };
    let notify_word = notify.as_ref().map_or(NOTIFY[0], |text| text.value.as_str());
    if let Some(text) = notify.as_ref().filter(|_| !NOTIFY.contains(&notify_word)) {
        return Err(wrong(text, "notify", &format!("it is one of {}", NOTIFY.join(", "))));
    }
    let is_branch = |name: &str| {
        !name.is_empty() && name.len() <= MAX_TEXT && !name.chars().any(|char| char.is_control() || char == ' ')
    };
    if let Some(text) = branch.as_ref().filter(|text| !is_branch(&text.value)) {
        return Err(wrong(text, "branch", "it is not the name of a branch"));
    }
    let words: Vec<&str> = text.value.split_whitespace().collect();
    Ok(DriftRule::Scheduled(Box::new(DriftSchedule {
        cron,
        zone,
        text: format!("{} {name}", words.join(" ")),
        projects,
        window,
        notifies: notify_word == NOTIFY[0],
        branch: branch.as_ref().map(|text| text.value.clone()),
        issue: issue_rule(issue.as_ref(), issue_labels.as_ref(), file)?,
    })))
}

fn parse_cron(text: &str) -> Result<Cron, String> {
    if text.len() > MAX_TEXT || text.split_whitespace().count() != FIELDS {
        return Err(
            "it is no cron expression of five fields (minute, hour, day of month, month, day of week), such as \
                    `0 3 * * *` for 03:00 each day"
                .to_owned(),
        );
    }
    let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
    let cron = parser.parse(text).map_err(|_| RANGES.to_owned())?;
    if cron.find_next_occurrence(&Timestamp::UNIX_EPOCH.to_zoned(TimeZone::UTC), false).is_err() {
        return Err("no day has this date".to_owned());
    }
    match is_too_often(&cron) {
        true => Err(format!("it is more often than once in {SHORTEST_INTERVAL} minutes")),
        false => Ok(cron),
    }
}

/// Returns true if two times of a day, or the last of one day and the first of the next, are too close.
fn is_too_often(cron: &Cron) -> bool {
    let is_time = |minute: &u32| {
        let (hour, minute) = (cron.pattern.hour_match(minute / 60), cron.pattern.minute_match(minute % 60));
        hour.unwrap_or(false) && minute.unwrap_or(false)
    };
    let times: Vec<u32> = (0..DAY).filter(is_time).collect();
    let next = times.iter().skip(1).copied().chain(times.first().map(|first| first + DAY));
    times.iter().zip(next).any(|(time, next)| next - time < SHORTEST_INTERVAL)
}

fn parse_window(text: &str) -> Option<SignedDuration> {
    let window = SignedDuration::try_from(duration::parse(text.trim())?).ok()?;
    (window >= SHORTEST_WINDOW).then_some(window)
}

fn issue_rule(
    issue: Option<&Spanned<bool>>,
    labels: Option<&Spanned<OneOrMany<String>>>,
    file: &str,
) -> Result<Option<IssueRule>, ConfigError> {
    let is_on = issue.is_some_and(|issue| issue.value);
    let Some(list) = labels else { return Ok(is_on.then(|| IssueRule { labels: Vec::new() })) };
    let wrong = |problem: String| Err(error_at(file, list, format!("drift.issue_labels: {problem}")));
    if !is_on {
        return wrong("there are no issues without `issue: true`".to_owned());
    }
    let labels = list.value.0.clone();
    if labels.is_empty() || labels.len() > MAX_LABELS {
        return wrong(format!("write 1 to {MAX_LABELS} labels, or drop the key"));
    }
    let is_label = |label: &String| {
        let is_short = !label.trim().is_empty() && label.chars().count() <= MAX_LABEL;
        is_short && !label.contains(|char: char| char == ',' || char.is_control())
    };
    if let Some(label) = labels.iter().find(|label| !is_label(label)) {
        let shown = quoted(label);
        return wrong(format!("\"{shown}\": a label has 1 to {MAX_LABEL} characters, and none of them is a comma"));
    }
    Ok(Some(IssueRule { labels }))
}

fn patterns(list: &Spanned<OneOrMany<String>>, file: &str) -> Result<ProjectPatterns, ConfigError> {
    let wrong = |problem: String| error_at(file, list, format!("drift.projects: {problem}"));
    let texts = list.value.0.clone();
    if texts.len() > MAX_PATTERNS {
        return Err(wrong(format!("more than {MAX_PATTERNS} names and globs; use `{{a,b}}` in a glob")));
    }
    if texts.is_empty() || texts.iter().any(String::is_empty) {
        let problem = "it names no project; write names, or globs of directories such as `prod/**`, or drop `projects` for all of them";
        return Err(wrong(problem.to_owned()));
    }
    let globs = texts.iter().map(|text| dir_glob(text)).collect::<Result<_, _>>().map_err(wrong)?;
    Ok(ProjectPatterns { texts, globs })
}

/// Returns the delay of a repository after each scheduled time: always the same, so that repositories of one schedule begin one after the
/// other.
fn delay(repo: &RepoId) -> SignedDuration {
    let digest = Sha256::digest(repo.to_string().to_ascii_lowercase());
    let number = digest.iter().take(8).fold(0, |number: u64, byte| (number << 8) | u64::from(*byte));
    SignedDuration::from_secs(i64::try_from(number % SPREAD).unwrap_or_default())
}

/// Returns true if a detection is recorded for a time that has not come: the clock was ahead. It must not keep back all until then.
fn is_ahead(check: &DriftCheck, now: Timestamp) -> bool {
    check.due.duration_since(now) > SKEW
}

impl DriftSchedule {
    /// Returns the latest scheduled time whose detection in this repository could have begun by now.
    fn latest(&self, repo: &RepoId, now: Timestamp) -> Option<Timestamp> {
        let by = now.checked_sub(delay(repo)).ok()?.to_zoned(self.zone.clone());
        Some(self.cron.find_previous_occurrence(&by, true).ok()?.timestamp())
    }

    /// Returns true if a detection of a scheduled time may still begin.
    fn is_in_window(&self, repo: &RepoId, time: Timestamp, now: Timestamp) -> bool {
        time.checked_add(delay(repo) + self.window).is_ok_and(|end| now < end)
    }

    /// Returns the scheduled time whose detection has to begin now: the latest one, if it has no detection yet, or if its first one has
    /// been cut off. Earlier times are not made up for. The caller knows that no detection runs.
    pub fn due(&self, repo: &RepoId, last: Option<&DriftCheck>, now: Timestamp) -> Option<Timestamp> {
        let time = self.latest(repo, now)?;
        let is_open = last.filter(|last| !is_ahead(last, now)).is_none_or(|last| {
            last.due < time || (last.due == time && last.end.is_none() && last.attempts < MAX_ATTEMPTS)
        });
        (is_open && self.is_in_window(repo, time, now)).then_some(time)
    }

    /// Returns the time at which the detection of the next scheduled time begins.
    pub fn next(&self, repo: &RepoId, now: Timestamp) -> Option<Timestamp> {
        let after = now.checked_sub(delay(repo)).ok()?.to_zoned(self.zone.clone());
        self.cron.find_next_occurrence(&after, false).ok()?.timestamp().checked_add(delay(repo)).ok()
    }

    /// Returns the latest scheduled time, if it is after the last detection and none can begin for it any more.
    pub fn missed(&self, repo: &RepoId, last: Option<&DriftCheck>, now: Timestamp) -> Option<Timestamp> {
        let time = self.latest(repo, now)?;
        let is_open = last.filter(|last| !is_ahead(last, now)).is_none_or(|last| last.due < time);
        (is_open && !self.is_in_window(repo, time, now)).then_some(time)
    }
}
