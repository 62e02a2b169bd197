//! The steps of an input.

/// The bytes of the steps.
pub(super) struct Steps<'a>(&'a [u8]);

impl<'a> Steps<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn byte(&mut self) -> usize {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(first)
    }

    pub(super) fn bytes(&mut self) -> &'a [u8] {
        crate::take(&mut self.0)
    }
}
