# The commands of this project are `make demo` and `make test`; whoever changes it uses `make quick` and `make check`. `make help` lists all.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help docs demo flood lab field alternatives bench profile quick format check-format test check test-sdks test-random token check-lints check-go check-fuzz test-tools test-rust check-instructions instructions check-names check-documentation check-dependencies check-c c-header install-c advisories test-interop test-mobile test-python test-go test-demo test-telemetry test-loki test-operator test-conformance test-command check-chart chart chart-schemas images static release-dry-run soak test-page test-programs demo-parts client-parts e2e fuzz miri sanitize concurrency models toolchain clean

# Options: make demo ARGS="--loss 0.1 --profile cellular", make lab ARGS="run satellite --seeds 10"
ARGS ?=

# tools/build-demo puts the command here, beside the filter for Envoy and the gateway without Envoy.
DEMO_COMMAND := $${CARGO_TARGET_DIR:-target}/demo/packrat

help: ## Show this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-20s %s\n", $$1, $$2 }'

docs: ## Build the site of all pages and show it at http://127.0.0.1:8000 (ARGS="--build-only", ARGS="--without-api": no rustdoc)
	@tools/check-toolchain cargo cc python
	@tools/build-site $(ARGS)

demo: ## Download 25 MB over a lossy last mile, without and with Packrat (ARGS="--help" lists options)
	@tools/build-demo
	@case "$(ARGS)" in *--client*) tools/install-client-parts $(ARGS) ;; esac
	@"$(DEMO_COMMAND)" demo $(ARGS)

flood: ## Downloads over a full link, alone and beside 250,000 hostile datagrams (ARGS as for the demo)
	@tools/build-demo
	@"$(DEMO_COMMAND)" demo --arms packrat --flood $(ARGS)

lab: toolchain ## Trials in virtual time, no network needed (ARGS="run wifi"; ARGS=figures: the pictures of docs/EVALUATION.md; ARGS="--help" lists options)
	@cargo run --locked --release -p packrat-lab -- $(ARGS)

field: toolchain ## The field matrix: where assistance helps and where it harms (ARGS="--quick", "--only PATH,…", "--traces DIR")
	@cargo run --locked --release -p packrat-lab -- field $(ARGS)

alternatives: demo-parts ## Downloads in real time, with Packrat and with what a user might have instead (ARGS="wifi --loss 0.04 --seeds 3")
	@tools/install-alternatives
	@cargo build --locked --release -p packrat-envoy -p packrat --features packrat/lab
	@"$${CARGO_TARGET_DIR:-target}/release/packrat" lab run $(or $(ARGS),wifi --loss 0.04) --real --arm ideal --arm end-to-end --arm packrat \
		--alternative bbr --alternative packrat-bbr --alternative terminated --alternative terminated-bbr2 --alternative terminated-cubic \
		--alternative hysteria --alternative hysteria-rate --alternative kcp

# Valgrind and root make it complete; a measurement that needs them is skipped with a line if they are missing.
bench: demo-parts ## What Packrat costs beside Envoy's own proxy, with target/bench/summary.json (ARGS="--full": everything)
	@tools/install-bench-parts
	@cargo build --locked --release -p packrat-bench -p packrat-envoy -p packrat-gateway
	@"$${CARGO_TARGET_DIR:-target}/release/packrat-bench" $(ARGS)

profile: toolchain ## Flame graph of the forwarding path, target/bench/profile.svg (perf, root)
	@cargo build --locked --release -p packrat-bench -p packrat-gateway
	@"$${CARGO_TARGET_DIR:-target}/release/packrat-bench" profile

quick: toolchain check-format check-names ## Formats, lints, unit and virtual-time tests: what to run while working
	cargo clippy --locked --workspace --all-targets -- -D warnings
	@tools/test --quick

format: toolchain ## Write all formats: Rust and Markdown
	cargo fmt --all
	cargo fmt --all --manifest-path client-sdk/bindings/Cargo.toml
	@tools/format-markdown

check-format:
	cargo fmt --all --check
	cargo fmt --all --check --manifest-path client-sdk/bindings/Cargo.toml
	cargo fmt --check --manifest-path models/Cargo.toml
	@tools/format-markdown --check

test: ## All tests of behaviour, with real Envoy, servers and Prometheus: what must pass
	@tools/supervised tools/parts client-parts test-tools test-rust test-telemetry

check: ## Formats, lints, documentation, licences, chart, C header, fuzz targets, instruction counts: what must also pass
	@tools/parts check-format check-names check-lints check-go check-documentation check-dependencies check-chart check-c check-fuzz check-instructions

test-sdks: ## The clients in other languages, against a real gateway and over a lossy last mile: Python (two), Go, Kotlin and Swift
	@tools/supervised tools/parts test-interop test-python test-go test-mobile

