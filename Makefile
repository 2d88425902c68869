# SPDX-License-Identifier: Apache-2.0
# All tasks of the project. `make help` lists them.

PREFIX  ?= /usr/local
DESTDIR ?=
CARGO   ?= cargo
# Where cargo puts its products.
TARGET  := $(or $(CARGO_TARGET_DIR),target)
include packaging/arch.mk
IMAS    := $(PROGRAMS)/imas
LAB     := $(PROGRAMS)/imas-lab
# Packages of cargo that are not the product.
LAB_CRATES   := -p imas-lab -p imas-replay -p imas-simulate -p imas-study -p imas-suite
FLEET_CRATES := -p imas-fleet -p imas-fleet-agent

.DEFAULT_GOAL := build
.PHONY: help setup setup-test build lab fleet all need-cargo hook record tools allocators allocators-default contract rust rust-tests demo test test-all check \
        conformance lint fmt bench study study-mobile docs-allocators install uninstall clean

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install what the build needs (apt; as root or with sudo)
	@packaging/apt-install allocators/apt-packages.txt packaging/build-packages.txt $(CROSS_PACKAGES)
	@packaging/need-cargo --install $(CARGO) $(RUST_TARGET)

setup-test: setup ## install what the tests need as well
	@packaging/apt-install packaging/test-packages.txt

# With -j too, the tools are there before they are used.
ifneq ($(filter demo,$(MAKECMDGOALS)),)
need-cargo hook record tools contract: | setup
endif

build: hook record tools allocators contract rust ## build the product and its allocators

# The suite is its data, input generators and C programs; the textbook allocators are for two studies.
lab: hook record allocators contract need-cargo ## build the laboratory: imas-lab, the suite, the textbook allocators
	@$(MAKE) --no-print-directory -C lab/textbook BUILD=$(IMAS_BUILD) $(if $(CROSS),LD=$(CROSS)ld AR=$(CROSS)ar OBJCOPY=$(CROSS)objcopy)
	@$(MAKE) --no-print-directory -C lab/workloads OUT=$(IMAS_BUILD)/lib/imas/workloads
	$(CARGO) build --profile $(PROFILE) --locked $(WITH_TESTS) $(or $(EVERY_CRATE),$(LAB_CRATES))

fleet: need-cargo ## build the fleet's agent
	$(CARGO) build --profile $(PROFILE) --locked $(WITH_TESTS) $(or $(EVERY_CRATE),$(FLEET_CRATES))

# One selection of crates for all three: cargo compiles a dependency anew for each set of its features.
all: EVERY_CRATE := --workspace
all: build lab fleet ## build everything

hook:
	@$(MAKE) --no-print-directory -C hook BUILD=$(IMAS_BUILD)

record: ## libimas-record.so and imas-replayer
	@$(MAKE) --no-print-directory -C record BUILD=$(IMAS_BUILD)

tools: ## imas-ldpreload and imas-rescue, static
	@$(MAKE) --no-print-directory -C system BUILD=$(IMAS_BUILD)

need-cargo:
	@packaging/need-cargo $(CARGO) $(RUST_TARGET)

LICENCES := $(IMAS_BUILD)/lib/imas/licences.txt
allocators: need-cargo
	@allocators/build.sh
	@packaging/licences >$(LICENCES).new && mv $(LICENCES).new $(LICENCES)

# The programs of the conformance kit that run on the user's machine, under libraries that we did not build.
contract:
	@$(MAKE) --no-print-directory -C tests/conformance contract PRODUCTS=$(IMAS_BUILD)/lib/imas/contract

rust: need-cargo
	$(CARGO) build --profile $(PROFILE) --locked $(WITH_TESTS) $(EVERY_CRATE)

# What cargo has made for the tests of the product is listed for tests/arm/run.py, which starts them elsewhere.
rust-tests: need-cargo
	@mkdir -p $(IMAS_BUILD)
	$(CARGO) test --no-run --profile checked --locked --message-format=json-render-diagnostics >$(IMAS_BUILD)/rust-tests.new
	@mv $(IMAS_BUILD)/rust-tests.new $(IMAS_BUILD)/rust-tests.json

# The candidates that are tested by default. The others take most of the build's time; the demo does not need
# them.
allocators-default: need-cargo
	@allocators/build.sh --default
	@packaging/licences >$(LICENCES).new && mv $(LICENCES).new $(LICENCES)

demo: setup hook record allocators-default contract rust ## build what it needs, measure two real programs
	@bench/demo $(IMAS)

# Everything is compiled once, programs and tests alike, in the profile in which an overflow or a broken assumption ends them.
CHECKED := PROFILE=checked WITH_TESTS=--all-targets
test: setup-test ## what a change of the product can break on this machine
	@$(MAKE) --no-print-directory $(CHECKED) build
	@tests/all $(TARGET)/checked/imas

