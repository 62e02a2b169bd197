//! Checks a model, and its mutations.

use std::fmt::Debug;
use std::hash::Hash;
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};

/// A model that can leave out a rule.
pub trait Mutated: Sized {
    /// The rules that can be left out.
    type Mutation: Copy + Debug;

    /// Model without one rule.
    fn with(&self, mutation: Self::Mutation) -> Self;
}

/// Results of all checks of a run.
#[derive(Debug, Default)]
pub struct Checks {
    failed: usize,
    passed: usize,
}

impl Checks {
    /// Explores all states of a model: every property must hold in each of them, and each state
    /// that must be reachable must be reached.
    pub fn holds<M>(&mut self, name: &str, model: M)
    where
        M: Model + Send + Sync + 'static,
        M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
        M::Action: Clone + Debug + PartialEq + Send + Sync + 'static,
    {
        let begun = Instant::now();
        let checker = model.checker().threads(threads()).spawn_bfs().join();
        let mut complaints = Vec::new();
        for property in checker.model().properties() {
            let found = checker.discovery(property.name);
            match (property.expectation, found) {
                (stateright::Expectation::Sometimes, None) => {
                    complaints.push(format!("never: {}", property.name));
                }
                (stateright::Expectation::Sometimes, Some(_))
                | (stateright::Expectation::Always | stateright::Expectation::Eventually, None) => {
                }
                (_, Some(path)) => {
                    let steps: Vec<String> =
                        path.into_actions().iter().map(|step| format!("    {step:?}")).collect();
                    complaints.push(format!("broken: {}\n{}", property.name, steps.join("\n")));
                }
            }
        }
        println!(
            "{} {name}: {} states, {} steps deep, {:.1} s",
            if complaints.is_empty() { "holds " } else { "FAILED" },
            checker.unique_state_count(),
            checker.max_depth(),
            begun.elapsed().as_secs_f64(),
        );
        complaints.iter().for_each(|complaint| println!("  {complaint}"));
        self.count(complaints.is_empty());
    }

    /// Explores a model that lacks a rule until it breaks the property that depends on the rule.
    pub fn fails<M>(&mut self, name: &str, model: &M, mutation: M::Mutation, property: &'static str)
    where
        M: Model + Mutated + Send + Sync + 'static,
        M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
        M::Action: Clone + Debug + PartialEq + Send + Sync + 'static,
    {
        let wanted = HasDiscoveries::AnyOf([property].into());
        let checker = model.with(mutation).checker().threads(threads()).finish_when(wanted);
        let checker = checker.spawn_bfs().join();
        let found = checker.discovery(property);
        match &found {
            Some(path) => println!(
                "breaks {name} without a rule, {mutation:?}: \"{property}\", {} steps, {} states",
                path.clone().into_actions().len(),
                checker.unique_state_count(),
            ),
            None => println!("FAILED {name} without a rule, {mutation:?}: \"{property}\" holds"),
        }
        self.count(found.is_some());
    }

    fn count(&mut self, passed: bool) {
        self.passed += usize::from(passed);
        self.failed += usize::from(!passed);
    }

    /// Prints the sum; true if every check has passed.
    pub fn conclude(&self) -> bool {
        println!("{} passed, {} failed", self.passed, self.failed);
        self.failed == 0 && self.passed > 0
    }
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
