//! Keys of objects, and of UDPRoutes in the place of Services.

/// End of the name of a UDPRoute among Services, whose names have no points.
const ROUTE_SUFFIX: &str = ".udproute";

/// A namespace and a name.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl ObjectKey {
    /// A key.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl std::fmt::Display for ObjectKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

/// The place of a UDPRoute among the Services that have listeners.
pub(crate) fn listener_key(route: &ObjectKey) -> ObjectKey {
    ObjectKey::new(&route.namespace, format!("{}{ROUTE_SUFFIX}", route.name))
}

/// The UDPRoute that is in the place of a Service; `None` for a Service.
pub(crate) fn route_key(listener: &ObjectKey) -> Option<ObjectKey> {
    let name = listener.name.strip_suffix(ROUTE_SUFFIX)?;
    Some(ObjectKey::new(&listener.namespace, name))
}

/// A Service, or a UDPRoute in its place, for a sentence.
pub(crate) fn told(key: &ObjectKey) -> String {
    match route_key(key) {
        Some(route) => format!("UDPRoute {route}"),
        None => format!("Service {key}"),
    }
}
