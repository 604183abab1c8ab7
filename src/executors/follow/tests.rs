//! Limits of a follower, on a bucket in memory and a clock that is turned.

use super::sent::SILENCE;
use super::*;
use crate::vault::bucket::{Body, Bucket, BucketError, Generation, Listed, Object, Written};
use crate::vault::clock::Boottime;
use crate::vault::jobs::JobPrefix;
use crate::vault::memory::Memory;
use async_trait::async_trait;
use bytes::Bytes;
use serde_json::json;
use std::ops::Range;
use std::sync::Mutex;

/// Time of one request to the bucket.
const REQUEST: Duration = Duration::from_millis(50);
const GRACE: Duration = Duration::from_secs(300);
const SECOND: Duration = Duration::from_secs(1);

/// A bucket in memory that takes its time to read.
struct Slow(Arc<Memory>);

#[async_trait]
impl Bucket for Slow {
    fn location(&self) -> &str {
        self.0.location()
    }

    async fn check(&self) -> Result<Vec<String>, BucketError> {
        self.0.check().await
    }

    async fn get(&self, name: &str) -> Result<Option<Object>, BucketError> {
        tokio::time::sleep(REQUEST).await;
        self.0.get(name).await
    }

    async fn get_range(
        &self,
        name: &str,
        generation: Generation,
        range: Range<u64>,
    ) -> Result<Option<Bytes>, BucketError> {
        self.0.get_range(name, generation, range).await
    }

    async fn put(&self, name: &str, expected: Generation, body: Body, label: &str) -> Result<Written, BucketError> {
        self.0.put(name, expected, body, label).await
    }

    async fn delete(&self, name: &str, generation: Generation) -> Result<bool, BucketError> {
        self.0.delete(name, generation).await
    }

    async fn list(&self, prefix: &str, after: &str) -> Result<Vec<Listed>, BucketError> {
        self.0.list(prefix, after).await
    }

    fn requests(&self) -> Vec<(&'static str, u64)> {
        self.0.requests()
    }
}

/// An engine that says one thing, and notes the times of its calls.
struct Noting {
    state: EngineState,
    start: Result<(), NotStarted>,
    starts: Mutex<Vec<Instant>>,
    ends: Mutex<Vec<Instant>>,
}

#[async_trait]
impl Engine for Noting {
    async fn start(&self, _: EngineJob<'_>, _: u32) -> Result<Option<String>, NotStarted> {
        self.starts.lock().unwrap().push(Instant::now());
        self.start.clone().map(|()| Some("Job x".to_owned()))
    }

    async fn look(&self, _: EngineJob<'_>) -> EngineState {
        self.state.clone()
    }

    async fn end(&self, _: EngineJob<'_>) {
        self.ends.lock().unwrap().push(Instant::now());
    }

    async fn clean(&self, _: &JobPrefix) {}
}

/// A job on a slow bucket, and its engine.
struct Scene {
    bucket: Arc<Memory>,
    objects: JobObjects,
    engine: Noting,
    asked: FollowRequest,
    /// Lines of its log.
    lines: Mutex<Vec<String>>,
    began: Instant,
}

impl Scene {
    fn new(state: EngineState) -> Scene {
        let bucket = Memory::new();
        let prefix = JobPrefix::new("jobs", &"a".repeat(32)).unwrap();
        let objects = JobObjects::new(Arc::new(Slow(Arc::clone(&bucket))), Arc::new(Boottime), prefix);
        let engine = Noting { state, start: Ok(()), starts: Mutex::default(), ends: Mutex::default() };
        let (asked, lines) = (FollowRequest::default(), Mutex::default());
        Scene { bucket, objects, engine, asked, lines, began: Instant::now() }
    }

    /// Returns a job that an attempt has claimed.
    async fn claimed(state: EngineState) -> Scene {
        let scene = Scene::new(state);
        scene.objects.claim("attempt").await.unwrap();
        scene
    }

    async fn log(&self, pieces: u32, text: &str) {
        for number in 0..pieces {
            self.objects.put_log(number, Bytes::from(format!("{number} {text}\n"))).await.unwrap();
        }
    }

    async fn signs(&self, count: u32) {
        for number in 0..count {
            self.objects.put_alive(number).await.unwrap();
        }
    }

    async fn follow(&self) -> Followed {
        self.follow_from(Beginning::Earlier).await
    }

