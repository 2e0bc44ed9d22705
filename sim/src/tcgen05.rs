//! Matrix operations of the fifth-generation tensor core.
