//! Log of a job: lines become pieces, which are objects of the job.

use super::until_stored;
use crate::vault::jobs::JobObjects;
use bytes::Bytes;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Longest time from the first line of a piece to its request.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// The same time for the first piece. It doubles with each piece up to [`LONGEST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_millis(200);
/// Largest piece, in bytes. A longer line is a piece of its own.
const PIECE: usize = 256 << 10;
/// Largest log, in bytes; the rest is dropped.
const LOG_LIMIT: usize = 8 << 20;
/// Last line of a log that was too long.
const LIMIT_NOTICE: &str = "[tidelock: this log reached its limit of 8 MiB; the rest is not kept]";

/// Log of a running job. One task sends it; all others add lines.
#[derive(Default)]
pub(super) struct JobLog {
    lines: Mutex<WaitingLines>,
    /// Notifies the sender of new lines and of the end.
    changed: Notify,
}

/// Lines that are not sent yet.
#[derive(Default)]
struct WaitingLines {
    text: String,
    /// Time of the first of them.
    since: Option<Instant>,
    /// Number of the next piece.
    next: u32,
    /// Bytes of all lines so far.
    total: usize,
    /// True if they are sent at once, because few or no lines will follow.
    is_urgent: bool,
    /// True if no more lines are added.
    ended: bool,
}

/// One piece.
#[derive(Debug, PartialEq)]
struct LogPiece {
    number: u32,
    text: String,
}

impl JobLog {
    /// Adds a line, in which secrets are masked.
    pub(super) fn line(&self, line: &str) {
        self.lines().push(line, Instant::now());
        self.changed.notify_one();
    }

    /// Lets the sender send all lines at once from now on.
    pub(super) fn hurry(&self) {
        self.lines().is_urgent = true;
        self.changed.notify_one();
    }

    /// Ends the log: the sender sends the rest at once, and ends.
    pub(super) fn end(&self) {
        self.lines().ended = true;
        self.changed.notify_one();
    }

    /// Sends pieces, one after another, until the log has ended. While the bucket does not answer, lines wait.
    pub(super) async fn send(&self, objects: &JobObjects) {
        while let Some(LogPiece { number, text }) = self.next_piece().await {
            let text = Bytes::from(text);
            if let Err(error) = until_stored(|| objects.put_log(number, text.clone())).await {
                tracing::error!("the log of the job cannot be stored: {error}");
                return;
            }
        }
    }

    /// Waits for the next piece; absent if the log has ended.
    async fn next_piece(&self) -> Option<LogPiece> {
        loop {
            let due = {
                let mut lines = self.lines();
                if let Some(piece) = lines.take(Instant::now()) {
                    return Some(piece);
                }
                if lines.ended {
                    return None;
                }
                lines.due()
            };
            match due {
                None => self.changed.notified().await,
                Some(due) => tokio::select! {
                    () = self.changed.notified() => {}
                    () = sleep_until(due) => {}
                },
            }
        }
    }

    fn lines(&self) -> MutexGuard<'_, WaitingLines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WaitingLines {
    fn push(&mut self, line: &str, now: Instant) {
        if self.total > LOG_LIMIT || self.ended {
            return;
        }
        self.total += line.len() + 1;
        self.text.push_str(if self.total > LOG_LIMIT { LIMIT_NOTICE } else { line });
        self.text.push('\n');
        self.since.get_or_insert(now);
    }

    /// Returns the time at which the next piece is to be sent; absent if there are no lines.
    fn due(&self) -> Option<Instant> {
        let wait = FIRST_WAIT.saturating_mul(1 << self.next.min(8)).min(LONGEST_WAIT);
        self.since.map(|since| since + wait)
    }

    /// Takes the next piece, if it is due, full, or the last one.
    fn take(&mut self, now: Instant) -> Option<LogPiece> {
        let is_due = self.ended || self.is_urgent || self.text.len() >= PIECE || self.due()? <= now;
        if self.text.is_empty() || !is_due {
            return None;
        }
        let first = self.text.find('\n').map_or(self.text.len(), |end| end + 1);
        let head = self.text.as_bytes().get(..PIECE).unwrap_or(self.text.as_bytes());
        let end = head.iter().rposition(|byte| *byte == b'\n').map_or(first, |end| end + 1);
        let rest = self.text.split_off(end);
        let text = std::mem::replace(&mut self.text, rest);
        // What is left came after these lines, at an unknown time.
        self.since = (!self.text.is_empty()).then_some(self.since).flatten();
        let number = self.next;
        self.next += 1;
        Some(LogPiece { number, text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn first_lines_are_sent_soon_and_later_ones_within_two_seconds() {
        let (start, mut lines) = (Instant::now(), WaitingLines::default());
        assert_eq!((lines.take(start), lines.due()), (None, None));
        let (mut now, mut waits) = (start, Vec::new());
        for number in 0..6 {
            lines.push("one", now);
            lines.push("two", now + 150 * MS);
            let due = lines.due().unwrap();
            assert_eq!(lines.take(due - MS), None);
            let text = "one\ntwo\n".to_owned();
            assert_eq!(lines.take(due), Some(LogPiece { number, text }));
            waits.push((due - now).as_millis());
            now = due;
        }
        assert_eq!(waits, [200, 400, 800, 1600, 2000, 2000]);
        assert_eq!((lines.take(now + LONGEST_WAIT), lines.due()), (None, None));
    }

    #[test]
    fn pieces_are_full_lines_of_at_most_256_kib() {
        let (now, mut lines) = (Instant::now(), WaitingLines::default());
        let line = "x".repeat(100_000);
        for _ in 0..3 {
            lines.push(&line, now);
        }
        let piece = lines.take(now).unwrap();
        assert_eq!(piece.text, format!("{line}\n{line}\n"));
        assert_eq!(lines.take(now), None, "the rest is not due yet");
        lines.push(&"y".repeat(PIECE + 5), now);
        assert_eq!(lines.take(now).unwrap().text, format!("{line}\n"));
        assert_eq!(lines.take(now).unwrap().text.len(), PIECE + 6, "a longer line is not cut");
        lines.push("last", now);
        lines.ended = true;
        assert_eq!(lines.take(now), Some(LogPiece { number: 3, text: "last\n".into() }));
        assert_eq!(lines.take(now), None);
    }

    #[test]
    fn a_log_ends_at_its_limit_with_one_notice() {
        let (now, mut lines) = (Instant::now(), WaitingLines::default());
        let line = "x".repeat((1 << 20) - 1);
        for _ in 0..20 {
            lines.push(&line, now);
        }
        let mut text = String::new();
        lines.ended = true;
        while let Some(piece) = lines.take(now) {
            text.push_str(&piece.text);
        }
        assert_eq!(text.lines().filter(|kept| *kept == line).count(), 8);
        assert_eq!(text.lines().last(), Some(LIMIT_NOTICE));
        assert_eq!(text.lines().count(), 9);
    }
}
