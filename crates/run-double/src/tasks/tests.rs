//! Tests over HTTP, with a receiver that answers as a test says.

use super::*;
use crate::test_client::{call, send, soon};
use http::{HeaderMap, HeaderValue};
use jiff::SignedDuration;
use jsonwebtoken::{Algorithm, DecodingKey, Validation, jwk::JwkSet};
use serde_json::json;
use tokio::sync::mpsc;

const QUEUE: &str = "projects/acme/locations/europe-west1/queues/wake";
const ACCOUNT: &str = "wake@acme.iam.gserviceaccount.com";
const AUDIENCE: &str = "https://tidelock-123.europe-west1.run.app/wake";

/// How a receiver answers.
#[derive(Debug, Clone, Copy)]
enum Answers {
    Status(u16),
    /// The connection ends.
    Breaks,
    /// There is none.
    Hangs,
}

/// A receiver: its address, and the headers of its requests.
struct Receiver {
    url: String,
    requests: mpsc::UnboundedReceiver<HeaderMap>,
    accepting: AbortHandle,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Receiver {
    /// Starts one with these answers to its first requests. It answers all later ones with 200.
    async fn start(answers: &[Answers]) -> Receiver {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}/wake?from=task", listener.local_addr().unwrap());
        let answers = Arc::new(Mutex::new(VecDeque::from(answers.to_vec())));
        let (tell, requests) = mpsc::unbounded_channel();
        let handler = move |request: Request<Incoming>, _| {
            let answer = answers.lock().unwrap().pop_front().unwrap_or(Answers::Status(200));
            assert_eq!((request.method(), request.uri().to_string().as_str()), (&Method::POST, "/wake?from=task"));
            tell.send(request.headers().clone()).unwrap();
            async move {
                match answer {
                    Answers::Status(status) => Ok(server::json(status, &json!({}))),
                    Answers::Breaks => Err(Broken::from("as the test says")),
                    Answers::Hangs => std::future::pending().await,
                }
            }
        };
        let accepting = tokio::spawn(server::accept(listener, handler)).abort_handle();
        Receiver { url, requests, accepting }
    }
}

async fn double() -> TasksDouble {
    let double = TasksDouble::start().await.unwrap();
    double.queue(QUEUE);
    double
}

fn task(url: &str) -> Value {
    let token = json!({"serviceAccountEmail": ACCOUNT, "audience": AUDIENCE});
    json!({"dispatchDeadline": "1800s", "httpRequest": {"url": url, "httpMethod": "POST", "oidcToken": token}})
}

async fn create(double: &TasksDouble, task: &Value) -> Result<(u16, Value), Broken> {
    let url = format!("{}/v2/{QUEUE}/tasks", double.endpoint());
    let (status, text) = call("POST", &url, json!({"task": task}).to_string()).await?;
    Ok((status, serde_json::from_str(&text)?))
}

/// Creates a task that the service must take, and returns its name.
async fn created(double: &TasksDouble, task: &Value) -> String {
    let (status, answer) = create(double, task).await.unwrap();
    assert_eq!(status, 200, "{answer}");
    answer["name"].as_str().unwrap().to_owned()
}

/// Merges a change into a task, at a pointer. Null removes.
fn changed(pointer: &str, to: Value) -> Value {
    let mut task = task("http://127.0.0.1:9/wake");
    let (parent, member) = pointer.rsplit_once('/').unwrap();
    let parent = task.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    match to {
        Value::Null => drop(parent.remove(member)),
        to => drop(parent.insert(member.to_owned(), to)),
    }
    task
}

fn verified(keys: &str, token: &str) -> Result<Value, jsonwebtoken::errors::Error> {
    let keys: JwkSet = serde_json::from_str(keys).unwrap();
    let header = jsonwebtoken::decode_header(token)?;
    let key = DecodingKey::from_jwk(keys.find(&header.kid.unwrap()).unwrap())?;
    let mut validation = Validation::new(Algorithm::RS256);
    validation.set_audience(&[AUDIENCE]);
    validation.set_issuer(&["https://accounts.google.com"]);
    Ok(jsonwebtoken::decode(token, &key, &validation)?.claims)
}

