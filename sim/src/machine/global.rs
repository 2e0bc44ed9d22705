//! Global memory: allocations with gaps between them, which bytes are written, and who accessed each word last.

use crate::error::{Fault, Kind, Result};

/// Windows of generic addresses. Global addresses lie below.
pub const SHARED_WINDOW: u64 = 1 << 48;
pub const LOCAL_WINDOW: u64 = 2 << 48;
pub const PARAM_WINDOW: u64 = 3 << 48;
pub const WINDOW: u64 = !0 << 48;

const FIRST: u64 = 0x7000_0000_0000;
const GAP: u64 = 1 << 16;

/// The last accesses of a word, in a launch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trace {
    pub writer: Access,
    pub reader: Access,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Number of the launch; 0: none.
    pub launch: u32,
    pub cluster: u32,
    pub epoch: super::clock::Epoch,
    pub atomic: bool,
    /// Bytes of the word.
    pub bytes: u8,
    pub generic: bool,
}

#[derive(Debug)]
pub struct Allocation {
    pub base: u64,
    pub bytes: Vec<u8>,
    pub valid: Vec<u8>,
    pub traces: Vec<Trace>,
    pub device: i32,
}

#[derive(Debug, Default)]
pub struct Global {
    allocations: Vec<Allocation>,
    last: usize,
    next: u64,
    /// Device whose memory a running kernel may touch; `None`: copies, which reach all.
    pub reach: Option<i32>,
}

impl Global {
    /// Allocates; the address is 512-byte aligned.
    pub fn allocate(&mut self, bytes: usize, device: i32) -> u64 {
        let base = self.next.max(FIRST);
        self.next = (base + bytes as u64 + GAP).next_multiple_of(GAP);
        self.allocations.push(Allocation {
            base,
            bytes: vec![0; bytes],
            valid: vec![0; bytes],
            traces: Vec::new(),
            device,
        });
        base
    }

    /// Frees the allocation that starts at `base`.
    pub fn free(&mut self, base: u64) -> bool {
        match self.allocations.iter().position(|a| a.base == base) {
            Some(at) => {
                self.allocations.remove(at);
                self.last = 0;
                true
            }
            None => false,
        }
    }

    /// Bytes that are allocated on a device.
    pub fn used(&self, device: i32) -> u64 {
        self.allocations.iter().filter(|a| a.device == device).map(|a| a.bytes.len() as u64).sum()
    }

    pub fn find(&self, address: u64) -> Option<&Allocation> {
        let at = self.allocations.partition_point(|a| a.base <= address).checked_sub(1)?;
        let found = &self.allocations[at];
        (address < found.base + found.bytes.len().max(1) as u64).then_some(found)
    }

    /// The allocation that holds `bytes` bytes at `address`, and where they start in it.
    pub fn range(&mut self, address: u64, bytes: usize) -> Result<(&mut Allocation, usize)> {
        let inside = |a: &Allocation| {
            address >= a.base
                && bytes as u64 <= a.bytes.len() as u64
                && address - a.base <= a.bytes.len() as u64 - bytes as u64
        };
        if !self.allocations.get(self.last).is_some_and(inside) {
            let at = self.allocations.partition_point(|a| a.base <= address);
            match at.checked_sub(1) {
                Some(at) if inside(&self.allocations[at]) => self.last = at,
                below => return self.outside(address, bytes, below),
            }
        }
        let owner = self.allocations[self.last].device;
        if let Some(device) = self.reach.filter(|&device| device != owner) {
            return Fault::err(
                Kind::OutOfBounds,
                format!("global {address:#x} is memory of device {owner}; a kernel on device {device} cannot reach it"),
            );
        }
        let found = &mut self.allocations[self.last];
        let start = (address - found.base) as usize;
        Ok((found, start))
    }

    fn outside<T>(&self, address: u64, bytes: usize, below: Option<usize>) -> Result<T> {
        let nearest = below.map(|at| &self.allocations[at]);
        let nearest = nearest.map_or("there is none below".to_string(), |a| {
            format!("the nearest below is [{:#x}, {:#x})", a.base, a.base + a.bytes.len() as u64)
        });
        Fault::err(Kind::OutOfBounds, format!("{bytes} bytes at global {address:#x} are in no allocation; {nearest}"))
    }

    pub fn write(&mut self, address: u64, data: &[u8]) -> Result<()> {
        let (allocation, start) = self.range(address, data.len())?;
        allocation.bytes[start..start + data.len()].copy_from_slice(data);
        allocation.valid[start..start + data.len()].fill(1);
        Ok(())
    }

    pub fn read(&mut self, address: u64, out: &mut [u8]) -> Result<()> {
        let (allocation, start) = self.range(address, out.len())?;
        out.copy_from_slice(&allocation.bytes[start..start + out.len()]);
        Ok(())
    }
}

impl Allocation {
    pub fn check_written(&self, start: usize, bytes: usize) -> Result<()> {
        match self.valid[start..start + bytes].iter().position(|&v| v == 0) {
            None => Ok(()),
            Some(at) => Fault::err(
                Kind::Uninitialised,
                format!("nothing has written the byte at global {:#x}", self.base + (start + at) as u64),
            ),
        }
    }

    pub fn traces(&mut self) -> &mut [Trace] {
        if self.traces.is_empty() {
            self.traces = vec![Trace::default(); self.bytes.len().div_ceil(4)];
        }
        &mut self.traces
    }
}
