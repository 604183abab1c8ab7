//! Reads what a job sends while it runs: its log and its signs of life. A hostile job can send any number of both.

use super::{FollowProgress, Followed, FollowedLine, JobFollower, PAUSES};
use crate::vault::VaultError;
use bytes::Bytes;
use futures::stream::{self, StreamExt as _};
use std::time::Duration;
use tokio::time::Instant;

/// Most pieces of a log that are read at the same time.
const PIECES_AT_ONCE: u32 = 16;
/// Size of a log after which no more of it is read, in bytes: the limit of a kept log.
const MAX_LOG: u64 = 8 << 20;
/// A job writes a sign of life every 30 s. Without one for this long, and without an engine that knows of it, it is dead.
pub(super) const SILENCE: Duration = Duration::from_secs(120);
/// Pause between two looks for signs of life, and the most signs of one look.
const BETWEEN_SIGNS: Duration = Duration::from_secs(5);
const MAX_SIGNS: u32 = 20;

impl JobFollower<'_> {
    /// Reads at most so many pieces of the log. One that cannot be used is passed over.
    pub(super) async fn read_log(&self, progress: &mut FollowProgress, most: u32) -> Result<(), VaultError> {
        // Most looks find one new piece or none, so the number grows only while all are there.
        let (mut left, mut at_once) = (most, 1);
        while left > 0 && progress.log_bytes <= MAX_LOG {
            let count = at_once.min(left);
            let numbers = progress.piece..progress.piece.saturating_add(count);
            let mut pieces =
                stream::iter(numbers).map(|number| self.objects.log(number)).buffered(PIECES_AT_ONCE as usize);
            while let Some(piece) = pieces.next().await {
                let piece = match piece {
                    Ok(Some(piece)) => piece,
                    Ok(None) => return Ok(()),
                    Err(VaultError::Damaged(_)) => {
                        Bytes::from_static(b"[tidelock: a piece of this log cannot be read]")
                    }
                    Err(error) => return Err(error),
                };
                progress.piece = progress.piece.saturating_add(1);
                progress.log_bytes = progress.log_bytes.saturating_add(piece.len() as u64);
                (progress.alive, progress.pause) = (Instant::now(), PAUSES.0);
                String::from_utf8_lossy(&piece).lines().for_each(|line| (self.log)(FollowedLine::Sent(line)));
            }
            (left, at_once) = (left - count, (2 * at_once).min(PIECES_AT_ONCE));
        }
        Ok(())
    }

    /// Looks for new signs of life. Gives the job up after a long time without any.
    pub(super) async fn look_for_life(
        &self,
        progress: &mut FollowProgress,
        doubt: Option<&str>,
    ) -> Result<Option<Followed>, VaultError> {
        if progress.looked.elapsed() < BETWEEN_SIGNS {
            return Ok(None);
        }
        progress.looked = Instant::now();
        for _ in 0..MAX_SIGNS {
            if !self.objects.is_alive(progress.sign).await? {
                break;
            }
            progress.sign = progress.sign.saturating_add(1);
            progress.alive = Instant::now();
        }
        if progress.alive.elapsed() < SILENCE {
            return Ok(None);
        }
        let silence = format!("it has given no sign of life for {} s", SILENCE.as_secs());
        let why = doubt.map_or_else(|| silence.clone(), |doubt| format!("{doubt}; {silence}"));
        self.give_up(progress, why).await.map(Some)
    }
}