#[tokio::test]
async fn what_the_service_refuses_is_refused() {
    let double = double().await;
    let far = (Timestamp::now() + SignedDuration::from_hours(721)).to_string();
    let long = format!("{QUEUE}/tasks/{}", "a".repeat(501));
    for (pointer, to, part) in [
        ("/httpRequest", Value::Null, "httpRequest must be set"),
        ("/httpRequest/url", Value::Null, "url is required"),
        ("/httpRequest/url", json!("ftp://127.0.0.1/wake"), "must start with 'http://'"),
        ("/httpRequest/url", json!("127.0.0.1/wake"), "must start with 'http://'"),
        ("/httpRequest/url", json!("http://tidelock.example/wake"), "must start with 'https://'"),
        ("/httpRequest/url", json!(format!("http://127.0.0.1/{}", "a".repeat(2083))), "at most 2083"),
        ("/httpRequest/httpMethod", json!("post"), "http_method"),
        ("/httpRequest/httpMethod", json!("TRACE"), "http_method"),
        ("/httpRequest/oidcToken/serviceAccountEmail", Value::Null, "serviceAccountEmail"),
        ("/httpRequest/oidcToken/scope", json!("all"), "unknown field `scope`"),
        ("/httpRequest/timeout", json!("5s"), "unknown field `timeout`"),
        ("/httpRequest/body", json!("aGVsbG8="), "unknown field `body`"),
        ("/schedule_time", json!("2026-01-01T00:00:00Z"), "unknown field `schedule_time`"),
        ("/dispatchDeadline", json!("14s"), "between [15s, 30m]"),
        ("/dispatchDeadline", json!("1801s"), "between [15s, 30m]"),
        ("/dispatchDeadline", json!("30m"), "must end with 's'"),
        ("/dispatchDeadline", json!("+60s"), "must end with 's'"),
        ("/dispatchDeadline", json!(1800), "expected a string"),
        ("/name", json!("one"), "resource field value"),
        ("/name", json!("projects/acme/locations/europe-west1/queues/other/tasks/one"), "must be the same"),
        ("/name", json!(format!("{QUEUE}/tasks/")), "[1, 500]"),
        ("/name", json!(format!("{QUEUE}/tasks/a.b")), "[1, 500]"),
        ("/name", json!(format!("{QUEUE}/tasks/a/b")), "[1, 500]"),
        ("/name", json!(long), "[1, 500]"),
        ("/scheduleTime", json!("tomorrow"), "Invalid time format"),
        ("/scheduleTime", json!("2026-01-01 00:00:00Z"), "Invalid time format"),
        ("/scheduleTime", json!("2026-01-01T00:00Z"), "Invalid time format"),
        ("/scheduleTime", json!("2026-01-01T00:00:00"), "Invalid time format"),
        ("/scheduleTime", json!("2026-01-01T00:00:00+00:00[UTC]"), "Invalid time format"),
        ("/scheduleTime", json!(far), "no more than 720h"),
    ] {
        let (status, answer) = create(&double, &changed(pointer, to.clone())).await.unwrap();
        let error = &answer["error"];
        assert_eq!((status, &error["code"], &error["status"]), (400, &json!(400), &json!("INVALID_ARGUMENT")), "{to}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(part), "{pointer} {to}: {message}");
    }
    assert_eq!(double.seen().created, []);
}

#[tokio::test]
async fn other_paths_queues_and_credentials_are_refused() {
    let double = double().await;
    let body = json!({"task": task("http://127.0.0.1:9/wake")}).to_string();
    let address = |path: &str| format!("{}/v2/{path}", double.endpoint());
    let unknown = "projects/acme/locations/europe-west1/queues/unknown/tasks";
    for (method, path, wanted) in [
        ("POST", unknown, 404),
        ("POST", "projects/acme/queues/wake/tasks", 404),
        ("GET", &format!("{QUEUE}/tasks"), 404),
        ("POST", &format!("{QUEUE}/tasks?alt=json"), 400),
    ] {
        let (status, text) = call(method, &address(path), body.clone()).await.unwrap();
        assert_eq!(status, wanted, "{method} {path}: {text}");
    }
    let with_token = HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_static("Bearer secret"))]);
    let answer = send("POST", &address(&format!("{QUEUE}/tasks")), with_token, body).await.unwrap();
    assert_eq!(answer.status(), 400);
    assert_eq!(double.seen().created, []);
}

