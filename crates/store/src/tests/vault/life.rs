//! Commits of a leading store, and their visibility.

use super::buckets::fresh;
use super::*;

#[tokio::test]
async fn a_write_is_one_journal_object_and_what_changes_nothing_is_none() {
    let counting = Dying::at(&fresh(), u64::MAX, false);
    let bucket: Arc<dyn Bucket> = counting.clone();
    let server = Server::start(&bucket).await;
    let sealed = journal(&bucket).await;
    assert!(server.accept("a").await.unwrap());
    assert_eq!(journal(&bucket).await, sealed + 1);
    assert!(!server.accept("a").await.unwrap(), "it is known");
    server.store.write(|tx| tx.locks().map(drop)).await.unwrap();
    let failing = server.store.write(|tx| -> Result<()> {
        tx.accept_delivery(&delivery("b"))?;
        bail!("no, after all")
    });
    failing.await.unwrap_err();
    server.store.write(|tx| tx.prune(Timestamp::now())).await.unwrap();
    server.store.sync().await.unwrap();
    server.store.write_base_if_due().await.unwrap();
    let requests = counting.calls.load(Ordering::Relaxed);
    server.store.sync().await.unwrap();
    server.store.write_base_if_due().await.unwrap();
    server.store.may_act().await.unwrap();
    assert_eq!(counting.calls.load(Ordering::Relaxed), requests, "nothing changed: no request");
    assert_eq!(journal(&bucket).await, sealed + 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_sees_a_change_before_it_is_in_the_bucket() {
    let slow = Slow::new(fresh(), Duration::ZERO);
    let bucket: Arc<dyn Bucket> = slow.clone();
    let server = Server::start(&bucket).await;
    let before = slow.waiting.load(Ordering::SeqCst);
    let gate = slow.gate.acquire().await.unwrap();
    let writing = tokio::spawn({
        let store = server.store.clone();
        async move { store.write(|tx| tx.accept_delivery(&delivery("a"))).await }
    });
    while slow.waiting.load(Ordering::SeqCst) == before {
        tokio::task::yield_now().await;
    }
    assert!(identities(&server.store).await.is_empty());
    assert!(!writing.is_finished());
    drop(gate);
    assert!(writing.await.unwrap().unwrap());
    assert_eq!(identities(&server.store).await, ["a"]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_for_a_slow_commit_is_taken_together() {
    let bucket: Arc<dyn Bucket> = Slow::new(fresh(), Duration::from_millis(50));
    let server = Arc::new(Server::start(&bucket).await);
    let before = journal(&bucket).await;
    let writers = (0..300).map(|number| {
        let server = server.clone();
        tokio::spawn(async move { server.accept(&number.to_string()).await.unwrap() })
    });
    for done in futures::future::join_all(writers).await {
        assert!(done.unwrap());
    }
    let commits = journal(&bucket).await - before;
    assert!(commits <= 8, "{commits} commits for 300 writes that waited together");
}

#[tokio::test]
async fn a_running_log_is_kept_as_far_as_it_is_and_whole_when_its_job_ends() {
    let bucket = fresh();
    let server = Server::start(&bucket).await;
    let id = "0123456789abcdef0123456789abcdef";
    let logs = logs::Logs::new(server.dir.path());
    server.store.write(move |tx| tx.put_job(&job(id, JobState::Running))).await.unwrap();
    let log = logs.create(&id.into()).unwrap();
    log.line("one");
    server.store.sync().await.unwrap();
    let path = format!("logs/{id}.log");
    let read = |dir: &tempfile::TempDir| std::fs::read_to_string(dir.path().join(&path)).unwrap();
    assert_eq!(read(&restored(&bucket, None).await), "one\n");

    let commits = journal(&bucket).await;
    server.store.sync().await.unwrap();
    assert_eq!(journal(&bucket).await, commits, "it did not grow");
    log.line("two");
    server.store.sync().await.unwrap();
    assert_eq!(read(&restored(&bucket, None).await), "one\ntwo\n");
    assert_eq!(journal(&bucket).await, commits + 1);

    log.line("three");
    server.store.write(move |tx| tx.put_job(&job(id, JobState::Succeeded))).await.unwrap();
    drop(log);
    assert_eq!(read(&restored(&bucket, None).await), "one\ntwo\nthree\n");
    assert_eq!(journal(&bucket).await, commits + 2);
    server.stop().await;
}

async fn kept_paths(server: &Server) -> Vec<String> {
    let kept = server.store.read(|view| view.kept_files("")).await.unwrap();
    kept.into_iter().map(|file| file.path).collect()
}

#[tokio::test]
async fn a_log_that_runs_for_an_hour_is_uploaded_twice_and_not_each_minute() {
    const MINUTES: u32 = 60;
    let bucket = fresh();
    let server = Server::start(&bucket).await;
    let id = "0123456789abcdef0123456789abcdef";
    server.store.write(move |tx| tx.put_job(&job(id, JobState::Running))).await.unwrap();
    let log = logs::Logs::new(server.dir.path()).create(&id.into()).unwrap();
    let mut text = String::new();
    let mut fill = |minute: u32| {
        for line in 0..20_u32 {
            // Lines that compress badly.
            let line = Hash::of(&[minute.to_le_bytes(), line.to_le_bytes()].concat()).to_string();
            log.line(&line);
            text += &format!("{line}\n");
        }
        text.clone()
    };
    let uploaded = |server: &Server| server.leader.figures().commit_bytes;
    let path = format!("logs/{id}.log");
    let read = |dir: &tempfile::TempDir| std::fs::read_to_string(dir.path().join(&path)).unwrap();
    let (before, mut so_far) = (uploaded(&server), String::new());
    for minute in 0..MINUTES {
        so_far = fill(minute);
        server.store.sync().await.unwrap();
        if minute == MINUTES / 2 {
            server.store.shared.vault.as_ref().unwrap().base_wanted.store(true, Ordering::Relaxed);
            server.store.write_base_if_due().await.unwrap();
        }
    }
    let running = restored(&bucket, None).await;
    assert_eq!(read(&running), so_far);
    assert_files(running.path());
    assert_eq!(kept_paths(&server).await.len(), MINUTES as usize);

    server.store.write(move |tx| tx.put_job(&job(id, JobState::Succeeded))).await.unwrap();
    let ended = restored(&bucket, None).await;
    assert_eq!(read(&ended), so_far);
    assert_files(ended.path());
    assert_eq!(kept_paths(&server).await, [path.as_str()]);
    // Each commit also has a header and a row.
    let (limit, bytes) = (2 * so_far.len() as u64 + 1_500 * u64::from(MINUTES), uploaded(&server) - before);
    assert!(bytes < limit, "{bytes} bytes for a log of {}", so_far.len());
    server.stop().await;
}

#[tokio::test]
async fn a_log_of_which_an_older_version_kept_the_whole_goes_on_in_pieces() {
    let bucket = fresh();
    let server = Server::start(&bucket).await;
    let id = "0123456789abcdef0123456789abcdef";
    let log = logs::Logs::new(server.dir.path()).create(&id.into()).unwrap();
    log.line("one");
    let (whole, data_dir) = (format!("logs/{id}.log"), server.dir.path().to_owned());
    let path = whole.clone();
    server
        .store
        .write(move |tx| {
            tx.put_job(&job(id, JobState::Running))?;
            tx.keep_file(&KeptFile::read(&data_dir, &path)?.unwrap())
        })
        .await
        .unwrap();
    for (line, text) in [("two", "one\ntwo\n"), ("three", "one\ntwo\nthree\n")] {
        log.line(line);
        server.store.sync().await.unwrap();
        let dir = restored(&bucket, None).await;
        assert_eq!(std::fs::read_to_string(dir.path().join(&whole)).unwrap(), text);
        assert_files(dir.path());
    }
    drop(log);
    // The next server, on an empty disk, ends the job of the killed one.
    server.die().await;
    let server = Server::start(&bucket).await;
    assert_files(server.dir.path());
    server.store.write(move |tx| tx.put_job(&job(id, JobState::Interrupted))).await.unwrap();
    assert_eq!(kept_paths(&server).await, [whole.as_str()]);
    let dir = restored(&bucket, None).await;
    assert_eq!(std::fs::read_to_string(dir.path().join(&whole)).unwrap(), "one\ntwo\nthree\n");
    server.stop().await;
}

#[tokio::test]
async fn a_state_with_a_running_log_is_exported_and_imported_whole() {
    let bucket = fresh();
    let server = Server::start(&bucket).await;
    let id = "0123456789abcdef0123456789abcdef";
    let log = logs::Logs::new(server.dir.path()).create(&id.into()).unwrap();
    server.store.write(move |tx| tx.put_job(&job(id, JobState::Running))).await.unwrap();
    for line in ["one", "two"] {
        log.line(line);
        server.store.sync().await.unwrap();
    }
    let out = tempfile::tempdir().unwrap();
    let chain = vault(bucket.clone(), no_bases()).read(None).await.unwrap();
    Store::export(out.path(), &chain).await.unwrap();
    assert_files(out.path());
    let log_in = |dir: &Path| std::fs::read_to_string(dir.join(format!("logs/{id}.log"))).unwrap();
    assert_eq!(log_in(out.path()), "one\ntwo\n");

    let other = fresh();
    let vault = vault(other.clone(), no_bases());
    let lease = vault.acquire().await.unwrap();
    let (leader, _) = vault.lead(lease).await.unwrap().unwrap();
    Exported::open(out.path()).unwrap().import(&leader).await.unwrap();
    leader.release().await.unwrap();
    let dir = restored(&other, None).await;
    assert_eq!(log_in(dir.path()), "one\ntwo\n");
    assert_files(dir.path());
    server.stop().await;
}

#[tokio::test]
async fn closing_keeps_the_last_lines_of_running_logs() {
    let bucket = fresh();
    let server = Server::start(&bucket).await;
    let id = "0123456789abcdef0123456789abcdef";
    let log = logs::Logs::new(server.dir.path()).create(&id.into()).unwrap();
    server.store.write(move |tx| tx.put_job(&job(id, JobState::Running))).await.unwrap();
    log.line("the last one");
    server.stop().await;
    let dir = restored(&bucket, None).await;
    assert_eq!(std::fs::read_to_string(dir.path().join(format!("logs/{id}.log"))).unwrap(), "the last one\n");
}

#[tokio::test]
async fn a_plan_file_comes_back_bit_for_bit_and_goes_with_its_plan() {
    use std::os::unix::fs::PermissionsExt;
    let bucket = fresh();
    let server = Server::start(&bucket).await;
    let content: Vec<u8> = (0..200_000u32).flat_map(|number| number.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect();
    let plan = plan_with_file(&server, "one", 1, "net", &content);
    let path = server.dir.path().join("plans/one.tfplan");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    server.file("left/one.tar.zst", b"left");
    let (record, data_dir) = (plan.clone(), server.dir.path().to_owned());
    server
        .store
        .write(move |tx| {
            tx.put_plan(&record)?;
            tx.keep_file(&KeptFile::read(&data_dir, "left/one.tar.zst")?.unwrap())
        })
        .await
        .unwrap();
    let dir = restored(&bucket, None).await;
    assert_eq!(std::fs::read(dir.path().join("plans/one.tfplan")).unwrap(), content);
    assert_eq!(std::fs::read(dir.path().join("left/one.tar.zst")).unwrap(), b"left");
    assert_eq!(dir.path().join("plans/one.tfplan").metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(dir.path().join("plans").metadata().unwrap().permissions().mode() & 0o777, 0o700);

    assert!(server.store.write(|tx| tx.consume_plan("one", "job")).await.unwrap());
    let dir = restored(&bucket, None).await;
    assert!(!dir.path().join("plans/one.tfplan").exists(), "a used plan is never applied again");
    assert!(server.store.read(|view| view.kept_files("")).await.unwrap().is_empty());
    server.stop().await;
}

#[tokio::test]
async fn every_way_in_which_a_plan_goes_lets_its_file_go() {
    let bucket = fresh();
    let server = Server::start(&bucket).await;
    for number in 1..=4 {
        let plan = plan_with_file(&server, &format!("p{number}"), number, "net", &[number as u8]);
        server.store.write(move |tx| tx.put_plan(&plan)).await.unwrap();
    }
    let next = plan_with_file(&server, "next", 4, "net", b"next");
    server
        .store
        .write(move |tx| {
            tx.discard_plan(&pull_id(1), &project("net"))?;
            tx.discard_plans(&pull_id(2))?;
            tx.forget_pull(&pull_id(3))?;
            tx.put_plan(&next)
        })
        .await
        .unwrap();
    let kept = server.store.read(|view| view.kept_files("plans/")).await.unwrap();
    assert_eq!(kept.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), ["plans/next.tfplan"]);
    server.stop().await;
}

#[tokio::test]
async fn a_file_that_is_not_there_or_not_as_said_fails_its_own_change() {
    let bucket = fresh();
    let server = Server::start(&bucket).await;
    let missing = server.store.write(|tx| tx.put_plan(&plan("missing", 1, "net"))).await;
    let missing = format!("{:#}", missing.unwrap_err());
    assert!(missing.starts_with("the plan file plans/missing cannot be kept: "), "{missing}");
    let mut file = KeptFile::read(server.dir.path(), "plans/x").unwrap();
    assert_eq!(file, None);
    server.file("errored/x.tfstate", b"state");
    file = KeptFile::read(server.dir.path(), "errored/x.tfstate").unwrap();
    server.file("errored/x.tfstate", b"longer than it was");
    let kept = file.clone().unwrap();
    assert!(server.store.write(move |tx| tx.keep_file(&kept)).await.is_err());
    // The same length, but another content: nothing of that group is committed.
    server.file("errored/x.tfstate", b"STATE");
    let kept = file.unwrap();
    let error = server.store.write(move |tx| tx.keep_file(&kept)).await.unwrap_err();
    assert!(!is_deposed(&error), "{error:#}");
    assert!(server.accept("next").await.unwrap(), "and the store goes on");
    let dir = restored(&bucket, None).await;
    assert_eq!(digest_in(&dir), server.digest());
    server.stop().await;
}

#[tokio::test]
async fn a_deposed_server_changes_nothing_shows_nothing_new_and_still_reads() {
    let bucket = fresh();
    let first = Server::start(&bucket).await;
    first.accept("before").await.unwrap();
    // Another server takes over, so the first one's next number in the journal is taken.
    let second = Server::start(&bucket).await;
    second.accept("by the second").await.unwrap();

    let (one, other) = futures::join!(first.accept("late"), first.accept("later"));
    for error in [one.unwrap_err(), other.unwrap_err(), first.accept("much later").await.unwrap_err()] {
        assert!(is_deposed(&error), "{error:#}");
        assert!(is_deposed(&error.context("while something was done")));
    }
    assert!(is_deposed(&first.store.may_act().await.unwrap_err()));
    assert!(is_deposed(
        &first.store.write_base_if_due().await.map_or_else(|error| error, |()| VaultError::Deposed("x".into()).into())
    ));
    assert_eq!(identities(&first.store).await, ["before"]);
    first.store.close().await.unwrap();
    assert_eq!(identities(&second.store).await, ["before", "by the second"]);
    assert_eq!(digest_in(&restored(&bucket, None).await), second.digest());
    second.stop().await;
}

#[tokio::test]
async fn a_database_that_does_not_take_what_the_bucket_has_ends_this_leader() {
    let bucket = fresh();
    let server = Server::start(&bucket).await;
    let broken = server.store.write(|tx| {
        tx.accept_delivery(&delivery("in the bucket"))?;
        // SQLite detects the violation at COMMIT.
        tx.connection.execute_batch(
            "CREATE TEMP TABLE p (id INTEGER PRIMARY KEY);
             CREATE TEMP TABLE c (p REFERENCES p (id) DEFERRABLE INITIALLY DEFERRED);
             INSERT INTO temp.c VALUES (1)",
        )?;
        Ok(())
    });
    let error = broken.await.unwrap_err();
    assert!(is_deposed(&error), "{error:#}");
    assert!(is_deposed(&server.accept("later").await.unwrap_err()));
    assert!(is_deposed(&server.store.may_act().await.unwrap_err()));
    assert!(server.leader.deposed().await.contains("restart"));
    assert!(identities(&server.store).await.is_empty());
    let dir = server.die().await;
    let server = Server::start_in(dir, &bucket).await;
    assert_eq!(identities(&server.store).await, ["in the bucket"]);
    server.stop().await;
}

#[tokio::test]
async fn the_end_of_a_job_is_left_for_whoever_leads() {
    let bucket = fresh();
    let server = Server::start(&bucket).await;
    let end = tidelock_vault::inbox::LateOutcome {
        format: tidelock_vault::FORMAT,
        job: "0123456789abcdef0123456789abcdef".into(),
        outcome: serde_json::json!({"x": 1}),
        errored_state: None,
    };
    server.store.leave_late_outcome(end).await.unwrap();
    assert_eq!(bucket.list("inbox/end/", "").await.unwrap().len(), 1);
    server.stop().await;
    let (_dir, alone) = open();
    assert!(alone.may_act().await.is_ok());
}
