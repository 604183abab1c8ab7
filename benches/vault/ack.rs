//! Rate of acknowledgement of `atlantis plan` deliveries, and a check that every acknowledged one survives SIGKILL.
//!
//! The real server runs against the sandbox's forge. The forge answers no question about a pull request meanwhile, so that commands wait
//! behind their acknowledgement: only the durable 2xx is measured. After the last one the server is killed, and its bucket is read by this
//! process.

use crate::place;
use crate::report::Report;
use crate::server::Server;
use anyhow::{Context, Result, bail, ensure};
use hmac::{Hmac, KeyInit, Mac};
use secrecy::ExposeSecret;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tidelock_core::domain::Event;
use tidelock_core::domain::state::Delivery;
use tidelock_forge::{Fault, Forge, ForgeOptions, OpenOptions, Repo};
use tidelock_vault::bucket::Bucket;
use tidelock_vault::directory::Directory;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Pull requests that the comments are spread over.
const PULLS: usize = 8;
/// Longest time for one answer.
const LIMIT: Duration = Duration::from_secs(20);
/// Numbers of connections, and of deliveries over them.
const LOADS: [(usize, usize); 3] = [(1, 1_000), (16, 4_000), (64, 12_000)];
/// The same against a service with a delay of each write.
const FAR_LOADS: [(usize, usize); 3] = [(1, 50), (16, 800), (64, 3_200)];
const FAR: Duration = Duration::from_millis(50);
/// Deliveries that one server must acknowledge in a second at 64 connections.
const GOAL: f64 = 5_000.0;
/// Limits of the 99th percentile at 64 connections, in milliseconds: on a directory, and against the slow service.
const P99: f64 = 60.0;
const FAR_P99: f64 = 150.0;
/// Bytes of text in a comment's delivery that we do not read, so that it is about as large as GitHub's.
const PADDING: usize = 8_000;

pub(crate) async fn measure(report: &mut Report) -> Result<()> {
    let mut row = None;
    report.line("connections   acks/s   p50 ms   p99 ms   acknowledged   missing after SIGKILL")?;
    for (connections, count) in LOADS {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("bucket");
        let flags = [format!("--bucket=file://{}", path.display())];
        let open = || -> Result<Arc<dyn Bucket>> { Ok(Arc::new(Directory::existing(&path)?)) };
        row = Some(one(report, dir.path(), &flags, open, (connections, count)).await?);
    }
    if let Some(Row { rate, p99, .. }) = row {
        let what = format!(
            "bucket in a directory, 64 connections: {rate:.0}/s (at least {GOAL:.0}), p99 {p99:.1} ms (below {P99})"
        );
        report.bound(rate >= GOAL && p99 < P99, &what)?;
    }
    for (connections, count) in FAR_LOADS {
        let (dir, double) = (tempfile::tempdir()?, place::double().await?);
        double.delay(Duration::ZERO, FAR);
        let open = || place::cloud(&double);
        let Row { rate, p99, .. } = one(report, dir.path(), &place::flags(&double), open, (connections, count)).await?;
        let what = format!(
            "service with 50 ms per write, {connections} connections: {rate:.0}/s, p99 {p99:.1} ms (below {FAR_P99})"
        );
        report.bound(p99 < FAR_P99, &what)?;
    }
    Ok(())
}

/// One line of the table; times in milliseconds.
struct Row {
    rate: f64,
    p50: f64,
    p99: f64,
    missing: usize,
}

async fn one(
    report: &mut Report,
    dir: &Path,
    flags: &[String],
    open: impl Fn() -> Result<Arc<dyn Bucket>>,
    (connections, count): (usize, usize),
) -> Result<Row> {
    let row = run(dir, flags, open, connections, count).await.with_context(|| format!("{connections} connections"))?;
    let Row { rate, p50, p99, missing } = row;
    report.line(&format!("{connections:>11} {rate:>8.0} {p50:>8.2} {p99:>8.2} {count:>14} {missing:>23}"))?;
    if missing > 0 {
        report.bound(false, &format!("{missing} acknowledged deliveries are missing after SIGKILL (0)"))?;
    }
    Ok(row)
}

