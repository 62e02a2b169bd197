//! As in the operator.

#[path = "../../../operator/src/workload/administration.rs"]
mod administration;
#[path = "../../../operator/src/workload/image.rs"]
mod image;

pub use administration::*;
pub use image::*;
