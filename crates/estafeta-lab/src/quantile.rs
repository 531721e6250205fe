//! Quantiles of measured values.

/// Returns the smallest value that this share of the sorted values does not exceed.
pub fn quantile<T: Copy>(sorted: &[T], share: f64) -> Option<T> {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_one_of_the_measured_values() {
        let hundred: Vec<u64> = (1..=100).collect();
        assert_eq!([0.5, 0.99, 1.0].map(|share| quantile(&hundred, share)), [Some(50), Some(99), Some(100)]);
        assert_eq!(quantile(&[7], 0.5), Some(7));
        assert_eq!(quantile::<u64>(&[], 0.5), None);
    }
}
