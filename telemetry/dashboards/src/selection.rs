//! Queries of some series, over some window.

use crate::Definitions;

/// Series of a query, and the window of its rates.
#[derive(Debug, Clone, Copy)]
pub struct Selection {
    /// Matchers for series with the labels `gateway`, `namespace` and `route`.
    pub of_routes: &'static str,
    /// Matchers for series of a process, which have `gateway` alone.
    pub of_processes: &'static str,
    /// The window.
    pub window: &'static str,
}

impl Selection {
    /// The query without recording rules: of the selected series, over the window.
    pub fn apply(self, query: &str, definitions: &Definitions) -> String {
        let mut text = query.to_owned();
        for figure in &definitions.figures {
            text = text.replace(&figure.record, &without_records(&figure.expression, definitions));
        }
        self.select(&text).replace("[5m]", &format!("[{}]", self.window))
    }

    fn select(self, query: &str) -> String {
        let mut text = String::new();
        let mut rest = query;
        while let Some(begin) = rest.find("packrat_") {
            let (head, tail) = rest.split_at(begin);
            let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
            let end = tail.find(|letter| !is_name(letter)).unwrap_or(tail.len());
            let (name, tail) = tail.split_at(end);
            let matchers = match name {
                _ if name.starts_with("packrat_operator_") => "",
                _ if ["packrat_process_", "packrat_log_"]
                    .iter()
                    .any(|prefix| name.starts_with(prefix)) =>
                {
                    self.of_processes
                }
                _ => self.of_routes,
            };
            text.push_str(head);
            text.push_str(name);
            rest = match tail.strip_prefix('{') {
                _ if matchers.is_empty() => tail,
                Some(labels) => {
                    text.push_str(&format!("{{{matchers}, "));
                    labels
                }
                None => {
                    text.push_str(&format!("{{{matchers}}}"));
                    tail
                }
            };
        }
        text + rest
    }
}

fn without_records(expression: &str, definitions: &Definitions) -> String {
    definitions.figures.iter().fold(expression.to_owned(), |text, figure| {
        if !text.contains(&figure.record) {
            return text;
        }
        let inner = without_records(&figure.expression, definitions);
        text.replace(&figure.record, &format!("({inner})"))
    })
}