test-all: setup-test ## all allocators too, other machines and kernels, the browser, the laboratory, the fleet
	@$(MAKE) --no-print-directory $(CHECKED) all
	@tests/all $(TARGET)/checked/imas all

CRATE ?=
check: need-cargo ## unit tests, without allocators (CRATE=imas-core: of one crate)
	$(CARGO) test --profile checked --locked --bins $(if $(CRATE),-p $(CRATE) $(if $(wildcard */$(CRATE)/src/lib.rs),--lib),--workspace --lib)

conformance: build ## every allocator against the malloc contract, in full
	@tests/conformance/run --mode full

# The C parts are compiled with warnings as errors wherever they are built.
lint: ## formatting, clippy, documentation, scripts, cycles of modules, what may depend on what, names of types, tests that return silently, bundled versions, lowest glibc
	$(CARGO) fmt --all --check
	@$(CARGO) metadata --quiet --locked --format-version 1 --manifest-path fuzz/Cargo.toml >/dev/null # its lock file is its own
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --quiet --workspace --no-deps --document-private-items --locked
	@packaging/lint-scripts
	@packaging/prose --self-test
	@packaging/prose
	@packaging/module-cycles --self-test
	@for house in crates lab fleet; do packaging/module-cycles $$house || exit 1; done
	@packaging/houses --self-test
	@packaging/houses
	@packaging/bill --self-test
	@packaging/release --self-test
	@packaging/bundled
	@packaging/lowest-glibc --self-test
	@packaging/lowest-glibc
	@$(CARGO) run --quiet --profile checked --locked -p imas-source -- check docs/trust.md crates lab fleet

fmt: ## format all Rust code
	$(CARGO) fmt --all

bench: build ## the figures of docs/figures.md, printed as ratios with their spread
	@bench/all $(IMAS)

STUDY ?= build/study
STUDY_SET ?= study
# Candidates to compare with system, separated by commas: those of results/.
STUDY_WITH ?= hoard,dlmalloc,musl-mallocng,glibc:arena2,glibc:lean,glibc:thp,jemalloc,tcmalloc,snmalloc,mimalloc,mimalloc2:small,mimalloc2:tight
STUDY_LIMIT ?= 12h
STUDY_ROUNDS ?= 12
STUDY_COUNTED ?= 5
study: all ## measure the suite again and judge the policies on it (STUDY_SET=data: about 4 hours, study: 9, full: 14; STUDY=folder; resumes)
	@mkdir -p $(STUDY)
	$(LAB) suite run --set $(STUDY_SET) --rounds $(STUDY_ROUNDS) --counted $(STUDY_COUNTED) --with $(STUDY_WITH) --time-limit $(STUDY_LIMIT) --install --out $(STUDY) $$(test ! -e $(STUDY)/runs.jsonl || echo --resume)
	$(LAB) suite pack $(STUDY)/runs.jsonl --to $(STUDY)/runs.jsonl.gz
	$(LAB) study selector --data $(STUDY)/runs.jsonl.gz --out $(STUDY)/page
	$(IMAS) report --html $(STUDY)/page/programs.html --data $(STUDY)/runs.jsonl.gz
	$(LAB) simulate --data $(STUDY)/runs.jsonl.gz

.PHONY: results
results: lab ## pages with all results, made from the raw runs in git, in build/results
	@packaging/results $(LAB)

study-mobile: build lab ## allocators for a phone, 50 iterations (about 55 minutes; STUDY=folder; resumes)
	$(LAB) study mobile --install --out $(STUDY)/mobile $$(test ! -e $(STUDY)/mobile/mobile.jsonl || echo --resume)

docs-allocators: build ## docs/allocators.md: every candidate, measured here and compared with glibc
	@bench/candidates $(IMAS)

# Builds nothing: under sudo, root has another cargo or none, and would leave root's files in build/ and
# target/.
install: ## install the build below $(DESTDIR)$(PREFIX); as root if root owns that
	@packaging/install $(IMAS) "$(DESTDIR)$(PREFIX)" "$(PREFIX)"

uninstall: ## remove the installed files
	@packaging/uninstall "$(DESTDIR)$(PREFIX)"

# The pages of results are made by the laboratory where it runs; a build for another machine takes those that are there.
RESULTS := $(if $(CROSS),,results)

.PHONY: deb rpm tarball release release-files system-test
deb: all $(RESULTS) musl ## Debian packages, in build/package (ARCH=arm64: for that machine)
	@packaging/package deb $(IMAS)

rpm: all $(RESULTS) musl ## RPM packages, in build/package
	@packaging/package rpm $(IMAS)

