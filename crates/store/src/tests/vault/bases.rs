//! Bases: each has exactly the state at its position, although writes continue meanwhile.

use super::buckets::fresh;
use super::*;

/// Returns the digest of the same state without any base, restored from the journal alone.
async fn from_the_journal(bucket: &Arc<dyn Bucket>, seq: u64) -> Hash {
    for base in bucket.list("base/", "").await.unwrap() {
        assert!(bucket.delete(&base.name, base.generation).await.unwrap());
    }
    digest_in(&restored(bucket, Some(seq)).await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_base_made_while_writes_go_on_is_the_state_of_its_position() {
    let bucket = fresh();
    let retention = Retention { base_after_objects: 5, ..no_bases() };
    let server = Arc::new(Server::try_start(empty_disk(), vault(bucket.clone(), retention)).await.unwrap());
    let writing: Vec<_> = (0..4u64)
        .map(|writer| {
            let server = server.clone();
            tokio::spawn(async move {
                for number in 0..25 {
                    server.accept(&format!("{writer}-{number}")).await.unwrap();
                    // The plan is used at once and its file removed; the base must still succeed.
                    let id = format!("{writer}x{number}");
                    let plan = plan_with_file(&server, &id, writer + 1, "net", id.as_bytes());
                    let path = server.dir.path().join(plan.path.clone().unwrap());
                    server.store.write(move |tx| tx.put_plan(&plan)).await.unwrap();
                    assert!(server.store.write(move |tx| tx.consume_plan(&id, "job")).await.unwrap());
                    std::fs::remove_file(path).unwrap();
                }
            })
        })
        .collect();
    while writing.iter().any(|writer| !writer.is_finished()) {
        server.store.write_base_if_due().await.unwrap();
        tokio::task::yield_now().await;
    }
    for writer in writing {
        writer.await.unwrap();
    }
    let bases = bucket.list("base/", "").await.unwrap();
    assert!(bases.len() > 2, "{bases:?}");
    let mut states = Vec::new();
    for base in &bases {
        let seq: u64 = base.name["base/".len()..].parse().unwrap();
        let dir = restored(&bucket, Some(seq)).await;
        assert_files(dir.path());
        states.push((seq, digest_in(&dir)));
    }
    for (seq, state) in states {
        assert_eq!(from_the_journal(&bucket, seq).await, state, "base {seq}");
    }
    let left: Vec<_> = std::fs::read_dir(server.dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().starts_with("base.")), "{left:?}");
}

#[tokio::test]
async fn the_commit_that_leaves_a_base_due_says_so() {
    let retention = Retention { base_after_objects: 5, ..no_bases() };
    let server = Server::try_start(empty_disk(), vault(fresh(), retention)).await.unwrap();
    let mut due = Box::pin(server.store.base_due());
    let mut commits = 0;
    while futures::poll!(&mut due).is_pending() {
        assert!(commits < 5, "no base is due after {commits} commits");
        server.accept(&format!("delivery-{commits}")).await.unwrap();
        commits += 1;
    }
    assert!(commits > 1, "a base is due after the first commit");
    server.store.write_base_if_due().await.unwrap();
    server.accept("one more").await.unwrap();
    assert!(futures::poll!(Box::pin(server.store.base_due())).is_pending());
}

#[tokio::test]
async fn a_base_has_running_logs_as_they_were_kept() {
    let bucket = fresh();
    let server = Server::start(&bucket).await;
    let id = "0123456789abcdef0123456789abcdef";
    let log = logs::Logs::new(server.dir.path()).create(&id.into()).unwrap();
    server.store.write(move |tx| tx.put_job(&job(id, JobState::Running))).await.unwrap();
    log.line("kept");
    server.store.sync().await.unwrap();
    log.line("not kept yet");
    server.store.shared.vault.as_ref().unwrap().base_wanted.store(true, Ordering::Relaxed);
    server.store.write_base_if_due().await.unwrap();
    assert_eq!(bucket.list("base/", "").await.unwrap().len(), 1);
    let dir = restored(&bucket, None).await;
    assert_eq!(std::fs::read_to_string(dir.path().join(format!("logs/{id}.log"))).unwrap(), "kept\n");
    server.stop().await;
}

#[tokio::test]
async fn a_base_is_written_when_it_is_due_and_old_objects_go() {
    let bucket = fresh();
    let retention = Retention { base_after_objects: 10, keep_states: 5, keep: Duration::ZERO, ..no_bases() };
    let server = Server::try_start(empty_disk(), vault(bucket.clone(), retention)).await.unwrap();
    for number in 0..60 {
        server.accept(&number.to_string()).await.unwrap();
        server.store.write_base_if_due().await.unwrap();
    }
    assert!(bucket.list("base/", "").await.unwrap().len() <= 3);
    assert!(journal(&bucket).await < 30);
    assert_eq!(digest_in(&restored(&bucket, None).await), server.digest());
    server.stop().await;
}
