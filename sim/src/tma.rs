//! Bulk and tensor copies (PTX ISA 9.7.9.25): which bytes go where, what they add to the transactions of an mbarrier,
//! and reductions. The memories are the caller's.

mod bulk;
mod multicast;
mod reduce;
mod tile;

pub use bulk::{check_bulk, check_non_bulk, masked_bytes};
pub(crate) use multicast::masked;
pub use multicast::{ClusterAddress, CtaGroup, Destination, destinations};
pub use reduce::{ReduceOp, ReduceType};
pub use tile::{Direction, Mode, Options, Outside, Piece, Tile};
