# SPDX-License-Identifier: Apache-2.0
# ARCH=amd64 or arm64: the machine for which everything is built, by Debian's name. By default it is the one on which
# make runs; for another one the cross compilers of Debian are used, and the products go to build/$(ARCH).

HOST_ARCH := $(patsubst x86_64,amd64,$(patsubst aarch64,arm64,$(shell uname -m)))
MACHINE_OF_amd64 := x86_64
MACHINE_OF_arm64 := aarch64
# People who build kernels have an ARCH of their own in the environment: only make's own words count.
ifneq ($(origin ARCH),command line)
ARCH := $(HOST_ARCH)
else ifeq ($(MACHINE_OF_$(ARCH)),)
$(error imas: ARCH=$(ARCH): there is a build for amd64 and one for arm64)
endif
ARCH_MACHINE := $(MACHINE_OF_$(ARCH))

# Cargo's profile of the programs: `release`, `checked` where they are tested, `packed` in the packages of a release.
PROFILE := release
BUILD := build
PROGRAMS := $(TARGET)/$(PROFILE)
CROSS_PACKAGES :=

ifneq ($(ARCH),$(HOST_ARCH))
BUILD := build/$(ARCH)
CROSS := $(ARCH_MACHINE)-linux-gnu-
CROSS_PACKAGES := packaging/cross-packages-$(ARCH).txt
RUST_TARGET := $(ARCH_MACHINE)-unknown-linux-gnu
PROGRAMS := $(TARGET)/$(RUST_TARGET)/$(PROFILE)

# It runs the programs where the build needs what they print: man pages and completions.
export IMAS_RUNNER := qemu-$(ARCH_MACHINE)-static -L /usr/$(ARCH_MACHINE)-linux-gnu
export CC := $(CROSS)gcc
export CXX := $(CROSS)g++
export CARGO_BUILD_TARGET := $(RUST_TARGET)
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER := aarch64-linux-gnu-gcc
export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER := x86_64-linux-gnu-gcc
export CC_aarch64_unknown_linux_gnu := aarch64-linux-gnu-gcc
export CC_x86_64_unknown_linux_gnu := x86_64-linux-gnu-gcc
export AR_aarch64_unknown_linux_gnu := aarch64-linux-gnu-gcc-ar
export AR_x86_64_unknown_linux_gnu := x86_64-linux-gnu-gcc-ar
endif

export IMAS_BUILD := $(abspath $(BUILD))
export IMAS_ARCH := $(ARCH)
