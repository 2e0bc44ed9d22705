#include "plans.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace jfa_torch {
namespace {

/// Plans that a set keeps, besides those of CUDA graphs.
constexpr std::size_t kMaxPlans = 64;

/// Set by users who look for a bad batch: every update is checked, which synchronises with the GPU.
bool check_updates() {
  static const bool on = [] {
    const char* text = std::getenv("JFA_TORCH_CHECK");
    return text != nullptr && std::strcmp(text, "") != 0 && std::strcmp(text, "0") != 0;
  }();
  return on;
}

/// The next number that has at most three significant bits: at most a quarter more.
std::int64_t round_up(std::int64_t value) {
  std::int64_t step = 1;
  while (value > 8 * step) {
    step *= 2;
  }
  return (value + step - 1) / step * step;
}

bool same(const Tensor& a, const Tensor& b) { return a.data_ptr() == b.data_ptr() && a.numel() == b.numel(); }

bool same(const std::optional<Tensor>& a, const std::optional<Tensor>& b) {
  return a.has_value() == b.has_value() && (!a || same(*a, *b));
}

/// All sets by number. Never destroyed: at exit, CUDA may be gone before this library.
struct Registry {
  std::mutex mutex;
  std::map<std::int64_t, std::shared_ptr<PlanSet>> sets{{0, std::make_shared<PlanSet>()}};
  std::int64_t next = 1;
};

Registry& registry() {
  static Registry* const registry = new Registry;
  return *registry;
}

}  // namespace

bool Sequences::same(const Sequences& other) const {
  return jfa_torch::same(kv_offsets, other.kv_offsets) && jfa_torch::same(q_offsets, other.q_offsets) &&
         jfa_torch::same(kv_lengths, other.kv_lengths);
}

void Slot::update(const jfa_batch& batch, std::uint64_t generation, Lane lane) {
  // What a graph replays must contain the planner, hence the capture; tensor maps hold the numbers of rows.
  const std::array<std::uint64_t, 4> wanted = {generation, lane.capture, static_cast<std::uint64_t>(batch.total_q),
                                               static_cast<std::uint64_t>(batch.total_kv)};
  if (ready_ && generation != 0 && made_for_ == wanted) {
    return;
  }
  ready_ = false;
  plan_.update(batch, lane.stream);
  if (check_updates() && lane.capture == 0) {
    plan_.check();
  }
  ready_ = true;
  made_for_ = wanted;
}

void Slot::check() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (ready_) {
    plan_.check();
  }
}

PlanSet::Key PlanSet::key_of(const jfa_plan_desc& desc, Lane lane) {
  std::int32_t scale = 0;
  std::memcpy(&scale, &desc.scale, sizeof(scale));
  // All captures share a lane, which no stream's address equals.
  const auto stream = lane.capture == 0 ? reinterpret_cast<std::intptr_t>(lane.stream) : -1;
  return {desc.device_type,  desc.device_index, desc.dtype,         desc.grad_q_dtype,
          desc.index_type,   desc.heads_q,      desc.heads_kv,      desc.head_dim,
          desc.window_left,  desc.window_right, desc.alignment,     scale,
          desc.flags,        desc.max_workers,  desc.max_batch,     desc.max_total_q,
          desc.max_total_kv, desc.max_seqlen_q, desc.max_seqlen_kv, stream};
}

std::shared_ptr<Slot> PlanSet::find(const jfa_plan_desc& desc, Lane lane) {
  jfa_plan_desc rounded = desc;
  for (std::int64_t* maximum :
       {&rounded.max_batch, &rounded.max_total_q, &rounded.max_total_kv, &rounded.max_seqlen_kv}) {
    *maximum = round_up(*maximum);
  }
  if ((desc.flags & JFA_BROADCAST_Q) == 0) {
    rounded.max_seqlen_q = round_up(desc.max_seqlen_q);  // With broadcast Q it is the exact number of rows.
  }
  try {
    return find_exactly(rounded, lane);
  } catch (const jfa::Error&) {
    // Rounded up past a limit, or wrong anyway: the second error has the caller's own numbers.
    return find_exactly(desc, lane);
  }
}

std::shared_ptr<Slot> PlanSet::find_exactly(const jfa_plan_desc& desc, Lane lane) {
  const Key key = key_of(desc, lane);
  const std::lock_guard<std::mutex> lock(mutex_);
  auto found = entries_.find(key);
  if (found == entries_.end()) {
    auto slot = lane.capture == 0 ? std::make_shared<Slot>(desc) : take_over(key);
    if (lane.capture == 0) {
      forget_one();
    }
    found = entries_.emplace(key, Entry{std::move(slot)}).first;
  }
  found->second.last_use = ++uses_;
  return found->second.slot;
}

/// A plan cannot be made under capture, so a graph takes one that a stream has used before. The stream makes itself
/// another one: from now on the graph's replays use this one, whenever they come.
std::shared_ptr<Slot> PlanSet::take_over(const Key& key) {
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (std::equal(key.begin(), key.end() - 1, entry->first.begin())) {
      auto slot = std::move(entry->second.slot);
      entries_.erase(entry);
      return slot;
    }
  }
  throw std::runtime_error(
      "jfa: no plan can be made while a CUDA graph is captured: call the captured function once before, with tensors "
      "of "
      "the same shapes");
}

void PlanSet::forget_one() {
  auto oldest = entries_.end();
  std::size_t count = 0;
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (entry->first.back() == -1) {
      continue;  // A graph may still replay it.
    }
    ++count;
    if (oldest == entries_.end() || entry->second.last_use < oldest->second.last_use) {
      oldest = entry;
    }
  }
  if (count >= kMaxPlans) {
    entries_.erase(oldest);
  }
}

void PlanSet::begin(Sequences sequences) {
  const std::lock_guard<std::mutex> lock(mutex_);
  // The set keeps the tensors, so that their addresses name them.
  sequences_ = std::move(sequences);
  ++generation_;
}

std::uint64_t PlanSet::generation_of(const Sequences& sequences) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return sequences_ && sequences_->same(sequences) ? generation_ : 0;
}

void PlanSet::check() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& entry : entries_) {
    entry.second.slot->check();
  }
}

std::shared_ptr<PlanSet> plan_set(std::int64_t id) {
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.sets.find(id);
  return found == all.sets.end() ? all.sets.at(0) : found->second;
}

std::int64_t new_plan_set() {
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.sets.emplace(all.next, std::make_shared<PlanSet>());
  return all.next++;
}

void delete_plan_set(std::int64_t id) {
  std::shared_ptr<PlanSet> gone;  // Destroyed without the lock.
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.sets.find(id);
  if (id != 0 && found != all.sets.end()) {
    gone = std::move(found->second);
    all.sets.erase(found);
  }
}

}  // namespace jfa_torch
