# Short names for what CI runs; `.ci/run` holds the commands, so that both are the same.
.DEFAULT_GOAL := help
.PHONY: help fmt it ci tools lint test mutants seeds docs deny advisories cluster release bench demo image parts node

help: ## this list
	@sed -n 's/^\([a-z -]*\):[^#]*## /\1: /p' $(MAKEFILE_LIST)

fmt: ## format the code (CI only checks)
	cargo fmt

it: ## the whole proxy in one process, against the simulator
	cargo test --test it

tools lint test mutants seeds docs deny advisories cluster release bench demo image parts node: ## one step of CI
	.ci/run $@

ci: ## all that CI runs, exactly
	.ci/run
