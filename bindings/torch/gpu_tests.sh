#!/bin/sh
# Tests the PyTorch operators, training on several ranks and the C++ trainer on a GPU machine that has PyTorch, pytest,
# CMake and a C++ compiler, but no cargo and no network: what cargo makes is brought along.
#
#   bindings/torch/gpu_tests.sh [BUILD [PYTEST OPTIONS...]]
#
# BUILD is the folder torch/ that `cargo xtask torch` leaves in the build folder (default: target/torch): python/ has the
# operators, package/ the library for the trainer. Fails if there is no GPU.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "${1:-$root/target/torch}" && pwd)
[ $# -eq 0 ] || shift

python3 -c 'import sys, torch; sys.exit(None if torch.cuda.is_available() else "error: PyTorch sees no GPU")'
status=0
PYTHONPATH="$build/python" python3 -m pytest -q -p no:cacheprovider "$root/bindings/torch/tests" \
  "$root/examples/ddp" "$@" || status=1

libtorch=$(python3 -c 'import pathlib, torch; print(pathlib.Path(torch.__file__).parent)')
trainer=$(mktemp -d)
cmake -S "$root/examples/cpp_trainer" -B "$trainer" "-DCMAKE_PREFIX_PATH=$build/package;$libtorch" >"$trainer/log" &&
  cmake --build "$trainer" --parallel >>"$trainer/log" &&
  "$trainer/jfa_cpp_trainer" --lengths "$root/examples/movielens100k_history_lengths.txt" --device cuda:0 \
    --must-fall-by 4 || {
  echo "error: the trainer failed; $trainer/log has its build"
  status=1
}
exit $status
