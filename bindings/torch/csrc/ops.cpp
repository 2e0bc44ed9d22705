/// @file
/// The operators torch.ops.jfa.*, over jfa's C ABI and PyTorch's stable ABI. Shapes without data, gradients and
/// autocast are registered in Python: the stable ABI has no C++ for them.

#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <limits>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "errors.hpp"
#include "plans.hpp"
#include "tensors.hpp"

namespace jfa_torch {
namespace {

using torch::headeronly::ScalarType;
using torch::stable::accelerator::DeviceGuard;

/// The arguments that forward and backward have in common, checked.
struct Call {
  Tensor q, k, v;
  Sequences sequences;
  jfa_plan_desc desc = JFA_PLAN_DESC_INIT;
  jfa_batch batch = JFA_BATCH_INIT;
  std::vector<std::int64_t> shape_o = {}, shape_lse = {};
  bool clear_q = false;   // Some rows of packed Q may be in no sequence.
  bool clear_kv = false;  // Some rows of K and V may be.
  Lane lane = {};
  std::shared_ptr<PlanSet> plans = nullptr;
  std::shared_ptr<Slot> slot = nullptr;

  bool broadcast() const { return !sequences.q_offsets.has_value(); }

  /// A fresh tensor on q's device: cleared to `value` if some of it may stay unwritten.
  Tensor output(const std::vector<std::int64_t>& shape, ScalarType type, bool clear, double value = 0) const {
    Tensor tensor = torch::stable::new_empty(q, shape, type);
    return clear && tensor.numel() > 0 ? torch::stable::fill_(tensor, value) : tensor;
  }

  void find_plan(std::int64_t plan_id) {
    if (q.is_cuda()) {
      lane.stream = current_stream(q.get_device_index());
      lane.capture = capture_id(q.get_device_index(), lane.stream);
    }
    plans = plan_set(plan_id);
    slot = translating_errors([&] { return plans->find(desc, lane); });
  }

  template <typename Use>
  void run(Use use) {
    translating_errors([&] { slot->run(batch, plans->generation_of(sequences), lane, use); });
  }
};

/// Memory for one call, aligned as jfa wants it; PyTorch's allocator keeps it until the stream has passed.
class Workspace {
 public:
  Workspace(const Tensor& like, std::size_t size)
      : size_(size),
        memory_(torch::stable::new_empty(like, {static_cast<std::int64_t>(size == 0 ? 0 : size + kAlignment)},
                                         ScalarType::Byte)) {}

  void* data() const {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data_ptr());
    return size_ == 0 ? nullptr : reinterpret_cast<void*>((address + kAlignment - 1) / kAlignment * kAlignment);
  }

  std::size_t size() const { return size_; }

