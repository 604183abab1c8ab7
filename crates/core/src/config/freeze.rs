//! `freeze`: times in which a project is not applied, each week or once. Pure: the caller gives the time.
//!
//! ```yaml
//! freeze:
//!   - {from: "Fri 16:00", to: "Mon 08:00", timezone: Europe/Berlin, except: ["team:sre"], reason: weekend}
//!   - {from: "2026-12-20 18:00", to: "2027-01-04 08:00"}
//! ```

use super::ConfigErrors;
use super::approvals::approvers;
use super::approvers::Approver;
use super::errors::all;
use super::raw::RawFreezeWindow;
use super::yaml::{error_at, quoted};
use jiff::civil::{DateTime, Weekday};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use serde::{Deserialize, Serialize};
use serde_saphyr::Spanned;

/// Most windows of one list.
pub(super) const MAX_WINDOWS: usize = 100;
/// Longest reason of a window, in characters.
const MAX_REASON: usize = 300;
/// Minutes of a week.
const WEEK: i32 = 7 * 24 * 60;
/// Days as they are written, from Monday.
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// One freeze window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreezeWindow {
    times: WindowTimes,
    /// Name of its timezone.
    timezone: String,
    /// People who may apply during it.
    pub except: Vec<Approver>,
    /// Reason; may be empty.
    pub reason: String,
}

/// Begin and end of a window, by the clock of its timezone. The end is exclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WindowTimes {
    /// Minutes since Monday, 00:00.
    Weekly(i32, i32),
    Once(DateTime, DateTime),
}

/// Begin or end of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Edge {
    Weekly(i32),
    Once(DateTime),
}

