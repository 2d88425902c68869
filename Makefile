# SPDX-License-Identifier: Apache-2.0
# The one door: every task of the project starts here. `make help` lists them.

PREFIX  ?= /usr/local
DESTDIR ?=
CARGO   ?= cargo
# Where Rust puts its products; the tests and install look there.
TARGET  := $(or $(CARGO_TARGET_DIR),target)
IMAS    := $(TARGET)/release/imas
LAB     := $(TARGET)/release/imas-lab

.DEFAULT_GOAL := build
.PHONY: help setup setup-test build need-cargo hook tools allocators allocators-default textbook contract workloads rust demo test \
        conformance lint fmt bench study study-mobile docs-allocators install uninstall clean

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install what the build needs (apt; as root or with sudo)
	@packaging/apt-install allocators/apt-packages.txt packaging/build-packages.txt

setup-test: setup ## install what the tests need as well
	@packaging/apt-install packaging/test-packages.txt

build: hook tools allocators textbook contract workloads rust ## build everything

hook:
	@$(MAKE) --no-print-directory -C hook

tools: ## imas-ldpreload and imas-rescue, static
	@$(MAKE) --no-print-directory -C system

need-cargo:
	@packaging/need-cargo $(CARGO)

allocators: need-cargo
	@allocators/build.sh

textbook:
	@$(MAKE) --no-print-directory -C allocators/textbook

# What of the conformance kit is run on the user's machine, under libraries that we did not build.
contract:
	@$(MAKE) --no-print-directory -C tests/conformance contract

rust: need-cargo
	$(CARGO) build --release --locked

workloads: ## the suite of `imas-lab suite`: its data, input generators and C programs
	@$(MAKE) --no-print-directory -C workloads

# The candidates that are tested by default; the others take most of the build's time and the demo does not need them.
allocators-default: need-cargo
	@allocators/build.sh --default

demo: setup hook allocators-default contract rust ## build what it needs, measure a real program: the C++ compiler
	@bench/demo $(IMAS)

test: setup-test build ## all tests
	@tests/all $(IMAS)

conformance: build ## every allocator against the malloc contract, in full
	@tests/conformance/run --mode full

# The C parts are compiled with warnings as errors wherever they are built.
lint: ## formatting, clippy, scripts, cycles of modules
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	@packaging/lint-scripts
	@packaging/module-cycles --self-test
	@packaging/module-cycles
	@$(CARGO) metadata --quiet --locked --format-version 1 --manifest-path fuzz/Cargo.toml >/dev/null # its lock file is its own

fmt: ## format all Rust code
	$(CARGO) fmt --all

bench: build ## the figures of SPECIFICATION.md, printed as ratios with their spread
	@bench/all $(IMAS)

STUDY ?= build/study
STUDY_SET ?= study
# Candidates beside system, separated by commas: those of results/.
STUDY_WITH ?= hoard,dlmalloc,musl-mallocng,glibc:arena2,glibc:lean,glibc:thp,jemalloc,tcmalloc,snmalloc,mimalloc,mimalloc2:small,mimalloc2:tight
STUDY_LIMIT ?= 12h
STUDY_ROUNDS ?= 12
STUDY_COUNTED ?= 5
study: build ## measure the suite again and judge every choice on it (STUDY_SET=data: about 4 hours, study: 9, full: 14, see docs/measuring.md; STUDY=folder; goes on where it was)
	@mkdir -p $(STUDY)
	$(LAB) suite run --set $(STUDY_SET) --rounds $(STUDY_ROUNDS) --counted $(STUDY_COUNTED) --with $(STUDY_WITH) --time-limit $(STUDY_LIMIT) --install --out $(STUDY) $$(test ! -e $(STUDY)/runs.jsonl || echo --resume)
	$(LAB) suite pack $(STUDY)/runs.jsonl --to $(STUDY)/runs.jsonl.gz
	$(LAB) study selector --data $(STUDY)/runs.jsonl.gz --out $(STUDY)/page
	$(IMAS) report --html $(STUDY)/page/programs.html --data $(STUDY)/runs.jsonl.gz
	$(LAB) simulate --data $(STUDY)/runs.jsonl.gz

.PHONY: results
results: need-cargo rust ## the pages of results, from the raw runs in git, in build/results
	@packaging/results $(LAB)

study-mobile: build ## allocators for a phone, 50 iterations (about 55 minutes; STUDY=folder; goes on where it was)
	$(LAB) study mobile --install --out $(STUDY)/mobile $$(test ! -e $(STUDY)/mobile/mobile.jsonl || echo --resume)

docs-allocators: build ## docs/allocators.md: every candidate, measured here beside glibc
	@bench/candidates $(IMAS)

# Builds nothing: under sudo, root has another cargo or none, and would leave files of its own in build/ and target/.
install: ## install what is built below $(DESTDIR)$(PREFIX); as root where that is root's
	@packaging/install $(IMAS) "$(DESTDIR)$(PREFIX)" "$(PREFIX)"

uninstall: ## remove what install installed
	@packaging/uninstall "$(DESTDIR)$(PREFIX)"

.PHONY: deb rpm system-test
deb: build results ## a Debian package, in build/package
	@packaging/package deb $(IMAS)

rpm: build results ## an RPM package, in build/package
	@packaging/package rpm $(IMAS)

system-test: build ## a whole Debian, booted: install, enable, break, heal, upgrade, remove (as root; about 10 minutes)
	@packaging/apt-install packaging/package-packages.txt packaging/machine-packages.txt
	@tests/machine/run $(IMAS) $(if $(SET),--set $(SET))

.PHONY: compatibility
compatibility: build ## real programs under every candidate, compared with the untouched: docs/compatibility.md (about an hour; goes on where it was)
	@packaging/apt-install packaging/compatibility-packages.txt
	@tests/compatibility/run $(IMAS) --page docs/compatibility.md

clean: ## remove all products
	rm -rf build $(TARGET)
