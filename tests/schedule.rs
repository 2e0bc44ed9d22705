//! Properties of the tile lists: every tile once, none in vain, and an even load on the real lengths.

use std::collections::BTreeSet;

use jfa::problem::{Alignment, Device, Dtype, IndexType, Limits, Mask, Problem, Sequence};
use jfa::schedule::{
    BackwardDeal, BackwardSchedule, Deal, Entry, ForwardSchedule, HandedOut, Load, SHORT_PART, Tile, blocks,
    class_keys, greedy_longest_first,
};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

fn problem(heads_q: i32, heads_kv: i32, mask: Mask, broadcast_q: bool, sequences: &[Sequence]) -> Problem {
    let longest = |len: fn(&Sequence) -> i64| sequences.iter().map(len).max().unwrap_or(0);
    Problem {
        device: Device::Cpu,
        dtype: Dtype::Bf16,
        grad_q_dtype: Dtype::Bf16,
        index_type: IndexType::Int32,
        heads_q,
        heads_kv,
        head_dim: 64,
        scale: 0.125,
        mask,
        broadcast_q,
        deterministic: false,
        limits: Limits {
            batch: sequences.len() as i64,
            total_q: sequences.iter().map(|s| s.len_q).sum(),
            total_kv: sequences.iter().map(|s| s.len_kv).sum(),
            seqlen_q: longest(|s| s.len_q),
            seqlen_kv: longest(|s| s.len_kv),
        },
    }
}

/// Packs sequences of these query and key lengths; a broadcast length replaces the former.
fn pack(lengths: &[(i64, i64)], broadcast: Option<i64>) -> Vec<Sequence> {
    let (mut begin_q, mut begin_kv) = (0, 0);
    let mut sequences = Vec::new();
    for (b, &(len_q, len_kv)) in lengths.iter().enumerate() {
        let len_q = broadcast.unwrap_or(len_q);
        let begin_o = broadcast.map_or(begin_q, |seqlen| b as i64 * seqlen);
        sequences.push(Sequence { begin_q, begin_o, begin_kv, len_q, len_kv });
        begin_q += if broadcast.is_some() { 0 } else { len_q };
        begin_kv += len_kv;
    }
    sequences
}

fn rows(block: u32, size: i64, len: i64) -> std::ops::Range<i64> {
    let begin = i64::from(block) * size;
    begin..(begin + size).min(len)
}

/// Keys that a forward tile visits.
fn keys(problem: &Problem, sequences: &[Sequence], block_m: i64, tile: Tile) -> u64 {
    let s = &sequences[tile.batch as usize];
    let keys = problem.mask.keys(rows(tile.block, block_m, s.len_q), s.len_q, s.len_kv);
    (keys.end - keys.start) as u64
}

/// Queries that a backward tile visits.
fn queries(problem: &Problem, sequences: &[Sequence], block_n: i64, tile: Tile) -> u64 {
    let s = &sequences[tile.batch as usize];
    let queries = problem.mask.queries(rows(tile.block, block_n, s.len_kv), s.len_q, s.len_kv);
    (queries.end - queries.start) as u64
}

/// Collects tiles and fails on the second of a kind.
fn unique(tiles: impl Iterator<Item = Tile>) -> Result<BTreeSet<Tile>, TestCaseError> {
    let mut set = BTreeSet::new();
    for tile in tiles {
        prop_assert!(set.insert(tile), "{tile:?} comes twice");
    }
    Ok(set)
}