# The seed of `make test` is in .cargo/config.toml.
test-random: ## The quick tests, property tests with a new seed, which is printed (PROPTEST_RNG_SEED=SEED make test-random repeats it)
	@export PROPTEST_RNG_SEED=$${PROPTEST_RNG_SEED:-$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')} && \
		echo "PROPTEST_RNG_SEED=$$PROPTEST_RNG_SEED" && tools/test --quick

token: ## Build the filter for Envoy that issues assist tokens (.packrat/packrat-token.wasm)
	@tools/check-toolchain cargo
	@tools/build-token-filter

check-lints: ## Clippy, for all workspaces
	cargo clippy --locked --workspace --all-targets -- -D warnings
	cargo clippy --locked --manifest-path client-sdk/bindings/Cargo.toml --target-dir "$${CARGO_TARGET_DIR:-target}" --workspace \
		--all-targets --all-features -- -D warnings

check-go: ## Formats and lints of the client in Go
	@tools/check-toolchain go
	@unformatted=$$(git ls-files -z '*.go' | xargs -0 gofmt -l) && [ -z "$$unformatted" ] || { echo "not as gofmt writes it: $$unformatted" >&2; exit 1; }
	cd client-sdk/go && go vet ./... && cd pion && go vet ./...

# To run they need a nightly toolchain and libFuzzer, to be checked neither.
check-fuzz: ## The fuzz targets compile; they are no members of the workspace (make fuzz runs them)
	@tools/check-toolchain cargo
	CUSTOM_LIBFUZZER_PATH=/none/libfuzzer.a RUSTFLAGS="--cfg fuzzing" cargo check --locked --bins --manifest-path fuzz/Cargo.toml \
		--target-dir "$${CARGO_TARGET_DIR:-target}/fuzz"

test-tools: ## tools/supervised cleans up after a command, however that ends; tools/check-names counts the right sentences
	@tools/test-supervised
	@tools/test-check-names

# Tests of the filter and of the tokens run in the real Envoy.
test-rust: client-parts ## The tests of all crates (tools/test -p CRATE: of one), and small demos with real HTTP/3 servers
	@tools/build-token-filter --if-possible
	@tools/test --with packrat::demo packrat::roaming

client-parts: demo-parts
	@tools/install-client-parts

# The features of this package alone, and the release that is shipped: so the counts are the same on every machine.
INSTRUCTIONS = cargo build --locked --release -p packrat-instructions && "$${CARGO_TARGET_DIR:-target}/release/packrat-instructions"

check-instructions: ## Instructions per datagram and eACK are those of the table, within 5 % (valgrind)
	@tools/install-valgrind
	@$(INSTRUCTIONS) check

instructions: ## Write the table of instruction counts anew, bench/instructions/counts (valgrind)
	@tools/install-valgrind
	@$(INSTRUCTIONS) write

check-names: ## Words that docs/GLOSSARY.md rejects are in no file, prose stays plain in directories that are done, and SECURITY.md's tests exist
	@tools/check-names
	@tools/check-claims

check-documentation: ## The documentation of all libraries builds without warnings, its examples compile, and no link of the site is broken
	RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" cargo doc --locked --workspace --lib --no-deps --document-private-items
	cargo test --locked --quiet --workspace --doc
	@tools/build-site --build-only --without-api
	@tools/test-site --links-only

check-dependencies: ## Licences and sources of all dependencies are allowed ones, none is there twice without a reason, parsers are recorded
	@tools/check-parsers
	@tools/install-checkers
	.packrat/checkers/bin/cargo-deny --log-level error check licenses bans sources
	.packrat/checkers/bin/cargo-deny --log-level error --manifest-path client-sdk/bindings/Cargo.toml check licenses bans sources

# The library's programs in C run with the other tests.
check-c: ## The header of libpackrat is that of its code
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
	.packrat/checkers/bin/cargo-deny --manifest-path client-sdk/bindings/Cargo.toml check advisories

test-interop: ## The second client, in Python from docs/PROTOCOL.md alone: golden vectors, and sessions with the gateway
	@tools/install-interop-parts >/dev/null
	@tools/test --only packrat-gateway::interop

test-mobile: ## The interface for Kotlin and Swift: generated, and used by Python through a gateway and over a lossy last mile
	@tools/test --build
	@tools/test-mobile

test-python: ## The package for Python: a wheel, installed, with aioquic through a gateway and over a lossy last mile
	@tools/test --build
	@tools/test-python

test-go: ## The client in Go: golden vectors, virtual time, quic-go over a lossy last mile, and clients that move between gateways
	@tools/test --build
	@tools/test-go

test-demo: client-parts ## Small demos with real Envoy and real HTTP/3 servers
	@tools/test --only packrat::demo packrat::roaming

test-telemetry: demo-parts ## Every query of dashboards, rules and alerts against a real Prometheus that scrapes a real Envoy
	@tools/install-telemetry-parts
	@tools/check-dashboards
	@tools/test --build
	@tools/check-otlp
	@tools/test --only packrat-dashboards::live

test-loki: demo-parts ## Every LogQL query of the dashboards against a real Loki with real log lines (builds Loki once)
	@tools/install-loki
	@tools/test --only packrat-dashboards::logs

test-operator: ## The operator with a real API server (root, Docker or a cluster of your own: tools/test-operator says more)
	@tools/check-toolchain cargo
	@tools/test-operator $(ARGS)

test-conformance: ## The Gateway API's own tests of UDPRoutes, with real gateways (root; ARGS="--run-test=NAME"; not a part of make test)
	@tools/test-conformance $(ARGS)

test-command: ## What operators type, with a real cluster of one node (as test-operator)
	@tools/check-toolchain cargo
	@tools/test-command $(ARGS)

check-chart: ## The Helm chart: lint, schemas, renders as in git, README; Dockerfile and workflow: lint
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

test-page: ## The overview page and the site in a real browser (installs Debian's chromium when it is missing and this is root)
	@command -v chromium >/dev/null || [ "$$(id -u)" -ne 0 ] || { apt-get update -q && apt-get install -q -y --no-install-recommends chromium; }
	@tools/test -p packrat-admin --only packrat-admin::browser
	@tools/build-site --build-only --without-api
	@tools/test-site

test-programs: demo-parts ## Chromium and a WebRTC peer as clients, through an agent (installs both; not a part of make test)
	@tools/install-client-parts --client chromium
	@tools/install-client-parts --client webrtc
	@tools/test --only packrat::programs

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
	cargo clean --manifest-path client-sdk/bindings/Cargo.toml
	cargo clean --manifest-path fuzz/Cargo.toml
	cargo clean --manifest-path models/Cargo.toml
	rm -rf .packrat
