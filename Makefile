# Short names for what CI runs; `.ci/run` holds the commands, so that both are the same.
.DEFAULT_GOAL := help
.PHONY: help fmt it ci all tools lint test clone mutants seeds fuzz docs deny advisories suites cluster cluster_full drivers dist bench bench_full demo image image_full parts node node_full

help: ## this list
	@sed -n 's/^\([a-z _-]*\):[^#]*## /\1: /p' $(MAKEFILE_LIST)

fmt: ## format the code (CI only checks)
	cargo fmt -- tests/mutants/*.rs

it: ## the whole proxy in one process, against the simulator
	cargo test --test it

tools lint test clone mutants seeds fuzz docs deny advisories suites cluster cluster_full drivers dist bench bench_full demo image image_full parts node node_full: ## one step of CI
	.ci/run $@

ci: ## the gate, exactly as CI runs it
	.ci/run

all: ## every check there is; continues where it stopped
	.ci/run --all
