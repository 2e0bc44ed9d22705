//! Where rows and columns of D and of A lie in Tensor Memory (PTX ISA 9.7.16.10.5, figures of the data layouts).

use super::{Instruction, Options};
use crate::error::{Fault, Kind, Result};
use crate::tma::CtaGroup;

/// Layout of a CTA's share of D: its columns fall into parts that lie in different lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Rows of the share.
    pub rows: u32,
    /// Parts of N / parts columns each.
    pub parts: u32,
    /// Rows fill 16 of every 32 lanes.
    scattered: bool,
    /// Lane of row 0, part 0.
    base: u32,
}

impl Place {
    /// Layout of D at the address `d`.
    ///
    /// # Errors
    /// [`Kind::Tmem`] for a lane at which the layout does not start.
    pub(super) fn of(instruction: &Instruction, d: u32) -> Result<Self> {
        let pair = instruction.group == CtaGroup::Two;
        let (rows, parts, scattered) = match (instruction.m, pair, instruction.weight_stationary) {
            (256, ..) => (128, 1, false),
            (128, true, _) => (64, 2, false),
            (128, ..) => (128, 1, false),
            (64, _, true) => (64, 2, false),
            (64, ..) => (64, 1, true),
            _ => (32, 4, false),
        };
        let place = Place { rows, parts, scattered, base: d >> 16 };
        place.check_lane(place.base)?;
        Ok(place)
    }

    fn check_lane(&self, lane: u32) -> Result<()> {
        if lane == 0 || (self.scattered && lane == 16) {
            return Ok(());
        }
        Fault::err(
            Kind::Tmem,
            format!(
                "matrix at lane {lane} of Tensor Memory: it starts at lane 0{}",
                if self.scattered { " or 16" } else { "" }
            ),
        )
    }

    /// Lane of a row of the share.
    #[inline]
    pub(super) fn lane(&self, row: u32, part: u32) -> u32 {
        let spread = if self.scattered { row % 16 + 32 * (row / 16) } else { row };
        self.base + spread + part * (128 / self.parts)
    }

    /// Checks where A lies in Tensor Memory. Its lanes are those of D, which means a copy for each part.
    ///
    /// # Errors
    /// [`Kind::Tmem`] for another lane than D's, [`Kind::Unsupported`] as `options` say.
    pub(super) fn check_a(&self, a: u32, options: &Options) -> Result<()> {
        if a >> 16 != self.base {
            return Fault::err(
                Kind::Tmem,
                format!("A at lane {} and D at lane {} of Tensor Memory", a >> 16, self.base),
            );
        }
        if self.scattered {
            options.m64_a_in_tmem.check("A in Tensor Memory with M = 64 and no .ws")?;
        }
        if self.parts == 4 {
            options.m32_a_in_tmem.check("A in Tensor Memory with M = 32")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Kind as MmaKind;
    use super::*;

    fn place(m: u32, group: CtaGroup, ws: bool, d: u32) -> Result<Place> {
        let bits = 1 << 4 | 8 << 17 | (m / 16) << 24;
        let instruction = Instruction::decode(bits, MmaKind::F16, group, ws, None, &Options::default()).unwrap();
        Place::of(&instruction, d)
    }

    /// The formulas of the seven layouts, (row of the share, column, N) to (lane, column).
    #[test]
    fn lanes_follow_the_figures() {
        type Formula = fn(u32, u32) -> (u32, u32);
        let cases: [(u32, CtaGroup, bool, Formula); 7] = [
            (256, CtaGroup::Two, false, |m, n| (m, n)),
            (128, CtaGroup::Two, false, |m, n| (m + 64 * (n / 32), n % 32)),
            (128, CtaGroup::One, false, |m, n| (m, n)),
            (128, CtaGroup::One, true, |m, n| (m, n)),
            (64, CtaGroup::One, true, |m, n| (m + 64 * (n / 32), n % 32)),
            (64, CtaGroup::One, false, |m, n| (m % 16 + 32 * (m / 16), n)),
            (32, CtaGroup::One, true, |m, n| (m + 32 * (n / 16), n % 16)),
        ];
        for (m, group, ws, formula) in cases {
            let place = place(m, group, ws, 0).unwrap();
            assert_eq!(place.rows, if group == CtaGroup::Two { m / 2 } else { m });
            let width = 64 / place.parts;
            for row in 0..place.rows {
                for n in 0..64 {
                    assert_eq!((place.lane(row, n / width), n % width), formula(row, n), "{m} {group:?} {ws}");
                }
            }
        }
    }

    #[test]
    fn lanes_are_aligned() {
        assert_eq!(place(64, CtaGroup::One, false, 16 << 16).unwrap().lane(17, 0), 49);
        assert!(
            place(64, CtaGroup::One, false, 32 << 16).is_err() && place(128, CtaGroup::One, false, 16 << 16).is_err()
        );
        let scattered = place(64, CtaGroup::One, false, 16 << 16).unwrap();
        assert_eq!(scattered.check_a(0, &Options::ASSUME).unwrap_err().kind, Kind::Tmem);
        assert_eq!(scattered.check_a(16 << 16, &Options::default()).unwrap_err().kind, Kind::Unsupported);
        assert!(scattered.check_a(16 << 16, &Options::ASSUME).is_ok());
    }
}
