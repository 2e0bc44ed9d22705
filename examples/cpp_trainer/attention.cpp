#include "attention.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

// From libtorch's C interface, which declares it for builds with CUDA only; weak, because a libtorch without CUDA lacks
// it. It spares the program CUDA's headers.
extern "C" __attribute__((weak)) std::int32_t aoti_torch_get_current_cuda_stream(std::int32_t device_index,
                                                                                 void** ret_stream);

namespace trainer {
namespace {

std::int32_t jfa_dtype_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kBFloat16:
      return JFA_DTYPE_BF16;
    case at::kHalf:
      return JFA_DTYPE_FP16;
    default:
      TORCH_CHECK(dtype == at::kFloat, "no attention in ", dtype);
      return JFA_DTYPE_FP32;
  }
}

jfa_plan_desc describe(const Shape& shape, at::Device device, at::ScalarType dtype) {
  jfa_plan_desc desc = JFA_PLAN_DESC_INIT;
  desc.device_type = device.is_cuda() ? JFA_DEVICE_TYPE_CUDA : JFA_DEVICE_TYPE_CPU;
  desc.device_index = device.is_cuda() ? device.index() : 0;
  desc.dtype = jfa_dtype_of(dtype);
  desc.heads_q = desc.heads_kv = static_cast<std::int32_t>(shape.heads);
  desc.head_dim = static_cast<std::int32_t>(shape.head_dim);
  desc.flags = JFA_BROADCAST_Q;
  desc.max_batch = shape.max_batch;
  desc.max_total_kv = shape.max_rows;
  desc.max_seqlen_q = shape.queries;
  desc.max_seqlen_kv = shape.max_length;
  return desc;
}

jfa_const_tensor read(const at::Tensor& tensor) { return {tensor.const_data_ptr(), 0, 0}; }

jfa_tensor write(const at::Tensor& tensor) { return {tensor.mutable_data_ptr(), 0, 0}; }

}  // namespace

SharedPlan::SharedPlan(const Shape& shape, at::Device device, at::ScalarType dtype)
    : device_(device), plan_(describe(shape, device, dtype)), workspace_size_(plan_.workspace_size()) {}

void SharedPlan::update(const at::Tensor& kv_offsets, std::int64_t rows) {
  TORCH_CHECK(kv_offsets.dtype() == at::kInt && kv_offsets.device() == device_ && kv_offsets.is_contiguous(),
              "kv_offsets must be a contiguous int32 vector on the plan's device");
  jfa_batch batch = JFA_BATCH_INIT;
  batch.batch = kv_offsets.numel() - 1;
  batch.total_kv = rows;
  batch.kv_offsets = kv_offsets.const_data_ptr();
  plan_.update(batch, stream());
  kv_offsets_ = kv_offsets;
}

