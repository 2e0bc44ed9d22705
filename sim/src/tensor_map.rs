//! Tensor maps: encoding with the driver's checks, decoding.
