#include "model.hpp"

#include <string>

namespace trainer {

PoolingImpl::PoolingImpl(const Catalogue& catalogue, const Sizes& sizes)
    : sizes_(sizes),
      embedding_(register_module("embedding", torch::nn::Embedding(catalogue.items, sizes.width))),
      scores_(register_module(
          "scores", torch::nn::Linear(sizes.layers * sizes.queries * sizes.heads * sizes.head_dim, catalogue.topics))) {
  const std::int64_t inner = sizes.heads * sizes.head_dim;
  for (std::int64_t layer = 0; layer < sizes.layers; ++layer) {
    const std::string number = std::to_string(layer);
    mix_.push_back(register_module("mix" + number, torch::nn::Linear(sizes.width, sizes.width)));
    keys_.push_back(register_module("keys" + number, torch::nn::Linear(sizes.width, inner)));
    values_.push_back(register_module("values" + number, torch::nn::Linear(sizes.width, inner)));
    seeds_.push_back(register_parameter("seeds" + number, torch::randn({sizes.queries, sizes.heads, sizes.head_dim})));
  }
}

torch::Tensor PoolingImpl::forward(const torch::Tensor& items, const Attention& attention, torch::ScalarType dtype) {
  torch::Tensor x = embedding_(items);
  std::vector<torch::Tensor> pooled;
  for (std::size_t layer = 0; layer < seeds_.size(); ++layer) {
    x = x + torch::relu(mix_[layer](x));
    const auto heads = [&](torch::Tensor rows) { return rows.view({-1, sizes_.heads, sizes_.head_dim}).to(dtype); };
    const torch::Tensor o = attention(seeds_[layer].to(dtype), heads(keys_[layer](x)), heads(values_[layer](x)));
    pooled.push_back(o.flatten(1).to(torch::kFloat));
  }
  return scores_(torch::cat(pooled, 1));
}

}  // namespace trainer