std::tuple<at::Tensor, at::Tensor> SharedPlan::forward(const at::Tensor& q, const at::Tensor& k,
                                                       const at::Tensor& v) const {
  const at::Tensor dense_q = q.contiguous(), dense_k = k.contiguous(), dense_v = v.contiguous();
  const std::int64_t batch = kv_offsets_.numel() - 1;
  const at::Tensor o = at::empty({batch, q.size(0), q.size(1), q.size(2)}, q.options());
  const at::Tensor lse = at::empty({batch, q.size(1), q.size(0)}, q.options().dtype(at::kFloat));
  const at::Tensor memory = workspace(q, workspace_size_.forward);
  jfa_forward_args args = JFA_FORWARD_ARGS_INIT;
  args.q = read(dense_q), args.k = read(dense_k), args.v = read(dense_v);
  args.o = write(o);
  args.lse = lse.mutable_data_ptr<float>();
  args.workspace = memory.mutable_data_ptr(), args.workspace_size = workspace_size_.forward;
  plan_.forward(args, stream());
  return {o, lse};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> SharedPlan::backward(const at::Tensor& grad_o, const at::Tensor& q,
                                                                    const at::Tensor& k, const at::Tensor& v,
                                                                    const at::Tensor& o, const at::Tensor& lse) const {
  const at::Tensor dense_q = q.contiguous(), dense_k = k.contiguous(), dense_v = v.contiguous();
  const at::Tensor dense_grad_o = grad_o.contiguous();
  const at::Tensor grad_q = at::empty(q.sizes(), q.options());
  const at::Tensor grad_k = at::empty(k.sizes(), k.options());
  const at::Tensor grad_v = at::empty(v.sizes(), v.options());
  const at::Tensor memory = workspace(q, workspace_size_.backward);
  jfa_backward_args args = JFA_BACKWARD_ARGS_INIT;
  args.q = read(dense_q), args.k = read(dense_k), args.v = read(dense_v);
  args.o = read(o), args.grad_o = read(dense_grad_o);
  args.lse = lse.const_data_ptr<float>();
  args.grad_q = write(grad_q), args.grad_k = write(grad_k), args.grad_v = write(grad_v);
  args.workspace = memory.mutable_data_ptr(), args.workspace_size = workspace_size_.backward;
  plan_.backward(args, stream());
  return {grad_q, grad_k, grad_v};
}

jfa_stream SharedPlan::stream() const {
  void* stream = nullptr;
  if (device_.is_cuda()) {
    TORCH_CHECK(aoti_torch_get_current_cuda_stream && aoti_torch_get_current_cuda_stream(device_.index(), &stream) == 0,
                "this libtorch cannot name its CUDA stream");
  }
  return static_cast<jfa_stream>(stream);
}

/// From PyTorch's allocator, which gives the memory away again only to work that the stream does later.
at::Tensor SharedPlan::workspace(const at::Tensor& like, std::size_t size) const {
  // The CPU's allocator aligns to 64 bytes, jfa asks for 256.
  const auto padded = static_cast<std::int64_t>(size) + 256;
  const at::Tensor memory = at::empty({padded}, like.options().dtype(at::kByte));
  const auto address = reinterpret_cast<std::uintptr_t>(memory.const_data_ptr());
  return memory.slice(0, static_cast<std::int64_t>((256 - address % 256) % 256));
}

namespace {

using Plan = c10::intrusive_ptr<SharedPlan>;

std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                           const Plan& plan) {
  const c10::DeviceGuard guard(q.device());
  return plan->forward(q, k, v);
}

/// What autograd runs: below it the device's kernel, and the gradients from what that left behind.
class Attend : public torch::autograd::Function<Attend> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const Plan& plan) {
    static const auto op = c10::Dispatcher::singleton()
                               .findSchemaOrThrow("trainer::attend_forward", "")
                               .typed<decltype(trainer::forward)>();
    const at::AutoDispatchBelowADInplaceOrView below;
    auto [o, lse] = op.call(q, k, v, plan);
    context->save_for_backward({q, k, v, o, lse});
    context->saved_data["plan"] = plan;
    return o;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const auto saved = context->get_saved_variables();
    const auto plan = context->saved_data["plan"].toCustomClass<SharedPlan>();
    // This is a thread of autograd's own: the device and its stream are those of the forward.
    const c10::DeviceGuard guard(saved[0].device());
    auto [grad_q, grad_k, grad_v] = plan->backward(grads[0], saved[0], saved[1], saved[2], saved[3], saved[4]);
    return {grad_q, grad_k, grad_v, at::Tensor()};
  }
};

at::Tensor attend_autograd(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Plan& plan) {
  return Attend::apply(q, k, v, plan);
}

TORCH_LIBRARY(trainer, m) {
  m.class_<SharedPlan>("SharedPlan");
  const std::string arguments = "(Tensor q, Tensor k, Tensor v, __torch__.torch.classes.trainer.SharedPlan plan)";
  m.def(("attend" + arguments + " -> Tensor").c_str());
  m.def(("attend_forward" + arguments + " -> (Tensor, Tensor)").c_str());
}

TORCH_LIBRARY_IMPL(trainer, CPU, m) { m.impl("attend_forward", forward); }

TORCH_LIBRARY_IMPL(trainer, CUDA, m) { m.impl("attend_forward", forward); }

TORCH_LIBRARY_IMPL(trainer, Autograd, m) { m.impl("attend", attend_autograd); }

}  // namespace

at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Plan& plan) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("trainer::attend", "").typed<decltype(attend_autograd)>();
  return op.call(q, k, v, plan);
}

}  // namespace trainer
