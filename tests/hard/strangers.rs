//! Load from unauthenticated senders: connections, headers and bodies that do not end.

use crate::place::{Binary, CODE, LIMIT, answer, sign, stub_dir};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tidelock_forge::{Forge, ForgeOptions, OpenOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Time that a host waits for the answer to a delivery.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most memory that strangers may take, in KiB.
const MAX_GROWTH: u64 = 200 << 10;

struct World {
    server: Binary,
    forge: Forge,
    dir: TempDir,
}

impl World {
    async fn start(by: &[&str], flags: &[&str]) -> World {
        let dir = TempDir::new().unwrap();
        let bin = stub_dir(dir.path());
        let forge = Forge::start(ForgeOptions { dir: dir.path().join("forge"), port: 0 }).await.unwrap();
        let server = Binary::start_by(by, &forge, dir.path(), flags, Some(&bin)).await;
        World { server, forge, dir }
    }

    fn address(&self) -> &str {
        self.server.url.trim_start_matches("http://")
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address()).await.unwrap()
    }

    /// Returns the head of a delivery, up to its body.
    fn head(&self, length: usize, signature: Option<&str>) -> String {
        let mut head = format!(
            "POST /events HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\nx-github-event: ping\r\n",
            self.address()
        );
        if let Some(signature) = signature {
            head.push_str(&format!("x-hub-signature-256: {signature}\r\n"));
        }
        head + &format!("content-length: {length}\r\n\r\n")
    }

    /// Sends a signed delivery of this length. Returns the status of the answer, which comes before a host gives up.
    async fn signed(&self, length: usize) -> u16 {
        let body = format!("{{\"pad\":\"{}\"}}", "x".repeat(length.saturating_sub(10)));
        let head = self.head(body.len(), Some(&sign(&self.forge, body.as_bytes())));
        let asking = async {
            let mut stream = self.connect().await;
            stream.write_all(head.as_bytes()).await.unwrap();
            stream.write_all(body.as_bytes()).await.unwrap();
            let mut answer = vec![0; 12];
            stream.read_exact(&mut answer).await.unwrap();
            String::from_utf8(answer).unwrap()
        };
        let answer = timeout(PATIENCE, asking).await.expect("a signed delivery is answered");
        answer[9..].parse().unwrap()
    }

    /// Returns the most memory that the server ever had, in KiB.
    fn most_resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.server.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Begins this many unsigned deliveries that announce `announced` bytes and send at most `sent`. Returns when the server takes no more
    /// of them; the connections stay open as long as the server and the result live.
    async fn unfinished(&self, count: usize, announced: usize, sent: usize) -> JoinSet<()> {
        let mut open = JoinSet::new();
        let (piece, progress) = (Arc::new(vec![b'x'; 16 << 10]), Arc::new(AtomicUsize::new(0)));
        for _ in 0..count {
            let (address, head) = (self.address().to_owned(), self.head(announced, None));
            let (piece, progress) = (Arc::clone(&piece), Arc::clone(&progress));
            open.spawn(async move {
                let Ok(mut stream) = TcpStream::connect(address).await else { return };
                let mut left = sent;
                let mut written = stream.write_all(head.as_bytes()).await;
                while written.is_ok() && left > 0 {
                    let now = left.min(piece.len());
                    written = stream.write_all(&piece[..now]).await;
                    left -= now;
                    progress.fetch_add(1, Ordering::Relaxed);
                }
                if written.is_ok() {
                    // Until the server closes the connection.
                    let _ = stream.read_to_end(&mut Vec::new()).await;
                }
            });
        }
        let mut seen = usize::MAX;
        while seen != progress.load(Ordering::Relaxed) {
            seen = progress.load(Ordering::Relaxed);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        open
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_bodies_cost_a_bounded_amount_of_memory_and_hold_up_no_host() {
    let world = World::start(&[], &[]).await;
    let before = world.most_resident();
    let open = world.unfinished(800, 1_000_000, 900_000).await;
    for length in [100, 300_000, 3_000_000] {
        assert_eq!(world.signed(length).await, 200, "{length}");
    }
    let grown = world.most_resident() - before;
    assert!(grown < MAX_GROWTH, "strangers took {grown} KiB");
    drop(open);
    world.server.terminate();
}

#[tokio::test(flavor = "multi_thread")]
async fn announced_bytes_that_do_not_come_hold_up_no_large_delivery() {
    let world = World::start(&[], &[]).await;
    let open = world.unfinished(8, 20 << 20, 1000).await;
    assert_eq!(world.signed(3_000_000).await, 200);
    assert_eq!(world.signed(5 << 20).await, 200);
    drop(open);
    // The same if the budget is used up by bodies that stopped.
    let open = world.unfinished(4, 20 << 20, 10 << 20).await;
    assert_eq!(world.signed(5 << 20).await, 200);
    drop(open);
    world.server.terminate();
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_without_headers_are_closed() {
    let world = World::start(&[], &[]).await;
    let mut open = JoinSet::new();
    let opened = Instant::now();
    for number in 0..3000 {
        // One after the other: the kernel's queue of unaccepted connections is limited.
        let mut stream = world.connect().await;
        open.spawn(async move {
            // Some send the beginning of a head, and continue it without end.
            if number % 10 == 0 {
                let _ = stream.write_all(b"POST /events HTTP/1.1\r\nx-a: ").await;
                while stream.write_all(b"a").await.is_ok() {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
            let _ = stream.read_to_end(&mut Vec::new()).await;
        });
    }
    assert_eq!(world.signed(100).await, 200);
    let all = timeout(LIMIT, async { while open.join_next().await.is_some() {} }).await;
    assert!(all.is_ok(), "{} connections are still open after {:?}", open.len(), opened.elapsed());
    assert_eq!(world.signed(100).await, 200);
    world.server.terminate();
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_leave_descriptors_for_plans_and_the_lease() {
    let world = World::start(&["prlimit", "--nofile=1024:1024"], &[]).await;
    let repo = world.forge.create_repo("acme/infra", &[("README.md", "")]).await.unwrap();
    let bodies = world.unfinished(400, 1_000_000, 1000).await;
    let mut silent = Vec::new();
    for _ in 0..700 {
        silent.push(world.connect().await);
    }
    let changes = [("a/main.tf", Some(CODE))];
    let pull = repo.open_pull("change", "alice", "Change", &changes, OpenOptions::default()).await.unwrap();
    let said = answer(&pull, 0).await;
    assert!(said.body.contains("1 to add"), "{}", said.body);
    let log = std::fs::read_to_string(&world.server.logs[0]).unwrap();
    assert!(!log.contains("Too many open files"), "{log}");
    let open = std::fs::read_dir(format!("/proc/{}/fd", world.server.pid())).unwrap().count();
    assert!(open < 700, "{open} descriptors are open");
    drop((bodies, silent));
    world.server.terminate();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_is_followed_stays_open_for_longer_than_a_head_may_take() {
    let world = World::start(&[], &["--allow-unauthenticated-pages"]).await;
    let repo = world.forge.create_repo("acme/infra", &[("README.md", "")]).await.unwrap();
    let gate = world.dir.path().join("gate");
    let wait = format!("[ \"$1\" != plan ] || while [ ! -e {} ]; do sleep 0.1; done", gate.display());
    let changes = [("a/main.tf", Some(CODE)), ("a/stub.sh", Some(wait.as_str()))];
    let pull = repo.open_pull("change", "alice", "Change", &changes, OpenOptions::default()).await.unwrap();
    let job = loop {
        let folder = std::fs::read_dir(world.dir.path().join("data/logs")).unwrap();
        let mut names = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        match names.find_map(|name| name.get(..32).map(str::to_owned)) {
            Some(job) => break job,
            None => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    let mut stream = world.connect().await;
    let request = format!("GET /jobs/{job}/stream HTTP/1.1\r\nhost: {}\r\n\r\n", world.address());
    stream.write_all(request.as_bytes()).await.unwrap();
    let began = Instant::now();
    let mut heard = String::new();
    // The heartbeat of a stream without lines comes after the time limit of a head.
    while !heard.contains("\n:") {
        let mut piece = vec![0; 4096];
        let read = timeout(LIMIT, stream.read(&mut piece)).await.unwrap().unwrap();
        assert!(read > 0, "closed after {:?}: {heard}", began.elapsed());
        heard.push_str(&String::from_utf8_lossy(&piece[..read]));
    }
    assert!(began.elapsed() > Duration::from_secs(10), "{heard}");
    std::fs::write(gate, "").unwrap();
    answer(&pull, 0).await;
    world.server.terminate();
}
