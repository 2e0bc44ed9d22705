// A real jagged batch as broadcast-Q attention, forward and backward, through jfa: how long it takes, and how
// far it is from float64.
#include "device_memory.hpp"
#include "options.hpp"
#include "progress.hpp"
#include "reference.hpp"

#include <jfa/jfa.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

// A plan and memory of the device that it runs on; the plan ends first.
struct Target {
  std::unique_ptr<DeviceMemory> memory;
  jfa::Plan plan;
};

Target open_target(jfa_plan_desc desc, std::int32_t device_type) {
  desc.device_type = device_type;
  jfa::Plan plan(desc);
  auto memory = device_type == JFA_DEVICE_TYPE_CUDA ? open_cuda_memory(desc.device_index) : open_host_memory();
  return {std::move(memory), std::move(plan)};
}

Target choose_target(const jfa_plan_desc& desc, DeviceChoice choice) {
  if (choice == DeviceChoice::cpu) {
    return open_target(desc, JFA_DEVICE_TYPE_CPU);
  }
  try {
    return open_target(desc, JFA_DEVICE_TYPE_CUDA);
  } catch (const std::exception& error) {
    const auto* refusal = dynamic_cast<const jfa::Error*>(&error);
    if (choice == DeviceChoice::cuda || (refusal != nullptr && refusal->status() == JFA_STATUS_INVALID_ARGUMENT)) {
      throw;
    }
    std::printf("No CUDA device (%s): running on the CPU.\n", error.what());
    return open_target(desc, JFA_DEVICE_TYPE_CPU);
  }
}

