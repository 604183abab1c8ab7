//! How fast `atlantis plan` deliveries are acknowledged, and whether every acknowledged one is still there after SIGKILL.
//!
//! `cargo bench --bench ack`. The real server runs against the sandbox's forge. The forge answers no question about a pull
//! request while this measures, so that commands wait behind their acknowledgement; what is counted is the durable 2xx alone.
//! After the last one the server is killed and its state is opened by this process. Exit code 1 when a delivery is missing.

use anyhow::{Context, Result, bail, ensure};
use hmac::{Hmac, KeyInit, Mac};
use secrecy::ExposeSecret;
use std::collections::HashSet;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tidelock::domain::Event;
use tidelock::sandbox::{Fault, Forge, ForgeOptions, OpenOptions, Repo};
use tidelock::settings::plain_environment;
use tidelock::store::Store;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Deliveries for each number of connections.
const DELIVERIES: usize = 2_000;
/// Pull requests that the comments are spread over.
const PULLS: usize = 8;
/// Longest time for the server to start, and for one answer.
const LIMIT: Duration = Duration::from_secs(20);
/// What one server must acknowledge in a second at 64 connections.
const GOAL: f64 = 5_000.0;
/// Bytes of text in a comment's delivery that we do not read, so that it is about as large as GitHub's.
const PADDING: usize = 8_000;

fn main() -> Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    let runtime = tokio::runtime::Runtime::new()?;
    writeln!(out, "connections   acks/s   p50 ms   p99 ms   acknowledged   missing after SIGKILL")?;
    let mut missing = 0;
    let mut rate = 0.0;
    for connections in [1, 16, 64] {
        let row = runtime.block_on(measure(connections)).with_context(|| format!("{connections} connections"))?;
        (rate, missing) = (row.rate, missing + row.missing);
        let Row { p50, p99, acknowledged, missing, .. } = row;
        writeln!(out, "{connections:>11} {rate:>8.0} {p50:>8.2} {p99:>8.2} {acknowledged:>14} {missing:>23}")?;
    }
    let verdict = if rate >= GOAL { "reached" } else { "MISSED" };
    writeln!(out, "goal {GOAL:.0} /s at 64 connections: {verdict}")?;
    Ok(if missing == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// One line of the table; times in milliseconds.
struct Row {
    rate: f64,
    p50: f64,
    p99: f64,
    acknowledged: usize,
    missing: usize,
}

/// Kills the server when it goes out of scope, however that comes.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn measure(connections: usize) -> Result<Row> {
    let dir = tempfile::tempdir()?;
    let forge = Forge::start(ForgeOptions { dir: dir.path().join("forge"), port: 0 }).await?;
    let repo = forge.create_repo("acme/infra", &[("main.tf", "")]).await?;
    for number in 0..PULLS {
        let change = format!("# {number}\n");
        let changes = [("main.tf", Some(change.as_str()))];
        repo.open_pull(&format!("b{number}"), "alice", "A change", &changes, OpenOptions::default()).await?;
    }
    // Nothing but the acknowledgement is done while this runs.
    forge.fail_next("*", "**", Fault::Stall(Duration::from_secs(3600)), usize::MAX)?;
    let data = dir.path().join("data");
    let (server, address) = start(&forge, &data).await?;
    let requests = Arc::new(requests(&forge, &repo, &address)?);
    let next = Arc::new(AtomicUsize::new(0));
    let began = Instant::now();
    let senders: Vec<_> = (0..connections)
        .map(|_| tokio::spawn(send_all(address.clone(), Arc::clone(&requests), Arc::clone(&next))))
        .collect();
    let mut times = Vec::new();
    for sender in senders {
        times.extend(sender.await??);
    }
    let took = began.elapsed();
    drop(server); // SIGKILL
    times.sort();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e3;
    let (p50, p99, acknowledged) = (at(0.5), at(0.99), times.len());
    let kept = kept(&data).await?;
    let missing = (0..DELIVERIES).filter(|number| !kept.contains(&comment_id(*number))).count();
    ensure!(acknowledged == DELIVERIES, "only {acknowledged} of {DELIVERIES} were acknowledged");
    Ok(Row { rate: acknowledged as f64 / took.as_secs_f64(), p50, p99, acknowledged, missing })
}

