//! Rate limits for hosts that ask for restraint: about 80 posts a minute and 500 an hour on GitHub, 60 comments a minute on GitLab.com.
//!
//! Token buckets, one for the minute and one for the hour where it has a limit; each post takes a token of all. They hold a burst, so
//! that nothing waits on an ordinary day. When they run low, each rank leaves a reserve to the more urgent ones:
//! comments use the last token, final statuses leave some, pending statuses and reactions leave half. A repository with
//! most of the last posts leaves more, so that others find tokens. Pure except for the clock.

use crate::domain::RepoId;
use crate::domain::state::{Effect, StatusState};
use crate::vcs::PostLimit;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::Instant;

/// Posts a minute with a limit of 500 an hour; in proportion for other limits.
const A_MINUTE_OF_500: f64 = 80.0;
/// Share of a minute's posts that may be sent at once; the rest is spread over the minute.
const MINUTE_BURST: f64 = 0.75;
/// Share of an hour's posts that may be sent as fast as the minute's limit allows; the rest is spread over the hour.
const HOUR_BURST: f64 = 0.4;
/// Smallest capacity of a bucket: below it no post with a reserve would ever be sent.
const LEAST: f64 = 8.0;
/// Number of recent posts of which a repository's share is computed, ...
const LAST: usize = 40;
/// ... and their maximum age.
const LAST_TIME: Duration = Duration::from_secs(300);
/// A repository with fewer posts than this is not limited.
const BURST: usize = 10;

/// Urgency of a post.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// A comment: people wait for it.
    Comment,
    /// A final status, or a change of an issue.
    Final,
    /// A pending status or a reaction.
    Passing,
}

impl Rank {
    pub(super) fn of(effect: &Effect) -> Rank {
        match effect {
            Effect::Comment { .. } => Rank::Comment,
            Effect::Status { status, .. } if status.state == StatusState::Pending => Rank::Passing,
            Effect::Status { .. } | Effect::Issue { .. } | Effect::Merge { .. } => Rank::Final,
            Effect::React { .. } | Effect::Hide { .. } => Rank::Passing,
        }
    }

    /// Returns the share of a bucket that is reserved for more urgent posts.
    fn reserve(self) -> f64 {
        match self {
            Rank::Comment => 0.0,
            Rank::Final => 0.1,
            Rank::Passing => 0.5,
        }
    }

    /// The same for a repository with most of the last posts.
    fn reserve_of_greedy(self) -> f64 {
        match self {
            Rank::Comment => 0.05,
            Rank::Final => 0.25,
            Rank::Passing => 0.6,
        }
    }
}

/// Rate limiter of one host.
pub(super) struct Pacer {
    minute: TokenBucket,
    /// Absent without a limit of the hour.
    hour: Option<TokenBucket>,
    /// True if comments are all that is limited.
    of_comments: bool,
    /// Times and repositories of the last posts.
    last: VecDeque<(Instant, RepoId)>,
}

impl Pacer {
    /// Creates a limiter.
    pub(super) fn new(limit: PostLimit, now: Instant) -> Pacer {
        let bucket =
            |most: f64, burst: f64, seconds: f64| TokenBucket::new(most * burst, most * (1.0 - burst) / seconds, now);
        let (per_minute, per_hour) = match limit {
            PostLimit::PostsPerHour(most) => (f64::from(most) * A_MINUTE_OF_500 / 500.0, Some(f64::from(most))),
            PostLimit::CommentsPerMinute(most) => (f64::from(most), None),
        };
        Pacer {
            minute: bucket(per_minute, MINUTE_BURST, 60.0),
            hour: per_hour.map(|most| bucket(most, HOUR_BURST, 3600.0)),
            of_comments: matches!(limit, PostLimit::CommentsPerMinute(_)),
            last: VecDeque::new(),
        }
    }

    /// Takes the tokens of one post; the error is the time of the next attempt.
    pub(super) fn take(&mut self, rank: Rank, repo: &RepoId, now: Instant) -> Result<(), Instant> {
        if self.of_comments && rank != Rank::Comment {
            return Ok(());
        }
        while self.last.front().is_some_and(|(at, _)| now.duration_since(*at) > LAST_TIME) {
            self.last.pop_front();
        }
        let own = self.last.iter().filter(|(_, of)| of == repo).count();
        let is_greedy = own >= BURST && own * 2 > self.last.len();
        let reserve = if is_greedy { rank.reserve_of_greedy() } else { rank.reserve() };
        let of_hour = self.hour.as_mut().map_or(Duration::ZERO, |hour| hour.wait(reserve, now));
        let wait = self.minute.wait(reserve, now).max(of_hour);
        if !wait.is_zero() {
            return Err(now + wait);
        }
        self.minute.tokens -= 1.0;
        if let Some(hour) = &mut self.hour {
            hour.tokens -= 1.0;
        }
        if self.last.len() == LAST {
            self.last.pop_front();
        }
        self.last.push_back((now, repo.clone()));
        Ok(())
    }

    /// Empties the bucket of the minute after the host rejected a post because of its rate limit.
    pub(super) fn empty(&mut self, now: Instant) {
        self.minute.refill(now);
        self.minute.tokens = 0.0;
    }
}

struct TokenBucket {
    capacity: f64,
    per_second: f64,
    tokens: f64,
    at: Instant,
}

impl TokenBucket {
    fn new(capacity: f64, per_second: f64, now: Instant) -> TokenBucket {
        let capacity = capacity.max(LEAST);
        TokenBucket { capacity, per_second, tokens: capacity, at: now }
    }

    fn refill(&mut self, now: Instant) {
        let grown = now.saturating_duration_since(self.at).as_secs_f64() * self.per_second;
        (self.tokens, self.at) = ((self.tokens + grown).min(self.capacity), now);
    }

