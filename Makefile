# The commands of this project are `make demo` and `make test`; whoever changes it uses `make quick` and `make check`. `make help` lists all.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help docs demo lab evaluation alternatives bench quick format test check test-sdks e2e token images static install-c release-dry-run clean

# Options: make demo ARGS="--loss 0.1 --profile cellular", make lab ARGS="run satellite --seeds 10"
ARGS ?=

# tools/build-demo puts the command here, beside the filter for Envoy and the gateway without Envoy.
DEMO_COMMAND := $${CARGO_TARGET_DIR:-target}/demo/packrat

help: ## Show this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-20s %s\n", $$1, $$2 }'
	@echo "Parts of the tests and checks, and files that are generated:"
	@tools/parts --list

docs: ## Build the site of all pages and show it at http://127.0.0.1:8000 (ARGS="--build-only", ARGS="--without-api": no rustdoc)
	@tools/check-toolchain cargo cc python
	@tools/build-site $(ARGS)

demo: ## Download 25 MB over a lossy last mile, without and with Packrat (ARGS="--help"; ARGS="--arms packrat --flood": beside hostile datagrams)
	@tools/build-demo
	@case "$(ARGS)" in *--client*) tools/install-client-parts $(ARGS) ;; esac
	@"$(DEMO_COMMAND)" demo $(ARGS)

lab: ## Trials in virtual time, no network needed (ARGS="run wifi"; ARGS="field --quick": where it helps and where it harms; ARGS="--help")
	@tools/check-toolchain cargo cc
	@cargo run --locked --release -p $(if $(filter figure figures sweep,$(firstword $(ARGS))),packrat-papers,packrat-lab) -- $(ARGS)

evaluation: ## Measure the tables of docs/EVALUATION.md anew (ARGS="--only paths,uploads", ARGS=--resume)
	@tools/check-toolchain cargo cc
	@tools/evaluate $(ARGS)

alternatives: ## Downloads in real time, with Packrat and with what a user might have instead (ARGS="wifi --loss 0.04 --seeds 3")
	@tools/check-toolchain cargo cc python
	@tools/install-demo-parts
	@tools/install-alternatives
	@cargo build --locked --release -p packrat-envoy -p packrat --features packrat/lab
	@"$${CARGO_TARGET_DIR:-target}/release/packrat" lab run $(or $(ARGS),wifi --loss 0.04) --real --arm ideal --arm end-to-end --arm packrat \
		--alternative bbr --alternative packrat-bbr --alternative terminated --alternative terminated-bbr2 --alternative terminated-cubic \
		--alternative hysteria --alternative hysteria-rate --alternative kcp

# Valgrind and root make it complete; a measurement that needs them is skipped with a line if they are missing.
bench: ## What Packrat costs beside Envoy's own proxy, with target/bench/summary.json (ARGS="--full"; ARGS=profile: a flame graph, with perf and root)
	@tools/check-toolchain cargo cc python
	@tools/install-demo-parts
	@tools/install-bench-parts
	@cargo build --locked --release -p packrat-bench -p packrat-envoy -p packrat-gateway
	@"$${CARGO_TARGET_DIR:-target}/release/packrat-bench" $(ARGS)

quick: ## Formats, lints, unit and virtual-time tests: what to run while working
	@tools/check-toolchain cargo cc
	@tools/parts check-format check-names
	cargo clippy --locked --workspace --all-targets -- -D warnings
	@tools/test --quick

format: ## Write all formats: Rust and Markdown
	@tools/check-toolchain cargo
	cargo fmt --all
	cargo fmt --all --manifest-path client-sdk/bindings/Cargo.toml
	@tools/format-markdown

test: ## All tests of behaviour, with real Envoy, servers and Prometheus: what must pass
	@tools/supervised tools/parts test

check: ## Formats, lints, documentation, licences, chart, C header, fuzz targets, instruction counts: what must also pass
	@tools/parts check

test-sdks: ## The clients in other languages, against a real gateway and over a lossy last mile: Python (two), Go, Kotlin and Swift
	@tools/supervised tools/parts test-sdks

test-% check-% write-%:
	@tools/parts $@

e2e: ## Tests on a real cluster, with clients behind a lossy last mile (ARGS="--smoke", "--only TEXT"; "--soak 20": random faults for 20 minutes)
	@tools/e2e $(ARGS)

token: ## Build the filter for Envoy that issues assist tokens (.packrat/packrat-token.wasm)
	@tools/check-toolchain cargo
	@tools/build-token-filter

images: ## Build the container images, with Docker or as archives (ARGS="--dev", ARGS="--archive")
	@tools/build-images $(ARGS)

static: ## The command as one file without libraries, for routers: target/packrat-linux-amd64, -arm64 (ARGS=arm64: one of them)
	@tools/build-static $(ARGS)

PREFIX ?= /usr/local
install-c: ## Build libpackrat and install it with header and package file (PREFIX=/usr/local, DESTDIR)
	@tools/check-toolchain cargo cc
	cargo build --locked --release -p packrat-c
	client-sdk/c/install "$${CARGO_TARGET_DIR:-target}/release" "$(PREFIX)"

release-dry-run: ## Build what a release consists of into target/release-artifacts (ARGS="--dev", ARGS="--only command,chart")
	@tools/release dry-run $(ARGS)

clean: ## Remove everything that was built or installed inside this folder
	cargo clean
	cargo clean --manifest-path client-sdk/bindings/Cargo.toml
	cargo clean --manifest-path fuzz/Cargo.toml
	cargo clean --manifest-path models/Cargo.toml
	rm -rf .packrat
