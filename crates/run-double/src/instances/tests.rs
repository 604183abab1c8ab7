//! Tests with real processes: the program of the instances is this test binary, which runs its test `server` alone.

use super::*;
use crate::server::Broken;
use crate::tasks::TasksDouble;
use crate::test_client::{call, send, soon};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, Incoming};
use std::convert::Infallible;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::pin::Pin;
use std::process::{Command, Stdio};
use std::task::{Context, Poll};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// Variable with the address of the server. Without it, the test `server` does nothing.
const ADDRESS: &str = "RUN_DOUBLE_TEST_ADDRESS";
/// Time in which nothing should happen.
const A_WHILE: Duration = Duration::from_millis(150);

#[tokio::test]
#[ignore = "the program of the other tests"]
async fn server() {
    let Ok(address) = std::env::var(ADDRESS) else { return };
    let listener = TcpListener::bind(&address).await.unwrap();
    let mut terminated = signal(SignalKind::terminate()).unwrap();
    tokio::spawn(server::accept(listener, |request, _| serve(request)));
    terminated.recv().await;
    println!("terminated");
}

async fn serve(request: Request<Incoming>) -> Result<Response<BoxBody<Bytes, Broken>>, Broken> {
    let text = match request.uri().path() {
        "/echo" => return Ok(Response::new(request.into_body().map_err(Broken::from).boxed())),
        "/address" => std::env::var(ADDRESS)?,
        "/headers" => format!("{:?}", request.headers()),
        "/exit" => std::process::exit(3),
        // Starts a process in a group of its own that sends back what it gets.
        "/child" => {
            let stream = std::net::TcpStream::connect(request.uri().query().unwrap_or_default())?;
            let output = Stdio::from(OwnedFd::from(stream.try_clone()?));
            let child = Command::new("cat").stdin(OwnedFd::from(stream)).stdout(output).process_group(0).spawn()?;
            child.id().to_string()
        }
        path => path.to_owned(),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed());
    response.headers_mut().insert("keep-alive", HeaderValue::from_static("timeout=5"));
    Ok(response)
}

/// A body whose parts a test sends.
struct Parts(mpsc::UnboundedReceiver<&'static str>);

impl Body for Parts {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|part| part.map(|part| Ok(Frame::data(Bytes::from(part)))))
    }
}

struct Fixture {
    instances: Instances,
    logs: tempfile::TempDir,
}

impl Fixture {
    async fn start() -> Fixture {
        let logs = tempfile::tempdir().unwrap();
        let args = ["--exact", "instances::tests::server", "--ignored", "--nocapture", "--skip", "no-{port}"];
        let settings = InstanceSettings {
            program: std::env::current_exe().unwrap(),
            args: args.map(str::to_owned).to_vec(),
            env: vec![(ADDRESS.to_owned(), format!("127.0.0.1:{PORT}"))],
            logs: logs.path().to_owned(),
        };
        let instances = Instances::start(settings).await.unwrap();
        instances.stop_when_idle_for(Duration::from_millis(1));
        Fixture { instances, logs }
    }

    async fn get(&self, path: &str) -> Result<(u16, String), Broken> {
        soon(call("GET", &format!("{}{path}", self.instances.endpoint()), String::new())).await
    }

    /// Begins a request whose answer is its body.
    async fn echo(&self) -> (mpsc::UnboundedSender<&'static str>, Incoming) {
        echo(self.instances.endpoint()).await
    }

    async fn stopped(&self) -> SeenInstance {
        soon(self.instances.until(SeenInstance::is_stopped)).await
    }

    /// Returns how the last instance has ended.
    async fn ended(&self) -> ExitStatus {
        soon(self.instances.until(SeenInstance::is_absent)).await.last_end.unwrap()
    }
}

async fn echo(server: &str) -> (mpsc::UnboundedSender<&'static str>, Incoming) {
    let (parts, body) = mpsc::unbounded_channel();
    let response = soon(send("POST", &format!("{server}/echo"), HeaderMap::new(), Parts(body))).await.unwrap();
    assert_eq!(response.status(), 200);
    (parts, response.into_body())
}

/// Reads the next part of a body.
async fn part(body: &mut Incoming) -> Option<Bytes> {
    soon(body.frame()).await.and_then(|frame| frame.ok()?.into_data().ok())
}