 private:
  static constexpr std::size_t kAlignment = 256;
  std::size_t size_;
  Tensor memory_;
};

std::int32_t narrow(const char* argument, std::int64_t value) {
  if (value < std::numeric_limits<std::int32_t>::min() || value > std::numeric_limits<std::int32_t>::max()) {
    refuse(argument, std::to_string(value) + " does not fit 32 bits");
  }
  return static_cast<std::int32_t>(value);
}

Call make_call(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& kv_offsets,
               const std::optional<Tensor>& q_offsets, const std::optional<Tensor>& kv_lengths,
               std::int64_t max_seqlen_q, std::int64_t max_seqlen_kv, std::int64_t window_left,
               std::int64_t window_right, bool bottom_right, double scale, bool deterministic, bool no_gaps) {
  Call call{q, k, v, {kv_offsets, q_offsets, kv_lengths}};
  check_rows("q", q), check_rows("k", k), check_rows("v", v);
  check_like_q("k", k, q), check_like_q("v", v, q);
  check_vector("kv_offsets", kv_offsets, -1, q, kv_offsets);
  const std::int64_t batch = kv_offsets.numel() - 1;
  if (q_offsets) {
    check_vector("q_offsets", *q_offsets, batch + 1, q, kv_offsets);
  }
  if (kv_lengths) {
    check_vector("kv_lengths", *kv_lengths, batch, q, kv_offsets);
  }
  if (k.size(2) != q.size(2)) {
    refuse("k", "must have q's head_dim " + std::to_string(q.size(2)) + ", but has " + std::to_string(k.size(2)));
  }
  for (std::int64_t dim = 0; dim < 3; ++dim) {
    if (v.size(dim) != k.size(dim)) {
      refuse("v", "must have the shape of k");
    }
  }
  if (k.size(1) == 0 || q.size(1) % k.size(1) != 0) {
    refuse("q", "its " + std::to_string(q.size(1)) + " heads must be a multiple of the " + std::to_string(k.size(1)) +
                    " heads of k");
  }

  const std::int64_t rows = q.size(0), heads = q.size(1), dim = q.size(2);
  jfa_plan_desc& desc = call.desc;
  desc.device_type = q.is_cuda() ? JFA_DEVICE_TYPE_CUDA : JFA_DEVICE_TYPE_CPU;
  desc.device_index = q.is_cuda() ? q.get_device_index() : 0;
  desc.dtype = dtype_of("q", q);
  desc.index_type = index_type_of("kv_offsets", kv_offsets);
  desc.heads_q = narrow("q", heads);
  desc.heads_kv = narrow("k", k.size(1));
  desc.head_dim = narrow("q", dim);
  desc.window_left = narrow("window_left", window_left);
  desc.window_right = narrow("window_right", window_right);
  desc.alignment = bottom_right ? JFA_ALIGNMENT_BOTTOM_RIGHT : JFA_ALIGNMENT_TOP_LEFT;
  desc.scale = static_cast<float>(scale);
  desc.flags = (call.broadcast() ? JFA_BROADCAST_Q : 0u) | (deterministic ? JFA_DETERMINISTIC : 0u);
  desc.max_batch = batch;
  desc.max_total_q = call.broadcast() ? 0 : rows;
  desc.max_total_kv = k.size(0);
  desc.max_seqlen_q = call.broadcast() ? rows : max_seqlen_q;
  desc.max_seqlen_kv = max_seqlen_kv;
  call.batch.batch = batch;
  call.batch.total_q = desc.max_total_q;
  call.batch.total_kv = desc.max_total_kv;
  call.batch.kv_offsets = kv_offsets.data_ptr();
  call.batch.q_offsets = q_offsets ? q_offsets->data_ptr() : nullptr;
  call.batch.kv_lengths = kv_lengths ? kv_lengths->data_ptr() : nullptr;

  if (call.broadcast()) {
    call.shape_o = {batch, rows, heads, dim};
    call.shape_lse = {batch, heads, rows};
  } else {
    call.shape_o = {rows, heads, dim};
    call.shape_lse = {heads, rows};
  }
  if (q.is_cpu()) {
    call.clear_q = !call.broadcast() && !covers_all_rows(*q_offsets, rows);
    call.clear_kv = kv_lengths || !covers_all_rows(kv_offsets, k.size(0));
    if (no_gaps && (call.clear_q || call.clear_kv)) {
      refuse("no_gaps", "the sequences must cover every row of q, k and v");
    }
  } else {
    call.clear_q = !call.broadcast() && !no_gaps;
    call.clear_kv = !no_gaps;
  }
  return call;
}

std::vector<std::int64_t> shape_of(const Tensor& tensor) { return {tensor.sizes().begin(), tensor.sizes().end()}; }

std::tuple<Tensor, Tensor> forward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& kv_offsets,
                                   const std::optional<Tensor>& q_offsets, const std::optional<Tensor>& kv_lengths,
                                   std::int64_t max_seqlen_q, std::int64_t max_seqlen_kv, std::int64_t window_left,
                                   std::int64_t window_right, bool bottom_right, double scale, bool deterministic,
                                   bool no_gaps, std::int64_t plan) {
  Call call = make_call(q, k, v, kv_offsets, q_offsets, kv_lengths, max_seqlen_q, max_seqlen_kv, window_left,
                        window_right, bottom_right, scale, deterministic, no_gaps);
  std::optional<DeviceGuard> guard;
  if (q.is_cuda()) {
    guard.emplace(q.get_device_index());
  }
  call.find_plan(plan);
  const Tensor o = call.output(call.shape_o, q.scalar_type(), call.clear_q);
  const Tensor lse =
      call.output(call.shape_lse, ScalarType::Float, call.clear_q, -std::numeric_limits<double>::infinity());
  const Workspace workspace(q, call.slot->workspace_size().forward);
  const Rows rows_q(q), rows_k(k), rows_v(v);

  jfa_forward_args args = JFA_FORWARD_ARGS_INIT;
  args.q = rows_q.view(), args.k = rows_k.view(), args.v = rows_v.view();
  args.o.data = o.data_ptr();
  args.lse = static_cast<float*>(lse.data_ptr());
  args.workspace = workspace.data(), args.workspace_size = workspace.size();
  call.run([&](const jfa::Plan& made) { made.forward(args, call.lane.stream); });
  return {o, lse};
}

