//! A container that has no processor while no request is open, and that may be killed then: tasks of Cloud Tasks call `/wake` while there is
//! work.

use super::{BUCKET, SEVERAL_RENEWALS, requests};
use crate::support::*;
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;
use tidelock_run_double::instances::{ENDPOINT, InstanceSettings, Instances, PORT, SeenInstance};
use tidelock_run_double::tasks::{SeenTasks, TasksDouble, claims};
use tidelock_storage_double::{Settings, StorageDouble};
use url::Url;

const QUEUE: &str = "projects/acme/locations/europe-west1/queues/tidelock";
const ACCOUNT: &str = "wake@acme.iam.gserviceaccount.com";

/// Doubles of a cloud, and the one instance of the server in it.
struct Cloud<'a> {
    ctx: &'a Ctx,
    bucket: &'a StorageDouble,
    tasks: TasksDouble,
    instances: Instances,
}

/// Runs a test with a server that is started by its first request.
fn in_cloud(test: impl AsyncFnOnce(&Cloud<'_>)) {
    in_cloud_within(2 * LIMIT, test);
}

/// The same with another time limit.
fn in_cloud_within(limit: Duration, test: impl AsyncFnOnce(&Cloud<'_>)) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let bucket = runtime.block_on(StorageDouble::start()).unwrap();
    bucket.bucket(BUCKET, Settings::default());
    let flags = [
        format!("--bucket=gs://{BUCKET}/prod"),
        format!("--bucket-endpoint={}", bucket.endpoint()),
        "--lease-ttl=4s".to_owned(),
    ];
    let setup = Setup::one_project().flags(&flags.each_ref().map(String::as_str)).own_process();
    run_test_within(limit, setup, async |ctx| {
        ctx.server.stop().await;
        let tasks = TasksDouble::start().await.unwrap();
        tasks.queue(QUEUE);
        let (mut args, env) = ctx.server.start_settings();
        args.insert(0, "server".to_owned());
        args.extend([
            format!("--port={PORT}"),
            "--idle-release=1s".to_owned(),
            format!("--wake-queue={QUEUE}"),
            format!("--wake-url={ENDPOINT}/wake"),
            format!("--wake-account={ACCOUNT}"),
            format!("--wake-keys-url={}", tasks.keys_url()),
            format!("--cloud-tasks-endpoint={}", tasks.endpoint()),
        ]);
        let program = PathBuf::from(env!("CARGO_BIN_EXE_tidelock"));
        let settings = InstanceSettings { program, args, env, logs: ctx.own.clone() };
        let instances = Instances::start(settings).await.unwrap();
        ctx.forge.set_webhook(&format!("{}/events", instances.endpoint()));
        test(&Cloud { ctx, bucket: &bucket, tasks, instances }).await;
        // The end of a test asks a server that does not sleep for what is left.
        ctx.server.start().await;
    });
}

impl Drop for Cloud<'_> {
    #[expect(clippy::print_stderr, reason = "the output of a test that fails")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{:#?}\n{}", self.tasks.seen(), self.log());
        }
    }
}

impl Cloud<'_> {
    async fn instance(&self, what: &str, condition: impl FnMut(&SeenInstance) -> bool) -> SeenInstance {
        match tokio::time::timeout(LIMIT, self.instances.until(condition)).await {
            Ok(seen) => seen,
            Err(_) => panic!("not within {LIMIT:?}: {what}: {:?}\n{}", self.instances.seen(), self.log()),
        }
    }

    async fn calls(&self, what: &str, condition: impl FnMut(&SeenTasks) -> bool) -> SeenTasks {
        match tokio::time::timeout(LIMIT, self.tasks.until(condition)).await {
            Ok(seen) => seen,
            Err(_) => panic!("not within {LIMIT:?}: {what}: {:#?}\n{}", self.tasks.seen(), self.log()),
        }
    }

    /// Waits until all calls have ended and the instance is stopped.
    async fn rests(&self) {
        self.calls("every task was answered", |seen| {
            seen.underway() == 0 && seen.created.iter().all(|task| seen.successes(&task.name) > 0)
        })
        .await;
        self.instance("it is stopped", |seen| seen.is_stopped()).await;
    }

    /// Returns what all instances have logged.
    fn log(&self) -> String {
        let starts = 1..=self.instances.seen().starts;
        starts.filter_map(|n| std::fs::read_to_string(self.ctx.own.join(format!("{n}.stdout"))).ok()).collect()
    }

    fn state(&self) -> String {
        std::fs::read_to_string(self.ctx.tmp.join("state/root.tfstate")).unwrap_or_default()
    }
}

#[test]
fn work_is_done_by_calls_and_nothing_is_asked_of_the_bucket_in_between() {
    in_cloud(async |cloud| {
        let ctx = cloud.ctx;
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        cloud.rests().await;
        let before = requests(cloud.bucket);
        tokio::time::sleep(SEVERAL_RENEWALS).await;
        assert_eq!(requests(cloud.bucket), before, "{}", cloud.log());
        // Cloud Run ends an idle instance without a signal.
        cloud.instances.kill().await;
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        assert!(cloud.state().contains("\"2\""));
        cloud.rests().await;
        // The same instance, which has slept: it leads again.
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        cloud.rests().await;
        assert_eq!(cloud.instances.seen().starts, 2);
    });
}

