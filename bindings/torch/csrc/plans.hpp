/// @file
/// Plans that are made on demand and kept, so that a step only updates and runs them.
#ifndef JFA_TORCH_PLANS_HPP
#define JFA_TORCH_PLANS_HPP

#include <torch/csrc/stable/tensor.h>

#include <array>
#include <cstdint>
#include <jfa/jfa.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "cuda.hpp"

namespace jfa_torch {

using torch::stable::Tensor;

/// The sequences of a batch; what jfa reads of them lies in these tensors.
struct Sequences {
  Tensor kv_offsets;                 // [batch + 1]
  std::optional<Tensor> q_offsets;   // [batch + 1]; none for broadcast Q
  std::optional<Tensor> kv_lengths;  // [batch]; none for whole slots

  /// Whether both name the same memory.
  bool same(const Sequences& other) const;
};

/// Where a plan is used: plans hold tile lists in memory of their own, so that every stream needs one, and so do the
/// CUDA graphs, whose replays come at any time.
struct Lane {
  jfa_stream stream = nullptr;
  std::uint64_t capture = 0;
};

/// A plan and what its tile lists were made of.
class Slot {
 public:
  explicit Slot(const jfa_plan_desc& desc) : plan_(desc), workspace_size_(plan_.workspace_size()) {}

  jfa::WorkspaceSize workspace_size() const { return workspace_size_; }

  /// Lists the tiles of `batch`, then calls `use(plan)`. No other thread uses the plan meanwhile.
  ///
  /// Batches of the same `generation` have the same sequences: the second does not list tiles again. Generation 0 is
  /// unknown, and always lists them.
  template <typename Use>
  void run(const jfa_batch& batch, std::uint64_t generation, Lane lane, Use use) {
    const std::lock_guard<std::mutex> lock(mutex_);
    update(batch, generation, lane);
    use(static_cast<const jfa::Plan&>(plan_));
  }

  /// Throws if the batch that the plan holds is bad; synchronises with the GPU.
  void check();

 private:
  void update(const jfa_batch& batch, std::uint64_t generation, Lane lane);

  std::mutex mutex_;
  jfa::Plan plan_;
  jfa::WorkspaceSize workspace_size_;
  bool ready_ = false;
  // Generation, capture, rows of Q and of K that the tile lists were made for.
  std::array<std::uint64_t, 4> made_for_{};
};

/// The plans of one owner: of a jfa.Plan, or of all calls without one.
class PlanSet {
 public:
  /// The plan for `desc` in `lane`, made now if there is none; its maxima are rounded up, so that batches of about the
  /// same size share it. The least recently used plans are forgotten, but for those of CUDA graphs.
  std::shared_ptr<Slot> find(const jfa_plan_desc& desc, Lane lane);

  /// Begins a new generation: the batch of these sequences.
  void begin(Sequences sequences);

  /// The generation of `sequences`, 0 if they are not those of begin().
  std::uint64_t generation_of(const Sequences& sequences) const;

  /// Throws if a plan holds a bad batch; synchronises with the GPU.
  void check() const;

 private:
  // All fields of the description but its size, then the lane.
  using Key = std::array<std::int64_t, 20>;

  struct Entry {
    std::shared_ptr<Slot> slot;
    std::uint64_t last_use = 0;
  };

  static Key key_of(const jfa_plan_desc& desc, Lane lane);
  std::shared_ptr<Slot> find_exactly(const jfa_plan_desc& desc, Lane lane);
  std::shared_ptr<Slot> take_over(const Key& key);
  void forget_one();

  mutable std::mutex mutex_;
  std::map<Key, Entry> entries_;
  std::uint64_t uses_ = 0;
  std::uint64_t generation_ = 0;
  std::optional<Sequences> sequences_;
};

/// The plans of jfa.Plan number `id`; those of all calls without one for 0, and when that jfa.Plan is gone.
std::shared_ptr<PlanSet> plan_set(std::int64_t id);

/// Makes the plans of a new jfa.Plan and returns their number.
std::int64_t new_plan_set();

/// Ends the plans of a jfa.Plan.
void delete_plan_set(std::int64_t id);

}  // namespace jfa_torch

#endif  // JFA_TORCH_PLANS_HPP
