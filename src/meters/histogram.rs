//! A histogram with fixed buckets.

use std::time::Duration;

/// Durations, counted by buckets with these upper bounds.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    bounds: &'static [f64],
    /// Observations of each bucket; the last one has no upper bound.
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    /// Creates one without observations. The bounds are in seconds and grow.
    pub fn new(bounds: &'static [f64]) -> Histogram {
        Histogram { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    /// Adds an observation.
    pub fn observe(&mut self, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = self.bounds.partition_point(|bound| *bound < seconds);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
        }
        self.sum += seconds;
    }

    /// Returns the number of observations up to each bound, and up to infinity.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        bounds.zip(self.counts.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        }))
    }

    /// Returns the number of observations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of all observations, in seconds.
    pub fn sum(&self) -> f64 {
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_includes_its_bound_and_all_smaller_ones() {
        let mut histogram = Histogram::new(&[0.5, 1.0]);
        for millis in [500, 501, 1000, 1001] {
            histogram.observe(Duration::from_millis(millis));
        }
        assert_eq!(histogram.buckets().collect::<Vec<_>>(), [(0.5, 1), (1.0, 3), (f64::INFINITY, 4)]);
        assert_eq!((histogram.count(), histogram.sum()), (4, 3.002));
    }
}