#[test]
fn an_instance_that_is_killed_during_a_call_is_called_again() {
    in_cloud(async |cloud| {
        let ctx = cloud.ctx;
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        cloud.rests().await;
        let before = cloud.tasks.seen().deliveries.len();
        pull.comment("alice", "atlantis apply").unwrap();
        cloud.calls("a call for the apply", |seen| seen.deliveries.len() > before).await;
        cloud.instances.kill().await;
        // Nothing but the queue knows of it: no delivery comes again.
        ctx.next(&pull).await.is("apply", "success");
        assert!(cloud.state().contains("\"serial\": 1"), "it was applied once: {}", cloud.state());
        cloud.rests().await;
    });
}

#[test]
fn without_a_task_the_delivery_is_kept_and_the_hourly_call_does_the_work() {
    in_cloud(async |cloud| {
        cloud.tasks.refuse_next(usize::from(u16::MAX), 403);
        let pull = cloud.ctx.open_input("change", "2").await;
        cloud.ctx.forge.wait_for_deliveries(LIMIT).await.unwrap();
        cloud.instance("the delivery was answered", |seen| seen.is_stopped()).await;
        assert!(cloud.log().contains("no task was left that wakes this server now"), "{}", cloud.log());
        cloud.instances.kill().await;
        let url: Url = format!("{}/wake", cloud.instances.endpoint()).parse().unwrap();
        let call = cloud.tasks.call_now(&url, ACCOUNT, url.as_str());
        cloud.ctx.next(&pull).await.is("plan", "success");
        cloud.calls("the call is answered", |seen| seen.successes(&call) == 1).await;
    });
}

#[test]
fn wake_takes_tokens_of_one_account_for_one_audience_alone() {
    in_cloud(async |cloud| {
        let url = format!("{}/wake", cloud.instances.endpoint());
        let ours = || claims(ACCOUNT, &url);
        let changed = |name: &str, value: serde_json::Value| {
            let mut claims = ours();
            claims[name] = value;
            cloud.tasks.sign(&claims).unwrap()
        };
        let now = jiff::Timestamp::now().as_second();
        let cases = [
            ("no token", None),
            ("no bearer", Some(format!("Basic {}", cloud.tasks.sign(&ours()).unwrap()))),
            ("another key", Some(format!("Bearer {}", cloud.tasks.sign_as_stranger(&ours()).unwrap()))),
            (
                "another account",
                Some(format!("Bearer {}", changed("email", json!("else@acme.iam.gserviceaccount.com")))),
            ),
            ("not verified", Some(format!("Bearer {}", changed("email_verified", json!(false))))),
            ("another audience", Some(format!("Bearer {}", changed("aud", json!("https://else.example/wake"))))),
            ("another issuer", Some(format!("Bearer {}", changed("iss", json!("https://else.example"))))),
            ("expired", Some(format!("Bearer {}", changed("exp", json!(now - 60))))),
            ("too long", Some(format!("Bearer {}", changed("exp", json!(now + 90_000))))),
        ];
        let client = reqwest::Client::new();
        for (what, token) in cases {
            let request = client.post(&url);
            let request = if let Some(token) = &token { request.header("authorization", token) } else { request };
            assert_eq!(request.send().await.unwrap().status(), 401, "{what}");
        }
        assert_eq!(client.get(&url).send().await.unwrap().status(), 405);
        let token = format!("Bearer {}", cloud.tasks.sign(&ours()).unwrap());
        let answer =
            client.post(&url).header("authorization", token).timeout(Duration::from_secs(60)).send().await.unwrap();
        assert_eq!((answer.status().as_u16(), answer.text().await.unwrap().as_str()), (200, "There is nothing to do."));
    });
}

#[test]
#[ignore = "takes eleven minutes: just sleep"]
fn in_ten_idle_minutes_nothing_is_asked_of_the_bucket() {
    const MINUTES: Duration = Duration::from_secs(600);
    in_cloud_within(MINUTES + 2 * LIMIT, async |cloud| {
        let pull = cloud.ctx.open_input("change", "2").await;
        cloud.ctx.next(&pull).await.is("plan", "success");
        cloud.rests().await;
        let before = requests(cloud.bucket);
        // With a processor, as on a machine of one's own.
        cloud.instances.stop_when_idle_for(MINUTES * 2);
        assert_eq!(reqwest::get(format!("{}/healthz", cloud.instances.endpoint())).await.unwrap().status(), 200);
        tokio::time::sleep(MINUTES).await;
        assert_eq!(requests(cloud.bucket), before, "{}", cloud.log());
        assert_eq!(cloud.instances.seen().starts, 1);
    });
}

#[test]
#[ignore = "takes minutes: just sleep"]
fn kills_at_any_time_lose_nothing_and_repeat_no_apply() {
    const ROUNDS: u64 = 20;
    in_cloud_within(ROUNDS as u32 * 2 * LIMIT, async |cloud| {
        let ctx = cloud.ctx;
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        for round in 0..ROUNDS {
            // From the delivery to the sleep after its work, some ten seconds.
            pull.comment("alice", "atlantis plan").unwrap();
            ctx.forge.wait_for_deliveries(LIMIT).await.unwrap();
            tokio::time::sleep(Duration::from_millis(round * 600)).await;
            cloud.instances.kill().await;
            ctx.next(&pull).await.is("plan", "success");
        }
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        cloud.rests().await;
        assert!(cloud.state().contains("\"serial\": 1"), "{}", cloud.state());
        let ours = pull.comments().unwrap().into_iter().filter(|comment| comment.author == ctx.forge.bot()).count();
        assert_eq!(ours as u64, ROUNDS + 2, "one answer each");
    });
}
