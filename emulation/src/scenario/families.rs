//! Families of last miles: paths of the laboratory with some settings changed, as one table.

use std::sync::LazyLock;

use serde::Deserialize;
use toml::{Table, Value};

use super::{Scenario, ScenarioError, built_in};

/// Name of the table, for errors.
const TABLE_NAME: &str = "families.toml";
static FAMILIES: LazyLock<Result<Vec<Family>, String>> =
    LazyLock::new(|| Family::parse(include_str!("../../scenarios/families.toml")));

/// Last miles that differ in one property.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    /// Name of the property.
    pub name: String,
    /// Losses at which its paths are measured, 0 to 1.
    pub losses: Vec<f64>,
    /// The paths.
    pub paths: Vec<Scenario>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    losses: Vec<f64>,
    paths: Table,
}

impl Family {
    /// All families.
    ///
    /// # Errors
    /// [`ScenarioError::Malformed`].
    pub fn all() -> Result<&'static [Self], ScenarioError> {
        FAMILIES.as_deref().map_err(|reason| ScenarioError::Malformed {
            name: TABLE_NAME.to_owned(),
            reason: reason.clone(),
        })
    }

    /// The path with this name.
    pub(super) fn path(name: &str) -> Result<Option<Scenario>, ScenarioError> {
        let mut paths = Self::all()?.iter().flat_map(|family| &family.paths);
        Ok(paths.find(|path| path.name == name).cloned())
    }

    fn parse(text: &str) -> Result<Vec<Self>, String> {
        let table: Table = toml::from_str(text).map_err(|error| error.to_string())?;
        table
            .into_iter()
            .map(|(name, entry)| {
                let Entry { losses, paths } =
                    entry.try_into().map_err(|error| format!("{name}: {error}"))?;
                let paths = paths
                    .into_iter()
                    .map(|(path, changes)| {
                        derived(&path, changes).map_err(|reason| format!("{path}: {reason}"))
                    })
                    .collect::<Result<_, _>>()?;
                Ok(Self { name, losses, paths })
            })
            .collect()
    }
}

/// A path: the settings of its base, and the changes in their places.
fn derived(name: &str, changes: Value) -> Result<Scenario, String> {
    let Value::Table(mut changes) = changes else { return Err("it is no table".to_owned()) };
    let Some(Value::String(base)) = changes.remove("base") else {
        return Err("base is missing".to_owned());
    };
    let (_, text) = built_in::all()
        .find(|(known, _)| *known == base)
        .ok_or_else(|| format!("there is no base {base:?}"))?;
    let mut settings: Table = toml::from_str(text).map_err(|error| error.to_string())?;
    change(&mut settings, changes);
    let scenario: Scenario = settings.try_into().map_err(|error| error.to_string())?;
    scenario.named(name)
}

/// Puts each change in its place: tables into tables, all else instead of what is there.
fn change(settings: &mut Table, changes: Table) {
    for (key, new) in changes {
        match (settings.get_mut(&key), new) {
            (Some(Value::Table(old)), Value::Table(new)) => change(old, new),
            (_, new) => {
                settings.insert(key, new);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_of_each_familys_paths_is_reserved() {
        for family in Family::all().unwrap() {
            let reserved = family.paths.iter().filter(|path| path.reserved).count();
            let all = family.paths.len();
            assert!(reserved * 4 >= all && reserved * 2 <= all, "{}: {reserved}", family.name);
            assert!(family.paths.iter().all(|path| path.name.starts_with(&family.name[..4])));
        }
    }

    #[test]
    fn a_path_is_its_base_with_the_changes() {
        let base = Scenario::load("ingress_wifi").unwrap();
        let path = Scenario::load("bursts_20_wifi").unwrap();
        let mut expected = base;
        expected.name = path.name.clone();
        expected.last_mile.burst = 20.0;
        assert_eq!(path, expected);
    }

    #[test]
    fn reserved_paths_are_refused_by_name() {
        let refused = Scenario::load("slow_2").unwrap_err().to_string();
        assert!(refused.contains("slow_2 is reserved"), "{refused}");
    }

    #[test]
    fn mistakes_in_the_table_name_the_path() {
        let said = |path: &str| {
            Family::parse(&format!("[odd]\nlosses = []\n[odd.paths]\n{path}")).unwrap_err()
        };
        assert!(said("x = 1").contains("x: it is no table"));
        assert!(said("x = {}").contains("x: base is missing"));
        assert!(said("x = { base = \"y\" }").contains("no base \"y\""));
        let burst = said("x = { base = \"lte\", last_mile.burst = 0 }");
        assert!(burst.contains("last_mile.burst is 0"), "{burst}");
        assert!(said("x = { base = \"lte\", sise = 1 }").contains("sise"));
    }
}