tarball: all $(RESULTS) musl ## what a distribution without a package unpacks in any folder, in build/package
	@packaging/package tarball $(IMAS)

# This machine first: the laboratory makes the pages of results where it runs.
release: ## deb, rpm and tarball for amd64 and arm64 with their bills and SHA256SUMS, in build/release; packed twice and compared; upgrade and removal tried (as root)
	@rm -rf build/release
	@for arch in $(HOST_ARCH) $(filter-out $(HOST_ARCH),amd64 arm64); do \
		$(MAKE) --no-print-directory ARCH=$$arch PROFILE=packed setup release-files || exit 1; done
	@tests/packages $(TARGET)/packed/imas
	@packaging/release sums

release-files: all $(RESULTS) musl ## those for one machine (ARCH=arm64)
	@packaging/apt-install packaging/package-packages.txt
	@packaging/release $(IMAS)

system-test: all ## a booted Debian: install, enable, break, repair, upgrade, remove (as root; about 10 minutes)
	@packaging/apt-install packaging/package-packages.txt packaging/machine-packages.txt
	@tests/machine/run $(IMAS) $(if $(SET),--set $(SET))

.PHONY: fleet-test
fleet-test: hook allocators need-cargo ## three real servers, agents, imasd: proofs, kills, partitions, full disks, fan-out, half a million programs (CASES=...; about 20 minutes)
	$(CARGO) build --release --locked -p imas-fleet-agent -p imas-fleet-test -p imasd
	@fleet/tests/run $(PROGRAMS)/imas-fleet $(PROGRAMS)/imas-fleet-test $(CASES)

.PHONY: arm-test
arm-test: hook ## the build for arm64 on an emulated machine, with pages of 4, 16 and 64 KiB, and under systemd (as root; most of a day: no processor of that kind is needed)
	@packaging/apt-install packaging/package-packages.txt packaging/arm-packages.txt
	@allocators/build.sh --strict mimalloc # its instructions here are printed beside those there
	@$(MAKE) --no-print-directory ARCH=arm64 setup tarball deb rust-tests
	@tests/arm/run.py --kernel 4k
	@tests/arm/run.py --kernel 16k -k smoke
	@tests/arm/run.py --kernel 16k -k conformance
	@tests/arm/run.py --kernel 64k -k smoke
	@tests/arm/run.py --kernel 64k -k conformance
	@tests/arm/run.py --kernel 5.10 -k smoke

.PHONY: kube-test
kube-test: build ## what 'imas kube' prints, on a real kube-apiserver with its controllers (builds them once from the Go proxy: ten minutes of CPU)
	@packaging/apt-install packaging/kube-packages.txt
	@tests/kubernetes/image.py $(IMAS)
	@tests/kubernetes/node.py $(IMAS)
	@tests/kubernetes/containers.py $(IMAS)
	@tests/kubernetes/component.py $(IMAS)
	@tests/kubernetes/run.py $(IMAS)
	@tests/kubernetes/replicas.py $(IMAS)

.PHONY: busy-test
busy-test: build ## make test three times beside two busy loops and a compiler (about three hours)
	@tests/busy 3

.PHONY: fresh-test
fresh-test: ## make demo in a bare Debian 12 and 13, from a clone (as root; about half an hour)
	@packaging/apt-install packaging/machine-packages.txt
	@tests/fresh/run

.PHONY: musl musl-test
musl: hook need-cargo ## guard and three allocators for programs of musl (Alpine), in build/lib/imas/musl
	@packaging/apt-install $(or $(CROSS_PACKAGES),packaging/musl-packages.txt)
	@allocators/build.sh --musl

musl-test: build musl ## programs of musl under them, and in a root with musl alone (as root)
	@tests/musl/run.py $(IMAS)

.PHONY: glibc-test
glibc-test: build ## heaps of a process on the glibcs of other Debians and Ubuntus, read from outside (as root; the network once; Ubuntu: IMAS_MIRROR_UBUNTU=URL)
	@tests/other-glibc $(IMAS)

.PHONY: distribution-test
distribution-test: tarball rpm ## the packages in roots of other Debians and Ubuntus, as far as apt knows their mirrors (as root; the network once)
	@packaging/apt-install packaging/package-packages.txt packaging/machine-packages.txt
	@tests/distributions/run.py

.PHONY: compatibility
compatibility: build ## real programs under every candidate, compared with untouched runs: docs/compatibility.md (about an hour; resumes)
	@packaging/apt-install packaging/compatibility-packages.txt
	@tests/compatibility/run $(IMAS) --keep tests/compatibility/verdicts.jsonl.gz --page docs/compatibility.md

clean: ## remove all products
	rm -rf build $(TARGET)
