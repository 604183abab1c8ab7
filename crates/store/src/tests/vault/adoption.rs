//! Adoption of disks from before the vault, older and newer formats, and states that must not be confused.

use super::buckets::fresh;
use super::*;
use crate::rows::ChangeRecorder;
use tidelock_vault::Changes;

pub(super) const JOB: &str = "0123456789abcdef0123456789abcdef";

/// Returns a disk of the version before the vault.
pub(super) async fn old_disk() -> (Arc<tempfile::TempDir>, PlanRecord) {
    let (dir, store) = open();
    let content = b"a plan".repeat(1000);
    std::fs::create_dir_all(dir.path().join("plans")).unwrap();
    std::fs::write(dir.path().join("plans/one.tfplan"), &content).unwrap();
    let good = PlanRecord {
        path: Some("plans/one.tfplan".into()),
        sha256: Some(Hash::of(&content).to_string()),
        ..plan("one", 1, "net")
    };
    let log = logs::Logs::new(dir.path()).create(&JOB.into()).unwrap();
    log.line("its log");
    drop(log);
    std::fs::write(dir.path().join("logs/ffffffffffffffffffffffffffffffff.log"), "of nobody").unwrap();
    let record = good.clone();
    let fill = move |tx: &Tx<'_>| {
        tx.accept_delivery(&delivery("a"))?;
        tx.put_plan(&record)?;
        tx.put_plan(&plan("gone", 1, "app"))?;
        tx.put_job(&job(JOB, JobState::Succeeded))
    };
    store.write(fill).await.unwrap();
    store.close().await.unwrap();
    // Convert to the first format, which had no kept files.
    let connection = schema::open_raw(&dir.path().join(DATABASE)).unwrap();
    let later = "DROP TABLE kept_files; DROP TABLE repos; DROP TABLE schedules; DROP TABLE claims; DROP TABLE notifications; DROP TABLE freezes; DROP TABLE policy_checks; DROP TABLE owners; DROP TABLE changed_projects; DROP TABLE waiters; DROP TABLE seen_plans; DROP TABLE drift; DROP TABLE remediations; DROP TABLE drift_checks; DROP TABLE drift_issues; DROP TABLE replans; DROP TABLE refused_projects; DROP TABLE job_times; DROP INDEX plans_project; DROP INDEX plans_strict; DROP INDEX runs_pull; DROP INDEX jobs_run; DROP INDEX jobs_untold; DROP INDEX effects_told; DROP INDEX jobs_lost; DROP INDEX plans_tree; DROP INDEX runs_history; DROP INDEX jobs_projects; DROP INDEX audit_who; DROP INDEX audit_act; DROP INDEX audit_pull; DROP INDEX audit_project; DROP INDEX audit_repo; DROP INDEX pulls_open; DROP INDEX jobs_states; DROP INDEX runs_people;";
    connection.execute_batch(&format!("{later} PRAGMA user_version = 1")).unwrap();
    (Arc::new(dir), good)
}

#[tokio::test]
async fn a_kept_disk_becomes_the_first_state_of_an_empty_vault() {
    let bucket = fresh();
    let (dir, plan) = old_disk().await;
    let server = Server::start_in(dir, &bucket).await;
    assert_eq!(identities(&server.store).await, ["a"]);
    assert_eq!(bucket.list("base/", "").await.unwrap().len(), 1);
    server.accept("b").await.unwrap();
    let kept = server.store.read(|view| view.kept_files("")).await.unwrap();
    let paths: Vec<_> = kept.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, [&files::log_path(&JOB.into()), "plans/one.tfplan"]);
    let state = server.digest();
    server.stop().await;

    let server = Server::start(&bucket).await;
    assert_eq!(server.digest(), state);
    assert_eq!(identities(&server.store).await, ["a", "b"]);
    let file = KeptFile::read(server.dir.path(), "plans/one.tfplan").unwrap().unwrap();
    assert_eq!(Some(file.sha256), plan.sha256);
    assert_files(server.dir.path());
    // The state is taken over once: its disk has a cache now.
    let dir = server.stop().await;
    let server = Server::start_in(dir, &bucket).await;
    assert_eq!(server.digest(), state);
    server.stop().await;
}