fn check_forward(p: &Problem, sequences: &[Sequence], block_m: i64, workers: u32) -> Result<(), TestCaseError> {
    let schedule = ForwardSchedule::new(p, sequences, block_m, workers);
    prop_assert_eq!(schedule.deal.handed_out == HandedOut::EachTile, !p.mask.hides_nothing());
    let deal = Deal::new(schedule.width() as u32, p.broadcast_q, workers);
    let schedule = schedule.dealt(deal);
    prop_assert!(deal.workers >= 1 && deal.workers <= workers);
    prop_assert_eq!(deal.workers.is_multiple_of(deal.group), deal.stride == 0);
    let done = unique((0..deal.workers).flat_map(|worker| schedule.worker(worker)))?;
    let mut valid = BTreeSet::new();
    let mut blind = BTreeSet::new();
    for (batch, s) in sequences.iter().enumerate() {
        for block in 0..blocks(s.len_q, block_m) as u32 {
            let set = match rows(block, block_m, s.len_q).any(|i| !p.mask.keys(i..i + 1, s.len_q, s.len_kv).is_empty())
            {
                true => &mut valid,
                false => &mut blind,
            };
            set.extend((0..p.heads_q as u32).map(|head| Tile { batch: batch as u32, head, block }));
        }
    }
    prop_assert_eq!(&done, &valid);
    prop_assert_eq!(schedule.num_tiles(), valid.len() as u64);
    let listed = unique((0..schedule.num_tiles()).map(|index| schedule.tile(index)))?;
    prop_assert_eq!(&listed, &valid);
    let keyless = unique(schedule.keyless.iter().flat_map(|entry| {
        let span = entry.block..entry.block + schedule.blocks_per_entry;
        span.flat_map(move |block| (0..p.heads_q as u32).map(move |head| Tile { batch: entry.batch, head, block }))
    }))?;
    prop_assert_eq!(&keyless, &blind);

    // The same list with its end handed out in parts.
    let width = schedule.width() as u32;
    let parts = schedule.clone().dealt(Deal::with_parts(width, p.broadcast_q, workers, schedule.num_tiles()));
    let dealt = (0..parts.deal.workers).flat_map(|worker| parts.worker(worker));
    let count = if let HandedOut::Parts(count) = parts.deal.handed_out { count } else { 0 };
    let done = unique(dealt.chain((0..count).flat_map(|part| parts.part(part))))?;
    prop_assert_eq!(&done, &valid);
    prop_assert_eq!(count > 0, schedule.num_tiles() > u64::from(workers));
    for part in 0..count {
        let mut places = parts.part(part).map(|tile| (tile.head, tile.block));
        if let (Some(first), true) = (places.next(), p.broadcast_q) {
            prop_assert!(schedule.blocks_per_entry == 1 || places.all(|place| place == first));
        }
    }

    // A worker of a lane stays on one head and, without a mask, on one block of queries.
    if deal.group > 1 {
        prop_assert_eq!(u64::from(deal.group), schedule.width());
        for worker in 0..deal.workers / deal.group * deal.group {
            let mut places = schedule.worker(worker).map(|tile| (tile.head, tile.block));
            if let (Some(first), 2..) = (places.next(), schedule.blocks_per_entry) {
                prop_assert!(places.all(|place| place == first));
            }
        }
    }

    // Handed out one by one, nobody ends later than the others by more than a tile.
    let each = schedule.clone().dealt(Deal::each_tile(workers));
    prop_assert_eq!((0..workers).map(|worker| each.worker(worker).count()).sum::<usize>(), 0);
    let load = each.load(p, sequences);
    let total: u64 = listed.iter().map(|&tile| keys(p, sequences, block_m, tile)).sum();
    let largest = listed.iter().map(|&tile| keys(p, sequences, block_m, tile)).max().unwrap_or(0);
    prop_assert!(load.max() <= total / u64::from(workers) + largest);

    // Long entries follow each other sequence by sequence, the longest first, from the last block of queries on; short
    // ones are sorted by their own keys.
    let class = class_keys(p.limits.seqlen_kv);
    let few = sequences.iter().map(|s| s.len_kv).max().unwrap_or(0) / SHORT_PART;
    let own = |entry: &Entry| {
        let tile = Tile { batch: entry.batch, head: 0, block: entry.block };
        keys(p, sequences, block_m * i64::from(schedule.blocks_per_entry), tile) as i64
    };
    let is_long = |entry: &Entry| own(entry) > few;
    let classes: Vec<i64> = schedule
        .entries
        .iter()
        .map(|entry| blocks(if is_long(entry) { sequences[entry.batch as usize].len_kv } else { own(entry) }, class))
        .collect();
    prop_assert!(classes.is_sorted_by(|a, b| a >= b), "entries are not sorted by class: {classes:?}");
    let long: Vec<&Entry> = schedule.entries.iter().filter(|entry| is_long(entry)).collect();
    let runs = long.chunk_by(|a, b| a.batch == b.batch);
    let seen: BTreeSet<u32> = long.iter().map(|entry| entry.batch).collect();
    prop_assert_eq!(runs.clone().count(), seen.len(), "a sequence is torn apart");
    prop_assert!(runs.into_iter().all(|run| run.is_sorted_by(|a, b| a.block > b.block)));
    // Nobody waits for a worker that has two tiles more than itself.
    let in_lanes = deal.workers / deal.group * deal.group;
    let counts: Vec<usize> = (0..in_lanes).map(|worker| schedule.worker(worker).count()).collect();
    let (least, most) = (counts.iter().min().unwrap_or(&0), counts.iter().max().unwrap_or(&0));
    prop_assert!(most - least <= 1, "tiles per worker: {counts:?}");
    Ok(())
}

