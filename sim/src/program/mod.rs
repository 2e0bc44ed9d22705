//! The decoded form of a kernel: every name is a slot, every opcode a function or a small record.

mod alu;
mod convert;
mod decode;
mod half;
mod matrix;
mod memory;
mod op;
mod registers;
mod sync;
mod types;

pub use alu::{insert, lop3};
pub use decode::{Kernel, decode};
pub use op::{
    AsyncCopy, AtomicOp, BulkOp, Constant, Lanes, MbarrierOp, Multiply, Op, Pred, ShuffleMode, Slot, TensorOp,
    VoteMode, Wgmma, WgmmaA,
};

#[cfg(test)]
mod tests {
    /// `CUDASIM_PTX=FILE:FILE` names PTX that must decode.
    #[test]
    fn files_decode() {
        for path in std::env::var("CUDASIM_PTX").iter().flat_map(|list| list.split(':')) {
            let text = std::fs::read_to_string(path).unwrap();
            let module = crate::ptx::parse(&text).unwrap_or_else(|e| panic!("{path}: {e}"));
            let lines = std::sync::Arc::new(text.lines().map(String::from).collect::<Vec<_>>());
            for entry in module.entries {
                let name = entry.name.clone();
                let registers = entry.registers.len();
                let kernel = super::decode(entry, lines.clone(), Vec::new());
                let kernel = kernel.unwrap_or_else(|e| panic!("{path}: {e}"));
                eprintln!(
                    "{name}: {} instructions, {registers} registers in {} slots",
                    kernel.code.len(),
                    kernel.slots
                );
            }
        }
    }
}
