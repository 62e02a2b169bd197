//! The scenarios that come with the laboratory, by name.

pub(super) type BuiltIn = (&'static str, &'static str);

/// Networks of Packrat26, variants of them, and networks of other papers.
pub(super) const PAPER_SCENARIOS: [BuiltIn; 15] = [
    ("wifi", include_str!("../../scenarios/wifi.toml")),
    ("cellular", include_str!("../../scenarios/cellular.toml")),
    ("satellite", include_str!("../../scenarios/satellite.toml")),
    ("sat_long", include_str!("../../scenarios/sat_long.toml")),
    ("wifi_burst", include_str!("../../scenarios/wifi_burst.toml")),
    ("wifi_outages", include_str!("../../scenarios/wifi_outages.toml")),
    ("outage", include_str!("../../scenarios/outage.toml")),
    ("competing", include_str!("../../scenarios/competing.toml")),
    ("policed", include_str!("../../scenarios/policed.toml")),
    ("half_duplex", include_str!("../../scenarios/half_duplex.toml")),
    ("uplink", include_str!("../../scenarios/uplink.toml")),
    ("rquic_wifi", include_str!("../../scenarios/papers/rquic_wifi.toml")),
    ("rquic_cellular", include_str!("../../scenarios/papers/rquic_cellular.toml")),
    ("rquic_satellite", include_str!("../../scenarios/papers/rquic_satellite.toml")),
    ("ceten", include_str!("../../scenarios/papers/ceten.toml")),
];

/// Paths of the field matrix: on all of them the last mile is the bottleneck.
pub(super) const FIELD_PATHS: [BuiltIn; 10] = [
    ("ingress_wifi", include_str!("../../scenarios/field/ingress_wifi.toml")),
    ("ingress_ocean", include_str!("../../scenarios/field/ingress_ocean.toml")),
    ("ingress_lte", include_str!("../../scenarios/field/ingress_lte.toml")),
    ("ingress_fibre", include_str!("../../scenarios/field/ingress_fibre.toml")),
    ("home_wifi", include_str!("../../scenarios/field/home_wifi.toml")),
    ("starlink", include_str!("../../scenarios/field/starlink.toml")),
    ("lte", include_str!("../../scenarios/field/lte.toml")),
    ("geo", include_str!("../../scenarios/field/geo.toml")),
    ("transatlantic", include_str!("../../scenarios/field/transatlantic.toml")),
    ("dsl", include_str!("../../scenarios/field/dsl.toml")),
];

/// Last miles that people have, from measurements and from the literature.
pub(super) const PROFILE_SCENARIOS: [BuiltIn; 17] = [
    ("wifi_home_good", include_str!("../../scenarios/profiles/wifi_home_good.toml")),
    ("wifi_home_far", include_str!("../../scenarios/profiles/wifi_home_far.toml")),
    ("wifi_congested", include_str!("../../scenarios/profiles/wifi_congested.toml")),
    ("hotel_wifi", include_str!("../../scenarios/profiles/hotel_wifi.toml")),
    ("lte_good", include_str!("../../scenarios/profiles/lte_good.toml")),
    ("lte_edge", include_str!("../../scenarios/profiles/lte_edge.toml")),
    ("lte_driving", include_str!("../../scenarios/profiles/lte_driving.toml")),
    ("5g_midband", include_str!("../../scenarios/profiles/5g_midband.toml")),
    ("5g_driving", include_str!("../../scenarios/profiles/5g_driving.toml")),
    ("starlink_bent_pipe", include_str!("../../scenarios/profiles/starlink_bent_pipe.toml")),
    ("starlink_isl", include_str!("../../scenarios/profiles/starlink_isl.toml")),
    ("oneweb", include_str!("../../scenarios/profiles/oneweb.toml")),
    ("geostationary", include_str!("../../scenarios/profiles/geostationary.toml")),
    ("vdsl", include_str!("../../scenarios/profiles/vdsl.toml")),
    ("fibre", include_str!("../../scenarios/profiles/fibre.toml")),
    ("train_wifi", include_str!("../../scenarios/profiles/train_wifi.toml")),
    ("umts", include_str!("../../scenarios/profiles/umts.toml")),
];

/// Traffic for any of them.
pub(super) const TRAFFIC_SCENARIOS: [BuiltIn; 12] = [
    ("neighbour", include_str!("../../scenarios/traffic/neighbour.toml")),
    ("bbr_beside_cubic", include_str!("../../scenarios/traffic/bbr_beside_cubic.toml")),
    ("joining", include_str!("../../scenarios/traffic/joining.toml")),
    ("dumbbell", include_str!("../../scenarios/traffic/dumbbell.toml")),
    ("objects", include_str!("../../scenarios/traffic/objects.toml")),
    ("objects_beside", include_str!("../../scenarios/traffic/objects_beside.toml")),
    ("sessions", include_str!("../../scenarios/traffic/sessions.toml")),
    ("page", include_str!("../../scenarios/traffic/page.toml")),
    ("video", include_str!("../../scenarios/traffic/video.toml")),
    ("upload", include_str!("../../scenarios/traffic/upload.toml")),
    ("put", include_str!("../../scenarios/traffic/put.toml")),
    ("household", include_str!("../../scenarios/traffic/household.toml")),
];

/// The scenarios of a single download, each with its text.
pub(super) fn all() -> impl Iterator<Item = BuiltIn> {
    PAPER_SCENARIOS.into_iter().chain(FIELD_PATHS).chain(PROFILE_SCENARIOS)
}
