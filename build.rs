//! Gives the shared library its soname: one per minor version before 1.0, one per major version after.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let major = env!("CARGO_PKG_VERSION_MAJOR");
    let soname = match major {
        "0" => format!("0.{}", env!("CARGO_PKG_VERSION_MINOR")),
        _ => major.to_string(),
    };
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libjfa.so.{soname}");
}
