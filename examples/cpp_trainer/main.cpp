/// @file
/// Trains a model that finds a user's favourite topic in the history, with jfa as its attention: libtorch and jfa, no
/// Python.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>

#include "attention.hpp"
#include "model.hpp"

namespace {

using namespace trainer;

struct Options {
  std::string lengths;
  std::string device = torch::cuda::is_available() ? "cuda:0" : "cpu";
  std::int64_t steps = 60;
  std::int64_t users = 64;
  double must_fall_by = 0;  // 0: it need not.
};

constexpr char kUsage[] =
    "usage: jfa_cpp_trainer --lengths FILE [--device cpu|cuda:0] [--steps N] [--users N] [--must-fall-by FACTOR]\n";

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--lengths") {
      options.lengths = value;
    } else if (name == "--device") {
      options.device = value;
    } else if (name == "--steps") {
      options.steps = std::stoll(value);
    } else if (name == "--users") {
      options.users = std::stoll(value);
    } else if (name == "--must-fall-by") {
      options.must_fall_by = std::stod(value);
    } else {
      throw std::invalid_argument("unknown option " + name + "\n" + kUsage);
    }
  }
  if (argc % 2 == 0 || options.lengths.empty() || options.steps < 20 || options.users < 1) {
    throw std::invalid_argument(std::string("20 steps or more, and 1 user or more\n") + kUsage);
  }
  return options;
}

/// PyTorch's own attention, one user after the other.
Attention by_sequence(const torch::Tensor& kv_offsets) {
  const torch::Tensor host = kv_offsets.cpu();
  const std::vector<std::int32_t> offsets(host.const_data_ptr<std::int32_t>(),
                                          host.const_data_ptr<std::int32_t>() + host.numel());
  return [offsets](const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v) {
    std::vector<torch::Tensor> users;
    for (std::size_t b = 0; b + 1 < offsets.size(); ++b) {
      const auto heads_first = [&](const torch::Tensor& t) {
        return t.slice(0, offsets[b], offsets[b + 1]).transpose(0, 1);
      };
      users.push_back(at::scaled_dot_product_attention(q.transpose(0, 1).unsqueeze(0), heads_first(k).unsqueeze(0),
                                                       heads_first(v).unsqueeze(0))
                          .squeeze(0)
                          .transpose(0, 1));
    }
    return torch::stack(users);
  };
}

std::vector<torch::Tensor> gradients(Pooling& model, const torch::Tensor& loss) {
  model->zero_grad();
  loss.backward();
  std::vector<torch::Tensor> grads;
  for (const torch::Tensor& parameter : model->parameters()) {
    grads.push_back(parameter.grad().clone());
  }
  return grads;
}

/// Largest difference between the gradients of all parameters with both attentions, relative in norm.
double gradient_error(Pooling& model, const Histories& batch, const Attention& attention, torch::ScalarType dtype) {
  const auto loss = [&](const Attention& any, torch::ScalarType type) {
    return torch::nn::functional::cross_entropy(model->forward(batch.items, any, type), batch.favourites);
  };
  const auto ours = gradients(model, loss(attention, dtype));
  const auto wanted = gradients(model, loss(by_sequence(batch.kv_offsets), torch::kFloat));
  double worst = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const double norm = wanted[i].norm().item<double>();
    // A gradient that is zero up to rounding, as that of the keys' bias, has no direction to compare.
    if (norm > 1e-6) {
      worst = std::max(worst, (ours[i] - wanted[i]).norm().item<double>() / norm);
    }
  }
  return worst;
}

int run(const Options& options) {
  torch::manual_seed(1);
  const torch::Device device(options.device);
  // jfa's kernels are for 16-bit types on GPUs.
  const torch::ScalarType dtype = device.is_cuda() ? torch::kBFloat16 : torch::kFloat;
  const Catalogue catalogue;
  const Sizes sizes;
  Users users(options.lengths, catalogue, 1);
  Pooling model(catalogue, sizes);
  model->to(device);

  const Shape shape = {std::min(options.users, users.size()),
                       users.rows_at_most(options.users),
                       users.longest(),
                       sizes.queries,
                       sizes.heads,
                       sizes.head_dim};
  const auto plan = c10::make_intrusive<SharedPlan>(shape, device, dtype);
  const Attention attention = [plan](const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v) {
    return attend(q, k, v, plan);
  };
  const auto next = [&] {
    Histories batch = users.draw(options.users);
    batch = {batch.items.to(device), batch.kv_offsets.to(device), batch.favourites.to(device)};
    plan->update(batch.kv_offsets, batch.items.size(0));  // Once for both layers, forward and backward.
    return batch;
  };

  const double error = gradient_error(model, next(), attention, dtype);
  const double tolerance = dtype == torch::kFloat ? 1e-4 : 5e-2;
  std::printf("%lld users, up to %lld items each; %s; gradients differ from PyTorch's by %.1e\n",
              static_cast<long long>(users.size()), static_cast<long long>(users.longest()), options.device.c_str(),
              error);

  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(5e-3));
  double first = 0, last = 0;
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t step = 0; step < options.steps; ++step) {
    const Histories batch = next();
    const torch::Tensor scores = model->forward(batch.items, attention, dtype);
    const torch::Tensor loss = torch::nn::functional::cross_entropy(scores, batch.favourites);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    const double value = loss.item<double>();
    first += step < 10 ? value / 10 : 0;
    last += step >= options.steps - 10 ? value / 10 : 0;
    if (step % 10 == 0 || step + 1 == options.steps) {
      const double right = (scores.argmax(1) == batch.favourites).to(torch::kFloat).mean().item<double>();
      std::printf("step %3lld: loss %.3f, %3.0f %% right\n", static_cast<long long>(step), value, 100 * right);
    }
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf("%.1f steps/s; mean loss of the first 10 steps %.3f, of the last 10 %.3f\n",
              static_cast<double>(options.steps) / seconds.count(), first, last);
  if (!(error <= tolerance)) {
    std::printf("error: the gradients differ by more than %.0e\n", tolerance);
    return EXIT_FAILURE;
  }
  if (options.must_fall_by > 0 && !(last * options.must_fall_by <= first)) {
    std::printf("error: the loss did not fall by the factor %g\n", options.must_fall_by);
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(parse(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return EXIT_FAILURE;
  }
}
