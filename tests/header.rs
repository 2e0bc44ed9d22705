//! The committed header is what cbindgen makes of `src/capi` now.

// A helper outside `#[test]` may fail its test too.
#![allow(clippy::expect_used)]

use std::path::Path;

/// The header's text for the present sources.
fn generate() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut config = cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("cbindgen.toml");
    let macros = config.after_includes.take().expect("after_includes");
    config.after_includes = Some(
        macros
            .replace("@MAJOR@", env!("CARGO_PKG_VERSION_MAJOR"))
            .replace("@MINOR@", env!("CARGO_PKG_VERSION_MINOR"))
            .replace("@PATCH@", env!("CARGO_PKG_VERSION_PATCH")),
    );
    let builder = ["status", "types", "logging", "plan", "attention", "combine"]
        .iter()
        .fold(cbindgen::Builder::new().with_config(config), |builder, stem| {
            builder.with_src(root.join(format!("src/capi/{stem}.rs")))
        });
    let mut text = Vec::new();
    builder.generate().expect("bindings").write(&mut text);
    String::from_utf8(text).expect("UTF-8")
}

#[test]
fn committed_header_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/jfa/jfa.h");
    let text = generate();
    if std::env::var_os("JFA_WRITE_HEADER").is_some() {
        std::fs::create_dir_all(path.parent().expect("folder")).expect("folder");
        std::fs::write(&path, text).expect("header written");
    } else {
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(committed == text, "include/jfa/jfa.h is stale: run `cargo xtask header`");
    }
}