fn check_backward(
    p: &Problem,
    sequences: &[Sequence],
    block_n: i64,
    workers: u32,
    cluster: u32,
) -> Result<(), TestCaseError> {
    let schedule = BackwardSchedule::new(p, sequences, block_n, workers, cluster);
    prop_assert!(schedule.workers <= workers.max(cluster));
    prop_assert_eq!(schedule.workers % cluster, 0);
    prop_assert_eq!(schedule.entries.len() % cluster as usize, 0);
    let all: Vec<Tile> = (0..schedule.workers).flat_map(|worker| schedule.worker(worker)).collect();
    prop_assert_eq!(all.len() as u64, schedule.num_tiles());
    let done = unique(all.iter().copied().filter(|&tile| !schedule.is_sentinel(tile)))?;
    let (mut valid, mut blind) = (BTreeSet::new(), BTreeSet::new());
    for (batch, s) in sequences.iter().enumerate() {
        for block in 0..blocks(s.len_kv, block_n) as u32 {
            let seen = rows(block, block_n, s.len_kv).any(|j| !p.mask.queries(j..j + 1, s.len_q, s.len_kv).is_empty());
            match seen {
                true => valid.extend((0..p.heads_kv as u32).map(|head| Tile { batch: batch as u32, head, block })),
                false => {
                    blind.insert((batch as u32, block));
                }
            }
        }
    }
    prop_assert_eq!(&done, &valid);
    let unseen: Vec<(u32, u32)> = schedule.unseen.iter().map(|entry| (entry.batch, entry.block)).collect();
    prop_assert_eq!(unseen.len(), blind.len(), "an unseen block comes twice, or is missing");
    prop_assert_eq!(unseen.into_iter().collect::<BTreeSet<_>>(), blind);

    // However they are dealt, every tile has one worker, who stays with a head if the deal says so.
    if cluster == 1 {
        let heads = p.heads_kv as u32;
        let lanes = (workers / heads).max(1);
        for deal in [
            BackwardDeal::Lanes { lanes, chain: 1 },
            BackwardDeal::Lanes { lanes: 2 * lanes, chain: 2 },
            BackwardDeal::Ranges(lanes),
        ] {
            let mut dealt = schedule.clone().dealt(deal);
            dealt.workers = lanes * heads;
            let tiles = |worker| dealt.worker(worker).collect::<Vec<_>>();
            prop_assert_eq!(&unique((0..dealt.workers).flat_map(tiles))?, &valid);
            let one_head = |worker| tiles(worker).windows(2).all(|pair| pair[0].head == pair[1].head);
            prop_assert!((0..dealt.workers).all(one_head), "{:?}", deal);
        }
    }

    // Sentinels fill the last cluster of their sequence and no more.
    for (batch, s) in sequences.iter().enumerate() {
        let entries = schedule.entries.iter().filter(|entry| entry.batch == batch as u32);
        let (sentinels, tiles): (Vec<_>, Vec<_>) =
            entries.copied().partition::<Vec<_>, _>(|entry| i64::from(entry.block) >= blocks(s.len_kv, block_n));
        prop_assert!(sentinels.len() < cluster as usize);
        prop_assert!(!tiles.is_empty() || sentinels.is_empty());
    }
    // The workers of a cluster take neighbouring tiles of one sequence and head in every round.
    for leader in (0..schedule.workers).step_by(cluster as usize) {
        let rounds: Vec<Vec<Tile>> = (leader..leader + cluster).map(|w| schedule.worker(w).collect()).collect();
        for member in &rounds {
            prop_assert_eq!(member.len(), rounds[0].len());
            for (tile, first) in member.iter().zip(&rounds[0]) {
                prop_assert_eq!((tile.batch, tile.head), (first.batch, first.head));
            }
        }
    }
    Ok(())
}