/// Key with the problem, and the problem.
type WindowProblem = (&'static str, String);

/// Checks the values in the file.
pub(super) fn windows(list: &[Spanned<RawFreezeWindow>], file: &str) -> Result<Vec<FreezeWindow>, ConfigErrors> {
    if let Some(last) = list.last().filter(|_| list.len() > MAX_WINDOWS) {
        return Err(error_at(file, last, format!("freeze: more than {MAX_WINDOWS} windows")).into());
    }
    all(list.iter().map(|raw| window(raw, file)))
}

fn window(raw: &Spanned<RawFreezeWindow>, file: &str) -> Result<FreezeWindow, ConfigErrors> {
    let RawFreezeWindow { from, to, timezone, except, reason } = &raw.value;
    let (Some(from), Some(to)) = (from, to) else {
        let message = "freeze: a window needs `from` and `to`, such as `{from: \"Fri 16:00\", to: \"Mon 08:00\"}`";
        return Err(error_at(file, raw, message).into());
    };
    let zone = timezone.as_ref().map(|text| text.value.as_str());
    let window = FreezeWindow::parse(&from.value, &to.value, zone).map_err(|(key, problem)| {
        let at = match (key, timezone) {
            ("from", _) => from,
            ("timezone", Some(zone)) => zone,
            _ => to,
        };
        error_at(file, at, format!("freeze.{key}: \"{}\": {problem}", quoted(&at.value)))
    })?;
    let except = approvers(except.as_deref().unwrap_or_default(), "freeze.except", person_or_team, file)?;
    let reason = reason.as_deref().unwrap_or_default().trim();
    let printable = reason.chars().map(|c| if c.is_control() { ' ' } else { c });
    Ok(FreezeWindow { except, reason: printable.take(MAX_REASON).collect(), ..window })
}

/// Parses a person or team. Neither a freeze nor a guard concerns files of owners, so there are no code owners.
pub(super) fn person_or_team(text: &str) -> Result<Approver, String> {
    match Approver::parse(text)? {
        Approver::CodeOwners => Err("it is none of `user:NAME`, `team:NAME`, `team:OWNER/NAME`".to_owned()),
        person => Ok(person),
    }
}

impl FreezeWindow {
    /// Creates it from the texts of its keys. The default of `timezone` is UTC.
    fn parse(from: &str, to: &str, timezone: Option<&str>) -> Result<FreezeWindow, WindowProblem> {
        let edge = |key: &'static str, text: &str| parse_edge(text).map_err(|problem| (key, problem));
        let times = match (edge("from", from)?, edge("to", to)?) {
            (Edge::Weekly(from), Edge::Weekly(to)) if from == to => {
                return Err(("to", "the window has no end: it is the same as `from`".to_owned()));
            }
            (Edge::Weekly(from), Edge::Weekly(to)) => WindowTimes::Weekly(from, to),
            (Edge::Once(from), Edge::Once(to)) if from >= to => {
                return Err(("to", "it is not after `from`".to_owned()));
            }
            (Edge::Once(from), Edge::Once(to)) => WindowTimes::Once(from, to),
            _ => return Err(("to", "one is a day of the week and the other a date: write both alike".to_owned())),
        };
        let timezone = timezone.unwrap_or("UTC").trim().to_owned();
        if TimeZone::get(&timezone).is_err() {
            return Err(("timezone", "no such timezone; write a name such as Europe/Berlin or UTC".to_owned()));
        }
        Ok(FreezeWindow { times, timezone, except: Vec::new(), reason: String::new() })
    }

    /// Returns the end of the window if `now` is in it. A window with an unknown timezone never ends.
    pub fn until(&self, now: Timestamp) -> Option<Timestamp> {
        let Ok(zone) = TimeZone::get(&self.timezone) else { return Some(Timestamp::MAX) };
        match self.times {
            WindowTimes::Once(from, to) => end_if_in(&zone, from, to, now),
            WindowTimes::Weekly(from, to) => {
                let clock = zone.to_datetime(now);
                let monday =
                    clock.date().checked_sub(i64::from(clock.weekday().to_monday_zero_offset()).days()).ok()?;
                let monday = monday.to_datetime(jiff::civil::Time::midnight());
                let length = (to - from).rem_euclid(WEEK);
                // This week's window, the last week's, which may extend into this one, and, if clocks are put back, the next week's.
                [-WEEK, 0, WEEK].into_iter().find_map(|week| {
                    let start = monday.checked_add((week + from).minutes()).ok()?;
                    end_if_in(&zone, start, start.checked_add(length.minutes()).ok()?, now)
                })
            }
        }
    }

    /// Returns a time in its timezone, for people.
    pub fn format_time(&self, time: Timestamp) -> String {
        let zone = TimeZone::get(&self.timezone).unwrap_or(TimeZone::UTC);
        format!("{} {}", time.to_zoned(zone).strftime("%a %Y-%m-%d %H:%M"), self.timezone)
    }
}

/// Returns the end of a window, if `now` is in it. If clocks are put back, the same time of day occurs twice: a window begins with the
/// first and ends with the second.
fn end_if_in(zone: &TimeZone, from: DateTime, to: DateTime, now: Timestamp) -> Option<Timestamp> {
    let from = zone.to_ambiguous_timestamp(from).earlier().unwrap_or(Timestamp::MIN);
    let to = zone.to_ambiguous_timestamp(to).later().unwrap_or(Timestamp::MAX);
    (from <= now && now < to).then_some(to)
}

fn parse_edge(text: &str) -> Result<Edge, String> {
    let form = || {
        "it is neither a day and a time such as `Fri 16:00` nor a date and a time such as `2026-12-20 18:00`".to_owned()
    };
    let mut words = text.split_whitespace();
    let (Some(day), Some(time), None) = (words.next(), words.next(), words.next()) else { return Err(form()) };
    let is_time = time.len() == 5 && time.as_bytes()[2] == b':';
    let time = jiff::civil::Time::strptime("%H:%M", time).ok().filter(|_| is_time).ok_or_else(form)?;
    if let Ok(date) = jiff::civil::Date::strptime("%Y-%m-%d", day) {
        return Ok(Edge::Once(date.to_datetime(time)));
    }
    let day = DAYS.iter().zip(0..).find(|(name, _)| name.eq_ignore_ascii_case(day)).ok_or_else(form)?.1;
    let day = Weekday::from_monday_zero_offset(day).map_err(|_| form())?;
    let day = i32::from(day.to_monday_zero_offset());
    Ok(Edge::Weekly((day * 24 + i32::from(time.hour())) * 60 + i32::from(time.minute())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn minute_of_week(clock: DateTime) -> i32 {
        let day = i32::from(clock.weekday().to_monday_zero_offset());
        (day * 24 + i32::from(clock.hour())) * 60 + i32::from(clock.minute())
    }

    #[test]
    fn a_weekly_window_goes_over_the_end_of_the_week() {
        let window = FreezeWindow::parse("Fri 16:00", "mon 08:00", Some("Europe/Berlin")).unwrap();
        // Friday, in summer: two hours ahead of UTC.
        assert_eq!(window.until(at("2026-07-03T13:59:59Z")), None);
        assert_eq!(window.until(at("2026-07-03T14:00:00Z")), Some(at("2026-07-06T06:00:00Z")));
        assert_eq!(window.until(at("2026-07-06T05:59:30Z")), Some(at("2026-07-06T06:00:00Z")));
        assert_eq!(window.until(at("2026-07-06T06:00:00Z")), None);
        // In winter: one hour.
        assert_eq!(window.until(at("2026-11-27T15:30:00Z")), Some(at("2026-11-30T07:00:00Z")));
        // Clocks are put back in this window.
        assert_eq!(window.until(at("2026-10-23T14:30:00Z")), Some(at("2026-10-26T07:00:00Z")));
        assert_eq!(window.format_time(at("2026-11-30T07:00:00Z")), "Mon 2026-11-30 08:00 Europe/Berlin");
    }

    #[test]
    fn a_window_of_dates_is_there_once() {
        let window = FreezeWindow::parse("2026-12-20 18:00", "2027-01-04 08:00", None).unwrap();
        assert_eq!(window.until(at("2026-12-20T17:59:59Z")), None);
        assert_eq!(window.until(at("2026-12-31T00:00:00Z")), Some(at("2027-01-04T08:00:00Z")));
        assert_eq!(window.until(at("2027-01-04T08:00:00Z")), None);
    }

    #[test]
    fn a_window_has_all_of_the_hour_that_comes_twice() {
        // In Berlin, clocks are put back from 3:00 to 2:00 at 1:00 UTC on that Sunday.
        for (from, to) in [("Sun 02:30", "Sun 12:00"), ("2026-10-25 02:30", "2026-10-25 12:00")] {
            let window = FreezeWindow::parse(from, to, Some("Europe/Berlin")).unwrap();
            assert_eq!(window.until(at("2026-10-25T00:29:59Z")), None, "{from}");
            for time in ["2026-10-25T00:30:00Z", "2026-10-25T01:10:00Z", "2026-10-25T01:40:00Z"] {
                assert_eq!(window.until(at(time)), Some(at("2026-10-25T11:00:00Z")), "{from} {time}");
            }
        }
        for (from, to) in [("Sat 12:00", "Sun 02:30"), ("2026-10-24 12:00", "2026-10-25 02:30")] {
            let window = FreezeWindow::parse(from, to, Some("Europe/Berlin")).unwrap();
            for time in ["2026-10-25T00:29:00Z", "2026-10-25T00:40:00Z", "2026-10-25T01:29:59Z"] {
                assert_eq!(window.until(at(time)), Some(at("2026-10-25T01:30:00Z")), "{from} {time}");
            }
            assert_eq!(window.until(at("2026-10-25T01:30:00Z")), None, "{from}");
        }
    }

    #[test]
    fn what_is_no_window_is_refused_with_its_key() {
        for (from, to, zone, key) in [
            ("Fri", "Mon 08:00", None, "from"),
            ("Fri 16:00", "Mon 8:00", None, "to"),
            ("Fri 16:00", "Mon 24:00", None, "to"),
            ("Fri 16:00", "Fri 16:00", None, "to"),
            ("Fri 16:00", "2026-12-20 18:00", None, "to"),
            ("2026-12-20 18:00", "2026-12-20 18:00", None, "to"),
            ("2026-02-30 18:00", "2026-12-20 18:00", None, "from"),
            ("2026-12-20", "2026-12-21", None, "from"),
            ("Fri 16:00", "Mon 08:00", Some("Middle/Earth"), "timezone"),
        ] {
            let (found, _) = FreezeWindow::parse(from, to, zone).unwrap_err();
            assert_eq!(found, key, "{from} {to} {zone:?}");
        }
    }

    proptest! {
        /// The end is the first moment after now that is not in the window.
        #[test]
        fn a_window_ends_when_it_says(from in 0..WEEK, length in 1..WEEK, second in 0_i64..2_000_000_000, zone in prop_oneof![Just("UTC"), Just("Europe/Berlin"), Just("Asia/Kathmandu")]) {
            let written = |at: i32| format!("{} {:02}:{:02}", DAYS[usize::try_from(at / 1440).unwrap()], at / 60 % 24, at % 60);
            let window = FreezeWindow::parse(&written(from), &written((from + length) % WEEK), Some(zone)).unwrap();
            let now = Timestamp::from_second(second).unwrap();
            if let Some(end) = window.until(now) {
                prop_assert!(end > now);
                // On two days of a year, one hour occurs twice, or not at all.
                let week = jiff::SignedDuration::from_secs(i64::from(WEEK) * 60 + 3600);
                prop_assert!(end.duration_since(now) <= week);
                if zone == "UTC" {
                    prop_assert_eq!(window.until(end), None);
                    prop_assert_eq!(window.until(end - 1.second()), Some(end));
                }
            }
            if zone == "UTC" {
                let at = minute_of_week(TimeZone::UTC.to_datetime(now));
                prop_assert_eq!(window.until(now).is_some(), (at - from).rem_euclid(WEEK) < length);
            }
        }
    }
}
