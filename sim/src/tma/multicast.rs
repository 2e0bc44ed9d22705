//! Which CTAs of a cluster receive the data of a copy and its signal (PTX ISA 9.7.9.25.4.1 and 9.7.9.25.5.2).

use crate::error::{Fault, Kind, Result};

/// An address in the shared memory of some CTA of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterAddress {
    /// Rank of the CTA.
    pub cta: u32,
    /// Offset in its shared window.
    pub offset: u32,
}

/// `.cta_group`: one CTA, or a pair whose ranks differ in bit 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CtaGroup {
    /// `.cta_group::1`.
    #[default]
    One,
    /// `.cta_group::2`.
    Two,
}

/// One copy of the data, and the mbarrier that learns of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Where the data goes.
    pub data: ClusterAddress,
    /// What its bytes complete.
    pub mbarrier: ClusterAddress,
}

/// Expands a load to `data` that signals `mbarrier`, with the CTA mask of `.multicast::cluster` if it has one.
///
/// # Errors
/// [`Kind::InvalidOperand`] for an mbarrier in a CTA that the group does not allow, an empty mask, or a CTA outside
/// the cluster of `cluster_size`.
pub fn destinations(
    data: ClusterAddress,
    mbarrier: ClusterAddress,
    mask: Option<u16>,
    group: CtaGroup,
    cluster_size: u32,
) -> Result<Vec<Destination>> {
    for address in [data, mbarrier] {
        if address.cta >= cluster_size {
            return refuse(format!("address in CTA {} of a cluster of {cluster_size}", address.cta));
        }
    }
    if group == CtaGroup::Two && !cluster_size.is_multiple_of(2) {
        return refuse(format!("cta_group::2 in a cluster of {cluster_size}"));
    }
    let Some(mask) = mask else {
        let allowed = match group {
            CtaGroup::One => mbarrier.cta == data.cta,
            CtaGroup::Two => mbarrier.cta / 2 == data.cta / 2,
        };
        if !allowed {
            return refuse(format!("data for CTA {} that signals an mbarrier of CTA {}", data.cta, mbarrier.cta));
        }
        return Ok(vec![Destination { data, mbarrier }]);
    };
    Ok(masked(mask, cluster_size)?
        .map(|cta| {
            let signalled = match group {
                CtaGroup::One => cta,
                CtaGroup::Two => cta & !1 | mbarrier.cta & 1,
            };
            Destination {
                data: ClusterAddress { cta, ..data },
                mbarrier: ClusterAddress { cta: signalled, ..mbarrier },
            }
        })
        .collect())
}

/// The ranks that a CTA mask names, ascending.
///
/// # Errors
/// [`Kind::InvalidOperand`] if there is none, or one outside the cluster.
pub(crate) fn masked(mask: u16, cluster_size: u32) -> Result<impl Iterator<Item = u32>> {
    if mask == 0 {
        return refuse("multicast to no CTA: the mask is 0".into());
    }
    if cluster_size < 16 && mask >> cluster_size != 0 {
        return refuse(format!("multicast mask {mask:#x} names CTAs outside the cluster of {cluster_size}"));
    }
    Ok((0..16).filter(move |cta| mask >> cta & 1 == 1))
}

fn refuse<T>(message: String) -> Result<T> {
    Fault::err(Kind::InvalidOperand, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(cta: u32, offset: u32) -> ClusterAddress {
        ClusterAddress { cta, offset }
    }

    #[test]
    fn a_mask_repeats_data_and_signal() {
        let all = destinations(at(1, 1024), at(1, 64), Some(0b1010), CtaGroup::One, 4).unwrap();
        assert_eq!(
            all,
            [
                Destination { data: at(1, 1024), mbarrier: at(1, 64) },
                Destination { data: at(3, 1024), mbarrier: at(3, 64) }
            ]
        );
        assert!(destinations(at(1, 0), at(1, 0), Some(0), CtaGroup::One, 4).is_err());
        assert!(destinations(at(1, 0), at(1, 0), Some(0b10000), CtaGroup::One, 4).is_err());
        assert!(destinations(at(1, 0), at(1, 0), Some(0xFFFF), CtaGroup::One, 16).is_ok());
        assert!(destinations(at(4, 0), at(1, 0), None, CtaGroup::One, 4).is_err());
    }

    #[test]
    fn pairs_may_signal_one_of_the_two() {
        assert!(destinations(at(1, 0), at(0, 8), None, CtaGroup::One, 2).is_err());
        let one = destinations(at(1, 0), at(0, 8), None, CtaGroup::Two, 2).unwrap();
        assert_eq!(one, [Destination { data: at(1, 0), mbarrier: at(0, 8) }]);
        assert!(destinations(at(2, 0), at(1, 8), None, CtaGroup::Two, 4).is_err());
        let all = destinations(at(0, 0), at(0, 8), Some(0b1111), CtaGroup::Two, 4).unwrap();
        assert_eq!(
            all.iter().map(|d| (d.data.cta, d.mbarrier.cta)).collect::<Vec<_>>(),
            [(0, 0), (1, 0), (2, 2), (3, 2)]
        );
    }
}
