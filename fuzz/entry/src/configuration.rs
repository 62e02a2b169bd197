//! Arbitrary bytes as the configuration of a route, the same JSON in Envoy and in the standalone
//! gateway.

use packrat_dataplane::route_from_json;

/// Every accepted configuration is within its ranges; every refusal names the wrong field.
pub fn configuration(data: &[u8]) {
    match route_from_json(data) {
        Ok(config) => {
            assert!(!config.route.is_empty() && !config.endpoints.is_empty());
            assert!(config.endpoints.iter().all(|endpoint| endpoint.port() > 0));
            assert!(
                config.endpoints.is_sorted()
                    && config.cache_bytes_total >= config.cache_bytes_per_session
            );
            assert!(config.repair_budget.is_finite() && config.residual_loss_target > 0.0);
            assert!(config.maximum_sessions > 0 && !config.idle_timeout().is_zero());
            let again = config.clone().checked().expect("accepted once, accepted twice");
            assert_eq!(again, config);
            // The debug output must not show a secret.
            let shown = format!("{config:?}");
            assert!(config.static_key.is_none() || shown.contains("(hidden)"));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
