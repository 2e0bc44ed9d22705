#include "data.hpp"

#include <algorithm>
#include <fstream>
#include <numeric>
#include <stdexcept>

namespace trainer {

Users::Users(const std::string& path, const Catalogue& catalogue, std::uint64_t seed) : random_(seed) {
  const auto below = [&](std::int64_t bound) {
    return std::uniform_int_distribution<std::int64_t>(0, bound - 1)(random_);
  };
  std::ifstream file(path);
  for (std::int64_t length = 0; file >> length;) {
    const std::int64_t favourite = below(catalogue.topics);
    std::vector<std::int64_t> history(static_cast<std::size_t>(length));
    for (std::int64_t& item : history) {
      item = catalogue.tellers + below(catalogue.items - catalogue.tellers);
    }
    // The positions do not matter: attention has no order here.
    for (std::int64_t i = 0; i < std::min(length, length / 20 + 1); ++i) {
      history[static_cast<std::size_t>(i)] = below(catalogue.tellers / catalogue.topics) * catalogue.topics + favourite;
    }
    histories_.push_back(std::move(history));
    favourites_.push_back(favourite);
    longest_ = std::max(longest_, length);
  }
  if (histories_.empty()) {
    throw std::runtime_error("no lengths in '" + path + "'");
  }
}

Histories Users::draw(std::int64_t count) {
  std::vector<std::size_t> users(histories_.size());
  std::iota(users.begin(), users.end(), 0);
  std::shuffle(users.begin(), users.end(), random_);
  users.resize(std::min(users.size(), static_cast<std::size_t>(count)));
  std::vector<std::int64_t> items, favourites;
  std::vector<std::int32_t> offsets = {0};
  for (const std::size_t user : users) {
    items.insert(items.end(), histories_[user].begin(), histories_[user].end());
    offsets.push_back(static_cast<std::int32_t>(items.size()));
    favourites.push_back(favourites_[user]);
  }
  return {at::tensor(items, at::kLong), at::tensor(offsets, at::kInt), at::tensor(favourites, at::kLong)};
}

std::int64_t Users::rows_at_most(std::int64_t count) const {
  std::vector<std::int64_t> lengths;
  for (const auto& history : histories_) {
    lengths.push_back(static_cast<std::int64_t>(history.size()));
  }
  std::sort(lengths.rbegin(), lengths.rend());
  lengths.resize(std::min(lengths.size(), static_cast<std::size_t>(count)));
  return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
}

}  // namespace trainer
