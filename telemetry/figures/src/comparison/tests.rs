use super::*;
use proptest::prelude::*;

/// Numbers that follow from a seed (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn uniform(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// A goodput: log-normal around `median`, as measured ones are, roughly.
    fn goodput(&mut self, median: f64, spread: f64) -> f64 {
        let normal =
            (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos();
        median * (spread * normal).exp()
    }

    fn goodputs(&mut self, count: usize, median: f64, spread: f64) -> Vec<f64> {
        (0..count).map(|_| self.goodput(median, spread)).collect()
    }
}

fn measurements(values: &[f64]) -> Measurements {
    let mut all = Measurements::default();
    values.iter().for_each(|value| all.add(*value));
    all
}

fn comparison(assisted: &[f64], holdout: &[f64]) -> Comparison {
    Comparison { assisted: measurements(assisted), holdout: measurements(holdout) }
}

fn interval(assisted: &[f64], holdout: &[f64]) -> Interval {
    comparison(assisted, holdout).benefit(Confidence::Usual).interval().unwrap()
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        (values[middle - 1] * values[middle]).sqrt()
    }
}

/// The plain bootstrap: the ratio of the medians of samples drawn with replacement, and the values that
/// 2.5 % of them are below and above.
fn bootstrap(numbers: &mut Numbers, assisted: &[f64], holdout: &[f64]) -> (f64, f64) {
    let mut again = |values: &[f64]| {
        let mut drawn: Vec<f64> = (0..values.len())
            .map(|_| values[(numbers.next() % values.len() as u64) as usize])
            .collect();
        median(&mut drawn)
    };
    let mut ratios: Vec<f64> = (0..1000).map(|_| again(assisted) / again(holdout)).collect();
    ratios.sort_unstable_by(f64::total_cmp);
    (ratios[24], ratios[975])
}

/// The width of a bucket, as a difference of logarithms.
fn bucket_width() -> f64 {
    std::f64::consts::LN_2 / median::BUCKETS_PER_DOUBLING
}

/// The median and its interval by the order of the values themselves.
fn exact_median(mut values: Vec<f64>) -> Interval {
    let estimate = median(&mut values);
    let rank = Confidence::Usual.rank(values.len() as u64).unwrap() as usize;
    Interval { lower: values[rank - 1], estimate, upper: values[values.len() - rank] }
}

/// Intervals without buckets are as wide as the bootstrap's, on average: each of the two methods
/// has errors of its own.
#[test]
fn intervals_are_as_wide_as_those_of_a_bootstrap() {
    for (count, spread) in [(30, 0.3), (100, 1.0), (200, 0.1)] {
        let mut numbers = Numbers(count as u64);
        let (draws, mut logarithms) = (20, 0.0);
        for _ in 0..draws {
            let assisted = numbers.goodputs(count, 8e6, spread);
            let holdout = numbers.goodputs(count * 2, 4e6, spread);
            let (lower, upper) = bootstrap(&mut numbers, &assisted, &holdout);
            let exact = ratio(exact_median(assisted), exact_median(holdout));
            logarithms += ((exact.upper / exact.lower).ln() / (upper / lower).ln()).ln();
        }
        let wider = (logarithms / f64::from(draws)).exp();
        assert!((0.9..1.25).contains(&wider), "{wider} times as wide, {count} values, {spread}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn buckets_move_the_interval_by_little(
        seed: u64, assisted in 30_usize..400, holdout in 30_usize..400,
        gain in 0.3_f64..20.0, spread in 0.02_f64..1.2,
    ) {
        let mut numbers = Numbers(seed);
        let assisted = numbers.goodputs(assisted, 5e6 * gain, spread);
        let holdout = numbers.goodputs(holdout, 5e6, spread);
        let ours = interval(&assisted, &holdout);
        let exact = ratio(exact_median(assisted), exact_median(holdout));
        // Each median moves by half a bucket at most, and each end by one and a half from its median.
        let most = (1.0 + 1.5 * 2_f64.sqrt()) * bucket_width() + 1e-9;
        for (ours, exact) in
            [(ours.lower, exact.lower), (ours.estimate, exact.estimate), (ours.upper, exact.upper)]
        {
            prop_assert!((ours / exact).ln().abs() <= most, "{ours} of {exact}");
        }
        prop_assert!(ours.lower < ours.estimate && ours.estimate < ours.upper);
    }

    #[test]
    fn gateways_put_together_are_one(
        values in proptest::collection::vec((1e3_f64..1e11, 0_usize..3), 1..200),
    ) {
        let mut parts = [(); 3].map(|()| Measurements::default());
        let mut all = Measurements::default();
        for (value, part) in &values {
            parts[*part].add(*value);
            all.add(*value);
        }
        let mut together = Measurements::default();
        // As they travel: bucket by bucket.
        parts.iter().for_each(|part| together.merge(&Measurements::from_buckets(part.buckets())));
        prop_assert_eq!(together, all);
    }
}

/// Checks that 95 of a hundred intervals contain the truth; bucket ends that lie outwards make it
/// more.
#[test]
fn the_truth_is_in_as_many_intervals_as_promised() {
    for (assisted, holdout, gain, spread) in
        [(30, 30, 1.0, 0.8), (600, 32, 1.0, 0.5), (200, 200, 2.5, 1.0), (1000, 50, 0.8, 0.3)]
    {
        let trials = 1000;
        let mut numbers = Numbers(7);
        let contained = (0..trials)
            .filter(|_| {
                let one = numbers.goodputs(assisted, 8e6 * gain, spread);
                let other = numbers.goodputs(holdout, 8e6, spread);
                let Interval { lower, upper, .. } = interval(&one, &other);
                lower <= gain && gain <= upper
            })
            .count();
        assert!(contained >= 940, "{contained} of {trials}: {assisted} {holdout} {gain} {spread}");
    }
}

#[test]
fn nothing_is_said_of_few_sessions_or_without_a_holdout() {
    let some = vec![5e6; 40];
    let of = |assisted: usize, holdout: usize| {
        comparison(&some[..assisted], &some[..holdout]).benefit(Confidence::Usual)
    };
    assert_eq!(of(40, 0), Benefit::NoHoldout);
    assert_eq!(of(40, 29), Benefit::NotEnough { assisted: 40, holdout: 29 });
    assert_eq!(of(29, 40).short(), "not enough sessions yet (29 and 40 of 30)");
    let equal = of(30, 30).interval().unwrap();
    assert!(equal.lower < 1.0 && equal.upper > 1.0 && (equal.estimate - 1.0).abs() < 1e-9);
}

#[test]
fn a_verdict_is_given_only_where_the_interval_allows_it() {
    let mut numbers = Numbers(1);
    let mut of = |gain: f64| {
        let assisted = numbers.goodputs(300, 4e6 * gain, 0.4);
        comparison(&assisted, &numbers.goodputs(60, 4e6, 0.4)).benefit(Confidence::Usual).short()
    };
    assert!(of(3.0).ends_with(", faster"), "{}", of(3.0));
    assert!(of(1.0).ends_with("no difference shown"), "{}", of(1.0));
    assert!(of(0.5).ends_with(", slower"), "{}", of(0.5));
}
