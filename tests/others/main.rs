//! The end of `cargo test`: names the suites that it leaves out, and how to run each.
//!
//! Cargo runs test binaries in the order of their names, so this one is the last. It tests nothing.
#![expect(clippy::print_stdout, reason = "the text is its output")]

/// The suites that need more than this repository, with their requirements and their commands.
const OTHERS: &str = "
That was the hermetic part: unit tests and the whole proxy against the simulator. The other suites run by name:

  real control planes 1.36 and 1.30, real clients   cargo test --test cluster     needs Go; some parts a JDK, Maven,
                                                                                  pip, npm, Chromium, Prometheus
  a real node with kubelet and containerd           .ci/run node                  needs root; installs its packages
  ratios against the real apiserver                 cargo bench --bench proxy     needs Go
  the gate of every change                          .ci/run                       installs what it needs
  every check, with a record in docs/proof.md       .ci/run --all                 some hours
";

fn main() {
    // A filter or a flag of libtest selects something else.
    if std::env::args().len() == 1 {
        println!("{OTHERS}");
    }
}
