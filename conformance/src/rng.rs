//! A small seeded generator: results must be the same on every machine.

/// FNV-1a.
pub fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |h: u64, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator for a seed and a text, so that each case has data of its own whatever runs before it.
    pub fn new(seed: u64, text: &str) -> Self {
        Rng(hash(text) ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// The next 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// One of `choices`.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// True once in `n` times.
    pub fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn uniform(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Appends `count` standard normal values.
    pub fn normal(&mut self, count: usize, values: &mut Vec<f32>) {
        let end = values.len() + count;
        while values.len() < end {
            let radius = (-2.0 * self.uniform().ln()).sqrt();
            let (sin, cos) = (2.0 * std::f64::consts::PI * self.uniform()).sin_cos();
            values.push((radius * cos) as f32);
            values.push((radius * sin) as f32);
        }
        values.truncate(end);
    }
}
