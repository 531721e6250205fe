//! Draws plots and pictures as SVG. The reports of chaos and bench, the picture of the monitor and the comparison with
//! other queues all use it.

pub mod chart;
pub mod svg;
