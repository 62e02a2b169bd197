//! The response of senders to loss: the rate of a flow when every loss reaches its sender.

/// A sender's congestion control, by its response to loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    /// Halves its window: NewReno (RFC 9002).
    Reno,
    /// Follows RFC 9438; at the round trips and losses of last miles mostly in its Reno-friendly
    /// region.
    Cubic,
    /// Ignores single losses and sends at the path's delivery rate, which only the lost datagrams
    /// themselves reduce.
    Bbr,
}

/// The constant of the square-root law for a sender that acknowledges every packet.
pub const SQUARE_ROOT_CONSTANT: f64 = 1.22;

impl Sender {
    /// Datagrams per second of a bulk flow with round trip `seconds` and loss `ratio` (0 to 1):
    /// Mathis97 for Reno, RFC 9438 section 5.1 with its Reno-friendly region (section
    /// 4.3) for CUBIC. `None`: loss alone does not limit it.
    pub fn datagrams_per_second(self, seconds: f64, ratio: f64) -> Option<f64> {
        if ratio <= 0.0 || seconds <= 0.0 {
            return None;
        }
        let reno = SQUARE_ROOT_CONSTANT / ratio.sqrt();
        let window = match self {
            Self::Reno => reno,
            // (C (3 + beta) / (4 (1 - beta)))^(1/4) with C = 0.4 and beta = 0.7.
            Self::Cubic => reno.max(1.054 * (seconds / ratio).powf(0.75)),
            Self::Bbr => return None,
        };
        Some(window / seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_loss_and_a_longer_way_cost_a_loss_based_sender_its_rate() {
        // 4 % and 64 ms: about 95 datagrams per second, 1 Mbit/s.
        let rate = Sender::Reno.datagrams_per_second(0.064, 0.04).unwrap();
        assert!((rate - 95.3).abs() < 0.1, "{rate}");
        for sender in [Sender::Reno, Sender::Cubic] {
            let near = sender.datagrams_per_second(0.02, 0.01).unwrap();
            assert!(near > sender.datagrams_per_second(0.02, 0.1).unwrap());
            assert!(near > sender.datagrams_per_second(0.6, 0.01).unwrap());
        }
        // With large windows, CUBIC is faster than Reno.
        let (reno, cubic) = (Sender::Reno, Sender::Cubic);
        assert!(cubic.datagrams_per_second(0.6, 1e-5) > reno.datagrams_per_second(0.6, 1e-5));
        assert_eq!(Sender::Bbr.datagrams_per_second(0.6, 0.1), None);
        assert_eq!(Sender::Reno.datagrams_per_second(0.6, 0.0), None);
    }
}
