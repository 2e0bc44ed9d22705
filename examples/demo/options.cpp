#include "options.hpp"

#include <jfa/jfa.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <stdexcept>

namespace {

constexpr char usage[] = R"(usage: jfa_demo --lengths FILE [options]
  --lengths FILE      keys of each sequence, one number a line
  --queries N         rows of the dense Q that all sequences share (64)
  --heads N           heads (4)
  --head-dim N        elements of one head's row: 8, 16, ... 256 (64)
  --dtype T           bf16, fp16 or fp32 (bf16)
  --device D          auto, cpu or cuda: auto tries CUDA first (auto)
  --repeats N         timed runs, of which the median counts (5)
  --samples N         sequences whose O, dK and dV are compared with float64 (64)
)";

std::int64_t parse_number(const std::string& name, const std::string& text, std::int64_t min, std::int64_t max) {
  std::size_t used = 0;
  std::int64_t value = 0;
  try {
    value = std::stoll(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  if (used == 0 || used != text.size() || value < min || value > max) {
    throw std::invalid_argument(name + " is '" + text + "', but must be a number from " + std::to_string(min) + " to " +
                                std::to_string(max));
  }
  return value;
}

std::int32_t parse_dtype(const std::string& text) {
  for (const std::int32_t dtype : {JFA_DTYPE_BF16, JFA_DTYPE_FP16, JFA_DTYPE_FP32}) {
    if (text == dtype_name(dtype)) {
      return dtype;
    }
  }
  throw std::invalid_argument("--dtype is '" + text + "', but must be bf16, fp16 or fp32");
}

DeviceChoice parse_device(const std::string& text) {
  if (text == "auto") {
    return DeviceChoice::automatic;
  }
  if (text == "cpu") {
    return DeviceChoice::cpu;
  }
  if (text == "cuda") {
    return DeviceChoice::cuda;
  }
  throw std::invalid_argument("--device is '" + text + "', but must be auto, cpu or cuda");
}

}  // namespace

const char* dtype_name(std::int32_t dtype) {
  return dtype == JFA_DTYPE_BF16 ? "bf16" : dtype == JFA_DTYPE_FP16 ? "fp16" : "fp32";
}

Options parse_options(int argc, char** argv) {
  Options options;
  options.dtype = JFA_DTYPE_BF16;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--help") {
      std::fputs(usage, stdout);
      std::exit(0);
    }
    if (i + 1 == argc) {
      throw std::invalid_argument(name + " has no value\n" + usage);
    }
    const std::string value = argv[++i];
    if (name == "--lengths") {
      options.lengths_file = value;
    } else if (name == "--queries") {
      options.queries = parse_number(name, value, 1, 1 << 20);
    } else if (name == "--heads") {
      options.heads = static_cast<std::int32_t>(parse_number(name, value, 1, 4096));
    } else if (name == "--head-dim") {
      options.head_dim = static_cast<std::int32_t>(parse_number(name, value, 8, 256));
    } else if (name == "--dtype") {
      options.dtype = parse_dtype(value);
    } else if (name == "--device") {
      options.device = parse_device(value);
    } else if (name == "--repeats") {
      options.repeats = static_cast<int>(parse_number(name, value, 1, 1000));
    } else if (name == "--samples") {
      options.samples = static_cast<int>(parse_number(name, value, 1, 1 << 20));
    } else {
      throw std::invalid_argument("unknown option " + name + "\n" + usage);
    }
  }
  if (options.lengths_file.empty()) {
    throw std::invalid_argument(std::string("--lengths is missing\n") + usage);
  }
  return options;
}

std::vector<std::int32_t> read_lengths(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::int32_t> lengths;
  std::int64_t total = 0;
  std::string word;
  while (file >> word) {
    lengths.push_back(static_cast<std::int32_t>(parse_number(path, word, 0, 1 << 24)));
    total += lengths.back();
  }
  if (!file.eof() || lengths.empty()) {
    throw std::runtime_error(path + " cannot be read, or holds no number");
  }
  if (total > std::numeric_limits<std::int32_t>::max()) {
    throw std::runtime_error(path + " names more rows than the demo's 32-bit offsets can");
  }
  return lengths;
}
