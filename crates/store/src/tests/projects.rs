//! Projects for pages: where they are known from, the bound of the list, and runs that refused them.

use super::*;
use rusqlite::Connection;
use tidelock_core::domain::drift::{DriftFinding, ProjectDrift};

fn drift_on(dir: &str, branch: &str, checked: i64) -> ProjectDrift {
    ProjectDrift {
        planned: None,
        since: None,
        detection: "d".into(),
        repo: repo("github.com", "infra"),
        branch: branch.into(),
        reference: branch.into(),
        commit: "c".repeat(40).into(),
        project: project(dir),
        checked: at(checked),
        job: None,
        finding: DriftFinding::Failed("no such module".into()),
    }
}

fn dirs(found: &ProjectsFound) -> Vec<&str> {
    found.rows.iter().map(|(_, project)| project.dir.as_str()).collect()
}

/// Returns a run that refused the project of a directory, and has a job on none.
fn refused(id: &str, dir: &str) -> Run {
    let result = |dir: &str, outcome: &str| {
        format!(r#"{{"cmd":"plan","dir":"{dir}","workspace":"default","project":"named","outcome":"{outcome}"}}"#)
    };
    let results = vec![result(dir, "failure"), result("planned", "success"), r#"{"outcome":"failure"}"#.into()];
    Run { results, ..run(id, Some(at(1))) }
}

#[tokio::test]
async fn a_project_is_known_from_each_of_its_traces_once() {
    let (_dir, store) = open();
    let fill = |tx: &Tx<'_>| {
        let on = |id: &str, dir: &str| Job { project: Some(project(dir)), ..job(id, JobState::Succeeded) };
        tx.put_job(&on("1", "of-job"))?;
        tx.put_job(&on("2", "of-job"))?;
        tx.put_job(&Job { pull: PullId { repo: repo("github.com", "infra#1"), number: 1 }, ..on("3", "elsewhere") })?;
        tx.lock_project(&project_lock(repo("github.com", "infra"), project("of-lock"), 1, 0))?;
        tx.put_drift(&drift_on("of-drift", "main", 1))?;
        tx.put_drift(&drift_on("of-drift", "old", 9))?;
        tx.put_project_status(&pull_id(1), &status("of-status", ProjectState::Planned))?;
        let named = ProjectId { name: Some("named".into()), ..project("of-status") };
        let named = ProjectStatus { project: named, ..status("of-status", ProjectState::Planned) };
        tx.put_project_status(&pull_id(2), &named)?;
        let infra = [repo("github.com", "infra")];
        let found = |words: &str, after: Option<&KnownProject>, limit| {
            tx.list_projects(&infra, &Search::new(words), after, limit)
        };
        let all = found("", None, 9)?;
        assert_eq!((dirs(&all), &all.next), (vec!["of-drift", "of-job", "of-lock", "of-status"], &None));
        let names = |dir: &str| tx.names_of_state(&infra[0], &project(dir), 9);
        for dir in dirs(&all) {
            let named = (dir == "of-status").then(|| Some("named".to_owned()));
            assert_eq!(names(dir)?, [None].into_iter().chain(named).collect::<Vec<_>>(), "{dir}");
        }
        assert_eq!(names("elsewhere")?, []);

        assert_eq!(dirs(&found("JOB default", None, 9)?), ["of-job"]);
        let first = found("", None, 2)?;
        assert_eq!(dirs(&found("", first.next.as_ref(), 2)?), ["of-lock", "of-status"]);
        let (infra, last) = (&infra[0], |dir: &str| tx.latest_drift_on(&infra[0], &project(dir)));
        assert_eq!(last("of-drift")?.map(|drift| drift.branch), Some("old".to_owned()), "the latest check counts");
        assert_eq!(last("of-job")?, None);
        let job = tx.last_job_on(infra, &project("of-job"), "plan")?;
        assert_eq!(job.map(|job| job.id), Some("2".into()));
        assert_eq!(tx.repos_with_drift()?, std::slice::from_ref(infra));
        Ok(())
    };
    store.write(fill).await.unwrap();
}

#[tokio::test]
async fn a_search_in_many_repositories_ends_and_goes_on_from_there() {
    let (_dir, store) = open();
    let look = |tx: &Tx<'_>| {
        tx.lock_project(&project_lock(repo("github.com", "r300"), project("net"), 1, 0))?;
        let repos: Vec<RepoId> = (100..400).map(|number| repo("github.com", &format!("r{number}"))).collect();
        let search = Search::default();
        let first = tx.list_projects(&repos, &search, None, 9)?;
        assert_eq!((dirs(&first), first.looked), (vec![], Some(200)));
        let second = tx.list_projects(&repos, &search, first.next.as_ref(), 9)?;
        assert_eq!((dirs(&second), second.looked, &second.next), (vec!["net"], None, &None));
        Ok(())
    };
    store.write(look).await.unwrap();
}

#[tokio::test]
async fn a_run_is_found_by_what_it_refused_until_it_is_dropped() {
    let (_dir, store) = open();
    let look = |tx: &Tx<'_>| {
        for _ in 0..2 {
            tx.put_run(&refused("r", "net"))?;
        }
        let listed =
            |filter: RunFilter| -> Result<usize> { Ok(tx.list_runs(&filter, RunCursor::Newest, 9)?.rows.len()) };
        let of = |name: &str| RunFilter { project: Some(name.into()), ..RunFilter::default() };
        let on = |name: &str, dir: &str| RunFilter {
            state: Some((repo("github.com", name), project(dir))),
            ..RunFilter::default()
        };
        for name in ["net", "named", "net/default", "net/default/named"] {
            assert_eq!(listed(of(name))?, 1, "{name}");
        }
        assert_eq!((listed(of("planned"))?, listed(of("net/default/"))?), (0, 0), "a planned one has a job");
        assert_eq!((listed(on("infra", "net"))?, listed(on("other", "net"))?, listed(on("infra", "app"))?), (1, 0, 0));
        assert_eq!(count(tx, "refused_projects"), 1);
        tx.prune(at(0).checked_add(jiff::SignedDuration::from_hours(31 * 24))?)?;
        assert_eq!((tx.run(&"r".into())?, count(tx, "refused_projects")), (None, 0));
        Ok(())
    };
    store.write(look).await.unwrap();
}

pub(super) fn count(view: &View<'_>, table: &str) -> i64 {
    view.connection.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
}

#[test]
fn runs_of_an_earlier_format_are_found_by_what_they_refused() {
    let connection = Connection::open_in_memory().unwrap();
    schema::migrate(&connection, 10).unwrap();
    let mut run = refused("r", "net");
    run.results.push("no JSON".into());
    let values = (run.id.as_str(), run.pull.to_string(), json(&run).unwrap());
    connection
        .execute("INSERT INTO runs (id, pull, started, finished, record) VALUES (?1, ?2, 1, 1, ?3)", values)
        .unwrap();
    schema::migrate(&connection, 11).unwrap();
    let sql = "SELECT run || ' ' || dir || ' ' || workspace || ' ' || name FROM refused_projects";
    let mut rows = connection.prepare(sql).unwrap();
    let rows: Vec<String> = rows.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert_eq!(rows, ["r net default named"]);
}
