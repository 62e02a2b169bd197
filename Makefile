# The three commands of this project are `make demo`, `make quick` and `make test`; `make help` lists the others.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help quick format check-format bench profile demo flood lab field figures alternatives token test test-token test-fuzz test-rust test-documentation check-names test-dependencies test-c c-header install-c test-python test-mobile test-go advisories test-demo test-programs test-interop test-telemetry test-page test-operator test-conformance test-command test-loki demo-parts test-chart chart chart-schemas images static release-dry-run e2e soak fuzz miri sanitize concurrency models clean test-instructions instructions toolchain

# Options: make demo ARGS="--loss 0.1 --profile cellular", make lab ARGS="run satellite --seeds 10"
ARGS ?=

# tools/build-demo puts the command here, beside the filter for Envoy and the gateway without Envoy.
DEMO_COMMAND := $${CARGO_TARGET_DIR:-target}/demo/packrat

help: ## Show this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-20s %s\n", $$1, $$2 }'

demo: ## Download 25 MB over a lossy last mile, without and with Packrat (ARGS="--help" lists options)
	@tools/build-demo
	@case "$(ARGS)" in *--client*) tools/install-client-parts $(ARGS) ;; esac
	@"$(DEMO_COMMAND)" demo $(ARGS)

flood: ## Downloads over a full link, alone and beside 250,000 hostile datagrams (ARGS as for the demo)
	@tools/build-demo
	@"$(DEMO_COMMAND)" demo --arms packrat --flood $(ARGS)

lab: toolchain ## Trials in virtual time, no network needed (ARGS="run wifi"; ARGS="--help" lists options)
	@cargo run --locked --release -p packrat-lab -- $(ARGS)

field: toolchain ## The field matrix: where assistance helps and where it harms (ARGS="--quick", "--only PATH,…", "--traces DIR")
	@cargo run --locked --release -p packrat-lab -- field $(ARGS)

alternatives: demo-parts ## Downloads in real time, with Packrat and with what a user might have instead (ARGS="wifi --loss 0.04 --seeds 3")
	@tools/install-alternatives
	@cargo build --locked --release -p packrat-envoy -p packrat --features packrat/lab
	@"$${CARGO_TARGET_DIR:-target}/release/packrat" lab run $(or $(ARGS),wifi --loss 0.04) --real --arm ideal --arm end-to-end --arm packrat \
		--alternative bbr --alternative packrat-bbr --alternative terminated --alternative terminated-bbr2 --alternative terminated-cubic \
		--alternative hysteria --alternative hysteria-rate --alternative kcp

figures: toolchain ## The pictures of docs/EVALUATION.md, measured anew in virtual time (ARGS="--seeds 10 --size 25000000")
	@cargo run --locked --release -p packrat-lab -- figures $(ARGS)

# Valgrind and root make it complete; what cannot be measured without them is skipped with a line that says so.
bench: demo-parts ## What Packrat costs beside Envoy's own proxy, with target/bench/summary.json (ARGS="--full": everything)
	@tools/install-bench-parts
	@cargo build --locked --release -p packrat-bench -p packrat-envoy -p packrat-gateway
	@"$${CARGO_TARGET_DIR:-target}/release/packrat-bench" $(ARGS)

profile: toolchain ## Flame graph of the forwarding path, target/bench/profile.svg (perf, root)
	@cargo build --locked --release -p packrat-bench -p packrat-gateway
	@"$${CARGO_TARGET_DIR:-target}/release/packrat-bench" profile

quick: toolchain check-format check-names ## Formats, lints, unit and virtual-time tests: what to run while working
	cargo clippy --locked --workspace --all-targets -- -D warnings
	@tools/quick-tests

format: toolchain ## Write all formats: Rust and Markdown
	cargo fmt --all
	cargo fmt --manifest-path gateway-filter/token/Cargo.toml
	cargo fmt --manifest-path client-sdk/python/Cargo.toml
	cargo fmt --manifest-path client-sdk/mobile/Cargo.toml
	@tools/format-markdown

check-format:
	cargo fmt --all --check
	@tools/format-markdown --check

test: check-format test-documentation test-dependencies test-chart test-token test-fuzz test-c test-rust test-instructions test-interop test-python test-go test-demo test-telemetry ## Everything that must pass before a change goes in

token: ## Build the filter for Envoy that issues assist tokens (.packrat/packrat-token.wasm)
	@tools/check-toolchain cargo
	@tools/build-token-filter

test-token: ## Formatting, lints and tests of the filter that issues assist tokens, a workspace of its own
	@tools/check-toolchain cargo
	cargo fmt --check --manifest-path gateway-filter/token/Cargo.toml
	cargo clippy --locked --all-targets --manifest-path gateway-filter/token/Cargo.toml -- -D warnings
	cargo test --locked --manifest-path gateway-filter/token/Cargo.toml
	@tools/build-token-filter --if-possible

