/// @file
/// From PyTorch's tensors to jfa's, with the checks that keep wrong ones out.
#ifndef JFA_TORCH_TENSORS_HPP
#define JFA_TORCH_TENSORS_HPP

#include <jfa/jfa.h>
#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <optional>
#include <string>

namespace jfa_torch {

using torch::stable::Tensor;

/// Throws std::invalid_argument, a ValueError in Python: "jfa: <argument>: <rule>".
[[noreturn]] void refuse(const char* argument, const std::string& rule);

/// Whether both lie on the same device.
bool on_device_of(const Tensor& tensor, const Tensor& other);

/// The jfa_dtype of a tensor, which `argument` names. Refuses types that the tensor's device does not offer.
std::int32_t dtype_of(const char* argument, const Tensor& tensor);

/// The jfa_index_type of offsets. Refuses other types than int32 and int64.
std::int32_t index_type_of(const char* argument, const Tensor& tensor);

/// Refuses `tensor` unless it has three dimensions, the last of them contiguous.
void check_rows(const char* argument, const Tensor& tensor);

/// Refuses `tensor` unless its device and type are those of `q`.
void check_like_q(const char* argument, const Tensor& tensor, const Tensor& q);

/// Refuses `tensor` unless it is a contiguous vector of `size` elements (-1 for any positive number) on the device of
/// `q` and of the type of `offsets`.
void check_vector(const char* argument, const Tensor& tensor, std::int64_t size, const Tensor& q,
                  const Tensor& offsets);

/// A tensor that jfa reads: `[rows, heads, head_dim]`, or `[batch, seqlen, heads, head_dim]`, whose first two
/// dimensions are then the rows. One that jfa cannot read in place, for its alignment or its strides, is copied.
class Rows {
 public:
  explicit Rows(const Tensor& tensor);

  /// Valid while this object lives.
  jfa_const_tensor view() const { return view_; }

 private:
  Tensor tensor_;
  jfa_const_tensor view_;
};

/// Whether offsets in host memory, with no lengths, leave none of `rows` rows out.
bool covers_all_rows(const Tensor& offsets, std::int64_t rows);

}  // namespace jfa_torch

#endif  // JFA_TORCH_TENSORS_HPP
