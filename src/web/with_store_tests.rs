//! Tests of pages that read from and write to a real store and real logs.

use super::answer::Visit;
use super::dashboard::{Dashboard, DashboardData, DashboardQuery, ServerState};
use super::jobs::{self, log_events};
use super::preview_tests::{job, lock, pull, status};
use super::{Who, locks};
use crate::domain::JobId;
use crate::domain::state::*;
use crate::store::Store;
use crate::store::logs::Logs;
use jiff::Timestamp;

fn store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    (folder, store)
}

async fn filled() -> (tempfile::TempDir, Store) {
    let (folder, store) = store();
    store
        .write(|tx| {
            let network = lock("network", "infra/network", "prod", 41);
            tx.put_pull(&pull(41, "Open SSH through IAP"))?;
            tx.lock_project(&network)?;
            tx.lock_project(&lock("", "infra/dns", "default", 41))?;
            tx.put_project_status(&network.holder.pull, &status(network.project, ProjectState::Planned, 1, 0, 2))?;
            let plan = job(7, "plan", JobState::Succeeded, "1 to add, 0 to change, 2 to destroy");
            let run = Run {
                id: plan.run.clone(),
                pull: plan.pull.clone(),
                command: crate::domain::command::CommandName::Plan,
                trigger: crate::domain::command::Trigger::Comment,
                user: "alice".into(),
                head: plan.head.clone(),
                cause: Cause::None,
                started: plan.started,
                everything: true,
                typed: String::new(),
                fault: None,
                answered: false,
                end: None,
                results: Vec::new(),
                automerge: None,
                received: None,
                finished: None,
            };
            tx.put_run(&run)?;
            tx.put_job(&plan)?;
            tx.put_job(&job(1, "apply", JobState::Running, ""))
        })
        .await
        .unwrap();
    (folder, store)
}

#[tokio::test]
async fn the_dashboard_shows_what_the_store_holds() {
    let (_folder, store) = filled().await;
    let facts = DashboardData::load(&store, &DashboardQuery::default()).await.unwrap();
    let server = ServerState {
        in_progress: 1,
        draining: false,
        apply_allowed: true,
        apply_switch: true,
        executable: "atlantis".into(),
        configuration: None,
    };
    let view =
        serde_json::to_value(Dashboard::new(&facts, &server, &DashboardQuery::default(), None, Timestamp::now()))
            .unwrap();
    assert_eq!(view["running"]["rows"][0]["kind"], "apply");
    assert_eq!(view["running"]["rows"][0]["pull"]["title"], "Open SSH through IAP");
    let network =
        view["locks"]["rows"].as_array().unwrap().iter().find(|row| row["project"]["label"] == "network").unwrap();
    assert_eq!(network["mark"]["word"], "applying", "its apply runs");
    assert_eq!(network["totals"][0]["short"], "−2");
    assert_eq!(view["pulls"]["rows"][0]["projects"][0]["project"]["label"], "network");
    assert_eq!(view["recent"]["rows"].as_array().unwrap().len(), 1, "running jobs are listed once, above");
}

#[tokio::test]
async fn a_lock_is_found_by_its_key_escaped_once_or_twice() {
    let (_folder, store) = filled().await;
    let key = "acme/infra/infra/network/prod/network".to_owned();
    let (lock, status) = locks::find(&store, vec![key.clone()]).await.unwrap().unwrap();
    assert_eq!((lock.key(), status.unwrap().state), (key.clone(), ProjectState::Planned));
    let second = locks::find(&store, vec!["acme%2Finfra".into(), key]).await.unwrap();
    assert!(second.is_some());
    let unnamed = locks::find(&store, vec!["acme/infra/infra/dns/default/".into()]).await.unwrap().unwrap();
    assert_eq!(unnamed.0.project.name, None);
    assert!(unnamed.1.is_none());
    assert!(locks::find(&store, vec!["acme/infra/nothing/default/".into()]).await.unwrap().is_none());
}

#[tokio::test]
async fn the_apply_lock_is_set_lifted_and_audited() {
    let (_folder, store) = store();
    let lock = ApplyLock { user: "bob".into(), reason: "freeze".into(), since: Timestamp::now() };
    let visit = |name: &str| {
        let mut visit = Visit::new("/apply/lock", &http::HeaderMap::new(), Who::People, "r1".into());
        visit.name = name.into();
        visit
    };
    let entry = visit("bob").entry("apply lock", "freeze", "done");
    locks::set_apply_lock(&store, entry, Some(lock)).await.unwrap();
    assert_eq!(store.read(|view| view.apply_lock()).await.unwrap().unwrap().reason, "freeze");
    locks::set_apply_lock(&store, visit("loopback").entry("apply unlock", "", "done"), None).await.unwrap();
    assert!(store.read(|view| view.apply_lock()).await.unwrap().is_none());
    let entries = store.read(|view| view.audit_log(10)).await.unwrap();
    let mut acts: Vec<_> =
        entries.iter().map(|entry| (entry.act.as_str(), entry.who.as_str(), entry.subject.as_str())).collect();
    acts.sort_unstable();
    assert_eq!(acts, [("apply lock", "bob", "freeze"), ("apply unlock", "loopback", "")]);
}

#[tokio::test]
async fn a_job_is_found_with_its_pull_request() {
    let (_folder, store) = filled().await;
    let (job, pull) = jobs::find(&store, &JobId::from_bits(7)).await.unwrap().unwrap();
    assert_eq!((job.kind.as_str(), pull.unwrap().title.as_str()), ("plan", "Open SSH through IAP"));
    assert!(jobs::find(&store, &JobId::from_bits(0)).await.unwrap().is_none());
}

#[tokio::test]
async fn a_reader_that_is_far_behind_still_gets_every_line_once() {
    let folder = tempfile::tempdir().unwrap();
    let logs = Logs::new(folder.path());
    let id = JobId::from_bits(1);
    let writer = logs.create(&id).unwrap();
    writer.line("line 1");
    let reader = logs.read(&id).await.unwrap().unwrap();
    for number in 2..=5000 {
        writer.line(&format!("line {number}"));
    }
    drop(writer);
    let text = log_events(reader, 0).await;
    let ids: Vec<usize> = text.lines().filter_map(|line| line.strip_prefix("id: ")?.parse().ok()).collect();
    assert_eq!(ids, (1..=5000).collect::<Vec<_>>());
    assert!(text.contains("id: 5000\nretry: 2000\ndata: {\"k\":\"\",\"s\":[[\"\",\"line 5000\"]]}"));
    assert!(text.trim_end().ends_with("event: end\ndata: 5000"));
}
