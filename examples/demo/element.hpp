// Elements of the three types, packed and unpacked on the host.
#pragma once

#include <jfa/jfa.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

inline std::size_t element_size(std::int32_t dtype) { return dtype == JFA_DTYPE_FP32 ? 4 : 2; }

inline std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float float_of(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// Rounds to the nearest, ties to even. The demo's values are finite, so that NaN needs no case.
inline std::uint16_t to_bf16(float value) {
  const std::uint32_t bits = bits_of(value);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline float from_bf16(std::uint16_t bits) { return float_of(static_cast<std::uint32_t>(bits) << 16); }

inline std::uint16_t to_fp16(float value) {
  const std::uint32_t bits = bits_of(value), magnitude = bits & 0x7fffffff;
  const std::uint32_t sign = bits >> 16 & 0x8000;
  const float size = float_of(magnitude);
  if (size >= 65520.0f) {
    return static_cast<std::uint16_t>(sign | 0x7c00);
  }
  if (size < 0x1p-14f) {
    return static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>(std::lrint(size * 0x1p24f)));
  }
  return static_cast<std::uint16_t>(sign | (magnitude + 0xfff + (magnitude >> 13 & 1) - (112u << 23)) >> 13);
}

inline float from_fp16(std::uint16_t bits) {
  const std::uint32_t exponent = bits >> 10 & 31, mantissa = bits & 0x3ff;
  const float sign = (bits & 0x8000) != 0 ? -1.0f : 1.0f;
  if (exponent == 31) {
    return mantissa != 0 ? std::numeric_limits<float>::quiet_NaN() : sign * std::numeric_limits<float>::infinity();
  }
  return exponent == 0 ? sign * static_cast<float>(mantissa) * 0x1p-24f
                       : sign * float_of((exponent + 112) << 23 | mantissa << 13);
}

// A host copy of a tensor: `size` elements of `dtype`.
class Elements {
 public:
  Elements(std::int32_t dtype, std::size_t size) : dtype_(dtype), bytes_(size * element_size(dtype)) {}

  void set(std::size_t i, float value) {
    if (dtype_ == JFA_DTYPE_FP32) {
      std::memcpy(&bytes_[i * 4], &value, 4);
    } else {
      const std::uint16_t bits = dtype_ == JFA_DTYPE_BF16 ? to_bf16(value) : to_fp16(value);
      std::memcpy(&bytes_[i * 2], &bits, 2);
    }
  }

  float get(std::size_t i) const {
    if (dtype_ == JFA_DTYPE_FP32) {
      float value;
      std::memcpy(&value, &bytes_[i * 4], 4);
      return value;
    }
    std::uint16_t bits;
    std::memcpy(&bits, &bytes_[i * 2], 2);
    return dtype_ == JFA_DTYPE_BF16 ? from_bf16(bits) : from_fp16(bits);
  }

  std::size_t size_bytes() const { return bytes_.size(); }
  void* data() { return bytes_.data(); }
  const void* data() const { return bytes_.data(); }

 private:
  std::int32_t dtype_;
  std::vector<unsigned char> bytes_;
};
