#include "progress.hpp"

#include <unistd.h>

#include <cstdio>
#include <utility>

Progress::Progress(std::string what, std::int64_t total)
    : what_(std::move(what)),
      total_(total),
      terminal_(isatty(STDOUT_FILENO) != 0),
      start_(std::chrono::steady_clock::now()),
      shown_(start_) {
  if (terminal_) {
    show(0);
  }
}

Progress::~Progress() {
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  show(done_);
  std::printf("  %6.2f s\n", seconds);
  std::fflush(stdout);
}

void Progress::step() {
  const std::int64_t done = ++done_;
  const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  const auto now = std::chrono::steady_clock::now();
  if (terminal_ && lock && now - shown_ > std::chrono::milliseconds(50)) {
    shown_ = now;
    show(done);
  }
}

void Progress::show(std::int64_t done) {
  constexpr int width = 30;
  const int filled = total_ > 0 ? static_cast<int>(done * width / total_) : width;
  std::printf("%s%-38s [", terminal_ ? "\r" : "", what_.c_str());
  for (int i = 0; i < width; ++i) {
    std::putchar(i < filled ? '#' : '.');
  }
  std::printf("] %5lld/%-5lld", static_cast<long long>(done), static_cast<long long>(total_));
  std::fflush(stdout);
}
