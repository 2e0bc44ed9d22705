//! The command line.

use std::path::PathBuf;

/// How to call the program.
pub const USAGE: &str = "\
usage: jfa-conformance --library PATH [--device cpu|cuda] [--filter TEXT ...] [--seed N] [--random N] [--repeat N]
                       [--json FILE] [--list] [--verbose] [--forward-only] [--record FILE | --vectors FILE]
  --library PATH   shared library to test, such as target/release/libjfa.so
  --device NAME    cpu (default) or cuda, which is device 0
  --filter TEXT    run only cases whose name contains TEXT, or that of another --filter; names are whole between two
                   slashes, as in numeric/every-d64/
  --seed N         seed of all data and of the random cases (default 1)
  --random N       number of random cases (default 60)
  --repeat N       run all of it N times (default 1); on cudasim the first with the interleavings of CUDASIM_SEED, the
                   next with those of CUDASIM_SEED + 1, and so on
  --json FILE      write every result to FILE
  --list           print the names of the cases and stop
  --verbose        print the name of each case before it runs
  --forward-only   leave out the backward and its results
  --record FILE    only run a few small forwards with fixed inputs, and write O and LSE to FILE
  --vectors FILE   only run those, and compare O and LSE with FILE: all bits must be equal";

/// What was asked for.
#[derive(Debug)]
pub struct Args {
    /// The library; may be missing with `list`.
    pub library: Option<PathBuf>,
    /// Run on the first CUDA device.
    pub cuda: bool,
    /// Parts of names, of which one is enough; none: all cases.
    pub filters: Vec<String>,
    /// Seed.
    pub seed: u64,
    /// Random cases.
    pub random: u64,
    /// How often everything runs.
    pub repeat: u64,
    /// Where results go.
    pub json: Option<PathBuf>,
    /// Only list.
    pub list: bool,
    /// Say which case runs.
    pub verbose: bool,
    /// No backward.
    pub forward_only: bool,
    /// Where results of fixed forwards are written.
    pub record: Option<PathBuf>,
    /// What they are compared with.
    pub vectors: Option<PathBuf>,
}

impl Args {
    /// Parses the arguments after the program's name.
    pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut args = Args {
            library: None,
            cuda: false,
            filters: Vec::new(),
            seed: 1,
            random: 60,
            repeat: 1,
            json: None,
            list: false,
            verbose: false,
            forward_only: false,
            record: None,
            vectors: None,
        };
        while let Some(word) = words.next() {
            let flag = match word.as_str() {
                "--list" => Some(&mut args.list),
                "--verbose" => Some(&mut args.verbose),
                "--forward-only" => Some(&mut args.forward_only),
                _ => None,
            };
            if let Some(flag) = flag {
                *flag = true;
                continue;
            }
            let value = words.next().ok_or_else(|| format!("{word} needs a value, or is unknown"))?;
            let number = || value.parse().map_err(|_| format!("{word} is {value}, but must be a number"));
            match word.as_str() {
                "--library" => args.library = Some(value.into()),
                "--device" if value == "cpu" || value == "cuda" => args.cuda = value == "cuda",
                "--device" => return Err(format!("--device is {value}, but must be cpu or cuda")),
                "--filter" => args.filters.push(value),
                "--seed" => args.seed = number()?,
                "--random" => args.random = number()?,
                "--repeat" => args.repeat = number()?,
                "--json" => args.json = Some(value.into()),
                "--record" => args.record = Some(value.into()),
                "--vectors" => args.vectors = Some(value.into()),
                _ => return Err(format!("unknown argument {word}")),
            }
        }
        match args.library.is_none() && !args.list {
            true => Err("--library is missing".into()),
            false => Ok(args),
        }
    }

    /// Whether a case of this name was asked for.
    pub fn wants(&self, path: &str) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|filter| path.contains(filter.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_and_repetitions() {
        let parse = |line: &str| Args::parse(line.split(' ').map(String::from));
        let args = parse("--list --filter masks/ --filter numeric/every-d64/ --repeat 3").unwrap();
        assert_eq!(args.repeat, 3);
        assert!(args.wants("masks/causal-full/bf16") && args.wants("numeric/every-d64/fp16"));
        assert!(!args.wants("numeric/every-d8/bf16") && !args.wants("lengths/one-key/bf16"));
        assert!(parse("--list").unwrap().wants("lengths/one-key/bf16"));
        assert!(parse("--list --repeat many").is_err() && parse("--list --filter").is_err());
    }
}
