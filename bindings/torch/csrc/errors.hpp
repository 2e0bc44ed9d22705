/// @file
/// jfa's errors as exceptions that Python tells apart.
#ifndef JFA_TORCH_ERRORS_HPP
#define JFA_TORCH_ERRORS_HPP

#include <jfa/jfa.hpp>

#include <stdexcept>
#include <string>

namespace jfa_torch {

/// Calls `body` with jfa's errors turned into those that Python tells apart: ValueError for what the caller can mend.
template <typename Body>
auto translating_errors(Body body) {
  try {
    return body();
  } catch (const jfa::Error& error) {
    const std::string text = std::string("jfa: ") + error.what();
    switch (error.status()) {
      case JFA_STATUS_INVALID_ARGUMENT:
      case JFA_STATUS_INVALID_OFFSETS:
      case JFA_STATUS_MISALIGNED:
        throw std::invalid_argument(text);
      default:
        throw std::runtime_error(text);
    }
  }
}

}  // namespace jfa_torch

#endif  // JFA_TORCH_ERRORS_HPP
