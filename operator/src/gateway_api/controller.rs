//! Controller names of GatewayClasses.

use crate::resource::DEFAULT_CLASS;

/// Controller name of GatewayClasses of the default class.
const CONTROLLER_NAME: &str = "packrat.dev/gateway-controller";
/// The controller name of GatewayClasses that operators of a class serve.
pub fn controller_name(class: &str) -> String {
    if class == DEFAULT_CLASS {
        CONTROLLER_NAME.to_owned()
    } else {
        format!("{CONTROLLER_NAME}/{class}")
    }
}

/// True for the controller name of a Packrat operator of any class.
pub fn is_packrat(controller: &str) -> bool {
    controller
        .strip_prefix(CONTROLLER_NAME)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_of_operators_has_a_controller_name_of_its_own() {
        assert_eq!(controller_name("packrat"), "packrat.dev/gateway-controller");
        assert_eq!(controller_name("blue"), "packrat.dev/gateway-controller/blue");
        for (name, expected) in [
            ("packrat.dev/gateway-controller", true),
            ("packrat.dev/gateway-controller/blue", true),
            ("packrat.dev/gateway-controllers", false),
            ("example.org/gateway-controller", false),
        ] {
            assert_eq!(is_packrat(name), expected, "{name}");
        }
    }
}
