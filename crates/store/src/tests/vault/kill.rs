//! A server that dies at any of its calls to the bucket, before or after the call's effect, leaves a committed state at least as
//! new as its last answer.

use super::buckets::fresh;
use super::*;

/// Number of changes in one life. Each leads to a different state, which is the same in each life.
const CHANGES: usize = 12;

/// Returns a retention with frequent bases and deletions.
fn retention() -> Retention {
    Retention { base_after_objects: 3, base_after_bytes: u64::MAX, keep_states: 2, keep: Duration::ZERO }
}

async fn change(server: &Server, number: usize) -> Result<()> {
    let name = number.to_string();
    match number % 4 {
        0 => server.accept(&name).await.map(drop),
        1 => {
            let plan = plan_with_file(server, &name, 1, &format!("dir{}", number % 3), name.repeat(100).as_bytes());
            server.store.write(move |tx| tx.put_plan(&plan)).await
        }
        2 => {
            let id = format!("{number:032x}");
            server.file(&files::log_path(&id.as_str().into()), format!("log of {number}\n").as_bytes());
            server.store.write(move |tx| tx.put_job(&job(&id, JobState::Succeeded))).await
        }
        _ => {
            let lock = project_lock(repo("github.com", "infra"), project(&name), 1, 0);
            let plan = (number - 2).to_string();
            let change = move |tx: &Tx<'_>| {
                tx.lock_project(&lock)?;
                tx.consume_plan(&plan, "job").map(drop)
            };
            server.store.write(change).await
        }
    }
}

/// Makes the changes from the `from`-th on, until one fails. Returns the number of answered changes.
async fn live(server: &Server, from: usize, mut seen: impl FnMut(Hash)) -> usize {
    for number in from..CHANGES {
        if change(server, number).await.is_err() {
            return number;
        }
        seen(server.digest());
        // The next change fails as well.
        let _ = server.store.write_base_if_due().await;
    }
    CHANGES
}

/// Starts a server whose bucket dies, on an empty disk, and makes changes. Returns the number of all answered changes.
async fn mortal(bucket: &Arc<Dying>, states: &[Hash], from: usize) -> usize {
    let Some(server) = Server::start_mortal(empty_disk(), bucket.clone(), retention()).await else { return from };
    // The last change of an earlier life may be stored without an answer.
    let found = states.iter().position(|state| *state == server.digest()).unwrap();
    assert!(found == from || found == from + 1, "{found} changes were found after {from} answers");
    let answered = live(&server, found, |_| ()).await;
    server.die().await;
    answered
}

/// Returns the states before and after each change, and the number of calls in a whole life.
async fn reference() -> (Vec<Hash>, u64) {
    let inner = fresh();
    let bucket = Dying::at(&inner, u64::MAX, false);
    let server = Server::try_start(empty_disk(), vault(bucket.clone(), retention())).await.unwrap();
    let mut states = vec![server.digest()];
    let answered = live(&server, 0, |state| states.push(state)).await;
    assert_eq!(answered, CHANGES);
    assert!(!inner.list("base/", "").await.unwrap().is_empty());
    assert!(inner.list("journal/", "").await.unwrap().len() < CHANGES, "old objects were deleted");
    server.die().await;
    (states, bucket.calls.load(Ordering::Relaxed))
}

/// Dies at one call, then again soon after the restart, then makes all changes.
async fn killed(states: &[Hash], dies_at: u64, after_effect: bool) {
    let inner = fresh();
    let answered = mortal(&Dying::at(&inner, dies_at, after_effect), states, 0).await;
    let again = Dying::at(&inner, dies_at * 7 % 40, !after_effect);
    let answered = mortal(&again, states, answered).await;

    let dir = restored(&inner, None).await;
    let found = states.iter().position(|state| *state == digest_in(&dir));
    // A journal with only seals restores to an empty database without any table.
    let found = found.or((answered == 0).then_some(0)).expect("what is restored is no committed state");
    assert!(found == answered || found == answered + 1, "{found} changes were found after {answered} answers");
    assert_files(dir.path());

    let server = Server::try_start(empty_disk(), vault(inner.clone(), retention())).await.unwrap();
    assert_eq!(server.digest(), states[found]);
    assert_eq!(live(&server, found, |_| ()).await, CHANGES);
    assert_eq!(server.digest(), states[CHANGES]);
    server.stop().await;
    let dir = restored(&inner, None).await;
    assert_eq!(digest_in(&dir), states[CHANGES]);
    assert_files(dir.path());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_server_that_dies_at_any_call_leaves_what_it_answered() {
    let (states, calls) = reference().await;
    let states = Arc::new(states);
    assert!(calls > 40, "{calls}");
    let mut lives = tokio::task::JoinSet::new();
    for dies_at in 0..calls + 2 {
        for after_effect in [false, true] {
            let states = states.clone();
            lives.spawn(async move {
                let life = tokio::spawn(async move { killed(&states, dies_at, after_effect).await });
                life.await
                    .unwrap_or_else(|error| panic!("at call {dies_at}, after its effect: {after_effect}: {error}"));
            });
            if lives.len() >= 8 {
                lives.join_next().await.unwrap().unwrap();
            }
        }
    }
    while let Some(life) = lives.join_next().await {
        life.unwrap();
    }
}
