//! Cluster launch control.
