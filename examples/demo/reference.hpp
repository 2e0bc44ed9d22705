// Attention in float64 by its definition, for comparison.
#pragma once

#include "element.hpp"

#include <cstdint>
#include <functional>
#include <vector>

struct Shape {
  std::int64_t queries;
  std::int64_t heads;
  std::int64_t head_dim;
};

// Host copies of what the library got: Q [queries, heads, head_dim], K and V [rows, heads, head_dim],
// dO [batch, queries, heads, head_dim].
struct Inputs {
  Shape shape;
  std::vector<std::int32_t> offsets;
  Elements q, k, v, grad_o;
};

// Host copies of what it wrote, in the shapes of dO, Q, K and V.
struct Outputs {
  Elements o, grad_q, grad_k, grad_v;
};

// Norm of the difference over the norm of the reference.
struct Errors {
  double o, grad_q, grad_k, grad_v;
};

// O, dK and dV are compared on the sequences that `sampled` names, dQ with the sum over all. Runs on all cores and
// calls `done` after each sequence, from any thread.
Errors compare(const Inputs& inputs, const Outputs& outputs, const std::vector<bool>& sampled,
               const std::function<void()>& done);