#[tokio::test]
async fn a_request_starts_an_instance_and_is_forwarded() {
    let fixture = Fixture::start().await;
    assert_eq!(fixture.instances.seen(), SeenInstance::default());
    let headers = HeaderMap::from_iter([
        (header::CONNECTION, HeaderValue::from_static("x-hop, close")),
        ("x-hop".parse().unwrap(), HeaderValue::from_static("1")),
        (header::TE, HeaderValue::from_static("trailers")),
        ("x-kept".parse().unwrap(), HeaderValue::from_static("1")),
        ("x-forwarded-for".parse().unwrap(), HeaderValue::from_static("192.0.2.1")),
    ]);
    let url = format!("{}/headers", fixture.instances.endpoint());
    let response = soon(send("GET", &url, headers, String::new())).await.unwrap();
    assert_eq!((response.status().as_u16(), response.headers().get("keep-alive")), (200, None));
    let text = String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap();
    let host = fixture.instances.endpoint().strip_prefix("http://").unwrap();
    assert!(text.contains(&format!("\"host\": \"{host}\"")), "{text}");
    assert!(text.contains("\"x-forwarded-for\": \"192.0.2.1, 127.0.0.1\"") && text.contains("x-kept"), "{text}");
    assert!(!text.contains("x-hop") && !text.contains("\"te\""), "{text}");
    let seen = fixture.stopped().await;
    assert_eq!((seen.starts, seen.requests, seen.open, seen.process.is_some()), (1, 1, 0, true));
}

#[tokio::test]
async fn an_idle_instance_is_stopped_and_continues_at_a_request() {
    let fixture = Fixture::start().await;
    let (_, address) = fixture.get("/address").await.unwrap();
    fixture.stopped().await;
    // Past the stand-in: the kernel takes the connection, and nobody answers.
    let direct = format!("http://{address}/direct");
    let mut direct = std::pin::pin!(call("GET", &direct, String::new()));
    assert!(tokio::time::timeout(A_WHILE, &mut direct).await.is_err(), "it has the processor");
    fixture.instances.stop_when_idle_for(Duration::from_secs(600));
    assert_eq!(fixture.get("/again").await.unwrap(), (200, "/again".to_owned()));
    assert_eq!(soon(direct).await.unwrap(), (200, "/direct".to_owned()));
    assert_eq!(fixture.instances.seen().starts, 1);
}

#[tokio::test]
async fn bodies_are_streamed_and_keep_the_instance_running() {
    let fixture = Fixture::start().await;
    let (parts, mut body) = fixture.echo().await;
    for text in ["one", "two"] {
        parts.send(text).unwrap();
        assert_eq!(part(&mut body).await.unwrap(), text);
        let stop = fixture.instances.until(SeenInstance::is_stopped);
        assert!(tokio::time::timeout(A_WHILE, stop).await.is_err(), "it is stopped");
    }
    assert_eq!(fixture.instances.seen().open, 1);
    drop(parts);
    assert_eq!(part(&mut body).await, None);
    assert_eq!(fixture.stopped().await.open, 0);
}

#[tokio::test]
async fn a_request_that_is_given_up_is_not_open() {
    let fixture = Fixture::start().await;
    let (parts, body) = fixture.echo().await;
    drop(body);
    parts.send("nobody reads this").unwrap();
    assert_eq!(fixture.stopped().await.open, 0);
}

#[tokio::test]
async fn a_killed_instance_is_started_again() {
    let fixture = Fixture::start().await;
    fixture.get("/").await.unwrap();
    let first = fixture.stopped().await.process;
    soon(fixture.instances.kill()).await;
    assert_eq!(fixture.ended().await.signal(), Some(9));
    fixture.get("/").await.unwrap();
    let second = fixture.stopped().await;
    assert!(second.starts == 2 && second.process != first, "{second:?}");
    // While a request is open.
    let (parts, mut body) = fixture.echo().await;
    parts.send("part").unwrap();
    assert_eq!(part(&mut body).await.unwrap(), "part");
    soon(fixture.instances.kill()).await;
    assert_eq!(part(&mut body).await, None);
    assert_eq!(fixture.ended().await.signal(), Some(9));
}

#[tokio::test]
async fn an_instance_is_killed_when_it_was_idle_for_long() {
    let fixture = Fixture::start().await;
    fixture.get("/").await.unwrap();
    fixture.stopped().await;
    fixture.instances.kill_when_idle_for(Some(Duration::from_millis(100)));
    assert_eq!(fixture.ended().await.signal(), Some(9));
    fixture.instances.kill_when_idle_for(None);
    fixture.get("/").await.unwrap();
    fixture.stopped().await;
    let end = fixture.instances.until(SeenInstance::is_absent);
    assert!(tokio::time::timeout(A_WHILE, end).await.is_err(), "it is killed");
}

