use super::*;
use proptest::prelude::*;

proptest! {
    #[test]
    fn groups_keep_order_and_every_boundary(
        shapes in prop::collection::vec((0usize..40_000, 1usize..1500, 0u8..4, any::<bool>(), any::<bool>()), 0..60),
    ) {
        let bytes = vec![0; 40_000];
        let numbers = [[7; NUMBER_LENGTH]; MAXIMUM_SEGMENTS];
        let batches: Vec<GsoBatch<'_>> = shapes
            .iter()
            .map(|&(length, segment_size, mark, single, numbered)| {
                let ecn = Ecn::from_traffic_class(mark);
                // What the kernel puts together has at most 64 segments.
                let length = length.min(segment_size * MAXIMUM_SEGMENTS);
                let data = if single { &bytes[..length.min(1500)] } else { &bytes[..length] };
                let batch = if single { GsoBatch::single(data, ecn) } else { GsoBatch::plain(data, segment_size, ecn) };
                let count = if numbered && batch.data.len() + MAXIMUM_SEGMENTS * NUMBER_LENGTH <= MAXIMUM_BYTES { batch.segments() } else { 0 };
                GsoBatch { numbers: &numbers[..count], ..batch }
            })
            .collect();
        let mut groups = Vec::new();
        group(&batches, &mut groups);
        prop_assert!(groups.iter().flat_map(Clone::clone).eq(0..batches.len()));
        for range in groups {
            let members = &batches[range];
            let segment_size = members[0].sent_segment_size().max(1);
            let sent: Vec<usize> = members.iter().flat_map(|batch| batch.singles()).map(|single| single.bytes()).collect();
            prop_assert!(members.iter().all(|batch| batch.is_numbered() == members[0].is_numbered()));
            let total: usize = sent.iter().sum();
            // What the kernel makes of the group: cuts of the same size, the last one shorter.
            let cut: Vec<usize> =
                (0..total).step_by(segment_size).map(|at| segment_size.min(total - at)).collect();
            prop_assert!(sent == cut || sent == [0]);
            prop_assert!(total <= MAXIMUM_BYTES && sent.len() <= MAXIMUM_SEGMENTS);
            prop_assert!(members.iter().all(|batch| batch.ecn == members[0].ecn));
        }
    }
}
