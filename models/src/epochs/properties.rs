//! Properties of the epochs of a session: always true, or reached once.

use stateright::{Model as _, Property};

use super::{
    COUNTED_ONCE, CREDITED_WAS_COUNTED, ENDS_CONVERGE, Epochs, FORWARDED_AT_ONCE, Fate,
    MOST_REPAIRS, MOST_ROUNDS, MOVES_DO_NOT_CROSS, NOTHING_BEFORE_THE_ANCHOR,
    RECEIVED_STAYS_RECEIVED, REPAIRS_END, Set, State,
};

pub(super) fn all(model: &Epochs) -> Vec<Property<Epochs>> {
    let mut properties = vec![
        Property::always(COUNTED_ONCE, |_, state: &State| {
            let counted = &state.client.counted;
            let all = counted.iter().fold(0, |all, set| all | set);
            let sum: u32 = counted.iter().map(|set| set.count_ones()).sum();
            sum == Set::count_ones(all)
        }),
        Property::always(CREDITED_WAS_COUNTED, |_, state: &State| {
            let credited = state.gateway.credited.iter().zip(&state.client.counted);
            credited.into_iter().all(|(credited, counted)| credited & !counted == 0)
        }),
        Property::always(RECEIVED_STAYS_RECEIVED, |_, state: &State| !state.gateway.contradicted),
        Property::always(NOTHING_BEFORE_THE_ANCHOR, |_, state: &State| {
            let (client, gateway) = (&state.client, &state.gateway);
            let is_same = gateway.anchored && client.epoch == gateway.epoch;
            let anchor = client.anchor.filter(|_| is_same);
            let behind = anchor.map_or(0, |anchor| usize::from(anchor) + 1);
            let before = gateway.fates.iter().take(behind);
            !before.into_iter().any(|fate| matches!(fate, Fate::Missing { .. }))
        }),
        Property::always(FORWARDED_AT_ONCE, |_, state: &State| {
            state.gateway.sent.count_ones() as usize == state.gateway.fates.len()
        }),
        Property::always(REPAIRS_END, |_, state: &State| {
            let is_over = |fate: &Fate| matches!(fate, Fate::Missing { transmissions } if *transmissions > MOST_REPAIRS);
            !state.gateway.fates.iter().any(is_over)
        }),
        Property::always(ENDS_CONVERGE, |model: &Epochs, state: &State| {
            let mut actions = Vec::new();
            model.actions(state, &mut actions);
            state.rounds <= MOST_ROUNDS && (!actions.is_empty() || model.is_settled(state))
        }),
        Property::always(MOVES_DO_NOT_CROSS, |_, state: &State| !state.crossed),
    ];
    // Required outcomes, if the budget suffices.
    if model.budget.resets > 0 {
        properties.push(Property::sometimes(
            "a datagram is repaired in the epoch after its own",
            |_, state: &State| {
                let late = state.client.counted.iter().skip(1).any(|set| set & 1 != 0);
                late && state.gateway.fates.first() == Some(&Fate::Received)
            },
        ));
    }
    if model.budget.resets > 0 && model.budget.failures > 0 {
        properties.push(Property::sometimes("two Resets cross", |_, state: &State| {
            state.gateway.resetting && state.client.epoch > state.gateway.epoch
        }));
    }
    if model.budget.losses > MOST_REPAIRS {
        properties.push(Property::sometimes("a datagram is given up", |_, state: &State| {
            state.gateway.fates.contains(&Fate::GivenUp)
        }));
    }
    properties
}
