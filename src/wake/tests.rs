use super::*;

const MOMENT: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(60);

/// Returns the end of a call that is still open a moment later; absent if it is open then.
async fn soon<T>(work: &mut tokio::task::JoinHandle<T>) -> Option<T> {
    timeout(MOMENT, work).await.ok().map(Result::unwrap)
}

#[tokio::test]
async fn a_visit_keeps_awake_until_it_has_ended_for_a_while() {
    let attention = Attention::new(None);
    let visit = attention.visit();
    assert!(timeout(3 * MOMENT, attention.unattended(MOMENT)).await.is_err());
    drop(visit);
    let seen = timeout(LONG, attention.unattended(MOMENT)).await.unwrap();
    assert_eq!(seen, attention.asked());
    // The end of a visit counts, not its beginning.
    let visit = attention.visit();
    tokio::time::sleep(2 * MOMENT).await;
    drop(visit);
    assert!(timeout(MOMENT / 2, attention.unattended(LONG)).await.is_err());
}

#[tokio::test]
async fn the_start_of_a_server_is_a_visit_unless_it_was_started_for_a_call() {
    let started = Attention::new(None);
    assert!(timeout(MOMENT, started.unattended(LONG)).await.is_err());
    let called = Attention::new(None);
    let call = tokio::spawn({
        let called = Arc::clone(&called);
        async move { called.call(LONG).await }
    });
    called.asked_after(RequestCount(0)).await;
    assert_eq!(timeout(LONG, called.unattended(LONG)).await.unwrap(), RequestCount(1));
    call.abort();
    // After a visit a call changes nothing.
    let visited = Attention::new(None);
    drop(visited.visit());
    let _ = timeout(MOMENT, visited.call(LONG)).await;
    assert!(timeout(MOMENT, visited.unattended(LONG)).await.is_err());
}

#[tokio::test]
async fn a_call_ends_when_the_server_sleeps_and_has_seen_all_that_was_asked() {
    let attention = Attention::new(None);
    let ours = Arc::clone(&attention);
    let mut call = tokio::spawn(async move { ours.call(LONG).await });
    attention.asked_after(RequestCount(0)).await;
    assert_eq!(soon(&mut call).await, None);
    // It falls asleep while something else is asked: the call stays open, since that visit relies on it.
    let seen = attention.asked();
    let visit = attention.visit();
    attention.fall_asleep(seen);
    assert_eq!(soon(&mut call).await, None);
    attention.wake_up();
    drop(visit);
    attention.fall_asleep(attention.asked());
    assert_eq!(timeout(LONG, call).await.unwrap().unwrap(), CallEnd::Asleep);
    assert_eq!(attention.now.borrow().calls, 0);
}

#[tokio::test]
async fn a_call_ends_after_its_time_and_one_that_is_dropped_counts_no_more() {
    let attention = Attention::new(None);
    assert_eq!(attention.call(MOMENT).await, CallEnd::Awake);
    let _ = timeout(MOMENT, attention.call(LONG)).await;
    assert_eq!(attention.now.borrow().calls, 0);
}

#[test]
fn tasks_of_a_period_have_one_time_which_is_never_early() {
    let end = |at: &str, seconds| queue::end_of_period(at.parse().unwrap(), seconds).to_string();
    assert_eq!(end("2026-11-27T10:00:00Z", 30), "2026-11-27T10:00:00Z");
    assert_eq!(end("2026-11-27T10:00:00.1Z", 30), "2026-11-27T10:00:30Z");
    assert_eq!(end("2026-11-27T10:00:29.9Z", 30), "2026-11-27T10:00:30Z");
    assert_eq!(end("2026-11-27T10:00:29.9Z", 1), "2026-11-27T10:00:30Z");
    assert_eq!(end("2026-11-27T10:00:30Z", 1), "2026-11-27T10:00:30Z");
}
