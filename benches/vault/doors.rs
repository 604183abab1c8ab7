//! Rate of acknowledgement at the door of each host, as a ratio to GitHub's in the same round, and a check that every acknowledged delivery
//! survives SIGKILL.
//!
//! The deliveries are the forge's own: it makes `atlantis plan` comments as that host and sends their events to this process, which replays
//! them. As in [`ack`], the forge answers no question of the server.

use crate::ack;
use crate::report::Report;
use crate::server::Server;
use anyhow::{Context, Result, ensure};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tidelock_forge::{Fault, Forge, ForgeOptions, HostKind, OpenOptions};
use tidelock_vault::directory::Directory;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// Rounds, each with all hosts in turn.
const ROUNDS: usize = 7;
/// Deliveries to each server, and connections that send them.
const COUNT: usize = 6_000;
const CONNECTIONS: usize = 64;
/// Pull requests that the comments are spread over.
const PULLS: usize = 8;
/// Smallest median of a host's rate divided by GitHub's.
const BOUND: f64 = 0.9;
/// Longest time until the forge has sent all its deliveries.
const LIMIT: Duration = Duration::from_secs(120);

/// A host's forge and its deliveries.
struct Door {
    forge: Forge,
    recorded: Vec<Recorded>,
    /// Deliveries a second, by round.
    rates: Vec<f64>,
    _dir: tempfile::TempDir,
}

/// A request without the `Host` line.
#[derive(Default)]
struct Recorded {
    head: String,
    body: Vec<u8>,
}

pub(crate) async fn measure(report: &mut Report) -> Result<()> {
    let mut doors = Vec::new();
    for kind in HostKind::ALL {
        doors.push(Door::open(kind).await.with_context(|| format!("recording {}", kind.name()))?);
    }
    for _ in 0..ROUNDS {
        for door in &mut doors {
            door.round().await.with_context(|| format!("deliveries of {}", door.forge.kind().name()))?;
        }
    }
    let github = doors.iter().position(|door| door.forge.kind() == HostKind::Github).context("no GitHub")?;
    let github = doors[github].rates.clone();
    for door in &doors {
        let ratio = median(door.rates.iter().zip(&github).map(|(rate, github)| rate / github).collect());
        let bytes = door.recorded.iter().map(|one| one.body.len()).sum::<usize>() / COUNT;
        let what = format!(
            "{}: {:.0}/s with {bytes} bytes each, {ratio:.2} of GitHub's rate (at least {BOUND})",
            door.forge.kind().name(),
            median(door.rates.clone()),
        );
        report.bound(ratio >= BOUND, &what)?;
    }
    Ok(())
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

impl Door {
    /// Starts a forge that speaks as this host, and records the deliveries of its comments.
    async fn open(kind: HostKind) -> Result<Door> {
        let dir = tempfile::tempdir()?;
        let forge = Forge::start_as(kind, ForgeOptions { dir: dir.path().to_owned(), port: 0 }).await?;
        let repo = forge.create_repo(&kind.example_repository("infra"), &[("main.tf", "")]).await?;
        let mut pulls = Vec::new();
        for number in 0..PULLS {
            let change = format!("# {number}\n");
            let changes = [("main.tf", Some(change.as_str()))];
            pulls.push(
                repo.open_pull(&format!("b{number}"), "alice", "A change", &changes, OpenOptions::default()).await?,
            );
        }
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        forge.set_webhook(&format!("http://{}/events", listener.local_addr()?));
        let recorded = Arc::new(Mutex::new(Vec::new()));
        let recorder = tokio::spawn(record(listener, Arc::clone(&recorded)));
        // Some hosts send a ping.
        forge.wait_for_deliveries(LIMIT).await?;
        lock(&recorded)?.clear();
        for number in 0..COUNT {
            pulls[number % PULLS].comment("alice", "atlantis plan")?;
        }
        forge.wait_for_deliveries(LIMIT).await?;
        recorder.abort();
        let recorded = std::mem::take(&mut *lock(&recorded)?);
        ensure!(recorded.len() == COUNT, "{} deliveries instead of {COUNT}", recorded.len());
        // Nothing but the acknowledgement is done from now on.
        forge.fail_next("*", "**", Fault::Stall(Duration::from_secs(3600)), usize::MAX)?;
        Ok(Door { forge, recorded, rates: Vec::new(), _dir: dir })
    }

    /// Sends all of them to a new server.
    async fn round(&mut self) -> Result<()> {
        let dir = tempfile::tempdir()?;
        let bucket = dir.path().join("bucket");
        let flags = [format!("--bucket=file://{}", bucket.display())];
        let server = Server::start(&self.forge, &dir.path().join("data"), &flags).await?;
        let requests = self.recorded.iter().map(|one| one.to(&server.address)).collect();
        let began = Instant::now();
        ack::send(&server.address, requests, CONNECTIONS).await?;
        self.rates.push(COUNT as f64 / began.elapsed().as_secs_f64());
        server.kill();
        let kept = ack::kept(Arc::new(Directory::existing(&bucket)?), &dir.path().join("exported")).await?;
        ensure!(kept.len() == COUNT, "{} of {COUNT} acknowledged comments were kept", kept.len());
        Ok(())
    }
}

impl Recorded {
    /// Returns the whole request for the server at this address.
    fn to(&self, address: &str) -> Vec<u8> {
        let head = format!("POST /events HTTP/1.1\r\nHost: {address}\r\n{}\r\n", self.head);
        [head.as_bytes(), &self.body].concat()
    }
}

fn lock(recorded: &Mutex<Vec<Recorded>>) -> Result<MutexGuard<'_, Vec<Recorded>>> {
    recorded.lock().map_err(|_| anyhow::anyhow!("a recorder panicked"))
}

/// Answers requests with 200, and keeps them.
async fn record(listener: TcpListener, recorded: Arc<Mutex<Vec<Recorded>>>) -> Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(record_stream(BufReader::new(stream), Arc::clone(&recorded)));
    }
}

async fn record_stream(mut stream: BufReader<TcpStream>, recorded: Arc<Mutex<Vec<Recorded>>>) -> Result<()> {
    let mut line = String::new();
    while stream.read_line(&mut line).await? > 0 {
        let (mut request, mut length) = (Recorded::default(), 0);
        loop {
            line.clear();
            stream.read_line(&mut line).await?;
            let Some((name, value)) = line.split_once(':') else { break };
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse()?;
            }
            if !name.eq_ignore_ascii_case("host") {
                request.head.push_str(&line);
            }
        }
        request.body = vec![0; length];
        stream.read_exact(&mut request.body).await?;
        lock(&recorded)?.push(request);
        stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await?;
        line.clear();
    }
    Ok(())
}