fn masks() -> impl Strategy<Value = Mask> {
    let side = || prop_oneof![2 => Just(None), 1 => Just(Some(0)), 3 => (0..200i64).prop_map(Some)];
    let alignment = prop_oneof![Just(Alignment::TopLeft), Just(Alignment::BottomRight)];
    let window = (side(), side(), alignment).prop_map(|(left, right, alignment)| Mask { left, right, alignment });
    prop_oneof![1 => Just(Mask::NONE), 3 => window]
}

fn lengths() -> impl Strategy<Value = Vec<(i64, i64)>> {
    let length = || prop_oneof![2 => Just(0i64), 2 => Just(1i64), 3 => 2..70i64, 3 => 70..400i64, 1 => Just(128i64)];
    prop::collection::vec((length(), length()), 0..24)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn forward_lists_every_tile_once(
        lengths in lengths(),
        mask in masks(),
        (heads_kv, group) in (1..5i32, 1..4i32),
        broadcast in prop_oneof![Just(None), (0..300i64).prop_map(Some)],
        block_m in prop_oneof![Just(1i64), Just(16), Just(64), Just(128)],
        workers in 1..160u32,
    ) {
        let sequences = pack(&lengths, broadcast);
        let mut problem = problem(heads_kv * group, heads_kv, mask, broadcast.is_some(), &sequences);
        if let Some(seqlen) = broadcast {
            problem.limits.seqlen_q = seqlen;
        }
        check_forward(&problem, &sequences, block_m, workers)?;
    }

    #[test]
    fn backward_lists_every_tile_once(
        lengths in lengths(),
        mask in masks(),
        (heads_kv, group) in (1..5i32, 1..4i32),
        broadcast in prop_oneof![Just(None), (0..300i64).prop_map(Some)],
        block_n in prop_oneof![Just(1i64), Just(16), Just(64), Just(128)],
        workers in 1..160u32,
        cluster in 1..5u32,
    ) {
        let sequences = pack(&lengths, broadcast);
        let problem = problem(heads_kv * group, heads_kv, mask, broadcast.is_some(), &sequences);
        check_backward(&problem, &sequences, block_n, workers, cluster)?;
    }
}

fn real_lengths() -> Vec<i64> {
    include_str!("../examples/movielens100k_history_lengths.txt")
        .lines()
        .filter_map(|line| line.trim().parse().ok())
        .collect()
}

/// Whether the heaviest of all `offered` workers, idle ones included, is within 5 % of the mean or within one tile of
/// the greedy longest-first load.
fn assert_even(what: &str, load: Load, costs: Vec<u64>, offered: u32) {
    let mean = load.0.iter().sum::<u64>() as f64 / f64::from(offered);
    let largest = costs.iter().copied().max().unwrap_or(0);
    let greedy = greedy_longest_first(costs, offered).max();
    let (max, over) = (load.max(), load.max() as f64 / mean);
    println!("{what}, {offered} workers: {over:.4} of the mean, greedy {:.4}", greedy as f64 / mean);
    let even = over <= 1.05 || max <= greedy + largest;
    assert!(even, "{what}, {offered} workers: heaviest {max}, mean {mean:.0}, greedy {greedy}, tile {largest}");
}

