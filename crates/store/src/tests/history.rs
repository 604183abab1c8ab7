//! The list of runs: filters, cursors, results, and the indexes that answer them.

use super::*;
use rusqlite::Connection;
use tidelock_core::domain::outcome::RunEnd;

fn listed(found: &RunsFound) -> Vec<&str> {
    found.rows.iter().map(|row| row.run.id.as_str()).collect()
}

#[tokio::test]
async fn a_run_has_the_result_of_its_record() {
    let (_dir, store) = open();
    let ended = |end| Run { answered: true, end, ..run("r", Some(at(1))) };
    let expected = [
        (run("r", None), RunResult::Running),
        (ended(Some(RunEnd::Succeeded)), RunResult::Succeeded),
        // What people type and what a result says decides nothing.
        (Run { typed: r#""end":"failed""#.into(), ..ended(Some(RunEnd::Succeeded)) }, RunResult::Succeeded),
        (ended(Some(RunEnd::Failed)), RunResult::Failed),
        (ended(Some(RunEnd::Locked)), RunResult::Locked),
        (ended(Some(RunEnd::Stopped)), RunResult::Stopped),
        (run("r", Some(at(1))), RunResult::Stopped),
        (ended(None), RunResult::Ended),
    ];
    store
        .write(move |tx| {
            for (number, (run, result)) in expected.into_iter().enumerate() {
                let run = Run { id: format!("run{number}").as_str().into(), ..run };
                tx.put_run(&run)?;
                assert_eq!(tx.run_with_result(&run.id)?.unwrap().result, result, "{run:?}");
                let filter = RunFilter { result: Some(result), ..RunFilter::default() };
                assert_eq!(listed(&tx.list_runs(&filter, RunCursor::Newest, 1)?), [run.id.as_str()]);
            }
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn runs_are_filtered_by_everything_that_a_page_offers() {
    let (_dir, store) = open();
    store
        .write(|tx| {
            let other = PullId { repo: repo("github.com", "infra#2"), number: 1 };
            for (id, pull, user, command) in [
                ("1", pull_id(1), "alice", CommandName::Plan),
                ("2", pull_id(11), "Bob", CommandName::Plan),
                ("3", other, "bob", CommandName::Apply),
            ] {
                tx.put_run(&Run { pull: pull.clone(), user: user.into(), command, ..run(id, None) })?;
                let named = ProjectId { name: Some(format!("project-{id}")), ..project(&format!("dir/{id}")) };
                for kind in ["plan", "policy_check"] {
                    let job = job(&format!("{id}{kind}"), JobState::Succeeded);
                    let job = Job { run: id.into(), kind: kind.into(), project: Some(named.clone()), ..job };
                    tx.put_job(&Job { pull: pull.clone(), ..job })?;
                }
            }
            let all = RunFilter::default;
            let infra = || RunFilter { repos: vec![repo("github.com", "infra")], ..all() };
            let of_project = |text: &str| RunFilter { project: Some(text.into()), ..all() };
            for (filter, expected) in [
                (all(), &["3", "2", "1"][..]),
                (infra(), &["2", "1"]),
                (RunFilter { number: Some(1), ..infra() }, &["1"]),
                (RunFilter { number: Some(1), ..all() }, &[]),
                (RunFilter { person: Some("BOB".into()), ..all() }, &["3", "2"]),
                (RunFilter { command: Some(CommandName::Apply), ..all() }, &["3"]),
                (RunFilter { command: Some(CommandName::Apply), ..infra() }, &[]),
                (of_project("dir/2"), &["2"]),
                (of_project("project-2"), &["2"]),
                (of_project("dir/2/default"), &["2"]),
                (of_project("dir/2/default/project-2"), &["2"]),
                (of_project("dir"), &[]),
                (RunFilter { person: Some("alice".into()), ..of_project("dir/2") }, &[]),
                (RunFilter { project: Some("dir/2".into()), number: Some(11), ..infra() }, &["2"]),
                (RunFilter { project: Some("dir/2".into()), number: Some(1), ..infra() }, &[]),
            ] {
                assert_eq!(listed(&tx.list_runs(&filter, RunCursor::Newest, 9)?), expected, "{filter:?}");
            }
            let last =
                tx.last_job_of(&pull_id(1), &ProjectId { name: Some("project-1".into()), ..project("dir/1") }, "plan")?;
            assert_eq!(last.unwrap().id, "1plan");
            assert_eq!(tx.last_job_of(&pull_id(1), &project("dir/1"), "plan")?, None, "its name belongs to it");
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn cursors_lead_to_every_run_once_and_back() {
    let (_dir, store) = open();
    store
        .write(|tx| {
            for number in 1..=7 {
                tx.put_run(&Run { started: at(number), ..run(&number.to_string(), None) })?;
            }
            let page = |cursor| tx.list_runs(&RunFilter::default(), cursor, 3);
            let first = page(RunCursor::Newest)?;
            assert_eq!((listed(&first), first.newer), (vec!["7", "6", "5"], None));
            let second = page(first.older.unwrap())?;
            assert_eq!(listed(&second), ["4", "3", "2"]);
            let third = page(second.older.unwrap())?;
            assert_eq!((listed(&third), third.older), (vec!["1"], None));
            assert_eq!(page(third.newer.unwrap())?, second);
            assert_eq!(listed(&page(second.newer.unwrap())?), ["7", "6", "5"]);
            let past = page(RunCursor::After(1))?;
            assert_eq!((listed(&past), past.older), (vec![], None));
            assert_eq!(listed(&page(past.newer.unwrap())?), ["3", "2", "1"]);
            let beyond = page(RunCursor::Before(99))?;
            assert_eq!((listed(&beyond), beyond.newer), (vec![], None));
            assert_eq!(listed(&page(beyond.older.unwrap())?), ["7", "6", "5"]);
            let fourth = tx.run(&"4".into())?.unwrap();
            assert_eq!((tx.run_before(&fourth)?, tx.run_after(&fourth)?), (Some("3".into()), Some("5".into())));
            let first = tx.run(&"1".into())?.unwrap();
            assert_eq!((tx.run_before(&first)?, tx.run_after(&first)?), (None, Some("2".into())));
            Ok(())
        })
        .await
        .unwrap();
}

/// Returns the steps of a query's plan.
pub(super) fn steps(connection: &Connection, sql: &str) -> Vec<String> {
    let mut plan = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    plan.raw_query().mapped(|row| row.get::<_, String>(3)).map(Result::unwrap).collect()
}

#[test]
fn every_filter_of_many_runs_is_answered_from_an_index() {
    let dir = tempfile::tempdir().unwrap();
    let connection = schema::open_writer(&dir.path().join("tidelock.db"), Durability::Disk).unwrap().connection;
    let (record, of_job) = (
        json(&Run { answered: true, end: Some(RunEnd::Succeeded), ..run("r", Some(at(1))) }).unwrap(),
        json(&job("j", JobState::Succeeded)).unwrap(),
    );
    let fill = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?1)";
    let runs = format!(
        "{fill} INSERT INTO runs (id, pull, started, finished, record)
           SELECT n, 'github.com/acme/infra#' || (n % 1000), n, n, json_set(?2, '$.user', 'person' || (n % 77)) FROM n"
    );
    assert_eq!(connection.execute(&runs, (20_000, &record)).unwrap(), 20_000);
    let jobs = format!(
        "{fill} INSERT INTO jobs (id, run, pull, state, started, record)
           SELECT n, n, 'github.com/acme/infra#' || (n % 1000), 'succeeded', n, json_set(?2, '$.project.dir', 'dir' || (n % 50)) FROM n"
    );
    assert_eq!(connection.execute(&jobs, (2_000, &of_job)).unwrap(), 2_000);
    let view = View { connection: &connection };
    let of_infra = || RunFilter { repos: vec![repo("github.com", "infra")], ..RunFilter::default() };
    for bits in 0..48 {
        let scope = match bits % 3 {
            0 => RunFilter::default(),
            1 => of_infra(),
            _ => RunFilter { number: Some(7), ..of_infra() },
        };
        let parts = bits / 3;
        let is_set = |bit: u32| ((parts >> bit) & 1 == 1).then_some(());
        let filter = RunFilter {
            person: is_set(0).map(|()| "Person7".into()),
            result: is_set(1).map(|()| RunResult::Succeeded),
            command: is_set(2).map(|()| CommandName::Plan),
            project: is_set(3).map(|()| "dir7".into()),
            ..scope
        };
        let steps = steps(&connection, &filter.numbers(false).0);
        let mut reads = steps.iter().filter(|step| step.starts_with("SCAN ") || step.starts_with("SEARCH "));
        assert!(reads.all(|step| step.contains(" USING ")), "{filter:?}: {steps:?}");
        let found = view.list_runs(&filter, RunCursor::Newest, 50).unwrap();
        assert!(!found.rows.is_empty(), "{filter:?}");
    }
    // The values are those of the index: no record is read and parsed for a run that does not match.
    let all = RunFilter {
        person: Some("nobody".into()),
        result: Some(RunResult::Failed),
        command: Some(CommandName::Plan),
        ..RunFilter::default()
    };
    let mut program = connection.prepare(&format!("EXPLAIN {}", all.numbers(false).0)).unwrap();
    let codes = program.raw_query().mapped(|row| row.get::<_, String>(1));
    let codes: Vec<String> = codes.map(Result::unwrap).collect();
    assert!(codes.iter().any(|code| code == "IdxRowid") && codes.iter().all(|code| code != "Function"), "{codes:?}");
}

/// The name that people see may change from run to run, and may be anything.
#[tokio::test]
async fn a_person_is_found_by_the_login_whatever_the_shown_name() {
    let (_dir, store) = open();
    let id = "712020:5f0c2a1e-0a1b-4c2d-8e3f-0123456789ab";
    store
        .write(move |tx| {
            let long = "long ".repeat(20);
            let people = [Login::named(id, "Ada"), Login::named(id, &long), Login::new(id), Login::named("other", id)];
            for (number, user) in people.into_iter().enumerate() {
                tx.put_run(&Run { user, ..run(&format!("run{number}"), None) })?;
            }
            let of = |person: &str| RunFilter { person: Some(person.to_owned()), ..RunFilter::default() };
            assert_eq!(listed(&tx.list_runs(&of(id), RunCursor::Newest, 9)?), ["run2", "run1", "run0"]);
            assert_eq!(listed(&tx.list_runs(&of("OTHER"), RunCursor::Newest, 9)?), ["run3"]);
            assert!(listed(&tx.list_runs(&of("Ada"), RunCursor::Newest, 9)?).is_empty());
            let people: Vec<String> = tx.people()?.into_iter().collect();
            assert_eq!(people, [id, "other"]);
            let names = tx.run(&"run0".into())?.unwrap();
            assert_eq!((names.user.as_str(), names.user.shown()), (id, "Ada"));
            Ok(())
        })
        .await
        .unwrap();
}