#[tokio::test]
async fn a_stopped_instance_is_told_to_end() {
    let fixture = Fixture::start().await;
    fixture.get("/").await.unwrap();
    fixture.stopped().await;
    soon(fixture.instances.terminate()).await;
    assert!(fixture.ended().await.success());
    let printed = std::fs::read_to_string(fixture.logs.path().join("1.stdout")).unwrap();
    assert!(printed.contains("terminated"), "{printed}");
    assert!(fixture.logs.path().join("1.stderr").exists());
}

#[tokio::test]
async fn processes_that_it_started_are_stopped_and_killed_too() {
    if !Path::new("/proc/self/stat").exists() {
        return;
    }
    let fixture = Fixture::start().await;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let (parts, mut body) = fixture.echo().await;
    fixture.get(&format!("/child?{}", listener.local_addr().unwrap())).await.unwrap();
    let (mut child, _) = soon(listener.accept()).await.unwrap();
    exchange(&mut child).await;
    drop(parts);
    assert_eq!(part(&mut body).await, None);
    fixture.stopped().await;
    child.write_all(b"x").await.unwrap();
    let mut answer = [0];
    assert!(tokio::time::timeout(A_WHILE, child.read(&mut answer)).await.is_err(), "it has the processor");
    fixture.instances.stop_when_idle_for(Duration::from_secs(600));
    fixture.get("/").await.unwrap();
    assert_eq!(soon(child.read(&mut answer)).await.unwrap(), 1);
    exchange(&mut child).await;
    soon(fixture.instances.kill()).await;
    assert_eq!(soon(child.read(&mut answer)).await.unwrap(), 0);
}

async fn exchange(child: &mut TcpStream) {
    child.write_all(b"x").await.unwrap();
    assert_eq!(soon(child.read_u8()).await.unwrap(), b'x');
}

#[tokio::test]
async fn errors_of_the_instance_are_those_of_a_proxy() {
    let mut fixture = Fixture::start().await;
    assert_eq!(fixture.get("/exit").await.unwrap().0, 502);
    assert_eq!(fixture.ended().await.code(), Some(3));
    assert_eq!(fixture.get("/next").await.unwrap(), (200, "/next".to_owned()));
    let mut settings = fixture.instances.service.settings.clone();
    // Lists tests, and ends.
    settings.args = vec!["--list".to_owned()];
    fixture.instances = Instances::start(settings.clone()).await.unwrap();
    assert_eq!(fixture.get("/").await.unwrap().0, 503);
    assert!(fixture.ended().await.success());
    // Nothing ever listens.
    (settings.program, settings.args) = ("sleep".into(), vec!["600".to_owned()]);
    settings.env = vec![("PATH".to_owned(), std::env::var("PATH").unwrap())];
    fixture.instances = Instances::start(settings.clone()).await.unwrap();
    let kill = async {
        soon(fixture.instances.until(|seen| seen.phase == InstancePhase::Starting)).await;
        soon(fixture.instances.kill()).await;
    };
    assert_eq!(tokio::join!(fixture.get("/"), kill).0.unwrap().0, 503);
    assert_eq!(fixture.ended().await.signal(), Some(9));
    settings.program = "/nonexistent".into();
    fixture.instances = Instances::start(settings).await.unwrap();
    assert_eq!(fixture.get("/").await.unwrap().0, 503);
    assert_eq!(fixture.instances.seen().starts, 0);
}

#[tokio::test]
async fn a_task_wakes_an_instance() {
    let fixture = Fixture::start().await;
    let tasks = TasksDouble::start().await.unwrap();
    let url = format!("{}/wake", fixture.instances.endpoint()).parse().unwrap();
    for starts in [1, 2] {
        let call = tasks.call_now(&url, "wake@acme.iam.gserviceaccount.com", url.as_str());
        soon(tasks.until(|seen| seen.successes(&call) == 1)).await;
        assert_eq!(fixture.stopped().await.starts, starts);
        soon(fixture.instances.kill()).await;
    }
}

#[tokio::test]
async fn nothing_is_left_of_a_dropped_stand_in() {
    let fixture = Fixture::start().await;
    let (_, address) = fixture.get("/address").await.unwrap();
    fixture.instances.stop_when_idle_for(Duration::from_secs(600));
    fixture.get("/").await.unwrap();
    let (_parts, mut body) = echo(&format!("http://{address}")).await;
    drop(fixture);
    assert_eq!(part(&mut body).await, None);
}