#[tokio::test]
async fn taking_over_a_disk_goes_on_after_a_crash_at_any_call() {
    let mut crashed = 0;
    for dies_at in 0..24 {
        for after_effect in [false, true] {
            let inner = fresh();
            let (dir, _) = old_disk().await;
            let dying = Dying::at(&inner, dies_at, after_effect);
            match Server::start_mortal(dir.clone(), dying, no_bases()).await {
                Some(server) => drop(server.die().await),
                None => crashed += 1,
            }
            let server = Server::start_in(dir, &inner).await;
            assert_eq!(identities(&server.store).await, ["a"], "at call {dies_at}, after its effect: {after_effect}");
            assert_files(restored(&inner, None).await.path());
            server.stop().await;
        }
    }
    assert!(crashed > 6, "{crashed}");
}

#[tokio::test]
async fn a_kept_disk_makes_room_where_the_vault_has_a_state_already() {
    let bucket = fresh();
    let server = Server::start(&bucket).await;
    server.accept("of the vault").await.unwrap();
    server.stop().await;
    let (dir, _) = old_disk().await;
    let server = Server::start_in(dir, &bucket).await;
    assert_eq!(identities(&server.store).await, ["of the vault"]);
    assert_files(server.dir.path());
    let aside = server.dir.path().join("before-vault.1");
    assert!(aside.join("plans/one.tfplan").exists() && aside.join(files::log_path(&JOB.into())).exists());
    assert_eq!(identities(&Store::open(&aside).unwrap()).await, ["a"]);
    server.stop().await;
}

#[tokio::test]
async fn a_cache_of_one_vault_does_not_become_the_state_of_another() {
    let server = Server::start(&fresh()).await;
    server.accept("a").await.unwrap();
    let dir = server.stop().await;
    let path = dir.path().to_owned();
    let error = Server::try_start(dir, vault(fresh(), no_bases())).await.err().unwrap();
    let error = format!("{error:#}").replace(&path.display().to_string(), "DIR");
    insta::assert_snapshot!(error, @"the vault is empty, but the state in DIR/tidelock.db came from a vault: point --bucket to that one, or, to begin anew, move that file away and start again");
}

#[tokio::test]
async fn a_cache_is_not_opened_without_its_vault_and_a_disk_not_without_a_restore() {
    let bucket = fresh();
    let server = Server::start(&bucket).await;
    let leader = server.leader.clone();
    let dir = server.die().await;
    let says = |error: anyhow::Error, dir: &Path| format!("{error:#}").replace(&dir.display().to_string(), "DIR");
    insta::assert_snapshot!(says(Store::open(dir.path()).err().unwrap(), dir.path()), @"the state in DIR/tidelock.db belongs to a vault: start the server with that vault's --bucket");
    let (old, _) = old_disk().await;
    insta::assert_snapshot!(says(Store::lead(old.path(), leader.clone()).await.err().unwrap(), old.path()), @"the state in DIR/tidelock.db was not restored from the vault: it is left alone");
    let none = tempfile::tempdir().unwrap();
    insta::assert_snapshot!(says(Store::lead(none.path(), leader).await.err().unwrap(), none.path()), @"there is no DIR/tidelock.db: the state has to be restored first");
}

