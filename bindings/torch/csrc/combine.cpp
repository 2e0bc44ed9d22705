/// @file
/// The operator torch.ops.jfa.combine: partial results over parts of the keys, merged.

#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "cuda.hpp"
#include "errors.hpp"
#include "tensors.hpp"

namespace jfa_torch {
namespace {

using torch::headeronly::ScalarType;
using torch::stable::accelerator::DeviceGuard;

/// Unlike attention's, sums may be float32 on every device.
std::int32_t sum_type(const char* argument, ScalarType type) {
  switch (type) {
    case ScalarType::BFloat16:
      return JFA_DTYPE_BF16;
    case ScalarType::Half:
      return JFA_DTYPE_FP16;
    case ScalarType::Float:
      return JFA_DTYPE_FP32;
    default:
      refuse(argument, "must be bfloat16, float16 or float32");
  }
}

std::vector<std::int64_t> shape_of(const Tensor& tensor) { return {tensor.sizes().begin(), tensor.sizes().end()}; }

std::string element(const char* list, std::size_t index) { return list + ("[" + std::to_string(index) + "]"); }

std::tuple<Tensor, Tensor> combine(const std::vector<Tensor>& outs, const std::vector<Tensor>& lses, ScalarType dtype) {
  if (outs.empty()) {
    refuse("outs", "must have at least one part");
  }
  if (lses.size() != outs.size()) {
    refuse("lses",
           "must be as many as outs, " + std::to_string(outs.size()) + ", but are " + std::to_string(lses.size()));
  }
  const Tensor& first = outs[0];
  const std::int64_t dims = first.dim();
  if (dims != 3 && dims != 4) {
    refuse("outs[0]", "must be (rows, heads, head_dim) or (batch, seqlen_q, heads, head_dim), but has " +
                          std::to_string(dims) + " dimensions");
  }
  jfa_combine_args args = JFA_COMBINE_ARGS_INIT;
  args.batch = dims == 4 ? first.size(0) : 1;
  args.rows = first.size(dims - 3);
  args.heads = static_cast<std::int32_t>(first.size(dims - 2));
  args.head_dim = static_cast<std::int32_t>(first.size(dims - 1));
  args.dtype = sum_type("dtype", dtype);
  args.part_dtype = sum_type("outs[0]", first.scalar_type());
  std::vector<std::int64_t> shape_lse = {args.heads, args.rows};
  if (dims == 4) {
    shape_lse.insert(shape_lse.begin(), args.batch);
  }
  std::vector<Rows> rows;
  std::vector<Tensor> contiguous;
  std::vector<jfa_part> parts;
  for (std::size_t i = 0; i < outs.size(); ++i) {
    const std::string name_o = element("outs", i), name_lse = element("lses", i);
    if (!on_device_of(outs[i], first) || outs[i].scalar_type() != first.scalar_type()) {
      refuse(name_o.c_str(), "must be on the device and of the type of outs[0]");
    }
    if (shape_of(outs[i]) != shape_of(first)) {
      refuse(name_o.c_str(), "must have the shape of outs[0]");
    }
    if (!on_device_of(lses[i], first)) {
      refuse(name_lse.c_str(), "must be on the device of outs[0]");
    }
    if (lses[i].scalar_type() != ScalarType::Float) {
      refuse(name_lse.c_str(), "must be float32");
    }
    if (shape_of(lses[i]) != shape_lse) {
      refuse(name_lse.c_str(),
             dims == 4 ? "must be (batch, heads, seqlen_q) to fit outs" : "must be (heads, rows) to fit outs");
    }
    rows.emplace_back(outs[i]);
    contiguous.push_back(torch::stable::contiguous(lses[i]));
    parts.push_back({rows.back().view(), static_cast<const float*>(contiguous.back().data_ptr())});
  }
  std::optional<DeviceGuard> guard;
  jfa_stream stream = nullptr;
  if (first.is_cuda()) {
    args.device_type = JFA_DEVICE_TYPE_CUDA;
    args.device_index = first.get_device_index();
    guard.emplace(first.get_device_index());
    stream = current_stream(first.get_device_index());
  }
  const Tensor o = torch::stable::new_empty(first, shape_of(first), dtype);
  const Tensor lse = torch::stable::new_empty(first, shape_lse, ScalarType::Float);
  args.num_parts = static_cast<std::int64_t>(parts.size());
  args.parts = parts.data();
  args.o.data = o.data_ptr();
  args.lse = static_cast<float*>(lse.data_ptr());
  translating_errors([&] { jfa::combine(args, stream); });
  return {o, lse};
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(jfa, m) {
  m.def("combine(Tensor[] outs, Tensor[] lses, ScalarType dtype) -> (Tensor, Tensor)");
}

STABLE_TORCH_LIBRARY_IMPL(jfa, CPU, m) { m.impl("combine", TORCH_BOX(&combine)); }

STABLE_TORCH_LIBRARY_IMPL(jfa, CUDA, m) { m.impl("combine", TORCH_BOX(&combine)); }

}  // namespace jfa_torch
