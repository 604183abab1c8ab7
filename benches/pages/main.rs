//! Time and size of each page and filter over a state as large as years of work make it; memory of the server; time of a commit on it.
//!
//! `just bench-pages [SHARE]`: with a number, the state is that many times smaller. State lies under `TMPDIR`. Exit code 1 when a bound is
//! missed.

mod addresses;
mod commits;
#[path = "../growth/costs.rs"]
#[expect(dead_code, reason = "the benchmark of growth uses the rest of it")]
mod costs;
mod log;
#[path = "../vault/machine.rs"]
#[expect(dead_code, reason = "the benchmark of the vault uses the rest of it")]
mod machine;
#[path = "../vault/place.rs"]
#[expect(dead_code, reason = "the benchmark of the vault uses the rest of it")]
mod place;
mod records;
#[path = "../vault/report.rs"]
mod report;
#[path = "../vault/server.rs"]
#[expect(dead_code, reason = "the benchmark of the vault uses the rest of it")]
mod server;
mod state;

use anyhow::{Context, Result, ensure};
use records::Sizes;
use report::Report;
use server::Server;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tidelock_forge::{Forge, ForgeOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Requests of an address that are measured, one after another, and those before.
const REQUESTS: usize = 50;
const WARM: usize = 3;
/// Limit of the 99th percentile of an address.
const TIME: Duration = Duration::from_millis(100);
/// Limit of the bytes of a page, without its head.
const BYTES: usize = 100_000;
/// Limit of resident megabytes of the server after all requests.
const MEMORY: f64 = 60.0;
/// Wait for the allocator, which returns memory about a second later.
const GIVEN_BACK: Duration = Duration::from_secs(3);
/// Time limit of a start, which writes the whole state into the bucket.
const START: Duration = Duration::from_secs(300);

fn main() -> Result<ExitCode> {
    // Cargo adds `--bench`.
    let share = std::env::args().skip(1).find(|argument| argument != "--bench");
    let share: usize = share.map_or(Ok(1), |share| share.parse()).context("the share is a number")?;
    let sizes = Sizes::of_share(share.max(1));
    let mut report = Report::default();
    report.title("pages")?;
    tokio::runtime::Runtime::new()?.block_on(measure(&mut report, &sizes))?;
    report.end()
}

async fn measure(report: &mut Report, sizes: &Sizes) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (data, bucket) = (dir.path().join("data"), dir.path().join("bucket"));
    let began = Instant::now();
    state::fill(&data, sizes).await?;
    let indexes = log::fill(&data, sizes)?;
    let database = data.join("tidelock.db");
    report.line(&format!(
        "{} pull requests, {} runs, {} audit entries, {} MB, in {:.0} s; the indexes of the audit log were made in {:.1} s",
        sizes.pulls,
        sizes.runs,
        sizes.audit,
        std::fs::metadata(&database)?.len() / 1_000_000,
        began.elapsed().as_secs_f64(),
        indexes.as_secs_f64(),
    ))?;
    let forge = Forge::start(ForgeOptions { dir: dir.path().join("forge"), port: 0 }).await?;
    let server = started(&forge, &data, &bucket).await?;
    tokio::time::sleep(GIVEN_BACK).await;
    let (resident, peak) = (costs::resident(&server)?, costs::peak(&server)?);
    report.line(&format!("before the requests: {resident:.0} MB resident, {peak:.0} MB at most before"))?;
    report.line(&format!("{:>15} {:>9} {:>9} {:>9}", "p50 ms", "p99 ms", "CPU ms", "bytes"))?;
    for address in addresses::all(sizes) {
        visit(report, &server, &address).await?;
    }
    report.line(&format!("at their end: {:.0} MB resident", costs::resident(&server)?))?;
    tokio::time::sleep(GIVEN_BACK).await;
    let (resident, peak) = (costs::resident(&server)?, costs::peak(&server)?);
    let what = format!("after the requests: {resident:.0} MB resident (below {MEMORY}), {peak:.0} MB at most before");
    report.bound(resident < MEMORY, &what)?;
    server.terminate().await?;
    commits::measure(report, &bucket, dir.path()).await
}

/// Starts a server that adopts the state and waits until it leads.
async fn started(forge: &Forge, data: &Path, bucket: &Path) -> Result<Server> {
    let server = Server::spawn(forge, data, &[format!("--bucket=file://{}", bucket.display())], None)?;
    let until = Instant::now() + START;
    while !server.get("/status").await.is_ok_and(|answer| answer.contains("\"leading\"")) {
        ensure!(Instant::now() < until, "the server did not take the lead");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(server)
}

/// Measures an address, following the links of its lists as often as it says.
async fn visit(report: &mut Report, server: &Server, address: &addresses::MeasuredAddress) -> Result<()> {
    let mut path = address.path.clone();
    for _ in 0..address.follow {
        let page = get(server, &path).await?;
        let Some(next) = addresses::next(&page) else { break };
        path = format!("/{next}");
    }
    let (mut times, mut bytes) = (Vec::new(), 0);
    for _ in 0..WARM {
        get(server, &path).await?;
    }
    let before = costs::cpu(server.pid())?.own;
    for _ in 0..REQUESTS {
        let began = Instant::now();
        bytes = get(server, &path).await?.len();
        times.push(began.elapsed());
    }
    let own = costs::cpu(server.pid())?.own.saturating_sub(before) / REQUESTS as u32;
    times.sort();
    let at = |percent: usize| times.get((times.len() * percent).div_ceil(100) - 1).copied().unwrap_or_default();
    let millis = |time: Duration| time.as_secs_f64() * 1000.0;
    let (median, late) = (at(50), at(99));
    let holds = late <= TIME && (bytes <= BYTES || address.is_export);
    let (median, late, own) = (millis(median), millis(late), millis(own));
    report.bound(holds, &format!("{median:>7.1} {late:>9.1} {own:>9.1} {bytes:>9}  {path}"))
}

/// Returns the body of an answer with status 200.
async fn get(server: &Server, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(&server.address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", server.address);
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").context("an answer without an end of its head")?;
    ensure!(head.starts_with("HTTP/1.1 200"), "{path}: {head}");
    Ok(body.to_owned())
}
