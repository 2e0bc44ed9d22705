// Both headers alone, twice, in C++17.
#include <jfa/jfa.hpp>
#include <jfa/jfa.hpp>  // NOLINT: the second inclusion must do nothing

using cudaStream_t = struct CUstream_st*;

unsigned version_of_other_unit();

int main() {
  cudaStream_t stream = nullptr;
  const jfa_plan_desc desc = JFA_PLAN_DESC_INIT;
  const jfa_batch batch = JFA_BATCH_INIT;
  try {
    jfa::Plan plan(desc);
    plan.update(batch, stream);
  } catch (const jfa::Error& error) {
    return error.status() == JFA_STATUS_INVALID_ARGUMENT && version_of_other_unit() == JFA_VERSION ? 0 : 1;
  }
  return 1;
}