fn assert_forward_even(what: &str, p: &Problem, sequences: &[Sequence], block_m: i64) {
    for workers in [132, 148] {
        let schedule = ForwardSchedule::new(p, sequences, block_m, workers);
        let cost = |tile| keys(p, sequences, block_m, tile);
        let load = schedule.load(p, sequences);
        let costs = (0..schedule.num_tiles()).map(|index| cost(schedule.tile(index))).collect();
        assert_even(what, load, costs, workers);
    }
}

/// The unit of the backward is the cluster: it is busy until the longest of its tiles is done.
fn assert_backward_even(what: &str, p: &Problem, sequences: &[Sequence], block_n: i64) {
    for (workers, cluster) in [(132, 1), (132, 2), (148, 1), (148, 2)] {
        let schedule = BackwardSchedule::new(p, sequences, block_n, workers, cluster);
        // A tile costs its queries whatever its number of keys: the kernels pad the last block.
        let cost = |tile| if schedule.is_sentinel(tile) { 0 } else { queries(p, sequences, block_n, tile) };
        let longest = |tiles: &[Tile]| tiles.iter().map(|&tile| cost(tile)).max().unwrap_or(0);
        let members =
            |leader| (leader..leader + cluster).map(|w| schedule.worker(w).collect()).collect::<Vec<Vec<_>>>();
        let round = |members: &[Vec<Tile>], r: usize| members.iter().map(|tiles| tiles[r]).collect::<Vec<_>>();
        let load = |leader| {
            let members = members(leader);
            (0..members[0].len()).map(|r| longest(&round(&members, r))).sum()
        };
        let all: Vec<Tile> = (0..schedule.num_tiles()).map(|index| schedule.tile(index)).collect();
        let costs = all.chunks(cluster as usize).map(longest).collect();
        let load = Load((0..schedule.workers).step_by(cluster as usize).map(load).collect());
        assert_even(&format!("{what}, clusters of {cluster}"), load, costs, workers / cluster);
    }
}

#[test]
fn the_longest_sequence_fits_the_counting_sort() {
    for seqlen in [0, 1, 15, 16, 737, 2047, 2048, 2049, 1 << 20, jfa::problem::MAX_SEQLEN] {
        let classes = blocks(seqlen, class_keys(seqlen));
        assert!(classes <= 2048, "{classes} classes for {seqlen} keys");
    }
}

#[test]
fn the_real_lengths_are_all_there() {
    let lengths = real_lengths();
    assert_eq!((lengths.len(), lengths.iter().sum::<i64>(), lengths.iter().max()), (943, 100_000, Some(&737)));
}

#[test]
fn real_lengths_with_broadcast_queries_load_the_workers_evenly() {
    let lengths: Vec<(i64, i64)> = real_lengths().into_iter().map(|len| (0, len)).collect();
    for seqlen_q in [16, 64, 128, 200, 256, 1024] {
        let sequences = pack(&lengths, Some(seqlen_q));
        for heads in [1, 2, 3, 4, 8] {
            let what = format!("broadcast, {seqlen_q} queries, {heads} heads");
            let p = problem(heads, heads, Mask::NONE, true, &sequences);
            for block_m in [64, 128] {
                assert_forward_even(&format!("{what}, blocks of {block_m}"), &p, &sequences, block_m);
            }
            assert_backward_even(&what, &p, &sequences, 128);
        }
    }
}

#[test]
fn real_lengths_as_self_attention_load_the_workers_evenly() {
    let lengths: Vec<(i64, i64)> = real_lengths().into_iter().map(|len| (len, len)).collect();
    let sequences = pack(&lengths, None);
    let causal = Mask { right: Some(0), ..Mask::NONE };
    let window = Mask { left: Some(64), right: Some(0), alignment: Alignment::BottomRight };
    for heads in [1, 2, 4, 8] {
        for (name, mask) in [("full", Mask::NONE), ("causal", causal), ("window", window)] {
            let p = problem(heads, heads, mask, false, &sequences);
            for block_m in [64, 128] {
                let what = format!("self-attention, {name}, {heads} heads, blocks of {block_m}");
                assert_forward_even(&what, &p, &sequences, block_m);
            }
        }
    }
}
