//! What the machine code of a Blackwell backward must look like; mirrors `kernels/sm100/backward/config.h`.

use super::listing::Kernel;

/// Operations of the roles: products and their barriers, Tensor Memory by lanes and by columns, tensor copies and
/// additions, sums of dQ, launch control.
const NEEDED: [&str; 10] = [
    "UTCHMMA",
    "UTCBAR",
    "LDTM.16dp256bit",
    "LDTM.x32",
    "STTM",
    "UTMALDG",
    "UTMASTG",
    "UTMAREDG",
    "UBLKRED",
    "UGETNEXTWORKID",
];
/// What pairs of CTAs have besides: products, barriers and copies of both, and copies from one to the other.
const NEEDED_BY_PAIRS: [&str; 4] = ["UTCHMMA.2CTA", "UTCBAR.2CTA.MULTICAST", "UTMALDG.5D.2CTA", "UBLKCP.S.S"];
/// Instructions between one product and the next of the same operand at most. Where the compiler does not know that one
/// thread issues them, it builds a loop over the lanes around each.
const GAP: usize = 9;

/// What is wrong with a kernel, as the ends of sentences that begin with its name; `None` if the name is unknown.
pub fn check(kernel: &Kernel) -> Option<Vec<String>> {
    let words: Vec<&str> = kernel.name.strip_prefix("jfa_sm100_backward_")?.split('_').collect();
    let (["bf16" | "fp16", dim] | ["bf16" | "fp16", dim, "pair"]) = words[..] else { return None };
    let (dim, pair): (usize, bool) = (dim.strip_prefix('d')?.parse().ok()?, words.len() == 3);
    let mut wrong = Vec::new();
    let needed = NEEDED.iter().chain(if pair { &NEEDED_BY_PAIRS[..] } else { &[] });
    for name in needed.filter(|name| !kernel.code.iter().any(|i| i.op.starts_with(**name))) {
        wrong.push(format!("has no {name}"));
    }
    let (products, apart) = kernel.tensor_products(GAP);
    // S and dP, dV, and twice dQ and dK: in the loop and behind it.
    let (queries, keys) = (if dim > 128 { 64 } else { 128 }, if pair { 256 } else { 128 });
    let (runs, expected) = (7, 2 * dim / 16 + queries / 16 + 2 * (keys + queries) / 16);
    if products != expected {
        wrong.push(format!("has {products} products, not {expected}"));
    }
    if apart >= 2 * runs {
        wrong.push(format!("has {apart} gaps between products for {runs} operands"));
    }
    wrong.extend(kernel.local_fault());
    Some(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A d64 kernel with so many products, and `gap` other instructions between any two.
    fn d64(products: usize, gap: usize, extra: &str) -> Kernel {
        let mut lines: Vec<&str> = NEEDED.into_iter().filter(|&name| name != "UTCHMMA").collect();
        for _ in 0..products {
            lines.push("UTCHMMA tmem[UR7], gdesc[UR34], tmem[UR13], UPT");
            lines.extend(vec!["NOP"; gap]);
        }
        lines.extend([extra, "EXIT"]);
        Kernel::of("jfa_sm100_backward_bf16_d64", &lines)
    }

    #[test]
    fn a_kernel_is_judged_by_every_rule() {
        let check = |kernel: &Kernel| check(kernel).expect("a known name").join("; ");
        assert_eq!(check(&d64(48, 5, "NOP")), "");
        assert!(check(&d64(40, 5, "NOP")).contains("40 products, not 48"));
        assert!(check(&d64(48, 12, "NOP")).contains("47 gaps"));
        assert!(check(&d64(48, 5, "STL [R1], R4")).contains("local memory 1 times"));
        let mut other = d64(48, 5, "NOP");
        other.code.retain(|i| !i.is("UBLKRED"));
        assert_eq!(check(&other), "has no UBLKRED");
        other.name = "jfa_sm100_backward_bf16_d128_pair".into();
        assert!(check(&other).contains("has no UTCHMMA.2CTA; has no UTCBAR.2CTA.MULTICAST"));
        other.name = "jfa_sm100_backward_bf8_d64".into();
        assert_eq!(super::check(&other), None);
    }
}