#[tokio::test]
async fn a_vault_of_the_first_format_is_restored_and_brought_up() {
    let bucket = fresh();
    let vault = vault(bucket.clone(), no_bases());
    let lease = vault.acquire().await.unwrap();
    let (leader, _) = vault.lead(lease).await.unwrap().unwrap();
    // Rows as a server of format 1 would have committed them.
    let dir = tempfile::tempdir().unwrap();
    let mut old = schema::open_raw(&dir.path().join("old.db")).unwrap();
    schema::migrate(&old, 1).unwrap();
    let recorder = ChangeRecorder::attach(&mut old).unwrap();
    for number in 0..3 {
        old.execute(
            "INSERT INTO deliveries (identity, host_id, state, received, record) VALUES (?1, '', 'queued', 0, ?2)",
            (number.to_string(), json(&delivery(&number.to_string())).unwrap()),
        )
        .unwrap();
        let rows = recorder.capture(&old).unwrap().unwrap();
        recorder.clear();
        leader.commit(Changes { schema: 1, rows: rows.into(), blobs: vec![] }).await.unwrap();
    }
    leader.release().await.unwrap();

    assert_eq!(
        digest(&restored(&bucket, None).await.path().join(DATABASE)).unwrap(),
        digest(&dir.path().join("old.db")).unwrap()
    );
    let server = Server::start(&bucket).await;
    assert_eq!(identities(&server.store).await, ["0", "1", "2"]);
    server.accept("3").await.unwrap();
    server.store.write_base_if_due().await.unwrap();
    assert_eq!(bucket.list("base/", "").await.unwrap().len(), 1, "a new format is worth a base");
    let state = server.digest();
    server.stop().await;
    let server = Server::start(&bucket).await;
    assert_eq!(server.digest(), state);
    server.stop().await;
}

#[tokio::test]
async fn a_newer_format_in_the_vault_is_refused_with_what_to_do_and_the_disk_left_alone() {
    let bucket = fresh();
    let vault = vault(bucket.clone(), no_bases());
    let lease = vault.acquire().await.unwrap();
    let (leader, _) = vault.lead(lease).await.unwrap().unwrap();
    leader.commit(Changes { schema: 99, rows: vec![1, 0].into(), blobs: vec![] }).await.unwrap();
    let chain = vault.read(None).await.unwrap();
    let (dir, _) = old_disk().await;
    let before = digest(&dir.path().join(DATABASE)).unwrap();
    let error = Store::restore(dir.path(), &chain).await.unwrap_err();
    insta::assert_snapshot!(format!("{error:#}"), @"the state in the vault is of format 99, written by a newer Tidelock; this version (0.1.0) knows formats up to 14. Run that newer version again, or go back to a state from before it: `tidelock vault ls` lists the states, `tidelock vault export DIR --at SEQ` writes one");
    assert_eq!(digest(&dir.path().join(DATABASE)).unwrap(), before);
}

#[tokio::test]
async fn rows_that_cannot_be_read_stop_the_restore_with_the_object_and_leave_the_disk_alone() {
    let bucket = fresh();
    let vault = vault(bucket.clone(), no_bases());
    let lease = vault.acquire().await.unwrap();
    let (leader, _) = vault.lead(lease).await.unwrap().unwrap();
    leader.commit(Changes { schema: 2, rows: vec![9, 9, 9].into(), blobs: vec![] }).await.unwrap();
    let chain = vault.read(None).await.unwrap();
    let (dir, _) = old_disk().await;
    let before = digest(&dir.path().join(DATABASE)).unwrap();
    let error = format!("{:#}", Store::restore(dir.path(), &chain).await.unwrap_err());
    assert!(error.starts_with("journal/0000000000000002: its rows: they are of format 9"), "{error}");
    assert_eq!(digest(&dir.path().join(DATABASE)).unwrap(), before);
    // The next restore removes the folder that it left.
    Store::restore(dir.path(), &vault.read(Some(1)).await.unwrap()).await.unwrap();
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().starts_with("restoring.")), "{left:?}");
}

#[tokio::test]
async fn a_data_directory_of_another_process_is_not_touched() {
    let bucket = fresh();
    let server = Server::start(&bucket).await;
    let chain = server.vault.read(None).await.unwrap();
    let error = Store::restore(server.dir.path(), &chain).await.unwrap_err().to_string();
    assert!(error.contains("is in use by process"), "{error}");
    server.stop().await;
}
