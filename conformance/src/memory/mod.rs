//! Memory of the device under test.

mod cuda;
mod host;

pub use cuda::Cuda;
pub use host::Host;

/// Memory that a plan's device reads and writes.
pub trait Memory {
    /// `bytes` bytes, aligned to 256, of any content; address space that is never touched costs nothing on the host.
    fn allocate(&self, bytes: usize) -> Result<usize, String>;

    /// Gives back what `allocate` returned for the same number of bytes.
    ///
    /// # Safety
    /// The block is no longer used.
    unsafe fn free(&self, address: usize, bytes: usize);

    /// Copies host bytes to `address`.
    ///
    /// # Safety
    /// The bytes from `address` on belong to a live block.
    unsafe fn write(&self, address: usize, bytes: &[u8]) -> Result<(), String>;

    /// Copies bytes at `address` to the host, after all work of the device.
    ///
    /// # Safety
    /// As for `write`.
    unsafe fn read(&self, address: usize, bytes: &mut [u8]) -> Result<(), String>;

    /// Waits for the device, and tells of a fault.
    fn synchronize(&self) -> Result<(), String>;

    /// Says what begins, so that a simulator interleaves it as if it began alone; other devices do not care.
    fn begin(&self, _repetition: u64, _name: &str) -> Result<(), String> {
        Ok(())
    }

    /// Name of the device.
    fn name(&self) -> String;
}

/// A block of memory that frees itself.
pub struct Block<'m> {
    memory: &'m dyn Memory,
    address: usize,
    bytes: usize,
}

impl<'m> Block<'m> {
    /// Allocates.
    pub fn new(memory: &'m dyn Memory, bytes: usize) -> Result<Self, String> {
        Ok(Block { memory, address: memory.allocate(bytes.max(1))?, bytes: bytes.max(1) })
    }

    /// Address of the byte at `offset`.
    pub fn at(&self, offset: usize) -> usize {
        self.address + offset
    }

    /// Writes at `offset`.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), String> {
        assert!(offset + bytes.len() <= self.bytes, "write outside its block");
        // SAFETY: within the block, as asserted.
        unsafe { self.memory.write(self.address + offset, bytes) }
    }

    /// Reads at `offset`.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), String> {
        assert!(offset + bytes.len() <= self.bytes, "read outside its block");
        // SAFETY: within the block, as asserted.
        unsafe { self.memory.read(self.address + offset, bytes) }
    }
}

impl Drop for Block<'_> {
    fn drop(&mut self) {
        // SAFETY: the block owns its bytes.
        unsafe { self.memory.free(self.address, self.bytes) }
    }
}