async fn run(
    dir: &Path,
    flags: &[String],
    open: impl Fn() -> Result<Arc<dyn Bucket>>,
    connections: usize,
    count: usize,
) -> Result<Row> {
    let forge = Forge::start(ForgeOptions { dir: dir.join("forge"), port: 0 }).await?;
    let repo = forge.create_repo("acme/infra", &[("main.tf", "")]).await?;
    for number in 0..PULLS {
        let change = format!("# {number}\n");
        let changes = [("main.tf", Some(change.as_str()))];
        repo.open_pull(&format!("b{number}"), "alice", "A change", &changes, OpenOptions::default()).await?;
    }
    // Nothing but the acknowledgement is done while this runs.
    forge.fail_next("*", "**", Fault::Stall(Duration::from_secs(3600)), usize::MAX)?;
    let server = Server::start(&forge, &dir.join("data"), flags).await?;
    let requests = requests(&forge, &repo, &server.address, count)?;
    let began = Instant::now();
    let mut times = send(&server.address, requests, connections).await?;
    let took = began.elapsed();
    server.kill();
    times.sort();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e3;
    let kept = kept(open()?, &dir.join("exported")).await?;
    let kept: HashSet<u64> = kept.into_iter().collect();
    let missing = (0..count).filter(|number| !kept.contains(&comment_id(*number))).count();
    Ok(Row { rate: count as f64 / took.as_secs_f64(), p50: at(0.5), p99: at(0.99), missing })
}

fn comment_id(number: usize) -> u64 {
    7_000_000_000 + number as u64
}

/// Makes whole requests, signed, each with a comment of its own.
pub(crate) fn requests(forge: &Forge, repo: &Repo, address: &str, count: usize) -> Result<Vec<Vec<u8>>> {
    let url = format!("{}/{}", forge.url(), repo.full_name());
    let padding = "x".repeat(PADDING);
    (0..count)
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

/// Sends requests to a server over so many connections. Returns the time of each 2xx; anything else is an error.
pub(crate) async fn send(address: &str, requests: Vec<Vec<u8>>, connections: usize) -> Result<Vec<Duration>> {
    let count = requests.len();
    let (requests, next) = (Arc::new(requests), Arc::new(AtomicUsize::new(0)));
    let senders: Vec<_> = (0..connections)
        .map(|_| tokio::spawn(send_all(address.to_owned(), Arc::clone(&requests), Arc::clone(&next))))
        .collect();
    let mut times = Vec::new();
    for sender in senders {
        times.extend(sender.await??);
    }
    ensure!(times.len() == count, "only {} of {count} were acknowledged", times.len());
    Ok(times)
}

/// Sends the remaining requests, one after the other on one connection. Returns the time of each 2xx; anything else is an error.
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

pub(crate) async fn read_answer(stream: &mut TcpStream) -> Result<()> {
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

/// Returns the comments whose deliveries are not done in the bucket, as the next start will find them. None can be done: the forge was
/// silent.
pub(crate) async fn kept(bucket: Arc<dyn Bucket>, dir: &Path) -> Result<Vec<u64>> {
    place::export(bucket, dir).await?;
    let database = rusqlite::Connection::open(dir.join("tidelock.db"))?;
    let mut statement =
        database.prepare("SELECT record FROM deliveries WHERE state = 'queued' OR state = 'running'")?;
    let mut rows = statement.query([])?;
    let mut comments = Vec::new();
    while let Some(row) = rows.next()? {
        let delivery: Delivery = serde_json::from_str(row.get_ref(0)?.as_str()?)?;
        if let Event::Comment(comment) = delivery.event {
            comments.push(comment.comment_id);
        }
    }
    Ok(comments)
}
