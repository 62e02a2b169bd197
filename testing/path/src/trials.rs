//! Trials over an emulated path.

/// Trials after which a figure is not judged: the machine has other things to do.
const MOST_TRIALS: u32 = 5;

/// Trials that are repeated until the path of one was on time: a late path means that the machine
/// was busy, and its figures do not count.
///
/// Each trial asserts the conditions that hold on any machine.
///
/// ```text
/// let mut trials = Trials::of("losses that are hidden");
/// while trials.go_on() {
///     let path = LossyPath::start(…);
///     assert!(… the file is right …);
///     if trials.may_judge(path.is_on_time()) {
///         assert!(… losses that are hidden …);
///     }
/// }
/// ```
#[derive(Debug)]
pub struct Trials {
    figure: &'static str,
    begun: u32,
    is_over: bool,
}

impl Trials {
    /// Trials for this figure.
    pub fn of(figure: &'static str) -> Self {
        Self { figure, begun: 0, is_over: false }
    }

    /// True if another trial is to begin. After the last one, a line reports that the figure was
    /// not judged.
    pub fn go_on(&mut self) -> bool {
        if self.begun == MOST_TRIALS && !self.is_over {
            let Self { figure, .. } = self;
            println!("SKIPPED: {figure}: the machine is too busy for an emulated path on time");
            self.is_over = true;
        }
        self.begun += u32::from(!self.is_over);
        !self.is_over
    }

    /// Ends the trials if the path of this one was on time; returns whether it was.
    pub fn may_judge(&mut self, is_on_time: bool) -> bool {
        self.is_over = is_on_time;
        is_on_time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_trial_on_time_is_the_last_one() {
        let mut trials = Trials::of("a figure");
        let mut judged = Vec::new();
        for is_on_time in [false, false, true, true] {
            if trials.go_on() {
                judged.push(trials.may_judge(is_on_time));
            }
        }
        assert_eq!(judged, [false, false, true]);
    }

    #[test]
    fn a_machine_that_is_always_busy_judges_nothing() {
        let mut trials = Trials::of("a figure");
        let mut count = 0;
        while trials.go_on() {
            assert!(!trials.may_judge(false));
            count += 1;
        }
        assert_eq!(count, MOST_TRIALS);
    }
}
