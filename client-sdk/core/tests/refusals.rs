//! Refusals: the report of a refused client, and the time of its next question.

use std::time::Duration;

use packrat_client::{Assist, AssistState, ClientConfig, RefusalReason, Token};
use packrat_wire::control::{Control, PROTOCOL_VERSION};
use packrat_wire::estimate::Timestamp;

fn client(token: &[u8], seed: u8) -> Assist {
    let config = ClientConfig::default().with_token(Token::new(token).unwrap());
    Assist::new(config, [seed; 32], Timestamp::ZERO)
}

fn nonce(question: &[u8]) -> u64 {
    match Control::decode(question) {
        Ok(Control::Discover { nonce, .. } | Control::Init { nonce, .. }) => nonce,
        other => panic!("not a question: {other:?}"),
    }
}

/// The next question, and when it comes.
fn question(client: &mut Assist) -> (Timestamp, Vec<u8>) {
    let at = client.next_timeout().unwrap();
    client.handle_timeout(at);
    (at, client.poll_transmit(at).unwrap())
}

/// Refuses the next question; how long the client waits then.
fn refuse(client: &mut Assist, reason: RefusalReason) -> Duration {
    let (at, question) = question(client);
    let mut refusal = Vec::new();
    Control::Refusal { nonce: nonce(&question), reason, versions: &[1] }.encode(&mut refusal);
    client.on_datagram(&refusal, at);
    assert_eq!(
        (client.stats().state, client.stats().refusal),
        (AssistState::Refused, Some(reason))
    );
    assert!(!reason.to_string().is_empty() && !reason.name().is_empty());
    client.next_timeout().unwrap().saturating_since(at)
}

#[test]
fn the_reason_is_known_and_decides_when_the_client_asks_again() {
    for reason in [RefusalReason::Version, RefusalReason::Disabled] {
        let mut client = client(&[], 1);
        assert_eq!(client.stats().refusal, None);
        assert_eq!(refuse(&mut client, reason), Duration::from_secs(30));
        // The next attempt begins without knowledge of the gateway.
        question(&mut client);
        assert_eq!(
            (client.stats().state, client.stats().refusal),
            (AssistState::Discovering, None)
        );
    }
}

/// Clients that were refused for lack of room return soon, but not together, and at growing
/// intervals.
#[test]
fn clients_refused_without_room_return_soon_but_not_together() {
    let waits = |seed| {
        let mut client = client(&[], seed);
        (0..8).map(|_| refuse(&mut client, RefusalReason::Full)).collect::<Vec<_>>()
    };
    let all: Vec<_> = (1..20).map(waits).collect();
    for waits in &all {
        for (number, wait) in waits.iter().enumerate() {
            let most = Duration::from_secs(1 << number).min(Duration::from_secs(30));
            assert!(*wait >= most / 2 && *wait <= most, "{number}: {wait:?}");
        }
    }
    let mut first: Vec<_> = all.iter().map(|waits| waits[0]).collect();
    first.sort_unstable();
    first.dedup();
    assert!(first.len() > 15, "they come back together: {first:?}");
}

#[test]
fn without_a_token_the_client_waits_for_one() {
    let mut client = client(&[], 1);
    assert_eq!(refuse(&mut client, RefusalReason::Token), Duration::from_secs(300));
    let now = Timestamp::from_millis(5000);
    client.set_access(None, &Token::new([1, 2, 3]).unwrap(), now);
    assert_eq!(client.next_timeout(), Some(now));
    question(&mut client);
    assert_eq!(client.stats().refusal, None);
}

#[test]
fn a_client_of_the_holdout_does_not_ask_again_for_an_hour() {
    let mut client = client(&[], 1);
    assert_eq!(refuse(&mut client, RefusalReason::Holdout), Duration::from_secs(3600));
    let later = client.next_timeout().unwrap();
    let now = Timestamp::from_millis(60_000);
    client.handle_timeout(now);
    assert!(client.poll_transmit(now).is_none(), "it says nothing meanwhile");
    client.on_authentic(now);
    assert_eq!(client.next_timeout(), Some(later));
}

#[test]
fn a_token_that_comes_during_an_attempt_is_tried_right_after_it() {
    let mut client = client(&[9], 1);
    let (at, discover) = question(&mut client);
    client.set_access(None, &Token::new([1, 2, 3]).unwrap(), at);
    let mut refusal = Vec::new();
    Control::Refusal { nonce: nonce(&discover), reason: RefusalReason::Token, versions: &[1] }
        .encode(&mut refusal);
    client.on_datagram(&refusal, at);
    assert_eq!(client.next_timeout(), Some(at));
}

#[test]
fn a_token_is_shown_only_to_who_says_that_he_is_a_gateway() {
    let token = [0xab; 60];
    let shows = |datagram: &[u8]| datagram.windows(token.len()).any(|window| window == token);
    let mut client = client(&token, 1);
    let (at, discover) = question(&mut client);
    assert!(!shows(&discover));
    assert!(matches!(Control::decode(&discover), Ok(Control::Discover { noise: [], .. })));
    let mut offer = Vec::new();
    Control::Offer {
        nonce: nonce(&discover),
        version: PROTOCOL_VERSION,
        cookie_time: 1,
        cookie: [2; 16],
    }
    .encode(&mut offer);
    client.on_datagram(&offer, at);
    assert!(shows(&client.poll_transmit(at).unwrap()));
    // Without a token the first question brings the first Noise message along.
    let (_, discover) = question(&mut self::client(&[], 2));
    assert!(matches!(Control::decode(&discover), Ok(Control::Discover { noise: [_, ..], .. })));
}

#[test]
fn what_was_asked_before_the_path_stood_is_asked_again() {
    let mut client = client(&[], 1);
    while client.poll_transmit(client.next_timeout().unwrap()).is_some() {}
    let last = client.next_timeout().unwrap();
    assert!(last > Timestamp::from_millis(30_000), "all questions of the first attempt are lost");
    let now = Timestamp::from_millis(3000);
    client.on_datagram(&[0x40; 1200], now);
    assert_eq!(client.next_timeout(), Some(last), "it may be forged");
    client.on_authentic(now);
    assert_eq!(client.next_timeout(), Some(now));
    assert!(client.poll_transmit(now).is_some());
    // A single question: a gateway that did not answer is absent.
    let again = client.next_timeout().unwrap();
    client.on_datagram(&[0x40; 1200], again);
    client.on_authentic(again);
    assert!(client.poll_transmit(again).is_none());
    assert!(client.next_timeout().unwrap() > again + Duration::from_secs(20));
}