#[tokio::test]
async fn a_delivery_carries_a_token_that_the_published_key_verifies() {
    let double = double().await;
    let mut receiver = Receiver::start(&[]).await;
    let mut named = task(&receiver.url);
    named["name"] = json!(format!("{QUEUE}/tasks/one_two-3"));
    let name = created(&double, &named).await;
    let seen = soon(double.until(|seen| seen.successes(&name) == 1)).await;
    let [delivery] = &seen.deliveries[..] else { panic!("{seen:?}") };
    assert_eq!((delivery.task.as_str(), delivery.attempt, delivery.status), (name.as_str(), 0, Some(200)));
    assert!(delivery.ended.unwrap() >= delivery.begun && seen.underway() == 0);
    let task = &seen.created[0];
    assert_eq!((task.url.as_str(), task.account.as_deref()), (receiver.url.as_str(), Some(ACCOUNT)));
    assert_eq!((task.audience.as_deref(), task.deadline), (Some(AUDIENCE), Duration::from_secs(1800)));

    let headers = soon(receiver.requests.recv()).await.unwrap();
    let text = |name: &str| headers.get(name).unwrap().to_str().unwrap();
    assert_eq!((text("x-cloudtasks-queuename"), text("x-cloudtasks-taskname")), ("wake", "one_two-3"));
    assert_eq!((text("x-cloudtasks-taskretrycount"), text("content-length")), ("0", "0"));
    assert_eq!(text("user-agent"), "Google-Cloud-Tasks");
    let (status, keys) = call("GET", &double.keys_url(), String::new()).await.unwrap();
    assert_eq!(status, 200);
    let claims = verified(&keys, text("authorization").strip_prefix("Bearer ").unwrap()).unwrap();
    assert_eq!((&claims["email"], &claims["email_verified"]), (&json!(ACCOUNT), &json!(true)));
    assert_eq!(claims["exp"].as_i64(), Some(claims["iat"].as_i64().unwrap() + 3600));
    assert_eq!((claims["sub"].as_str().unwrap().len(), &claims["azp"]), (21, &claims["sub"]));
}

#[tokio::test]
async fn tests_can_make_wrong_tokens() {
    let double = double().await;
    let (_, keys) = call("GET", &double.keys_url(), String::new()).await.unwrap();
    let right = claims(ACCOUNT, AUDIENCE);
    assert_eq!(verified(&keys, &double.sign(&right).unwrap()).unwrap(), right);
    let mut expired = right.clone();
    expired["exp"] = json!(right["iat"].as_i64().unwrap() - 3600);
    let other_audience = claims(ACCOUNT, "https://other.example");
    for token in [double.sign(&expired), double.sign(&other_audience), double.sign_as_stranger(&right)] {
        assert!(verified(&keys, &token.unwrap()).is_err());
    }
}

#[tokio::test]
async fn what_is_not_taken_is_delivered_again() {
    let double = double().await;
    double.limit_deliveries(Duration::from_secs(1));
    let answers = [Answers::Status(503), Answers::Breaks, Answers::Hangs, Answers::Status(302)];
    let mut receiver = Receiver::start(&answers).await;
    let name = created(&double, &task(&receiver.url)).await;
    let seen = soon(double.until(|seen| seen.successes(&name) == 1)).await;
    let statuses: Vec<_> = seen.of(&name).map(|delivery| (delivery.attempt, delivery.status)).collect();
    assert_eq!(statuses, [(0, Some(503)), (1, None), (2, None), (3, Some(302)), (4, Some(200))]);
    for wanted in [("0", "0"), ("1", "1"), ("2", "1"), ("3", "1"), ("4", "2")] {
        let headers = receiver.requests.recv().await.unwrap();
        let text = |name: &str| headers.get(name).unwrap().to_str().unwrap().to_owned();
        assert_eq!((&*text("x-cloudtasks-taskretrycount"), &*text("x-cloudtasks-taskexecutioncount")), wanted);
    }
    // The pauses grow.
    let deliveries: Vec<_> = seen.of(&name).collect();
    let pauses = deliveries.windows(2).map(|two| two[1].begun.duration_since(two[0].ended.unwrap()).as_millis());
    assert!(pauses.zip([100, 200, 400, 800]).all(|(is, least)| is >= least), "{deliveries:?}");
}

