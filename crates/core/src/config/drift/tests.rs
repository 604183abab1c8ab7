use super::*;
use crate::config::global::GlobalConfig;
use crate::domain::drift::DriftCheckEnd;
use crate::domain::drift_issue::MissingIssues;
use insta::assert_snapshot;
use proptest::prelude::*;

fn repo(name: &str) -> RepoId {
    RepoId { host: "github.com".into(), owner: "acme".into(), name: name.into() }
}

fn parse(drift: &str) -> Result<GlobalConfig, String> {
    let yaml = format!("repos:\n- id: /.*/\n  drift: {drift}\n");
    GlobalConfig::parse(&yaml, "repos.yaml").map_err(|error| error.to_string())
}

fn schedule(drift: &str) -> DriftSchedule {
    parse(drift).unwrap().drift_schedule(&repo("infra")).unwrap().clone()
}

fn error(drift: &str) -> String {
    parse(drift).unwrap_err()
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn check(due: &str, attempts: u32, ended: bool) -> DriftCheck {
    let end = ended.then(|| DriftCheckEnd { at: at(due), run: None, refused: None });
    DriftCheck { repo: repo("infra"), due: at(due), began: at(due), attempts, end, issues: MissingIssues::default() }
}

/// Returns the scheduled times after a time.
fn times(schedule: &DriftSchedule, after: &str, count: usize) -> Vec<String> {
    let mut now = at(after).to_zoned(schedule.zone.clone());
    let mut next = || {
        now = schedule.cron.find_next_occurrence(&now, false).unwrap();
        now.timestamp().to_string()
    };
    (0..count).map(|_| next()).collect()
}

#[test]
fn the_last_entry_with_the_key_decides_as_a_whole() {
    let yaml = "
repos:
- id: /.*/
  drift: {schedule: 0 3 * * *, window: 6h, notify: none, branch: trunk, projects: prod/**}
- id: github.com/acme/app
  drift: {schedule: 30 4 * * 1}
- id: github.com/acme/sandbox
  drift: {schedule: none}
- id: github.com/acme/app
  workflow: default
";
    let config = GlobalConfig::parse(yaml, "repos.yaml").unwrap();
    let of = |name: &str| config.drift_schedule(&repo(name));
    let infra = of("infra").unwrap();
    assert_eq!((infra.text.as_str(), infra.branch.as_deref(), infra.notifies), ("0 3 * * * UTC", Some("trunk"), false));
    let app = of("App").unwrap();
    assert_eq!((app.text.as_str(), app.branch.as_deref(), app.notifies), ("30 4 * * 1 UTC", None, true));
    assert!(app.projects.is_none() && app.window == WINDOW && of("sandbox").is_none());
    assert_eq!(config.ids_with_drift_schedule().collect::<Vec<_>>(), ["github.com/acme/app"]);
    assert!(config.has_drift_schedules() && !GlobalConfig::without_file().has_drift_schedules());
}

#[test]
fn projects_are_named_or_matched_by_their_directory() {
    let patterns = schedule("{schedule: 0 3 * * *, projects: [net-prod, 'prod/**', dev]}").projects.unwrap();
    let project = |dir: &str, name: Option<&str>| {
        patterns.matches(&ProjectId { dir: dir.into(), workspace: "default".into(), name: name.map(str::to_owned) })
    };
    assert!(project("prod", None) && project("prod/net/a", None) && project("dev", Some("x")));
    assert!(project("net", Some("net-prod")) && !project("net", None) && !project("dev/a", None));
}

#[test]
fn what_is_no_schedule_is_refused_with_its_place() {
    assert_snapshot!(error("{}"), @"repos.yaml:3:10: drift: `schedule` is missing; write a cron expression such as `0 3 * * *`, or `none`");
    assert_snapshot!(error("{schedule: 3 * * *}"), @r#"repos.yaml:3:21: drift.schedule: "3 * * *": it is no cron expression of five fields (minute, hour, day of month, month, day of week), such as `0 3 * * *` for 03:00 each day"#);
    assert_snapshot!(error("{schedule: '0 0 3 * * *'}"), @r#"repos.yaml:3:21: drift.schedule: "0 0 3 * * *": it is no cron expression of five fields (minute, hour, day of month, month, day of week), such as `0 3 * * *` for 03:00 each day"#);
    assert_snapshot!(error("{schedule: '@daily'}"), @r#"repos.yaml:3:21: drift.schedule: "@daily": it is no cron expression of five fields (minute, hour, day of month, month, day of week), such as `0 3 * * *` for 03:00 each day"#);
    assert_snapshot!(error("{schedule: 0 25 * * *}"), @r#"repos.yaml:3:21: drift.schedule: "0 25 * * *": a field is malformed or out of its range; there are: minute 0-59, hour 0-23, day of month 1-31, month 1-12 or jan-dec, day of week 0-7 or sun-sat"#);
    assert_snapshot!(error("{schedule: 0 0 30 2 *}"), @r#"repos.yaml:3:21: drift.schedule: "0 0 30 2 *": no day has this date"#);
    assert_snapshot!(error("{schedule: '*/5 * * * *'}"), @r#"repos.yaml:3:21: drift.schedule: "*/5 * * * *": it is more often than once in 10 minutes"#);
    assert_snapshot!(error("{schedule: '55,0 * * * *'}"), @r#"repos.yaml:3:21: drift.schedule: "55,0 * * * *": it is more often than once in 10 minutes"#);
    assert_snapshot!(error("{schedule: 0 3 * * *, timezone: Middle/Earth}"), @r#"repos.yaml:3:42: drift.timezone: "Middle/Earth": no such timezone; write a name such as Europe/Berlin or UTC"#);
    assert_snapshot!(error("{schedule: 0 3 * * *, window: 5m}"), @r#"repos.yaml:3:40: drift.window: "5m": it is no duration of at least 10m, such as 6h; a check that is later than that is left out"#);
    assert_snapshot!(error("{schedule: 0 3 * * *, notify: all}"), @r#"repos.yaml:3:40: drift.notify: "all": it is one of drift, none"#);
    assert_snapshot!(error("{schedule: 0 3 * * *, branch: 'a b'}"), @r#"repos.yaml:3:40: drift.branch: "a b": it is not the name of a branch"#);
    assert_snapshot!(error("{schedule: 0 3 * * *, projects: []}"), @"repos.yaml:3:42: drift.projects: it names no project; write names, or globs of directories such as `prod/**`, or drop `projects` for all of them");
    assert_snapshot!(error("{schedule: 0 3 * * *, projects: ['../net']}"), @"repos.yaml:3:42: drift.projects: `../net` must be relative to the repository's root, without a leading slash and `..`");
    assert_snapshot!(error("{schedule: 0 3 * * *, every: 6h}"), @"repos.yaml:3:32: unknown key `every`; known here: schedule, timezone, projects, window, notify, branch, issue, issue_labels");
    for fits in ["*/10 * * * *", "0,10,20 * * * *", "0 3,15 * * mon-fri", "0 0 29 2 *", "0 3 L * *", "0 3 * * MON#1"] {
        schedule(&format!("{{schedule: '{fits}'}}"));
    }
}

#[test]
fn a_repository_cannot_set_it() {
    for (text, file) in [
        ("version: 3\ndrift: {schedule: 0 3 * * *}", "atlantis.yaml:2:1: unknown key `drift`"),
        ("version: 3\nprojects:\n- dir: a\n  drift: {schedule: 0 3 * * *}", "atlantis.yaml:4:3: unknown key `drift`"),
    ] {
        let rules = GlobalConfig::without_file().rules(&repo("infra"), "main");
        let refused = crate::config::repo::parse(text, "atlantis.yaml", &rules, "main", &|_: &str| Vec::new());
        let refused = refused.unwrap_err().to_string();
        assert!(refused.starts_with(file), "{refused}");
    }
}

#[test]
fn a_time_has_one_detection_within_its_window() {
    let daily = schedule("{schedule: 0 3 * * *, window: 2h}");
    let repo = repo("infra");
    let late = delay(&repo);
    let due = |last: Option<&DriftCheck>, now: &str| daily.due(&repo, last, at(now) + late);
    let today = Some(at("2026-03-02T03:00:00Z"));
    // Without a record, the latest time counts while its window lasts.
    assert_eq!(due(None, "2026-03-02T02:59:59Z"), None);
    assert_eq!(due(None, "2026-03-02T03:00:00Z"), today);
    assert_eq!(due(None, "2026-03-02T04:59:59Z"), today);
    assert_eq!(due(None, "2026-03-02T05:00:00Z"), None);
    let before = check("2026-02-20T03:00:00Z", 1, true);
    assert_eq!(due(Some(&before), "2026-03-02T04:00:00Z"), today, "once for all that were missed");
    assert_eq!(due(Some(&check("2026-03-02T03:00:00Z", 1, true)), "2026-03-02T04:00:00Z"), None);
    // One that was cut off begins once more.
    assert_eq!(due(Some(&check("2026-03-02T03:00:00Z", 1, false)), "2026-03-02T04:00:00Z"), today);
    assert_eq!(due(Some(&check("2026-03-02T03:00:00Z", MAX_ATTEMPTS, false)), "2026-03-02T04:00:00Z"), None);
    assert_eq!(due(Some(&check("2026-03-01T03:00:00Z", MAX_ATTEMPTS, false)), "2026-03-02T04:00:00Z"), today);
    assert_eq!(due(Some(&check("2026-03-02T03:00:00Z", 1, false)), "2026-03-02T05:00:00Z"), None);
    // The schedule was changed to an earlier time.
    assert_eq!(due(Some(&check("2026-03-02T03:30:00Z", 1, true)), "2026-03-02T04:00:00Z"), None);

    let missed = |last: &DriftCheck, now: &str| daily.missed(&repo, Some(last), at(now) + late);
    assert_eq!(daily.missed(&repo, None, at("2026-03-02T05:00:00Z") + late), today);
    // The clock was ahead when it began.
    let ahead = check("2027-03-02T03:00:00Z", 1, true);
    assert_eq!(due(Some(&ahead), "2026-03-02T04:00:00Z"), today);
    assert_eq!(missed(&ahead, "2026-03-02T05:00:00Z"), today);
    assert_eq!(missed(&before, "2026-03-02T04:59:59Z"), None);
    assert_eq!(missed(&before, "2026-03-02T05:00:00Z"), today);
    assert_eq!(missed(&check("2026-03-02T03:00:00Z", 1, true), "2026-03-02T05:00:00Z"), None);
    assert_eq!(daily.next(&repo, at("2026-03-02T03:00:00Z") + late), Some(at("2026-03-03T03:00:00Z") + late));
}

#[test]
fn repositories_of_one_schedule_begin_one_after_the_other() {
    let delays: Vec<i64> = (0..50).map(|number| delay(&repo(&format!("infra-{number}"))).as_secs()).collect();
    assert!(delays.iter().all(|delay| (0..300).contains(delay)));
    let mut distinct = delays.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert!(distinct.len() > 40, "{distinct:?}");
    assert_eq!(delay(&repo("Infra-1")).as_secs(), delays[1], "names have no case");
}

#[test]
fn a_daily_time_that_the_clock_skips_or_repeats_is_there_once() {
    // Berlin: clocks are put forward from 2:00 to 3:00 on 2026-03-29, and back from 3:00 to 2:00 on 2026-10-25, both at 1:00 UTC.
    let night = schedule("{schedule: 30 2 * * *, timezone: Europe/Berlin}");
    assert_eq!(
        times(&night, "2026-03-27T12:00:00Z", 4),
        ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z", "2026-03-31T00:30:00Z"]
    );
    assert_eq!(
        times(&night, "2026-10-23T12:00:00Z", 3),
        ["2026-10-24T00:30:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]
    );
    let month = schedule("{schedule: 0 0 31 * *}");
    assert_eq!(
        times(&month, "2026-01-01T00:00:00Z", 3),
        ["2026-01-31T00:00:00Z", "2026-03-31T00:00:00Z", "2026-05-31T00:00:00Z"]
    );
    let last = schedule("{schedule: 0 0 L * *}");
    assert_eq!(
        times(&last, "2028-01-15T00:00:00Z", 3),
        ["2028-01-31T00:00:00Z", "2028-02-29T00:00:00Z", "2028-03-31T00:00:00Z"]
    );
}

proptest! {
    /// Between the time that was due and the next one no detection begins, whatever the clocks do.
    #[test]
    fn the_latest_and_the_next_time_have_none_between(
        second in 1_700_000_000_i64..1_900_000_000,
        cron in prop_oneof![Just("30 2 * * *"), Just("*/30 * * * *"), Just("15 1,2,3 * * *"), Just("0 0 31 * *"), Just("0 2 * * sun")],
        zone in prop_oneof![Just("UTC"), Just("Europe/Berlin"), Just("America/New_York"), Just("Asia/Kathmandu")],
    ) {
        let schedule = schedule(&format!("{{schedule: '{cron}', timezone: {zone}, window: 8000h}}"));
        let (repo, now) = (repo("infra"), Timestamp::from_second(second).unwrap());
        let late = delay(&repo);
        let latest = schedule.latest(&repo, now).unwrap();
        let next = schedule.next(&repo, now).unwrap();
        prop_assert!(latest + late <= now && now < next, "{latest} {now} {next}");
        prop_assert_eq!(schedule.due(&repo, None, next - SignedDuration::from_secs(1)), Some(latest));
        prop_assert_eq!(schedule.due(&repo, None, next), Some(next - late));
    }
}

#[test]
fn issues_are_kept_only_if_they_are_asked_for() {
    let rule = |more: &str| schedule(&format!("{{schedule: 0 3 * * *{more}}}")).issue.map(|rule| rule.labels);
    assert_eq!((rule(""), rule(", issue: false"), rule(", issue: true")), (None, None, Some(Vec::new())));
    assert_eq!(rule(", issue: true, issue_labels: [drift, ops]"), Some(vec!["drift".to_owned(), "ops".to_owned()]));
    let wrong = |more: &str| error(&format!("{{schedule: 0 3 * * *, {more}}}"));
    assert_snapshot!(wrong("issue_labels: drift"), @"repos.yaml:3:46: drift.issue_labels: there are no issues without `issue: true`");
    assert_snapshot!(wrong("issue: true, issue_labels: 'a,b'"), @r#"repos.yaml:3:59: drift.issue_labels: "a,b": a label has 1 to 50 characters, and none of them is a comma"#);
    assert_snapshot!(wrong("issue: true, issue_labels: []"), @"repos.yaml:3:59: drift.issue_labels: write 1 to 5 labels, or drop the key");
    assert!(wrong("issue: often").contains("repos.yaml:3"));
}
