//! Cases with everything drawn at random.

use crate::case::{Case, Data, Mask, Slack};
use crate::dtype::Dtype;
use crate::rng::Rng;

/// Work of one case at most, in query-key pairs times heads and head dimension.
const BUDGET: usize = 12_000_000;

/// The case of a seed and an index. Its name holds both, so that it can be run alone.
pub fn case(dtypes: &[Dtype], seed: u64, index: u64) -> Case {
    let name = format!("seed{seed}-{index}");
    let mut rng = Rng::new(seed, &name);
    let mut case = Case::new("random", name, rng.pick(dtypes), &[]);
    case.head_dim = if rng.once_in(2) { rng.pick(&[64, 128]) } else { 8 * (1 + rng.below(32)) };
    case.heads_kv = rng.pick(&[1, 1, 2, 3]);
    case.heads_q = case.heads_kv * rng.pick(&[1, 1, 2, 3, 4, 7]);
    case.mask = match rng.below(4) {
        0 | 1 => Mask::window(width(&mut rng), width(&mut rng), rng.once_in(2)),
        2 => Mask::window(-1, 0, rng.once_in(2)),
        _ => Mask::NONE,
    };
    case.broadcast = rng.once_in(2).then(|| rng.pick(&[1, 5, 16, 33, 64, 100, 128, 130]));
    case.scale = rng.pick(&[0.0, 0.0, 0.0, 0.05, 0.5]);
    case.grad_q_fp32 = rng.once_in(3);
    case.int64 = rng.once_in(2);
    case.deterministic = rng.once_in(2);
    case.workers = rng.pick(&[0, 0, 1, 3]);
    case.loose = !rng.once_in(3);
    case.data = rng.pick(&[Data::Normal, Data::Normal, Data::Normal, Data::Normal, Data::Large, Data::Negative]);
    let layout = &mut case.layout;
    layout.lead = (rng.pick(&[0, 0, 1, 70]), rng.pick(&[0, 0, 3, 129]));
    layout.tail = (rng.pick(&[0, 1, 64, 200]), rng.pick(&[0, 1, 64, 200]));
    layout.slack = rng.pick(&[Slack::None, Slack::None, Slack::UpTo(1), Slack::UpTo(50)]);
    layout.heads_first = rng.once_in(4);
    layout.padding = rng.pick(&[0, 0, 0, 8, 24]);
    layout.fused_kv = rng.once_in(4);
    layout.stray_strides = rng.once_in(4);
    let mut work = 0;
    for _ in 0..rng.below(40) {
        let (len_q, len_kv) = (length(&mut rng), length(&mut rng));
        work += case.broadcast.unwrap_or(len_q) * len_kv * case.heads_q * case.head_dim;
        if work > BUDGET {
            break;
        }
        case.lengths.push((len_q, len_kv));
    }
    case.accumulate = rng.pick(&[0, 0, 0, 1, 2, 4, 6, 7]);
    case
}

fn width(rng: &mut Rng) -> i32 {
    rng.pick(&[-1, 0, 0, 1, 5, 31, 64, 100, 1000])
}

fn length(rng: &mut Rng) -> usize {
    match rng.below(8) {
        0 => 0,
        1 => 1,
        2 => rng.pick(&[63, 64, 65]),
        3 => rng.pick(&[127, 128, 129]),
        4 | 5 => rng.below(20),
        6 => rng.below(130),
        _ => rng.below(400),
    }
}