// Values of mean 0 and variance 1: the sum of four uniform numbers, near enough to a normal distribution.
void fill(Elements& tensor, std::size_t size, std::uint64_t seed) {
  std::uint64_t state = seed;
  for (std::size_t i = 0; i < size; ++i) {
    state += 0x9e3779b97f4a7c15;
    std::uint64_t bits = state;
    bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9;
    bits = (bits ^ bits >> 27) * 0x94d049bb133111eb;
    bits ^= bits >> 31;
    const auto sum = (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
    tensor.set(i, (static_cast<float>(sum) - 131070.0f) * (1.7320508f / 65536.0f));
  }
}

Inputs make_inputs(const Options& options, const std::vector<std::int32_t>& lengths) {
  const Shape shape{options.queries, options.heads, options.head_dim};
  std::vector<std::int32_t> offsets(lengths.size() + 1);
  std::partial_sum(lengths.begin(), lengths.end(), offsets.begin() + 1);
  const auto row = static_cast<std::size_t>(shape.heads * shape.head_dim);
  const std::size_t size_q = static_cast<std::size_t>(shape.queries) * row;
  const std::size_t size_kv = static_cast<std::size_t>(offsets.back()) * row, size_o = lengths.size() * size_q;
  const auto tensor = [&](std::size_t size) { return Elements(options.dtype, size); };
  Inputs inputs{shape, std::move(offsets), tensor(size_q), tensor(size_kv), tensor(size_kv), tensor(size_o)};
  Progress progress("Random Q, K, V and dO", 4);
  std::uint64_t seed = 1;
  for (const auto& [elements, size] : {std::pair{&inputs.q, size_q}, std::pair{&inputs.k, size_kv},
                                       std::pair{&inputs.v, size_kv}, std::pair{&inputs.grad_o, size_o}}) {
    fill(*elements, size, seed++ << 48);
    progress.step();
  }
  return inputs;
}

jfa_plan_desc describe(const Options& options, const std::vector<std::int32_t>& lengths) {
  jfa_plan_desc desc = JFA_PLAN_DESC_INIT;
  desc.dtype = options.dtype;
  desc.heads_q = options.heads;
  desc.heads_kv = options.heads;
  desc.head_dim = options.head_dim;
  desc.flags = JFA_BROADCAST_Q;
  desc.max_batch = static_cast<std::int64_t>(lengths.size());
  desc.max_total_kv = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  desc.max_seqlen_q = options.queries;
  desc.max_seqlen_kv = *std::max_element(lengths.begin(), lengths.end());
  return desc;
}

// Median of `repeats` runs after one that does not count, in milliseconds.
double measure(DeviceMemory& memory, const std::string& what, int repeats, const std::function<void()>& enqueue) {
  Progress progress(what, repeats + 1);
  std::vector<double> times;
  for (int i = 0; i <= repeats; ++i) {
    const double time = memory.time(enqueue);
    if (i > 0) {
      times.push_back(time);
    }
    progress.step();
  }
  std::nth_element(times.begin(), times.begin() + repeats / 2, times.end());
  return times[static_cast<std::size_t>(repeats / 2)];
}

struct Result {
  Outputs outputs;
  jfa_plan_details details;
  double forward_ms, backward_ms;
};

Result run(Target& target, const Options& options, const Inputs& in) {
  DeviceMemory& memory = *target.memory;
  const auto upload = [&](const Elements& host) { return Buffer(memory, host.data(), host.size_bytes()); };
  const Buffer offsets(memory, in.offsets.data(), in.offsets.size() * sizeof(std::int32_t));
  const Buffer q = upload(in.q), k = upload(in.k), v = upload(in.v), grad_o = upload(in.grad_o);
  const Buffer o(memory, grad_o.size()), grad_q(memory, q.size()), grad_k(memory, k.size()), grad_v(memory, v.size());
  const std::size_t batch = in.offsets.size() - 1;
  const Buffer lse(memory, batch * static_cast<std::size_t>(in.shape.queries * in.shape.heads) * sizeof(float));
  const jfa::WorkspaceSize size = target.plan.workspace_size();
  const Buffer workspace(memory, std::max(size.forward, size.backward));

  jfa_batch step = JFA_BATCH_INIT;
  step.batch = static_cast<std::int64_t>(batch);
  step.kv_offsets = offsets.data();
  target.plan.update(step);
  Result result{{in.grad_o, in.q, in.k, in.v}, target.plan.info(), 0.0, 0.0};

  jfa_forward_args forward = JFA_FORWARD_ARGS_INIT;
  forward.q.data = q.data();
  forward.k.data = k.data();
  forward.v.data = v.data();
  forward.o.data = o.data();
  forward.lse = static_cast<float*>(lse.data());
  forward.workspace = workspace.data();
  forward.workspace_size = workspace.size();
  jfa_backward_args backward = JFA_BACKWARD_ARGS_INIT;
  backward.q.data = q.data();
  backward.k.data = k.data();
  backward.v.data = v.data();
  backward.o.data = o.data();
  backward.grad_o.data = grad_o.data();
  backward.lse = forward.lse;
  backward.grad_q.data = grad_q.data();
  backward.grad_k.data = grad_k.data();
  backward.grad_v.data = grad_v.data();
  backward.workspace = workspace.data();
  backward.workspace_size = workspace.size();

  const std::string on = std::string(" on ") + result.details.arch;
  result.forward_ms = measure(memory, "Forward" + on, options.repeats, [&] { target.plan.forward(forward); });
  result.backward_ms = measure(memory, "Backward" + on, options.repeats, [&] { target.plan.backward(backward); });
  o.download(result.outputs.o.data());
  grad_q.download(result.outputs.grad_q.data());
  grad_k.download(result.outputs.grad_k.data());
  grad_v.download(result.outputs.grad_v.data());
  return result;
}

// A device that was chosen automatically and lacks a phase leaves the work to the CPU.
Result run_or_fall_back(Target& target, const Options& options, const jfa_plan_desc& desc, const Inputs& in) {
  try {
    return run(target, options, in);
  } catch (const jfa::Error& error) {
    if (options.device != DeviceChoice::automatic || error.status() != JFA_STATUS_UNSUPPORTED) {
      throw;
    }
    std::printf("\nNot on this device (%s): running on the CPU.\n", error.what());
    target = open_target(desc, JFA_DEVICE_TYPE_CPU);
    return run(target, options, in);
  }
}

// Evenly spaced in the order of the lengths, so that the shortest and the longest are among them.
std::vector<bool> choose_samples(const std::vector<std::int32_t>& lengths, std::size_t count) {
  std::vector<std::size_t> order(lengths.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return lengths[a] < lengths[b]; });
  std::vector<bool> sampled(lengths.size());
  for (std::size_t i = 0; i < count; ++i) {
    sampled[order[count > 1 ? i * (order.size() - 1) / (count - 1) : 0]] = true;
  }
  return sampled;
}

// An integer with a comma between groups of three digits.
std::string grouped(std::int64_t value) {
  std::string text = std::to_string(value);
  for (std::ptrdiff_t i = static_cast<std::ptrdiff_t>(text.size()) - 3; i > 0; i -= 3) {
    text.insert(static_cast<std::size_t>(i), ",");
  }
  return text;
}

// What a right result may differ by at most, on random data: the type's rounding and some room.
double tolerance(std::int32_t dtype) { return dtype == JFA_DTYPE_BF16 ? 5e-3 : dtype == JFA_DTYPE_FP16 ? 1e-3 : 1e-5; }

