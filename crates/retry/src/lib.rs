//! The delays between attempts of an operation that failed and may succeed: one policy for all packages. Callers choose the durations
//! and the number of attempts.

use backon::ExponentialBuilder;
use std::time::Duration;

/// Returns endless waits that begin with `first` and double up to `longest`. They are the same each time, so that a simulation can be
/// repeated.
pub const fn doubling(first: Duration, longest: Duration) -> ExponentialBuilder {
    ExponentialBuilder::new().with_factor(2.0).with_min_delay(first).with_max_delay(longest).without_max_times()
}

/// Returns the waits of [`doubling`] with jitter: each is longer by a random part, up to twice as long. So callers that failed together do
/// not retry together.
pub const fn jittered(first: Duration, longest: Duration) -> ExponentialBuilder {
    doubling(first, longest).with_jitter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use backon::BackoffBuilder;

    #[test]
    fn waits_double_up_to_the_longest_and_jitter_lengthens_them() {
        let (first, longest) = (Duration::from_millis(50), Duration::from_millis(300));
        let waits: Vec<_> = doubling(first, longest).build().take(5).map(|wait| wait.as_millis()).collect();
        assert_eq!(waits, [50, 100, 200, 300, 300]);
        for (jittered, wait) in jittered(first, longest).build().zip(doubling(first, longest).build()).take(50) {
            assert!(jittered >= wait && jittered <= wait * 2, "{jittered:?} for {wait:?}");
        }
    }
}