# To run they need a nightly toolchain and libFuzzer, to be checked neither.
test-fuzz: ## The fuzz targets compile; they are no members of the workspace (make fuzz runs them)
	@tools/check-toolchain cargo
	CUSTOM_LIBFUZZER_PATH=/none/libfuzzer.a RUSTFLAGS="--cfg fuzzing" cargo check --locked --bins --manifest-path fuzz/Cargo.toml \
		--target-dir "$${CARGO_TARGET_DIR:-target}/fuzz"

# Tests of the filter and of the tokens run in the real Envoy, so it is installed first.
test-rust: check-format demo-parts ## Formatting, lints, and the tests of all crates
	cargo clippy --locked --workspace --all-targets -- -D warnings
	cargo test --locked --workspace

# The features of this package alone, and the release that is shipped: what is counted is then the same on every machine.
INSTRUCTIONS = cargo build --locked --release -p packrat-instructions && "$${CARGO_TARGET_DIR:-target}/release/packrat-instructions"

test-instructions: ## Instructions per datagram and eACK are those of the table, within 5 % (valgrind)
	@tools/install-valgrind
	@$(INSTRUCTIONS) check

instructions: ## Write the table of instruction counts anew, bench/instructions/counts (valgrind)
	@tools/install-valgrind
	@$(INSTRUCTIONS) write

check-names: ## Words that docs/GLOSSARY.md rejects are in no file, and SECURITY.md's tests exist
	@tools/check-names
	@tools/check-claims

test-documentation: check-names ## The documentation of all libraries builds without warnings
	RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" cargo doc --locked --workspace --lib --no-deps --document-private-items

test-dependencies: ## Licences and sources of all dependencies are allowed ones, and none is there twice without a reason
	@tools/install-checkers
	.packrat/checkers/bin/cargo-deny --log-level error check licenses bans sources
	.packrat/checkers/bin/cargo-deny --log-level error --manifest-path gateway-filter/token/Cargo.toml check licenses bans sources
	.packrat/checkers/bin/cargo-deny --log-level error --manifest-path client-sdk/python/Cargo.toml check licenses bans sources
	.packrat/checkers/bin/cargo-deny --log-level error --manifest-path client-sdk/mobile/Cargo.toml check licenses bans sources

# Its programs in C run with the other tests.
test-c: ## The header of libpackrat is that of its code (the library's other tests are in test-rust)
	@tools/install-cbindgen
	.packrat/checkers/bin/cbindgen --quiet --verify --config client-sdk/c/cbindgen.toml --output client-sdk/c/include/packrat.h client-sdk/c/src/lib.rs

c-header: ## Write the header of libpackrat anew
	@tools/install-cbindgen
	.packrat/checkers/bin/cbindgen --quiet --config client-sdk/c/cbindgen.toml --output client-sdk/c/include/packrat.h client-sdk/c/src/lib.rs

PREFIX ?= /usr/local
install-c: toolchain ## Build libpackrat and install it with header and package file (PREFIX=/usr/local, DESTDIR)
	cargo build --locked --release -p packrat-c
	client-sdk/c/install "$${CARGO_TARGET_DIR:-target}/release" "$(PREFIX)"

advisories: ## Published weaknesses of dependencies (asks RustSec's database on GitHub)
	@tools/install-checkers
	.packrat/checkers/bin/cargo-deny check advisories
	.packrat/checkers/bin/cargo-deny --manifest-path gateway-filter/token/Cargo.toml check advisories
	.packrat/checkers/bin/cargo-deny --manifest-path client-sdk/python/Cargo.toml check advisories
	.packrat/checkers/bin/cargo-deny --manifest-path client-sdk/mobile/Cargo.toml check advisories

# Cargo joins the features of the packages that it is asked for, those of tests only with a test among its targets: asked for all packages
# and one test, it finds what test-rust has built.
BUILD_FOR_TESTS := cargo build --locked --workspace --lib --bin packrat --bin packrat-gateway --test demo

test-interop: ## The second client, in Python from docs/PROTOCOL.md alone: golden vectors, and sessions with the gateway
	@tools/install-interop-parts >/dev/null
	cargo test --locked --workspace --test interop -- --ignored

test-mobile: ## The interface for Kotlin and Swift: generated, and used by Python through a gateway and over a lossy last mile
	cargo fmt --check --manifest-path client-sdk/mobile/Cargo.toml
	$(BUILD_FOR_TESTS) --bin packrat-path
	@tools/test-mobile

test-python: ## The package for Python: a wheel, installed, with aioquic through a gateway and over a lossy last mile
	@tools/check-toolchain cargo
	cargo fmt --check --manifest-path client-sdk/python/Cargo.toml
	cargo clippy --locked --manifest-path client-sdk/python/Cargo.toml -- -D warnings
	$(BUILD_FOR_TESTS) --bin packrat-path
	@tools/test-python

