//! Jobs that are given up, on a bucket in memory.

use super::*;
use crate::checkout::PackTreeError;
use crate::domain::Distribution;
use crate::vault::clock::Boottime;
use crate::vault::memory::Memory;
use engine::EngineState;
use serde_json::json;

/// Returns a leader without executors: the job on `gone` was started by an earlier one, which nobody knows any more.
fn leader(bucket: &Arc<Memory>) -> (Executors, JobObjects) {
    let tools = ToolSources {
        download: false,
        terraform_url: String::new(),
        opentofu_url: String::new(),
        allow_unsigned: false,
        default_distribution: Distribution::Terraform,
    };
    let executors = Executors::new(ExecutorSettings {
        bucket: bucket.clone(),
        clock: Arc::new(Boottime),
        leader: "leader".into(),
        tools,
        use_plugin_cache: false,
        bounds: RemoteBounds::default(),
        data_dir: PathBuf::new(),
        module_origins: Arc::new(|| Box::pin(async { Vec::new() })),
    });
    let objects = executors.objects(&RemoteJob { executor: "gone".into(), key: "a".repeat(32) }).unwrap();
    (executors, objects)
}

/// Returns the names of the objects that are left.
fn left(bucket: &Memory) -> Vec<String> {
    bucket.names("jobs/").iter().map(|name| name.rsplit('/').next().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn jobs_that_wait_for_a_slot_know_their_place() {
    let (mut executors, _) = leader(&Memory::new());
    executors.add_process("jobs", 1, ProcessSettings { program: "run".into(), env: Vec::new(), job_variable: "JOB" });
    let run = RunId::parse(&"1".repeat(32)).unwrap();
    let project = |dir: &str| ProjectId { dir: dir.into(), workspace: "default".into(), name: None };
    let places = |most: usize| -> Vec<(String, usize, usize)> {
        let places = executors.places_in_line(&run, most);
        places.iter().map(|at| (at.project.dir.clone(), at.place, at.waiting)).collect()
    };
    let other = RunId::parse(&"2".repeat(32)).unwrap();
    let held = executors.slot("jobs", &other, &project("x")).await.unwrap();
    let (jobs, mut lined) = ([(&other, project("y")), (&run, project("a")), (&run, project("b"))], Vec::new());
    for (run, project) in &jobs {
        let mut slot = Box::pin(executors.slot("jobs", run, project));
        assert!(futures::poll!(&mut slot).is_pending());
        lined.push(slot);
    }
    assert_eq!(places(9), [("a".to_owned(), 2, 3), ("b".to_owned(), 3, 3)]);
    assert_eq!(places(1), [("a".to_owned(), 2, 3)]);
    // A cancelled job leaves the line.
    drop(lined.remove(1));
    assert_eq!(places(9), [("b".to_owned(), 2, 2)]);
    drop(held);
    let _first = lined.remove(0).await.unwrap();
    assert_eq!(places(9), [("b".to_owned(), 1, 1)]);
}

#[tokio::test]
async fn the_objects_of_a_job_that_was_given_up_stay_for_its_late_end() {
    let bucket = Memory::new();
    let (executors, objects) = leader(&bucket);
    objects.put_spec(&"work").await.unwrap();
    objects.claim("attempt").await.unwrap();
    objects.put_alive(0).await.unwrap();
    objects.give_up("leader", "its node is gone").await.unwrap();
    let followed =
        executors.follow(&objects, &|_| {}, &FollowRequest::default(), Duration::ZERO, Beginning::Earlier).await;
    assert_eq!(followed, Followed::Lost("its node is gone".into()));
    executors.clean(&objects, ErroredState::Recorded).await;
    assert_eq!(left(&bucket), ["00000000", "claim", "result", "spec"]);
    assert_eq!(executors.late_end(&objects, ErroredState::Recorded).await.unwrap(), LateJobEnd::Awaited);
    objects.finish("attempt", json!(7)).await.unwrap();
    assert_eq!(executors.late_end(&objects, ErroredState::Recorded).await.unwrap(), LateJobEnd::Ended(json!(7)));
    executors.discard(&objects).await.unwrap();
    assert_eq!(left(&bucket), ["claim", "late", "result"]);
}

#[tokio::test]
async fn the_objects_of_a_job_that_has_ended_are_deleted_and_it_cannot_end_late() {
    let bucket = Memory::new();
    let (executors, objects) = leader(&bucket);
    objects.put_spec(&"work").await.unwrap();
    objects.claim("attempt").await.unwrap();
    objects.finish("attempt", json!(7)).await.unwrap();
    assert_eq!(
        executors.late_end(&objects, ErroredState::Recorded).await.unwrap(),
        LateJobEnd::Never,
        "its end is the recorded one"
    );
    executors.clean(&objects, ErroredState::Recorded).await;
    for _ in 0..2 {
        assert_eq!(executors.late_end(&objects, ErroredState::Recorded).await.unwrap(), LateJobEnd::Never);
        executors.clean(&objects, ErroredState::Recorded).await;
        assert_eq!(left(&bucket), ["claim"], "a job that is cleaned is not given up");
    }
}

#[tokio::test]
async fn the_only_copy_of_a_state_is_not_deleted() {
    let bucket = Memory::new();
    let (executors, objects) = leader(&bucket);
    let result = json!({"ran": {"errored": {"size": 7}}});
    objects.put_spec(&"work").await.unwrap();
    objects.claim("attempt").await.unwrap();
    objects.finish("attempt", result.clone()).await.unwrap();
    executors.clean(&objects, ErroredState::NotRecorded).await;
    assert_eq!(left(&bucket), ["claim", "result", "spec"]);
    let late = executors.late_end(&objects, ErroredState::NotRecorded).await.unwrap();
    assert_eq!(late, LateJobEnd::Ended(result), "its recorded end lacks the state");
    assert_eq!(executors.late_end(&objects, ErroredState::Recorded).await.unwrap(), LateJobEnd::Never);
    executors.clean(&objects, ErroredState::Recorded).await;
    assert_eq!(left(&bucket), ["claim"]);
}

#[tokio::test]
async fn a_job_without_a_result_is_given_up_before_its_late_end_is_awaited() {
    let bucket = Memory::new();
    let (executors, objects) = leader(&bucket);
    objects.put_spec(&"work").await.unwrap();
    objects.claim("attempt").await.unwrap();
    executors.clean(&objects, ErroredState::Recorded).await;
    assert_eq!(left(&bucket), ["claim", "spec"], "it may end");
    assert_eq!(executors.late_end(&objects, ErroredState::Recorded).await.unwrap(), LateJobEnd::Awaited);
    assert_eq!(left(&bucket), ["cancel", "claim", "result", "spec"], "should it run on, it is to end");
    objects.finish("attempt", json!(7)).await.unwrap();
    assert_eq!(executors.late_end(&objects, ErroredState::Recorded).await.unwrap(), LateJobEnd::Ended(json!(7)));
}

#[tokio::test]
async fn a_withdrawn_job_leaves_only_its_claim() {
    let bucket = Memory::new();
    let (executors, objects) = leader(&bucket);
    objects.put_spec(&"work").await.unwrap();
    assert_eq!(executors.late_end(&objects, ErroredState::Recorded).await.unwrap(), LateJobEnd::Never);
    objects.withdraw("leader").await.unwrap();
    assert_eq!(executors.late_end(&objects, ErroredState::Recorded).await.unwrap(), LateJobEnd::Never);
    executors.clean(&objects, ErroredState::Recorded).await;
    assert_eq!(left(&bucket), ["claim"]);
}

/// An engine that answers every look with one state, and notes each start.
struct Saying {
    state: EngineState,
    knows_all: bool,
    starts: Arc<Mutex<Vec<u32>>>,
}

#[async_trait::async_trait]
impl Engine for Saying {
    async fn start(&self, _: engine::EngineJob<'_>, number: u32) -> Result<Option<String>, engine::NotStarted> {
        self.starts.lock().unwrap().push(number);
        Ok(Some(format!("start {number}")))
    }

    async fn look(&self, _: engine::EngineJob<'_>) -> EngineState {
        self.state.clone()
    }

    async fn end(&self, _: engine::EngineJob<'_>) {}

    fn knows_all_attempts(&self) -> bool {
        self.knows_all
    }

    async fn clean(&self, _: &JobPrefix) {}
}

/// A job on an engine that says this of it, followed to its end by a leader that has not begun it.
struct Told {
    followed: Followed,
    log: Vec<String>,
    starts: Vec<u32>,
}

async fn told(state: EngineState, knows_all: bool, claimed: bool) -> Told {
    told_to(FollowRequest::default(), state, knows_all, claimed).await
}

/// Does the same with a follower that is asked for this.
async fn told_to(asked: FollowRequest, state: EngineState, knows_all: bool, claimed: bool) -> Told {
    let (mut executors, objects) = leader(&Memory::new());
    let starts = Arc::new(Mutex::new(Vec::new()));
    executors.add("gone", 1, Arc::new(Saying { state, knows_all, starts: Arc::clone(&starts) }));
    objects.put_spec(&"work").await.unwrap();
    if claimed {
        objects.claim("attempt").await.unwrap();
    }
    let log = Mutex::new(Vec::new());
    let line = |line: FollowedLine<'_>| {
        let (FollowedLine::Sent(line) | FollowedLine::Note(line)) = line;
        log.lock().unwrap().push(line.to_owned());
    };
    let followed = executors.follow(&objects, &line, &asked, Duration::ZERO, Beginning::Earlier).await;
    let starts = starts.lock().unwrap().clone();
    Told { followed, log: log.into_inner().unwrap(), starts }
}

#[tokio::test]
async fn an_end_that_the_engine_is_certain_of_counts_at_once() {
    let told = told(EngineState::Ended("OOMKilled".into()), true, true).await;
    assert_eq!(told.followed, Followed::Lost("OOMKilled".into()));
    assert!(told.log.is_empty() && told.starts.is_empty(), "{:?} {:?}", told.log, told.starts);
}

#[tokio::test]
async fn a_job_that_has_not_begun_in_its_time_is_withdrawn_and_one_that_has_is_followed() {
    let at_once = || FollowRequest::beginning_within(Some(Duration::ZERO));
    for state in [EngineState::Unknown, EngineState::Held("no node has room".into())] {
        let told = told_to(at_once(), state, true, false).await;
        assert_eq!(told.followed, Followed::NotStarted("it had not begun when its server ended".into()));
        assert!(told.starts.is_empty(), "{:?}", told.starts);
    }
    let told = told_to(at_once(), EngineState::Ended("OOMKilled".into()), true, true).await;
    assert_eq!(told.followed, Followed::Lost("OOMKilled".into()));
}

#[test]
fn a_tree_that_is_too_large_is_refused_with_the_ways_out() {
    insta::assert_snapshot!(
        transfer::too_large(&PackTreeError::TooLarge(spec::MAX_TREE)),
        @"the packed working tree is larger than 1024 MiB, which is the limit. Let the server run the project: in `repos.yaml`, a rule of `executor` with `plan: local` and `apply: local`. Or check out less, with `--sparse-checkout` or a smaller repository"
    );
}
