//! Costs of a server so far, from outside: its own CPU time, memory, and requests and bytes of its bucket.

use crate::server::Server;
use anyhow::{Context, Result};
use std::time::Duration;

/// Milliseconds of a tick in `/proc`: `USER_HZ` is 100 on every Linux.
const TICK: u64 = 10;

/// Costs since the server's start, except for the memory.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Costs {
    /// CPU time of the server's own threads, without its children.
    pub(crate) cpu: Duration,
    /// Requests to the bucket.
    pub(crate) requests: f64,
    /// Bytes of journal objects and of bases.
    pub(crate) bytes: f64,
    /// Bytes of bases alone.
    pub(crate) base_bytes: f64,
}

impl Costs {
    /// Reads the present costs.
    pub(crate) async fn of(server: &Server) -> Result<Costs> {
        let metrics = server.get("/metrics").await?;
        let sum = |name: &str| -> f64 {
            let lines = metrics.lines().filter(|line| line.starts_with(name));
            lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
        };
        Ok(Costs {
            cpu: cpu(server.pid())?.own,
            requests: sum("tidelock_bucket_requests_total"),
            bytes: sum("tidelock_commit_bytes_total") + sum("tidelock_base_bytes_total"),
            base_bytes: sum("tidelock_base_bytes_total"),
        })
    }

    /// Returns the costs since an earlier moment, per unit.
    pub(crate) fn since(self, earlier: Costs, units: usize) -> PerUnit {
        let units = units as f64;
        PerUnit {
            cpu: self.cpu.saturating_sub(earlier.cpu).as_secs_f64() * 1000.0 / units,
            requests: (self.requests - earlier.requests) / units,
            bytes: (self.bytes - earlier.bytes) / 1000.0 / units,
        }
    }
}

/// CPU time of a process so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CpuTime {
    /// Of its own threads.
    pub(crate) own: Duration,
    /// Of its children that have ended, and of theirs.
    pub(crate) of_children: Duration,
}

/// Returns the CPU time of a process.
pub(crate) fn cpu(pid: u32) -> Result<CpuTime> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name may have spaces and stands in parentheses; fields 14 to 17 of proc(5) are user and system times.
    let (_, fields) = stat.rsplit_once(')').context("no name in stat")?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let field = |number: usize| -> Result<u64> { Ok(fields.get(number).context("a short stat")?.parse()?) };
    let time = |first| -> Result<Duration> { Ok(Duration::from_millis((field(first)? + field(first + 1)?) * TICK)) };
    Ok(CpuTime { own: time(11)?, of_children: time(13)? })
}

/// Cost of one pull request, project or event: milliseconds, requests, kilobytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PerUnit {
    pub(crate) cpu: f64,
    pub(crate) requests: f64,
    pub(crate) bytes: f64,
}

/// Returns the resident memory of a server, in megabytes (10^6).
pub(crate) fn resident(server: &Server) -> Result<f64> {
    memory(server, "VmRSS:")
}

/// Returns the peak of its resident memory, in megabytes (10^6).
pub(crate) fn peak(server: &Server) -> Result<f64> {
    memory(server, "VmHWM:")
}

fn memory(server: &Server, field: &str) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid()))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)).context("no such field in status")?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib * 1024.0 / 1e6)
}