    async fn follow_from(&self, beginning: Beginning) -> Followed {
        let log = |line: FollowedLine<'_>| {
            if let FollowedLine::Sent(line) = line {
                self.lines.lock().unwrap().push(line.to_owned());
            }
        };
        let (objects, engine, asked) = (&self.objects, &self.engine, &self.asked);
        JobFollower { objects, engine, leader: "leader", log: &log, asked, grace: GRACE, beginning }.follow().await
    }

    fn starts(&self) -> usize {
        self.engine.starts.lock().unwrap().len()
    }

    /// Checks that about this time has passed.
    fn took(&self, expected: Duration) {
        let took = self.began.elapsed();
        assert!(took >= expected && took < expected + expected / 10 + 2 * SECOND, "{took:?} for {expected:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_does_not_claim_is_started_five_times() {
    let scene = Scene::new(EngineState::Unknown);
    assert_eq!(scene.follow().await, Followed::NotStarted("it did not begin".into()));
    assert_eq!(scene.starts(), 5);
    scene.took(5 * BETWEEN_STARTS);
    let claimant = scene.objects.claimant().await.unwrap();
    assert_eq!(claimant, Some(Claimant::Withdrawn("leader".into())), "no attempt runs later");
}

#[tokio::test(start_paused = true)]
async fn a_start_that_is_refused_for_now_is_tried_for_half_an_hour() {
    let mut scene = Scene::new(EngineState::Unknown);
    scene.engine.start = Err(NotStarted::NotNow("no quota".into()));
    assert_eq!(scene.follow().await, Followed::NotStarted("it could not be started for 30 minutes: no quota".into()));
    scene.took(REFUSED_FOR);
    assert!((15..60).contains(&scene.starts()), "{}", scene.starts());
}

#[tokio::test(start_paused = true)]
async fn a_right_that_is_missing_is_waited_for_a_minute_and_then_told() {
    for (asked, patience) in
        [(FollowRequest::default(), 60 * SECOND), (FollowRequest::without_patience(), Duration::ZERO)]
    {
        let mut scene = Scene::new(EngineState::Unknown);
        (scene.asked, scene.engine.start) = (asked, Err(NotStarted::NoRight("no role".into())));
        assert_eq!(scene.follow().await, Followed::NotStarted("no role".into()));
        let took = scene.began.elapsed();
        assert!(took >= patience && took < 3 * patience + SECOND, "{took:?} for {patience:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_without_a_sign_of_life_is_given_up_after_two_minutes() {
    for state in [EngineState::Unknown, EngineState::Doubtful("its node is gone".into())] {
        let scene = Scene::claimed(state.clone()).await;
        let Followed::Lost(why) = scene.follow().await else { panic!("{state:?}") };
        assert!(why.ends_with("it has given no sign of life for 120 s"), "{why}");
        assert_eq!(why.starts_with("its node is gone; "), state != EngineState::Unknown, "{why}");
        scene.took(SILENCE);
        assert!(scene.objects.cancelled().await.unwrap().is_some(), "should it wake up, it is to end");
    }
}

#[tokio::test(start_paused = true)]
async fn a_look_reads_few_signs_however_many_there_are() {
    let scene = Scene::claimed(EngineState::Unknown).await;
    scene.signs(100).await;
    scene.bucket.log();
    assert!(matches!(scene.follow().await, Followed::Lost(_)));
    // Five looks for the signs, which are five seconds apart.
    scene.took(SILENCE + 25 * SECOND);
    let read = scene.bucket.log().into_iter().filter(|request| request.contains("/alive/")).count();
    assert!(read < 150, "{read}");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_does_not_stop_is_ended_by_its_engine_and_then_given_up() {
    let scene = Scene::claimed(EngineState::Alive).await;
    // However much it sends.
    scene.log(2_000, "line").await;
    scene.signs(2_000).await;
    scene.asked.stop("cancelled by alice".into());
    assert_eq!(scene.follow().await, Followed::Lost("it did not end after it was cancelled".into()));
    scene.took(GRACE + AFTER_GRACE.1);
    let ended = scene.engine.ends.lock().unwrap()[0].duration_since(scene.began);
    assert!(ended >= GRACE + AFTER_GRACE.0 && ended < GRACE + AFTER_GRACE.0 + 3 * SECOND, "{ended:?}");
    assert_eq!(scene.objects.cancelled().await.unwrap().as_deref(), Some("cancelled by alice"));
}

#[tokio::test(start_paused = true)]
async fn a_long_log_is_read_in_parallel_in_its_order() {
    let scene = Scene::claimed(EngineState::Alive).await;
    scene.log(1_000, "line").await;
    scene.objects.finish("attempt", json!(7)).await.unwrap();
    assert_eq!(scene.follow().await, Followed::Ended(json!(7)));
    let lines = scene.lines.lock().unwrap();
    assert!(lines.len() == 1_000 && lines.iter().enumerate().all(|(number, line)| *line == format!("{number} line")));
    assert!(scene.began.elapsed() < 5 * SECOND, "{:?}", scene.began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn no_more_of_a_log_is_read_than_is_kept() {
    let scene = Scene::claimed(EngineState::Alive).await;
    scene.log(40, &"x".repeat(1 << 19)).await;
    scene.objects.finish("attempt", json!(7)).await.unwrap();
    assert_eq!(scene.follow().await, Followed::Ended(json!(7)));
    let read: usize = scene.lines.lock().unwrap().iter().map(String::len).sum();
    assert!(read > 8 << 20 && read < 17 << 20, "{read}");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_job_that_was_lost_names_it_in_its_engine() {
    let scene = Scene::new(EngineState::Unknown);
    let claim = async {
        tokio::time::sleep(2 * SECOND).await;
        scene.objects.claim("attempt").await.unwrap();
    };
    let (followed, ()) = tokio::join!(scene.follow_from(Beginning::Own), claim);
    assert_eq!(followed, Followed::Lost("it has given no sign of life for 120 s (Job x)".into()));
}
