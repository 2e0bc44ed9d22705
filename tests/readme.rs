//! The README's program is the one that is built and run.

use std::path::Path;

#[test]
fn readme_shows_the_quickstart() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(root.join("README.md")).expect("README.md");
    let program = std::fs::read_to_string(root.join("examples/quickstart/quickstart.cpp")).expect("quickstart.cpp");
    let block = readme.split("```cpp\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a C++ block");
    assert!(block == program, "README.md must show examples/quickstart/quickstart.cpp as it is");
}
