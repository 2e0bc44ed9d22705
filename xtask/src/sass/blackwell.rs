//! What the machine code of a Blackwell forward must look like; mirrors `kernels/sm100/forward/config.h`.

use super::listing::Kernel;

/// Operations of the roles: allocation, products and their barriers, Tensor Memory, tensor copies, launch control, two
/// operations at a time.
const NEEDED: [&str; 9] =
    ["UTCATOMSWS", "UTCHMMA", "UTCBAR", "LDTM", "STTM", "UTMALDG", "UTMASTG", "UGETNEXTWORKID", "FFMA2"];
/// Instructions between one product and the next of the same operand at most. Where the compiler does not know that one
/// thread issues them, it builds a loop over the lanes around each.
const GAP: usize = 20;

/// What is wrong with a kernel, as the ends of sentences that begin with its name; `None` if the name is unknown.
pub fn check(kernel: &Kernel) -> Option<Vec<String>> {
    let words: Vec<&str> = kernel.name.strip_prefix("jfa_sm100_forward_")?.split('_').collect();
    let (["bf16" | "fp16", dim] | ["bf16" | "fp16", dim, "mask"]) = words[..] else { return None };
    let dim: usize = dim.strip_prefix('d')?.parse().ok()?;
    let keys = if dim <= 128 { 128 } else { 64 };
    let mut wrong = Vec::new();
    for name in NEEDED.into_iter().filter(|name| !kernel.code.iter().any(|i| i.is(name))) {
        wrong.push(format!("has no {name}"));
    }
    let (products, apart) = kernel.tensor_products(GAP);
    let expected = dim / 16 + keys / 16;
    if products != expected {
        wrong.push(format!("has {products} products, not {expected}"));
    }
    // Three runs of products: S, and O for each of two slices of P.
    if apart > 2 {
        wrong.push(format!("has {apart} gaps between products, not 2"));
    }
    wrong.extend(kernel.local_fault());
    Some(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A d64 kernel: three runs of four products each, with so many instructions before each product of the first.
    fn d64(products: usize, gap: usize, extra: &str) -> Kernel {
        const PRODUCT: &str = "UTCHMMA tmem[UR7], gdesc[UR34], tmem[UR13], UPT";
        let mut lines: Vec<&str> = NEEDED.into_iter().filter(|&name| name != "UTCHMMA").collect();
        for run in 0..3 {
            lines.extend(["NOP"; 2 * GAP]);
            for _ in 0..products {
                lines.extend(vec!["NOP"; if run == 0 { gap } else { 0 }]);
                lines.push(PRODUCT);
            }
        }
        lines.extend([extra, "EXIT"]);
        Kernel::of("jfa_sm100_forward_bf16_d64", &lines)
    }

    #[test]
    fn a_kernel_is_judged_by_every_rule() {
        let check = |kernel: &Kernel| check(kernel).expect("a known name").join("; ");
        assert_eq!(check(&d64(4, 5, "NOP")), "");
        assert!(check(&d64(3, 5, "NOP")).contains("9 products, not 12"));
        assert!(check(&d64(4, 30, "NOP")).contains("5 gaps"));
        assert!(check(&d64(4, 5, "LDL R4, [R1]")).contains("local memory 1 times"));
        let mut other = d64(4, 5, "NOP");
        other.code.retain(|i| !i.is("STTM"));
        assert_eq!(check(&other), "has no STTM");
        other.name = "jfa_sm100_forward_bf8_d64".into();
        assert_eq!(super::check(&other), None);
    }
}
