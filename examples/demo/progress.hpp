// What the program is doing, for the person who waits.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

// One line that counts up. On a terminal it is rewritten in place; elsewhere only its last state is printed.
class Progress {
 public:
  Progress(std::string what, std::int64_t total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // One more is done; from any thread.
  void step();

 private:
  void show(std::int64_t done);

  const std::string what_;
  const std::int64_t total_;
  const bool terminal_;
  const std::chrono::steady_clock::time_point start_;
  std::atomic<std::int64_t> done_{0};
  std::mutex mutex_;
  std::chrono::steady_clock::time_point shown_;
};
