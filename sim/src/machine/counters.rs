//! What a launch did, for the report.

/// Sums over a launch.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Warp instructions.
    pub instructions: u64,
    pub clusters: u64,
    pub global_read: u64,
    pub global_written: u64,
    pub shared_read: u64,
    pub shared_written: u64,
    pub bulk_loaded: u64,
    pub bulk_stored: u64,
    pub matrix_flops: u64,
    /// Waits that found nothing yet, by kind.
    pub mbarrier_waits: u64,
    pub barrier_waits: u64,
    /// Further passes that shared memory needs because lanes meet in a bank.
    pub bank_conflicts: u64,
}

impl Counters {
    pub fn add(&mut self, other: &Counters) {
        self.instructions += other.instructions;
        self.clusters += other.clusters;
        self.global_read += other.global_read;
        self.global_written += other.global_written;
        self.shared_read += other.shared_read;
        self.shared_written += other.shared_written;
        self.bulk_loaded += other.bulk_loaded;
        self.bulk_stored += other.bulk_stored;
        self.matrix_flops += other.matrix_flops;
        self.mbarrier_waits += other.mbarrier_waits;
        self.barrier_waits += other.barrier_waits;
        self.bank_conflicts += other.bank_conflicts;
    }
}