void print_batch(const Options& options, const std::vector<std::int32_t>& lengths) {
  const auto [shortest, longest] = std::minmax_element(lengths.begin(), lengths.end());
  const auto batch = static_cast<std::int64_t>(lengths.size());
  const std::int64_t tokens = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  const std::int64_t padded = batch * *longest;
  const std::string ranges = std::to_string(*shortest) + " to " + std::to_string(*longest) + " keys each";
  const double percent = padded > 0 ? 100.0 * static_cast<double>(padded - tokens) / static_cast<double>(padded) : 0;
  std::printf("\n%s, %lld queries shared by all sequences, %d heads, head_dim %d\n\n", dtype_name(options.dtype),
              static_cast<long long>(options.queries), options.heads, options.head_dim);
  std::printf("  sequences        %12s   %s\n", grouped(batch).c_str(), ranges.c_str());
  std::printf("  tokens           %12s   rows of K and V\n", grouped(tokens).c_str());
  std::printf("  padding avoided  %12s   rows, %.1f %% of the %s of a padded batch\n", grouped(padded - tokens).c_str(),
              percent, grouped(padded).c_str());
}

void print_speed(const Options& options, const std::vector<std::int32_t>& lengths, const Result& result) {
  const auto tokens = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  // 2 products of 2 operations a (query, key) pair and element; the backward has 5 products.
  const double flops = 4.0 * static_cast<double>(options.queries * tokens * options.heads * options.head_dim);
  const jfa_plan_details& d = result.details;
  std::printf("\n  %-10s%12s%12s%12s%12s%12s   kernel\n", "", "time", "GFLOP/s", "tiles", "workers", "max/mean");
  const auto row = [](const char* phase, double ms, double work, std::uint64_t tiles, std::uint32_t workers,
                      double imbalance, const char* kernel) {
    std::printf("  %-10s%9.2f ms%12.1f%12s%12u%12.3f   %s\n", phase, ms, work / ms * 1e-6,
                grouped(static_cast<std::int64_t>(tiles)).c_str(), workers, imbalance, kernel);
  };
  row("forward", result.forward_ms, flops, d.forward_tiles, d.forward_workers, d.forward_imbalance, d.forward_kernel);
  row("backward", result.backward_ms, 2.5 * flops, d.backward_tiles, d.backward_workers, d.backward_imbalance,
      d.backward_kernel);
}

// Whether every error is as small as it should be.
bool print_errors(const Options& options, const Errors& errors, std::ptrdiff_t sampled, std::size_t batch) {
  const double limit = tolerance(options.dtype);
  const std::string some = std::to_string(sampled) + " sampled sequences";
  const std::string all = "sum over all " + std::to_string(batch) + " sequences";
  bool good = true;
  std::printf("\n  %-10s%12s   (must be below %.0e)\n", "", "rel. error", limit);
  const auto row = [&](const char* name, double error, const std::string& where) {
    const bool small = error < limit;  // False for NaN.
    good = good && small;
    std::printf("  %-10s%12.2e   %s%s\n", name, error, where.c_str(), small ? "" : "   TOO LARGE");
  };
  row("O", errors.o, some);
  row("dK", errors.grad_k, some);
  row("dV", errors.grad_v, some);
  row("dQ", errors.grad_q, all);
  return good;
}

bool demo(const Options& options) {
  const std::vector<std::int32_t> lengths = read_lengths(options.lengths_file);
  const std::uint32_t version = jfa_version();
  std::printf("jfa %u.%u.%u\n", version / 10000, version / 100 % 100, version % 100);
  const jfa_plan_desc desc = describe(options, lengths);
  Target target = choose_target(desc, options.device);
  const Inputs inputs = make_inputs(options, lengths);
  const Result result = run_or_fall_back(target, options, desc, inputs);
  const auto samples = std::min(static_cast<std::size_t>(options.samples), lengths.size());
  const std::vector<bool> sampled = choose_samples(lengths, samples);
  std::optional<Errors> errors;
  {
    Progress progress("Reference in float64 on the CPU", static_cast<std::int64_t>(lengths.size()));
    errors = compare(inputs, result.outputs, sampled, [&] { progress.step(); });
  }
  print_batch(options, lengths);
  print_speed(options, lengths, result);
  return print_errors(options, *errors, std::count(sampled.begin(), sampled.end(), true), lengths.size());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return demo(parse_options(argc, argv)) ? 0 : 1;
  } catch (const std::exception& error) {
    std::fflush(stdout);
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