#[tokio::test]
async fn a_task_waits_for_its_time() {
    let double = double().await;
    let receiver = Receiver::start(&[]).await;
    let (mut later, mut past) = (task(&receiver.url), task(&receiver.url));
    let time = Timestamp::now() + SignedDuration::from_millis(400);
    later["scheduleTime"] = json!(time.to_string());
    past["scheduleTime"] = json!("2026-01-01T01:00:00.5+01:00");
    let (later, past) = (created(&double, &later).await, created(&double, &past).await);
    assert_ne!(later, past);
    soon(double.until(|seen| seen.successes(&past) == 1)).await;
    let seen = soon(double.until(|seen| seen.successes(&later) == 1)).await;
    assert!(seen.of(&later).all(|delivery| delivery.begun >= time), "{seen:?}");
    assert_eq!(seen.created[0].scheduled, time);
}

#[tokio::test]
async fn a_name_is_taken_once() {
    let double = double().await;
    let receiver = Receiver::start(&[]).await;
    let (mut done, mut waiting) = (task(&receiver.url), task(&receiver.url));
    done["name"] = json!(format!("{QUEUE}/tasks/done"));
    waiting["name"] = json!(format!("{QUEUE}/tasks/waiting"));
    waiting["scheduleTime"] = json!((Timestamp::now() + SignedDuration::from_hours(1)).to_string());
    let name = created(&double, &done).await;
    created(&double, &waiting).await;
    soon(double.until(|seen| seen.successes(&name) == 1)).await;
    for (task, words) in [(&waiting, "already exists"), (&done, "existed too recently")] {
        let (status, answer) = create(&double, task).await.unwrap();
        assert_eq!((status, &answer["error"]["status"]), (409, &json!("ALREADY_EXISTS")));
        assert!(answer["error"]["message"].as_str().unwrap().contains(words), "{answer}");
    }
    let seen = double.seen();
    assert_eq!((seen.calls, seen.created.len(), seen.deliveries.len()), (4, 2, 1));
}

#[tokio::test]
async fn calls_fail_on_demand() {
    let double = double().await;
    let receiver = Receiver::start(&[]).await;
    let mut named = task(&receiver.url);
    named["name"] = json!(format!("{QUEUE}/tasks/once"));
    double.refuse_next(1, 429);
    double.refuse_next(1, 403);
    double.refuse_next(1, 503);
    double.lose_next(1);
    for (wanted, word) in [(429, "RESOURCE_EXHAUSTED"), (403, "PERMISSION_DENIED"), (503, "UNAVAILABLE")] {
        let (status, answer) = create(&double, &named).await.unwrap();
        assert_eq!((status, &answer["error"]["status"]), (wanted, &json!(word)));
    }
    assert_eq!(double.seen().created, []);
    create(&double, &named).await.unwrap_err();
    assert_eq!(create(&double, &named).await.unwrap().0, 409);
    double.refuse_next(9, 503);
    double.heal();
    created(&double, &task(&receiver.url)).await;
    soon(double.until(|seen| seen.successes(&format!("{QUEUE}/tasks/once")) == 1)).await;
}

#[tokio::test]
async fn a_task_can_come_twice() {
    let double = double().await;
    let receiver = Receiver::start(&[Answers::Hangs]).await;
    double.deliver_twice(true);
    let name = created(&double, &task(&receiver.url)).await;
    // The second one comes although the first one has no answer.
    let seen = soon(double.until(|seen| seen.successes(&name) == 1)).await;
    assert_eq!((seen.deliveries.len(), seen.underway()), (2, 1));
}

#[tokio::test]
async fn a_scheduled_call_is_repeated_too() {
    let double = double().await;
    let mut receiver = Receiver::start(&[Answers::Status(500)]).await;
    let name = double.call_now(&Url::parse(&receiver.url).unwrap(), ACCOUNT, AUDIENCE);
    let seen = soon(double.until(|seen| seen.successes(&name) == 1)).await;
    assert_eq!((seen.of(&name).count(), seen.created.len()), (2, 0));
    let headers = receiver.requests.recv().await.unwrap();
    assert_eq!(headers["x-cloudscheduler"], "true");
    assert_eq!(headers[header::USER_AGENT], "Google-Cloud-Scheduler");
    let (_, keys) = call("GET", &double.keys_url(), String::new()).await.unwrap();
    let token = headers[header::AUTHORIZATION].to_str().unwrap().strip_prefix("Bearer ").unwrap();
    assert_eq!(verified(&keys, token).unwrap()["email"], ACCOUNT);
}
