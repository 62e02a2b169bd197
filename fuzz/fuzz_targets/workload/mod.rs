//! As in the operator.

#[path = "../../../operator/src/workload/administration.rs"]
mod administration;
#[path = "../../../operator/src/workload/image.rs"]
mod image;
#[path = "../../../operator/src/workload/metrics_page.rs"]
mod metrics_page;

pub use administration::*;
pub use image::*;
pub(crate) use metrics_page::*;
