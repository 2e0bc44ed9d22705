//! The project's commands: `cargo xtask <command>`.

mod bench;
mod context;
mod demo;
mod lines;
mod package;
mod races;
mod sass;
mod sim;
mod test;
mod toolchain;
mod tools;
mod torch;

use std::process::ExitCode;

use context::{Context, Result};

const USAGE: &str = "\
usage: cargo xtask <command>
  demo        build everything and run the real jagged batch through the C ABI
  test        format, lints, documentation, and all tests up to the installed package
  toolchain   install the pinned CUDA compiler in the build folder
  lines       count the lines of the CUDA kernels, which have a budget
  sass        check the machine code of the CUDA kernels that were built
  sim         run the CUDA kernels on cudasim, without a GPU
  races       leave out waits of a Blackwell kernel that cudasim must miss
  torch       build the PyTorch operators and run their tests; options go to pytest
  trainer     build the C++ trainer on libtorch and train
  header      write include/jfa/jfa.h anew from src/capi
  bench cpu   compare the CPU backend with PyTorch";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match Context::new().and_then(|context| dispatch(&context, &words)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(context: &Context, words: &[&str]) -> Result {
    match words {
        ["demo", options @ ..] => demo::run(context, options),
        ["test"] => test::run(context),
        ["toolchain"] => toolchain::run(context),
        ["lines"] => lines::check(context),
        ["sass"] => sass::run(context),
        ["sim", options @ ..] => sim::run(context, options),
        ["races"] => races::check(context).map(drop),
        ["torch", options @ ..] => torch::tests(context, options)?.1,
        ["trainer"] => torch::train(context),
        ["header"] => {
            let mut cargo = context.cargo();
            context.run(
                cargo.args(["test", "--quiet", "--package", "jfa", "--test", "header"]).env("JFA_WRITE_HEADER", "1"),
            )
        }
        ["bench", "cpu", options @ ..] => bench::cpu(context, options),
        _ => Err(USAGE.into()),
    }
}
