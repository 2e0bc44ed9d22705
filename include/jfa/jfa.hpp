/// @file
/// C++17 face of jfa.h: a plan that ends itself, and exceptions for failed calls. It adds nothing else; structs,
/// constants and rules are those of jfa.h.
#ifndef JFA_HPP
#define JFA_HPP

#include <jfa/jfa.h>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>

namespace jfa {

/// A failed call. what() is the description of its status, then what the call complained about.
class Error : public std::runtime_error {
 public:
  /// The error of the call that just failed on this thread with `status`.
  explicit Error(jfa_status status)
      : std::runtime_error(std::string(jfa_status_string(status)) + ": " + jfa_last_error()), status_(status) {}

  /// What the C function returned.
  jfa_status status() const noexcept { return status_; }

 private:
  jfa_status status_;
};

/// Throws Error unless `status` is JFA_STATUS_SUCCESS.
inline void check(jfa_status status) {
  if (status != JFA_STATUS_SUCCESS) {
    throw Error(status);
  }
}

/// Bytes of workspace that the calls of a plan need; see jfa_plan_workspace_size().
struct WorkspaceSize {
  std::size_t forward = 0;
  std::size_t backward = 0;
};

/// Merges partial results; see jfa_combine().
inline void combine(const jfa_combine_args& args, jfa_stream stream = nullptr) {
  jfa::check(jfa_combine(&args, stream));
}

/// Owns a jfa_plan. Movable, not copyable; a plan that was moved from holds none, and only destruction, assignment and
/// get() are meant for it. Const members may be called from any number of threads at once, as in C.
class Plan {
 public:
  /// Makes a plan; see jfa_plan_create().
  explicit Plan(const jfa_plan_desc& desc) { jfa::check(jfa_plan_create(&desc, &plan_)); }

  ~Plan() { jfa_plan_destroy(plan_); }

  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  Plan(Plan&& other) noexcept : plan_(std::exchange(other.plan_, nullptr)) {}
  Plan& operator=(Plan&& other) noexcept {
    std::swap(plan_, other.plan_);
    return *this;
  }

  /// Takes the offsets of one step; see jfa_plan_update().
  void update(const jfa_batch& batch, jfa_stream stream = nullptr) {
    jfa::check(jfa_plan_update(plan_, &batch, stream));
  }

  /// What was decided for the current batch; see jfa_plan_info().
  jfa_plan_details info() const {
    jfa_plan_details details{};
    details.struct_size = sizeof(details);
    jfa::check(jfa_plan_info(plan_, &details));
    return details;
  }

  /// Throws unless the current batch is valid; see jfa_plan_check().
  void check() const { jfa::check(jfa_plan_check(plan_)); }

  /// Bytes of workspace of forward() and backward(); see jfa_plan_workspace_size().
  WorkspaceSize workspace_size() const {
    WorkspaceSize size;
    jfa::check(jfa_plan_workspace_size(plan_, &size.forward, &size.backward));
    return size;
  }

  /// O and LSE of the current batch; see jfa_forward().
  void forward(const jfa_forward_args& args, jfa_stream stream = nullptr) const {
    jfa::check(jfa_forward(plan_, &args, stream));
  }

  /// dQ, dK and dV of the current batch; see jfa_backward().
  void backward(const jfa_backward_args& args, jfa_stream stream = nullptr) const {
    jfa::check(jfa_backward(plan_, &args, stream));
  }

  /// The handle, for the C functions; it stays the Plan's.
  jfa_plan* get() const noexcept { return plan_; }

 private:
  jfa_plan* plan_ = nullptr;
};

}  // namespace jfa

#endif  // JFA_HPP
