/// @file
/// Attention pooling: a few learned queries look at a user's whole history.
#ifndef TRAINER_MODEL_HPP
#define TRAINER_MODEL_HPP

#include <torch/torch.h>

#include <functional>
#include <vector>

#include "data.hpp"

namespace trainer {

/// Sizes of the model.
struct Sizes {
  std::int64_t width = 64;   // Elements of an item's embedding.
  std::int64_t layers = 2;   // Poolings, each after another transformation of the items.
  std::int64_t queries = 4;  // Learned queries of a layer.
  std::int64_t heads = 2;
  std::int64_t head_dim = 32;
};

/// O `[users, queries, heads, head_dim]` of q `[queries, heads, head_dim]` and k, v `[rows, heads, head_dim]`.
using Attention = std::function<torch::Tensor(torch::Tensor q, torch::Tensor k, torch::Tensor v)>;

/// Scores of the topics, `[users, topics]`, from the items of all histories.
class PoolingImpl : public torch::nn::Module {
 public:
  PoolingImpl(const Catalogue& catalogue, const Sizes& sizes);

  /// `attention` knows which rows belong to which user; it runs in `dtype`.
  torch::Tensor forward(const torch::Tensor& items, const Attention& attention, torch::ScalarType dtype);

 private:
  Sizes sizes_;
  torch::nn::Embedding embedding_;
  std::vector<torch::nn::Linear> mix_, keys_, values_;
  std::vector<torch::Tensor> seeds_;  // [queries, heads, head_dim]
  torch::nn::Linear scores_;
};
TORCH_MODULE(Pooling);

}  // namespace trainer

#endif  // TRAINER_MODEL_HPP
