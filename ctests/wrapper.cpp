// jfa.hpp: a plan's ownership, its calls, and its exceptions.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <jfa/jfa.hpp>
#include <string>
#include <type_traits>
#include <utility>

static_assert(!std::is_copy_constructible_v<jfa::Plan> && !std::is_copy_assignable_v<jfa::Plan>);
static_assert(std::is_nothrow_move_constructible_v<jfa::Plan> && std::is_nothrow_move_assignable_v<jfa::Plan>);
static_assert(std::is_base_of_v<std::runtime_error, jfa::Error>);

namespace {

int failures = 0;

void expect(bool holds, const char* what) {
  if (!holds) {
    failures++;
    std::fprintf(stderr, "failed: %s\n", what);
  }
}

/// Runs `call`, which must throw an error of this status whose text has the description and `word`.
template <typename Call>
void expect_error(Call call, jfa_status status, const std::string& word) {
  try {
    call();
  } catch (const jfa::Error& error) {
    const std::string text = error.what();
    expect(error.status() == status, "the status of the exception");
    expect(text.find(jfa_status_string(status)) == 0, "the exception begins with its status");
    expect(text.find(word) != std::string::npos, ("the exception names " + word).c_str());
    return;
  }
  expect(false, ("an exception about " + word).c_str());
}

struct Buffer {
  explicit Buffer(std::size_t size)
      : data(std::aligned_alloc(256, (size + 256) / 256 * 256)), values(static_cast<float*>(data)) {}
  ~Buffer() { std::free(data); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void* data;
  float* values;
};

constexpr int kHeadDim = 8;

jfa_plan_desc description() {
  jfa_plan_desc desc = JFA_PLAN_DESC_INIT;
  desc.dtype = JFA_DTYPE_FP32;
  desc.heads_q = desc.heads_kv = 1;
  desc.head_dim = kHeadDim;
  desc.scale = 0.5f;
  desc.flags = JFA_BROADCAST_Q;
  desc.max_batch = desc.max_total_kv = 2;
  desc.max_seqlen_q = desc.max_seqlen_kv = 1;
  return desc;
}

/// One query and two sequences of one key each: O is V, LSE the scaled score, dV is dO, and dQ and dK are 0.
void run(jfa::Plan& plan) {
  const std::int32_t offsets[] = {0, 1, 2};
  jfa_batch batch = JFA_BATCH_INIT;
  batch.batch = 2;
  batch.kv_offsets = offsets;
  plan.update(batch);
  plan.check();
  const jfa_plan_details details = plan.info();
  expect(details.struct_size == sizeof(details) && details.forward_tiles == 2 && details.backward_tiles == 2,
         "the details");

  const jfa::WorkspaceSize size = plan.workspace_size();
  Buffer workspace(size.forward > size.backward ? size.forward : size.backward);
  constexpr std::size_t row = kHeadDim * sizeof(float);
  Buffer q(row), k(2 * row), v(2 * row), o(2 * row), lse(row), grad_o(2 * row), grad_q(row), grad_k(2 * row),
      grad_v(2 * row);
  for (int c = 0; c < 2 * kHeadDim; c++) {
    q.values[c % kHeadDim] = 1;
    k.values[c] = static_cast<float>(c);
    v.values[c] = static_cast<float>(100 - c);
    grad_o.values[c] = static_cast<float>(c - 5);
  }
  jfa_forward_args forward = JFA_FORWARD_ARGS_INIT;
  forward.q.data = q.data;
  forward.k.data = k.data;
  forward.v.data = v.data;
  forward.o.data = o.data;
  forward.lse = lse.values;
  forward.workspace = workspace.data;
  forward.workspace_size = size.forward;
  plan.forward(forward);
  jfa_backward_args backward = JFA_BACKWARD_ARGS_INIT;
  backward.q.data = q.data;
  backward.k.data = k.data;
  backward.v.data = v.data;
  backward.o.data = o.data;
  backward.grad_o.data = grad_o.data;
  backward.lse = lse.values;
  backward.grad_q.data = grad_q.data;
  backward.grad_k.data = grad_k.data;
  backward.grad_v.data = grad_v.data;
  backward.workspace = workspace.data;
  backward.workspace_size = size.backward;
  plan.backward(backward);

  expect(std::fabs(lse.values[0] - 14) < 1e-4f && std::fabs(lse.values[1] - 46) < 1e-4f, "LSE");
  for (int c = 0; c < 2 * kHeadDim; c++) {
    expect(std::fabs(o.values[c] - v.values[c]) < 1e-3f, "O is V");
    expect(std::fabs(grad_v.values[c] - grad_o.values[c]) < 1e-4f, "dV is dO");
    expect(std::fabs(grad_k.values[c]) < 1e-2f && std::fabs(grad_q.values[c % kHeadDim]) < 1e-1f, "dK and dQ are 0");
  }
  forward.q.data = nullptr;
  backward.grad_v.data = nullptr;
  expect_error([&] { plan.forward(forward); }, JFA_STATUS_NULL_POINTER, "q is null");
  expect_error([&] { plan.backward(backward); }, JFA_STATUS_NULL_POINTER, "grad_v is null");
}

}  // namespace

int main() {
  expect_error([] { jfa::Plan plan(jfa_plan_desc(JFA_PLAN_DESC_INIT)); }, JFA_STATUS_INVALID_ARGUMENT, "dtype");

  jfa::Plan plan(description());
  expect_error([&] { plan.check(); }, JFA_STATUS_NOT_READY, "jfa_plan_update");
  expect_error([&] { plan.info(); }, JFA_STATUS_NOT_READY, "jfa_plan_update");
  expect_error([&] { plan.update(jfa_batch(JFA_BATCH_INIT)); }, JFA_STATUS_NULL_POINTER, "kv_offsets");
  run(plan);

  jfa_plan* handle = plan.get();
  jfa::Plan moved = std::move(plan);
  expect(moved.get() == handle && plan.get() == nullptr, "a move hands over the handle");  // NOLINT
  run(moved);
  jfa::Plan other(description());
  other = std::move(moved);
  expect(other.get() == handle, "so does an assignment");
  run(other);

  std::printf("%d failed\n", failures);
  return failures == 0 ? 0 : 1;
}