    /// Returns the time until there is a token beyond the reserve.
    fn wait(&mut self, reserve: f64, now: Instant) -> Duration {
        self.refill(now);
        let missing = self.capacity * reserve + 1.0 - self.tokens;
        // Slightly longer, so that rounding leaves no fraction of a token missing.
        if missing <= 0.0 { Duration::ZERO } else { Duration::from_secs_f64(missing / self.per_second + 0.001) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repo(name: &str) -> RepoId {
        RepoId { host: "github.com".into(), owner: "acme".into(), name: name.into() }
    }

    /// Posts all of these as soon as they may be, those that wait the longest first; returns the time of each post.
    fn play(pacer: &mut Pacer, posts: &[(Rank, &str)], start: Instant) -> Vec<(Duration, Rank, String)> {
        let mut waiting: Vec<(Instant, Rank, String)> =
            posts.iter().map(|(rank, name)| (start, *rank, (*name).to_owned())).collect();
        let mut posted = Vec::new();
        while !waiting.is_empty() {
            waiting.sort_by_key(|(at, ..)| *at);
            let (now, rank, name) = waiting.remove(0);
            match pacer.take(rank, &repo(&name), now) {
                Ok(()) => posted.push((now.duration_since(start), rank, name)),
                Err(until) => waiting.push((until, rank, name)),
            }
        }
        posted
    }

    fn most_within(posted: &[(Duration, Rank, String)], window: Duration) -> usize {
        let from = |begin: &Duration| posted.iter().filter(|(at, ..)| *at >= *begin && *at - *begin < window).count();
        posted.iter().map(|(at, ..)| from(at)).max().unwrap_or_default()
    }

    #[test]
    fn nobody_waits_on_an_ordinary_day() {
        let now = Instant::now();
        let mut pacer = Pacer::new(PostLimit::PostsPerHour(500), now);
        // Two plans of eighteen projects, each with its reaction, its pending status and its comment.
        let plan = |repo| {
            [vec![(Rank::Passing, repo); 2], vec![(Rank::Comment, repo)], vec![(Rank::Final, repo); 19]].concat()
        };
        let posts = [plan("infra"), plan("network")].concat();
        assert!(play(&mut pacer, &posts, now).iter().all(|(at, ..)| at.is_zero()));
    }

    #[test]
    fn a_large_burst_keeps_the_limits_of_minute_and_hour() {
        let now = Instant::now();
        let mut pacer = Pacer::new(PostLimit::PostsPerHour(500), now);
        let posted = play(&mut pacer, &[(Rank::Final, "infra"); 1200], now);
        assert_eq!(posted.len(), 1200);
        let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3600));
        assert!((60..=80).contains(&most_within(&posted, minute)), "{}", most_within(&posted, minute));
        assert!((400..=500).contains(&most_within(&posted, hour)), "{}", most_within(&posted, hour));
    }

    #[test]
    fn comments_come_before_statuses_and_those_before_what_passes() {
        let now = Instant::now();
        let mut pacer = Pacer::new(PostLimit::PostsPerHour(500), now);
        let mut posts = vec![(Rank::Passing, "infra"); 60];
        posts.extend([(Rank::Final, "infra"); 60]);
        posts.extend([(Rank::Comment, "infra"); 5]);
        let posted = play(&mut pacer, &posts, now);
        let last = |rank| posted.iter().filter(|(_, of, _)| *of == rank).map(|(at, ..)| *at).max().unwrap();
        assert!(last(Rank::Comment) < Duration::from_secs(5), "{:?}", last(Rank::Comment));
        assert!(last(Rank::Comment) < last(Rank::Final) && last(Rank::Final) < last(Rank::Passing));
    }

    #[test]
    fn one_repositorys_burst_leaves_room_for_others() {
        let now = Instant::now();
        let mut pacer = Pacer::new(PostLimit::PostsPerHour(500), now);
        let mut posts = vec![(Rank::Final, "large"); 400];
        posts.extend([(Rank::Final, "small"), (Rank::Comment, "small"), (Rank::Final, "small")]);
        let posted = play(&mut pacer, &posts, now);
        let small = posted.iter().filter(|(.., name)| name == "small").map(|(at, ..)| *at).max().unwrap();
        assert!(small < Duration::from_secs(1), "{small:?}");
        let large = posted.iter().map(|(at, ..)| *at).max().unwrap();
        assert!(large > Duration::from_secs(300), "{large:?}");
    }

    #[test]
    fn a_limit_of_comments_keeps_its_minute_and_delays_nothing_else() {
        let now = Instant::now();
        let mut pacer = Pacer::new(PostLimit::CommentsPerMinute(60), now);
        let posts = [vec![(Rank::Comment, "infra"); 200], vec![(Rank::Final, "infra"); 200]].concat();
        let posted = play(&mut pacer, &posts, now);
        let (comments, others): (Vec<_>, Vec<_>) = posted.into_iter().partition(|(_, rank, _)| *rank == Rank::Comment);
        let most = most_within(&comments, Duration::from_secs(60));
        assert!((40..=60).contains(&most), "{most}");
        assert!(others.len() == 200 && others.iter().all(|(at, ..)| at.is_zero()));
    }

    #[test]
    fn after_a_refusal_the_burst_is_over() {
        let now = Instant::now();
        let mut pacer = Pacer::new(PostLimit::PostsPerHour(500), now);
        pacer.empty(now);
        let until = pacer.take(Rank::Comment, &repo("infra"), now).unwrap_err();
        assert!((2..5).contains(&until.duration_since(now).as_secs()), "{:?}", until - now);
        assert!(pacer.take(Rank::Comment, &repo("infra"), until).is_ok());
    }
}
