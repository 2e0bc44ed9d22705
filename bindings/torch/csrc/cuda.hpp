/// @file
/// The little that the operators ask of CUDA, found at run time: the library needs neither CUDA nor a PyTorch that has
/// it to be built or loaded.
#ifndef JFA_TORCH_CUDA_HPP
#define JFA_TORCH_CUDA_HPP

#include <jfa/jfa.h>

#include <cstdint>

namespace jfa_torch {

/// PyTorch's current stream of a CUDA device. Throws std::runtime_error if this PyTorch has no CUDA.
jfa_stream current_stream(std::int32_t device);

/// Number of the CUDA graph capture that a stream of `device` takes part in, different for every capture; 0 if there is
/// none.
std::uint64_t capture_id(std::int32_t device, jfa_stream stream);

}  // namespace jfa_torch

#endif  // JFA_TORCH_CUDA_HPP
