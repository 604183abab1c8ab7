//! Memory of a reader of a long log that is still being written.

use crate::costs::resident;
use crate::forge::Ground;
use crate::report::Report;
use anyhow::{Context, Result, ensure};
use std::time::{Duration, Instant};
use tidelock_forge::OpenOptions;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Bytes of the log.
const BYTES: usize = 10_000_000;
/// Readers that read all there is and then wait.
const READERS: usize = 20;
/// Limit in megabytes for each of them.
const BOUND: f64 = 1.0;
const LIMIT: Duration = Duration::from_secs(60);

pub(crate) async fn measure(report: &mut Report) -> Result<()> {
    let ground = Ground::new().await?;
    let repo = ground.forge.create_repo("acme/infra", &[("main.tf", "# one\n")]).await?;
    let (repos, end) = (ground.path().join("repos.yaml"), ground.path().join("end"));
    let line = "x".repeat(99);
    let step = format!("yes {line} | head -n {}; until [ -e {} ]; do sleep 0.1; done", BYTES / 100, end.display());
    let step = serde_json::Value::from(step);
    let text = format!(
        "repos:\n  - id: /.*/\n    workflow: long\nworkflows:\n  long:\n    plan:\n      steps:\n        - run: {step}\n"
    );
    std::fs::write(&repos, text)?;
    let server = ground.server("data", &[&format!("--repo-config={}", repos.display())]).await?;
    let change = [("main.tf", Some("# two\n"))];
    let pull = repo.open_pull("b", "alice", "A change", &change, OpenOptions::default()).await?;
    let until = Instant::now() + LIMIT;
    let job = loop {
        ensure!(Instant::now() < until, "no job was started");
        let page = server.get("/").await?;
        if let Some((_, rest)) = page.split_once("/jobs/") {
            break rest.chars().take_while(char::is_ascii_alphanumeric).collect::<String>();
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    // The first reader waits until all of it was written.
    let _first = read(&server.address, &job).await?;
    let before = resident(&server)?;
    let mut readers = Vec::new();
    for _ in 0..READERS {
        readers.push(read(&server.address, &job).await?);
    }
    let each = (resident(&server)? - before) / READERS as f64;
    std::fs::write(end, "")?;
    // The step must have seen it before its folder is removed.
    pull.wait_for_comment(0, LIMIT).await?;
    report.bound(each < BOUND, &format!("a reader of a running log of 10 MB: {each:.2} MB (below {BOUND})"))
}

/// Opens a connection, reads the whole log, and leaves it waiting for more.
async fn read(address: &str, job: &str) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET /jobs/{job}/stream HTTP/1.1\r\nHost: {address}\r\nAccept: text/event-stream\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let (mut seen, mut buffer) = (0, vec![0; 64 << 10]);
    while seen < BYTES {
        let count = tokio::time::timeout(LIMIT, stream.read(&mut buffer)).await.context("the log does not come")??;
        ensure!(count > 0, "the log ended after {seen} bytes");
        if seen == 0 {
            let head = String::from_utf8_lossy(buffer.get(..count).unwrap_or_default()).into_owned();
            ensure!(head.starts_with("HTTP/1.1 200"), "{head}");
        }
        seen += count;
    }
    Ok(stream)
}
