//! Instructions on the memories of two CTAs, with operands placed by the formulas of the layouts.

mod case;
mod copy;
mod machine;
mod product;
