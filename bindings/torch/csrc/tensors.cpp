#include "tensors.hpp"

#include <torch/csrc/stable/ops.h>

#include <stdexcept>

namespace jfa_torch {
namespace {

using torch::headeronly::ScalarType;

/// What jfa asks of pointers and strides, in bytes.
constexpr std::int64_t kAlignment = 16;

/// The type as Python spells it.
std::string name_of(const Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case ScalarType::BFloat16:
      return "bfloat16";
    case ScalarType::Half:
      return "float16";
    case ScalarType::Float:
      return "float32";
    case ScalarType::Double:
      return "float64";
    case ScalarType::Int:
      return "int32";
    case ScalarType::Long:
      return "int64";
    default:
      return torch::headeronly::toString(tensor.scalar_type());
  }
}

/// The strides of rows and heads, or nothing if jfa cannot read the tensor in place.
std::optional<jfa_const_tensor> in_place(const Tensor& tensor) {
  const std::int64_t dims = tensor.dim();
  const auto usable = [&](std::int64_t dim) {
    const std::int64_t stride = tensor.stride(dim);
    const auto bytes = stride * static_cast<std::int64_t>(tensor.element_size());
    return tensor.size(dim) <= 1 || (stride > 0 && bytes % kAlignment == 0);
  };
  const bool contiguous_head = tensor.size(dims - 1) == 1 || tensor.stride(dims - 1) == 1;
  if (!contiguous_head || !usable(dims - 2) || !usable(dims - 3) ||
      reinterpret_cast<std::uintptr_t>(tensor.data_ptr()) % kAlignment != 0) {
    return std::nullopt;
  }
  std::int64_t row_stride = tensor.size(dims - 3) > 1 ? tensor.stride(dims - 3) : 0;
  if (dims == 4 && tensor.size(0) > 1) {
    if (tensor.size(1) <= 1) {
      if (!usable(0)) {
        return std::nullopt;
      }
      row_stride = tensor.stride(0);
    } else if (tensor.stride(0) != tensor.size(1) * tensor.stride(1)) {
      return std::nullopt;
    }
  }
  return jfa_const_tensor{tensor.data_ptr(), row_stride, tensor.size(dims - 2) > 1 ? tensor.stride(dims - 2) : 0};
}

}  // namespace

void refuse(const char* argument, const std::string& rule) {
  throw std::invalid_argument(std::string("jfa: ") + argument + ": " + rule);
}

bool on_device_of(const Tensor& tensor, const Tensor& other) {
  return tensor.is_cuda() == other.is_cuda() && tensor.is_cpu() == other.is_cpu() &&
         tensor.get_device_index() == other.get_device_index();
}

std::int32_t dtype_of(const char* argument, const Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case ScalarType::BFloat16:
      return JFA_DTYPE_BF16;
    case ScalarType::Half:
      return JFA_DTYPE_FP16;
    case ScalarType::Float:
      if (tensor.is_cpu()) {
        return JFA_DTYPE_FP32;
      }
      refuse(argument, "float32 is for tensors of the CPU; on CUDA use bfloat16 or float16");
    default:
      refuse(argument, "must be bfloat16, float16 or, on the CPU, float32, but is " + name_of(tensor));
  }
}

std::int32_t index_type_of(const char* argument, const Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case ScalarType::Int:
      return JFA_INDEX_TYPE_INT32;
    case ScalarType::Long:
      return JFA_INDEX_TYPE_INT64;
    default:
      refuse(argument, "must be int32 or int64, but is " + name_of(tensor));
  }
}

void check_rows(const char* argument, const Tensor& tensor) {
  if (tensor.dim() != 3) {
    refuse(argument, "must have 3 dimensions (rows, heads, head_dim), but has " + std::to_string(tensor.dim()));
  }
  if (tensor.size(2) > 1 && tensor.stride(2) != 1) {
    refuse(argument, "the last dimension must be contiguous, but its stride is " + std::to_string(tensor.stride(2)));
  }
}

void check_like_q(const char* argument, const Tensor& tensor, const Tensor& q) {
  if (!on_device_of(tensor, q)) {
    refuse(argument, "must be on the device of q");
  }
  if (tensor.scalar_type() != q.scalar_type()) {
    refuse(argument, "must be of q's type " + name_of(q) + ", but is " + name_of(tensor));
  }
}

void check_vector(const char* argument, const Tensor& tensor, std::int64_t size, const Tensor& q,
                  const Tensor& offsets) {
  if (!on_device_of(tensor, q)) {
    refuse(argument, "must be on the device of q");
  }
  index_type_of(argument, tensor);
  if (tensor.scalar_type() != offsets.scalar_type()) {
    refuse(argument, "must be of kv_offsets' type " + name_of(offsets) + ", but is " + name_of(tensor));
  }
  if (tensor.dim() != 1 || !tensor.is_contiguous()) {
    refuse(argument, "must be a contiguous vector");
  }
  if (size < 0 && tensor.numel() == 0) {
    refuse(argument, "must have batch + 1 elements, so at least one");
  }
  if (size >= 0 && tensor.numel() != size) {
    refuse(argument, "must have " + std::to_string(size) + " elements to fit kv_offsets, but has " +
                         std::to_string(tensor.numel()));
  }
}

Rows::Rows(const Tensor& tensor) : tensor_(tensor) {
  std::optional<jfa_const_tensor> view = in_place(tensor_);
  if (!view) {
    tensor_ = torch::stable::clone(torch::stable::contiguous(tensor_));
    view = jfa_const_tensor{tensor_.data_ptr(), 0, 0};
  }
  view_ = *view;
}

bool covers_all_rows(const Tensor& offsets, std::int64_t rows) {
  const std::int64_t last = offsets.numel() - 1;
  const auto ends = [&](const auto* values) { return values[0] == 0 && values[last] == rows; };
  return offsets.scalar_type() == ScalarType::Int ? ends(static_cast<const std::int32_t*>(offsets.data_ptr()))
                                                  : ends(static_cast<const std::int64_t*>(offsets.data_ptr()));
}

}  // namespace jfa_torch
