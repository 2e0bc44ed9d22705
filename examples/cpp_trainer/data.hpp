/// @file
/// Users with real lengths of their histories and made-up items.
#ifndef TRAINER_DATA_HPP
#define TRAINER_DATA_HPP

#include <ATen/ATen.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace trainer {

/// What the items are: topic `item % topics`. Items below `tellers` are the rare ones that tell a user's favourite.
struct Catalogue {
  std::int64_t items = 4000;
  std::int64_t topics = 8;
  std::int64_t tellers = 400;
};

/// Some users and their histories, one after the other.
struct Histories {
  at::Tensor items;       // [rows], int64
  at::Tensor kv_offsets;  // [users + 1], int32
  at::Tensor favourites;  // [users], int64: the topic to be found out
};

/// Users whose favourite topic shows in every twentieth item of their history; all other items are noise.
class Users {
 public:
  /// Reads one length a line. Throws std::runtime_error if there is none.
  Users(const std::string& path, const Catalogue& catalogue, std::uint64_t seed);

  /// Histories of `count` users drawn at random, on the CPU.
  Histories draw(std::int64_t count);

  std::int64_t size() const { return static_cast<std::int64_t>(histories_.size()); }
  std::int64_t longest() const { return longest_; }
  /// Rows that `count` users have at most.
  std::int64_t rows_at_most(std::int64_t count) const;

 private:
  std::mt19937_64 random_;
  std::vector<std::vector<std::int64_t>> histories_;
  std::vector<std::int64_t> favourites_;
  std::int64_t longest_ = 0;
};

}  // namespace trainer

#endif  // TRAINER_DATA_HPP
