/// @file
/// The operator `trainer::attend`: jfa's attention with one dense Q for all sequences, known to PyTorch's autograd.
#ifndef TRAINER_ATTENTION_HPP
#define TRAINER_ATTENTION_HPP

#include <torch/custom_class.h>

#include <cstdint>
#include <jfa/jfa.hpp>

namespace trainer {

/// The largest batch, and the shape of one layer.
struct Shape {
  std::int64_t max_batch, max_rows, max_length;  // Sequences, rows of K and V, keys of a sequence.
  std::int64_t queries, heads, head_dim;
};

/// A plan that all layers of a model share, and the offsets of its batch. A TorchScript class, so that it can be an
/// argument of an operator.
class SharedPlan : public torch::CustomClassHolder {
 public:
  SharedPlan(const Shape& shape, at::Device device, at::ScalarType dtype);

  /// Lists the tiles of a batch, once for the forward and backward of all layers. `kv_offsets` is `[batch + 1]`, int32,
  /// on the plan's device, and stays alive until the next update.
  void update(const at::Tensor& kv_offsets, std::int64_t rows);

  /// O `[batch, queries, heads, head_dim]` and LSE `[batch, heads, queries]`.
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const;

  /// Gradients of q, k and v.
  std::tuple<at::Tensor, at::Tensor, at::Tensor> backward(const at::Tensor& grad_o, const at::Tensor& q,
                                                          const at::Tensor& k, const at::Tensor& v, const at::Tensor& o,
                                                          const at::Tensor& lse) const;

 private:
  jfa_stream stream() const;
  at::Tensor workspace(const at::Tensor& like, std::size_t size) const;

  at::Device device_;
  jfa::Plan plan_;
  jfa::WorkspaceSize workspace_size_;
  at::Tensor kv_offsets_;
};

/// softmax(q K^T / sqrt(head_dim)) V for every sequence of the plan's batch, through PyTorch's dispatcher.
///
/// q is `[queries, heads, head_dim]`, k and v are `[rows, heads, head_dim]`; returns `[batch, queries, heads,
/// head_dim]`.
at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                  const c10::intrusive_ptr<SharedPlan>& plan);

}  // namespace trainer

#endif  // TRAINER_ATTENTION_HPP
