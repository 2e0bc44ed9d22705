// The command line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

enum class DeviceChoice { automatic, cpu, cuda };

struct Options {
  std::string lengths_file;
  std::int64_t queries = 64;
  std::int32_t heads = 4;
  std::int32_t head_dim = 64;
  std::int32_t dtype = 0;  // A jfa_dtype.
  DeviceChoice device = DeviceChoice::automatic;
  int repeats = 5;
  int samples = 64;
};

// Throws std::invalid_argument, with a text for the user; `--help` prints the usage and ends the program.
Options parse_options(int argc, char** argv);

// One length a line. Throws std::runtime_error.
std::vector<std::int32_t> read_lengths(const std::string& path);

const char* dtype_name(std::int32_t dtype);