async fn start(forge: &Forge, data: &Path) -> Result<(Killed, String)> {
    let port = std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidelock"));
    command.arg("server").env_clear().envs(plain_environment()).stdout(Stdio::null()).stderr(Stdio::inherit());
    command.args([
        "--bind=127.0.0.1".to_owned(),
        format!("--port={port}"),
        format!("--atlantis-url=http://127.0.0.1:{port}"),
        format!("--data-dir={}", data.display()),
        format!("--gh-hostname={}", forge.hostname_setting()),
        format!("--gh-user={}", forge.bot()),
        "--repo-allowlist=*".to_owned(),
    ]);
    command.env("TIDELOCK_GH_TOKEN", forge.token().expose_secret());
    command.env("TIDELOCK_GH_WEBHOOK_SECRET", forge.webhook_secret().expose_secret());
    let server = Killed(command.spawn().context("cannot start the server")?);
    let address = format!("127.0.0.1:{port}");
    let until = Instant::now() + LIMIT;
    let ready = format!("GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    loop {
        if let Ok(mut stream) = TcpStream::connect(&address).await {
            let mut answer = String::new();
            stream.write_all(ready.as_bytes()).await?;
            stream.read_to_string(&mut answer).await?;
            if answer.starts_with("HTTP/1.1 200") {
                return Ok((server, address));
            }
        }
        ensure!(Instant::now() < until, "the server did not get ready");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn comment_id(number: usize) -> u64 {
    7_000_000_000 + number as u64
}

/// Whole requests, signed, each with a comment of its own.
fn requests(forge: &Forge, repo: &Repo, address: &str) -> Result<Vec<Vec<u8>>> {
    let url = format!("{}/{}", forge.url(), repo.full_name());
    let padding = "x".repeat(PADDING);
    (0..DELIVERIES)
        .map(|number| {
            let pull = number % PULLS + 1;
            let payload = serde_json::json!({
                "action": "created",
                "issue": {"number": pull, "title": "A change", "pull_request": {"url": format!("{url}/pull/{pull}")}, "body": padding},
                "comment": {"id": comment_id(number), "body": "atlantis plan", "user": {"login": "alice"}},
                "repository": {"full_name": repo.full_name(), "html_url": url, "clone_url": format!("{url}.git")},
                "sender": {"login": "alice"},
            });
            let body = payload.to_string();
            let mut mac = Hmac::<sha2::Sha256>::new_from_slice(forge.webhook_secret().expose_secret().as_bytes())?;
            mac.update(body.as_bytes());
            let signature = hex::encode(mac.finalize().into_bytes());
            let request = format!(
                "POST /events HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
                 X-GitHub-Event: issue_comment\r\nX-GitHub-Delivery: {number}\r\nX-Hub-Signature-256: sha256={signature}\r\n\r\n{body}",
                body.len()
            );
            Ok(request.into_bytes())
        })
        .collect()
}

/// Sends what is left, one after the other on one connection; how long each 2xx took. Anything else is an error.
async fn send_all(address: String, requests: Arc<Vec<Vec<u8>>>, next: Arc<AtomicUsize>) -> Result<Vec<Duration>> {
    let mut stream = TcpStream::connect(&address).await?;
    stream.set_nodelay(true)?;
    let mut times = Vec::new();
    while let Some(request) = requests.get(next.fetch_add(1, Ordering::Relaxed)) {
        let began = Instant::now();
        stream.write_all(request).await?;
        tokio::time::timeout(LIMIT, read_answer(&mut stream)).await.context("no answer in time")??;
        times.push(began.elapsed());
    }
    Ok(times)
}

async fn read_answer(stream: &mut TcpStream) -> Result<()> {
    let (mut answer, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let count = stream.read(&mut buffer).await?;
        ensure!(count > 0, "the server hung up");
        answer.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&answer);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length =
            head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
        let Some(length) = length else { bail!("an answer without a length: {head}") };
        if body.len() >= length {
            ensure!(head.starts_with("HTTP/1.1 2"), "refused: {text}");
            return Ok(());
        }
    }
}

/// Comments whose deliveries are recorded as not done, as the next start will find them. None can be done: the forge was silent.
async fn kept(data: &Path) -> Result<HashSet<u64>> {
    let store = Store::open(data)?;
    let deliveries = store.read(|view| view.unfinished_deliveries()).await?;
    store.close().await?;
    let comment = |event: Event| if let Event::Comment(comment) = event { Some(comment.comment_id) } else { None };
    Ok(deliveries.into_iter().filter_map(|(delivery, _)| comment(delivery.event)).collect())
}
