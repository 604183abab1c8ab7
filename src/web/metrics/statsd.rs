//! Sends the metrics of `/metrics` to a statsd over UDP, every few seconds. Nothing waits for it, and unsent metrics are lost.
//!
//! ```text
//! tidelock.commits_total:3|c
//! tidelock.deliveries_total.inbox:1|c
//! tidelock.lease_age_seconds:1.5|g
//! ```

use super::collect;
use super::families::{MetricFamily, MetricKind, MetricSample, MetricValue};
use crate::web::WebState;
use anyhow::{Context as _, Result};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{UdpSocket, lookup_host};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

/// Interval between two rounds.
const EVERY: Duration = Duration::from_secs(10);
/// Time limit of one round, which resolves the host name each time.
const ROUND: Duration = Duration::from_secs(5);
/// Largest datagram in bytes: it fits into one Ethernet frame.
const DATAGRAM: usize = 1432;

/// Sends until it is told to stop, and then once more.
pub(crate) async fn send(state: Arc<WebState>, host: String, port: u16, stop: CancellationToken) {
    let (mut counted, mut works) = (HashMap::new(), true);
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let stops = tokio::select! {
            () = stop.cancelled() => true,
            _ = ticks.tick() => false,
        };
        let lines = lines(&collect(&state).await, &state.metrics.namespace, &mut counted);
        let sent = timeout(ROUND, datagrams(&host, port, &lines)).await;
        let sent = sent.unwrap_or_else(|_| Err(anyhow::anyhow!("it took longer than {ROUND:?}")));
        if let (Err(error), true) = (&sent, works) {
            tracing::warn!(host, port, error = format!("{error:#}"), "figures are not sent to statsd; it is tried on");
        }
        works = sent.is_ok();
        if stops {
            return;
        }
    }
}

async fn datagrams(host: &str, port: u16, lines: &[String]) -> Result<()> {
    let address = lookup_host((host, port)).await?.next().context("the name has no address")?;
    let own = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(own).await?;
    socket.connect(address).await?;
    for datagram in packed(lines) {
        // An error shows at best that nobody received the previous datagram.
        socket.send(datagram.as_bytes()).await?;
    }
    Ok(())
}

/// Packs as many lines into each datagram as fit.
fn packed(lines: &[String]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for line in lines {
        match all.last_mut().filter(|last| last.len() + 1 + line.len() <= DATAGRAM) {
            Some(last) => {
                last.push('\n');
                last.push_str(line);
            }
            None => all.push(line.clone()),
        }
    }
    all
}

/// Returns one line for each metric that is a number; for a counter its increase since the last round, if any.
fn lines(families: &[MetricFamily], namespace: &str, counted: &mut HashMap<String, f64>) -> Vec<String> {
    // Words that differ only in characters that the format lacks are one name.
    let (mut lines, mut sums) = (Vec::new(), BTreeMap::new());
    for family in families {
        for MetricSample { labels, value } in &family.samples {
            let MetricValue::Number(value) = value else { continue };
            let end: String = labels.iter().map(|(_, word)| format!(".{}", plain(word))).collect();
            let name = format!("{namespace}.{}{end}", family.name);
            match family.kind {
                MetricKind::Gauge => lines.push(format!("{name}:{value}|g")),
                MetricKind::Histogram | MetricKind::Summary => {}
                MetricKind::Counter => *sums.entry(name).or_insert(0.0) += value,
            }
        }
    }
    for (name, value) in sums {
        let before = counted.insert(name.clone(), value).unwrap_or_default();
        // A counter of a leader restarts with each lead.
        let more = if value < before { value } else { value - before };
        if more > 0.0 {
            lines.push(format!("{name}:{more}|c"));
        }
    }
    lines.sort();
    lines
}

/// Returns a label's word as a part of a name: the format has no escapes.
fn plain(word: &str) -> String {
    word.replace(|character: char| !(character.is_ascii_alphanumeric() || "_-".contains(character)), "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family(name: &'static str, kind: MetricKind, samples: &[(Option<&'static str>, f64)]) -> MetricFamily {
        let labels = |word: Option<&str>| word.map(|word| ("end", word.to_owned())).into_iter().collect();
        let samples = samples.iter().map(|(word, value)| MetricSample::number(labels(*word), *value)).collect();
        MetricFamily { name: name.into(), kind, help: "", samples }
    }

    #[test]
    fn counters_tell_what_came_and_gauges_what_is() {
        let round = |commits: f64, age: f64| {
            let inbox = family("deliveries_total", MetricKind::Counter, &[(Some("inbox"), 2.0), (Some("failed"), 0.0)]);
            let commits = family("commits_total", MetricKind::Counter, &[(None, commits)]);
            [commits, inbox, family("lease_age_seconds", MetricKind::Gauge, &[(None, age)])]
        };
        let mut counted = HashMap::new();
        let mut told = |commits, age| lines(&round(commits, age), "acme.infra", &mut counted);
        let first = [
            "acme.infra.commits_total:3|c",
            "acme.infra.deliveries_total.inbox:2|c",
            "acme.infra.lease_age_seconds:1.5|g",
        ];
        assert_eq!(told(3.0, 1.5), first);
        assert_eq!(told(5.0, 0.0), ["acme.infra.commits_total:2|c", "acme.infra.lease_age_seconds:0|g"]);
        assert_eq!(told(1.0, 0.0), ["acme.infra.commits_total:1|c", "acme.infra.lease_age_seconds:0|g"]);
    }

    #[test]
    fn words_that_differ_in_characters_that_the_format_lacks_are_counted_together() {
        let jobs = [family("jobs_total", MetricKind::Counter, &[(Some("a/b"), 10.0), (Some("a_b"), 3.0)])];
        let mut counted = HashMap::new();
        assert_eq!(lines(&jobs, "tidelock", &mut counted), ["tidelock.jobs_total.a_b:13|c"]);
        assert!(lines(&jobs, "tidelock", &mut counted).is_empty(), "nothing has ended since");
    }

    #[test]
    fn datagrams_are_full_and_never_too_long() {
        let lines: Vec<String> = (0..100).map(|number| format!("name.of.a.figure.{number:04}:1|c")).collect();
        let packed = packed(&lines);
        assert!(packed.len() == 2 && packed.iter().all(|packet| packet.len() <= DATAGRAM), "{packed:?}");
        assert_eq!(packed.join("\n"), lines.join("\n"));
    }
}
