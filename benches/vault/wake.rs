//! Time from the start of a server's process to its 2xx on a delivery, as where no server runs while nothing happens. Its disk is empty, the
//! state has 200 planned pull requests, and nobody leads.

use crate::ack;
use crate::exit::{Planned, planned};
use crate::place;
use crate::report::Report;
use crate::server::Server;
use anyhow::{Context, Result};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// Starts that are measured.
const STARTS: usize = 11;
/// Limit of the median.
const BOUND: Duration = Duration::from_secs(1);
/// Time limit of one start.
const LIMIT: Duration = Duration::from_secs(20);

pub(crate) async fn measure(report: &mut Report) -> Result<()> {
    let (dir, double) = (tempfile::tempdir()?, place::double().await?);
    double.delay(Duration::from_millis(50), Duration::from_millis(50));
    let Planned { forge, repo, server, flags } = planned(dir.path(), &place::flags(&double)).await?;
    server.terminate().await?;
    let mut times = Vec::new();
    for start in 0..STARTS {
        let began = Instant::now();
        let server = Server::spawn(&forge, &dir.path().join(format!("data-{start}")), &flags, None)?;
        let request = ack::requests(&forge, &repo, &server.address, start + 1)?.pop().context("no request")?;
        let answered = async {
            let mut stream = loop {
                match TcpStream::connect(&server.address).await {
                    Ok(stream) => break stream,
                    Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
                }
            };
            stream.write_all(&request).await?;
            ack::read_answer(&mut stream).await
        };
        tokio::time::timeout(LIMIT, answered).await.context("no answer in time")??;
        times.push(began.elapsed());
        server.terminate().await?;
    }
    times.sort();
    let (median, longest) = (times[STARTS / 2], times[STARTS - 1]);
    let what = format!(
        "from the start of a process to 2xx, 50 ms a request to the bucket: {median:.3?}, at most {longest:.3?} ({BOUND:?})"
    );
    report.bound(median < BOUND, &what)
}
