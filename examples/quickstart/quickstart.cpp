#include <cstdio>
#include <cstdlib>
#include <jfa/jfa.hpp>
#include <memory>
#include <vector>

int main() {
  const int heads = 2, dim = 64, row = heads * dim;
  const std::vector<int32_t> offsets = {0, 3, 3, 8};  // Sequences of 3, 0 and 5 keys, one after the other.
  std::vector<float> q(4 * row, 0.5f), k(8 * row, 0.5f), v(8 * row), o(3 * 4 * row);
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i / row);  // Row r holds r everywhere.

  jfa_plan_desc desc = JFA_PLAN_DESC_INIT;  // On the CPU, without a mask.
  desc.dtype = JFA_DTYPE_FP32;
  desc.heads_q = desc.heads_kv = heads, desc.head_dim = dim;
  desc.flags = JFA_BROADCAST_Q;  // All sequences share the 4 queries.
  desc.max_batch = 3, desc.max_total_kv = 8, desc.max_seqlen_q = 4, desc.max_seqlen_kv = 5;
  jfa::Plan plan(desc);

  jfa_batch batch = JFA_BATCH_INIT;
  batch.batch = 3, batch.kv_offsets = offsets.data();
  plan.update(batch);

  jfa_forward_args args = JFA_FORWARD_ARGS_INIT;
  args.q.data = q.data(), args.k.data = k.data(), args.v.data = v.data(), args.o.data = o.data();
  args.workspace_size = plan.workspace_size().forward;
  const std::unique_ptr<void, void (*)(void*)> workspace(std::aligned_alloc(256, args.workspace_size), std::free);
  args.workspace = workspace.get();
  plan.forward(args);
  for (int b = 0; b < 3; ++b) std::printf("sequence %d: O = %.2f\n", b, o[b * 4 * row]);
}