test-go: ## The client in Go: golden vectors, virtual time, quic-go over a lossy last mile, and clients that move between gateways
	@tools/check-toolchain cargo cc go
	$(BUILD_FOR_TESTS) --bin packrat-path
	@tools/test-go

test-demo: demo-parts ## A small demo with real Envoy and real HTTP/3 servers
	@tools/install-client-parts
	$(BUILD_FOR_TESTS)
	cargo test --locked --workspace --test demo --test roaming -- --ignored --test-threads 1

test-telemetry: demo-parts ## Every query of dashboards, rules and alerts against a real Prometheus that scrapes a real Envoy
	@tools/install-telemetry-parts
	@tools/check-dashboards
	$(BUILD_FOR_TESTS)
	@tools/check-otlp
	cargo test --locked --workspace --test live -- --ignored --test-threads 1

test-loki: demo-parts ## Every LogQL query of the dashboards against a real Loki with real log lines (builds Loki once)
	@tools/install-loki
	$(BUILD_FOR_TESTS) --bin packrat-operator
	cargo test --locked --workspace --test logs -- --ignored

test-operator: ## The operator with a real API server (a cluster of your own, or Docker: tools/test-operator says more)
	@tools/check-toolchain cargo
	@tools/test-operator

test-conformance: ## The Gateway API's own tests of UDPRoutes, with real gateways (root; ARGS="--run-test=NAME"; not a part of make test)
	@tools/test-conformance $(ARGS)

test-command: ## What operators type, with a real cluster of one node (as test-operator)
	@tools/check-toolchain cargo
	@tools/test-command

test-chart: ## The Helm chart: lint, schemas, renders as in git, README; Dockerfile and workflow: lint
	@tools/check-chart
	@tools/check-packaging

chart: ## Write the chart's renders and README anew
	@tools/check-chart --write

chart-schemas: ## Write the schemas anew that the chart's renders are checked against
	@tools/fetch-chart-schemas

images: ## Build the container images, with Docker or as archives (ARGS="--dev", ARGS="--archive")
	@tools/build-images $(ARGS)

static: ## The command as one file without libraries, for routers: target/packrat-linux-amd64, -arm64 (ARGS=arm64: one of them)
	@tools/build-static $(ARGS)

release-dry-run: ## Build what a release consists of into target/release-artifacts (ARGS="--dev", ARGS="--only command,chart")
	@tools/release dry-run $(ARGS)

e2e: ## Tests on a real cluster, with clients behind a lossy last mile (ARGS="--smoke", ARGS="--only TEXT")
	@tools/e2e $(ARGS)

soak: ## Random faults on a real cluster for 20 minutes, then a look for leaks (ARGS="--seed 7")
	@tools/e2e --soak 20 $(ARGS)

test-page: ## The overview page in a real browser (installs Debian's chromium when it is missing and this is root)
	@command -v chromium >/dev/null || [ "$$(id -u)" -ne 0 ] || { apt-get update -q && apt-get install -q -y --no-install-recommends chromium; }
	cargo test --locked -p packrat-admin --test browser -- --ignored

test-programs: demo-parts ## Chromium and a WebRTC peer as clients, through an agent (installs both; not a part of make test)
	@tools/install-client-parts --client chromium
	@tools/install-client-parts --client webrtc
	$(BUILD_FOR_TESTS) --test programs
	cargo test --locked --workspace --test programs -- --ignored --test-threads 1

toolchain:
	@tools/check-toolchain cargo cc

demo-parts:
	@tools/check-toolchain cargo cc python
	@tools/install-demo-parts

fuzz: ## Each fuzz target for 60 seconds, and what it covers (tools/fuzz --hours H: longer)
	@tools/fuzz 60

miri: ## Unit tests of the protocol's crates under Miri, which finds undefined behaviour
	@tools/miri

sanitize: ## The gateway, instrumented for memory errors and for data races, under many clients (ARGS="thread": one of them)
	@tools/sanitize $(ARGS)

# The features of both packages together, so that each is compiled once.
concurrency: toolchain ## What the gateway's threads share, in thousands of orders of their steps (PACKRAT_SCHEDULES=100000: more of them)
	cargo test --locked -p packrat-engine -p packrat-dataplane --features packrat-engine/shuttle,packrat-dataplane/shuttle --lib concurrency::

models: toolchain ## Models of the handshake, of epochs, and of moves with a hostile client: all their states, and each rule left out once
	cargo fmt --check --manifest-path models/Cargo.toml
	@cargo run --locked --release --manifest-path models/Cargo.toml

clean: ## Remove everything that was built or installed inside this folder
	cargo clean
	cargo clean --manifest-path gateway-filter/token/Cargo.toml
	cargo clean --manifest-path client-sdk/python/Cargo.toml
	cargo clean --manifest-path client-sdk/mobile/Cargo.toml
	cargo clean --manifest-path models/Cargo.toml
	rm -rf .packrat
