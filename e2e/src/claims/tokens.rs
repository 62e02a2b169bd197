//! Assist tokens: clients with and without one, and the rotation of keys.

use std::time::Duration;

use serde_json::Value;

use super::exposure::{described, with};
use crate::command::{Failure, Outcome, until};
use crate::download::Request;
use crate::suite::{HELM_RELEASE, LARGE_FILE, LAST_MILE_LOSS, SHOP_NAMESPACE, SMALL_FILE, Suite};

/// Name of the gateway that requires tokens, as in `manifests/gateway-tokens.yaml`.
const GATEWAY_NAME: &str = "with-tokens";
const NODE_PORT: u16 = 30444;
/// Secret in which the operator keeps the gateway's keys.
const KEYS_SECRET: &str = "packrat-gateway-with-tokens-keys";
/// Entry of the Secret with the keys' state.
const STATE_ENTRY: &str = "state.json";

fn ready(suite: &Suite) -> Outcome<String> {
    suite.gateway_is(GATEWAY_NAME, "Programmed")?;
    suite.gateway_is(GATEWAY_NAME, "Ready")?;
    suite.node_port(GATEWAY_NAME, NODE_PORT)
}

/// A request whose client fetches a token first, over TLS on the gateway's TCP port.
pub(super) fn with_token(suite: &Suite, file: &str, to: &str) -> Request {
    let mut request = suite.request(file, to);
    request.options.extend(["--assist-token-from", "auto"].map(str::to_owned));
    request
}

/// A client without a token is forwarded plainly; a client with one is assisted.
pub(super) fn required(suite: &mut Suite) -> Outcome<String> {
    with(suite, "gateway-tokens.yaml", |suite| {
        let to = ready(suite)?;
        suite.last_mile.set_loss(0.0, 1.0)?;
        let without = suite.download(&suite.request(SMALL_FILE, &to));
        suite.last_mile.set_loss(LAST_MILE_LOSS, 1.0)?;
        let without = without?;
        without.expect(&suite.checksum(SMALL_FILE)?)?;
        if without.repaired().is_some() {
            return Err(Failure::new("a client without a token was assisted"));
        }
        if !without.assistance().contains("refused") {
            return Err(Failure(format!("the client was not refused: {}", without.assistance())));
        }
        let with = assisted_with_token(suite, &to)?;
        Ok(format!("without a token refused, and forwarded plainly; with one: {with}"))
    })
}

pub(super) fn assisted_with_token(suite: &Suite, to: &str) -> Outcome<String> {
    let transfer = suite.download(&with_token(suite, SMALL_FILE, to))?;
    transfer.expect(&suite.checksum(SMALL_FILE)?)?;
    if transfer.repaired().is_none() {
        return Err(Failure(format!(
            "a client with a token was not assisted: {}",
            transfer.assistance()
        )));
    }
    Ok(described(&transfer))
}

/// Makes both steps of a rotation (the next key is announced, then used), the second of them during
/// a download.
pub(super) fn rotated(suite: &mut Suite) -> Outcome<String> {
    with(suite, "gateway-tokens.yaml", |suite| {
        let to = ready(suite)?;
        let first = state(suite)?["tokens"]["current"].clone();
        // Pretends that the key in use was made long ago.
        step(suite, |tokens| tokens["since"] = 0.into(), |tokens| tokens["next"].is_array())?;
        let mut request = with_token(suite, LARGE_FILE, &to);
        request.pace = Some(900_000);
        let mut download = suite.start_download(&request)?;
        download.wait_for(2_000_000)?;
        // Pretends that the next key was announced long ago.
        let used = step(
            suite,
            |tokens| tokens["next"][1] = 0.into(),
            |tokens| tokens["next"].is_null() && tokens["current"] != first,
        );
        let in_time = !download.ended()?;
        let transfer = download.finish()?;
        used?;
        transfer.expect(&suite.checksum(LARGE_FILE)?)?;
        if transfer.repaired().is_none() {
            return Err(Failure(format!("no assistance: {}", transfer.assistance())));
        }
        // Envoy may get the update a moment later.
        let after =
            until(Duration::from_secs(60), "assistance with a token of the new key", || {
                assisted_with_token(suite, &to)
            })?;
        let when = if in_time { "" } else { " (the download was over before)" };
        Ok(format!(
            "stalled {} ms, {}{when}; afterwards, with a new token: {after}",
            transfer.stall.as_millis(),
            described(&transfer)
        ))
    })
}

/// The operator's state of the keys. It is a secret of this cluster only, and is never printed.
fn state(suite: &Suite) -> Outcome<Value> {
    let template = format!("go-template={{{{index .data \"{STATE_ENTRY}\" | base64decode}}}}");
    Ok(serde_json::from_str(&suite.kubectl.output([
        "get",
        "secret",
        KEYS_SECRET,
        "-n",
        SHOP_NAMESPACE,
        "-o",
        &template,
    ])?)?)
}

/// Changes the operator's state, and waits for its reaction.
fn step(suite: &Suite, change: impl FnOnce(&mut Value), done: impl Fn(&Value) -> bool) -> Outcome {
    let mut state_now = state(suite)?;
    change(&mut state_now["tokens"]);
    let patch =
        serde_json::json!({ "stringData": { (STATE_ENTRY): state_now.to_string() } }).to_string();
    suite.kubectl.output([
        "patch",
        "secret",
        KEYS_SECRET,
        "-n",
        SHOP_NAMESPACE,
        "--type=merge",
        "-p",
        &patch,
    ])?;
    // The operator checks once a minute; a new one checks at once.
    let deployment = format!("deployment/{}-operator", HELM_RELEASE[1]);
    suite.kubectl.output(["rollout", "restart", &deployment, "-n", HELM_RELEASE[0]])?;
    until(Duration::from_secs(150), "the operator takes the next step of the rotation", || {
        let state = state(suite)?;
        if done(&state["tokens"]) {
            Ok(())
        } else {
            Err(Failure::new("the keys are the same as before"))
        }
    })?;
    suite.rolled_out(&deployment, HELM_RELEASE[0])
}