std::tuple<Tensor, Tensor, Tensor> backward(const Tensor& grad_o, const Tensor& q, const Tensor& k, const Tensor& v,
                                            const Tensor& o, const Tensor& lse, const Tensor& kv_offsets,
                                            const std::optional<Tensor>& q_offsets,
                                            const std::optional<Tensor>& kv_lengths, std::int64_t max_seqlen_q,
                                            std::int64_t max_seqlen_kv, std::int64_t window_left,
                                            std::int64_t window_right, bool bottom_right, double scale,
                                            bool deterministic, bool no_gaps, std::int64_t plan) {
  Call call = make_call(q, k, v, kv_offsets, q_offsets, kv_lengths, max_seqlen_q, max_seqlen_kv, window_left,
                        window_right, bottom_right, scale, deterministic, no_gaps);
  check_like_q("grad_o", grad_o, q), check_like_q("o", o, q);
  if (shape_of(grad_o) != call.shape_o) {
    refuse("grad_o", "must have the shape of o");
  }
  if (shape_of(o) != call.shape_o) {
    refuse("o", "must be the forward's");
  }
  if (shape_of(lse) != call.shape_lse || lse.scalar_type() != ScalarType::Float || !lse.is_contiguous()) {
    refuse("lse", "must be the forward's");
  }
  std::optional<DeviceGuard> guard;
  if (q.is_cuda()) {
    guard.emplace(q.get_device_index());
  }
  call.find_plan(plan);
  const Tensor grad_q = call.output(shape_of(q), q.scalar_type(), call.clear_q);
  const Tensor grad_k = call.output(shape_of(k), q.scalar_type(), call.clear_kv);
  const Tensor grad_v = call.output(shape_of(v), q.scalar_type(), call.clear_kv);
  const Workspace workspace(q, call.slot->workspace_size().backward);
  const Rows rows_q(q), rows_k(k), rows_v(v), rows_o(o), rows_grad_o(grad_o);

  jfa_backward_args args = JFA_BACKWARD_ARGS_INIT;
  args.q = rows_q.view(), args.k = rows_k.view(), args.v = rows_v.view();
  args.o = rows_o.view(), args.grad_o = rows_grad_o.view();
  args.lse = static_cast<const float*>(lse.data_ptr());
  args.grad_q.data = grad_q.data_ptr(), args.grad_k.data = grad_k.data_ptr(), args.grad_v.data = grad_v.data_ptr();
  args.workspace = workspace.data(), args.workspace_size = workspace.size();
  call.run([&](const jfa::Plan& made) { made.backward(args, call.lane.stream); });
  return {grad_q, grad_k, grad_v};
}

void plan_update(std::int64_t plan, const Tensor& kv_offsets, const std::optional<Tensor>& q_offsets,
                 const std::optional<Tensor>& kv_lengths) {
  plan_set(plan)->begin({kv_offsets, q_offsets, kv_lengths});
}

void plan_check(std::int64_t plan) {
  translating_errors([&] { plan_set(plan)->check(); });
}

std::int64_t version() { return jfa_version(); }

}  // namespace

STABLE_TORCH_LIBRARY(jfa, m) {
  m.def(
      "forward(Tensor q, Tensor k, Tensor v, Tensor kv_offsets, Tensor? q_offsets, Tensor? kv_lengths, SymInt "
      "max_seqlen_q, SymInt max_seqlen_kv, int window_left, int window_right, bool bottom_right, float scale, bool "
      "deterministic, bool no_gaps, int plan) -> (Tensor, Tensor)");
  m.def(
      "backward(Tensor grad_o, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, Tensor kv_offsets, Tensor? "
      "q_offsets, Tensor? kv_lengths, SymInt max_seqlen_q, SymInt max_seqlen_kv, int window_left, int window_right, "
      "bool bottom_right, float scale, bool deterministic, bool no_gaps, int plan) -> (Tensor, Tensor, Tensor)");
  m.def("plan_new() -> int");
  m.def("plan_update(int plan, Tensor kv_offsets, Tensor? q_offsets, Tensor? kv_lengths) -> ()");
  m.def("plan_check(int plan) -> ()");
  m.def("plan_delete(int plan) -> ()");
  m.def("version() -> int");
}

STABLE_TORCH_LIBRARY_IMPL(jfa, CPU, m) {
  m.impl("forward", TORCH_BOX(&forward));
  m.impl("backward", TORCH_BOX(&backward));
}

STABLE_TORCH_LIBRARY_IMPL(jfa, CUDA, m) {
  m.impl("forward", TORCH_BOX(&forward));
  m.impl("backward", TORCH_BOX(&backward));
}

STABLE_TORCH_LIBRARY_IMPL(jfa, CompositeExplicitAutograd, m) {
  m.impl("plan_new", TORCH_BOX(&new_plan_set));
  m.impl("plan_update", TORCH_BOX(&plan_update));
  m.impl("plan_check", TORCH_BOX(&plan_check));
  m.impl("plan_delete", TORCH_BOX(&delete_plan_set));
  m.impl("version", TORCH_BOX(&version));
}

}  // namespace jfa_torch
