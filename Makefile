# The entry points of the project. `make help` lists them; CMake does the work (CMakePresets.json).
#
# `make` only builds, and names the packages that are missing. `make deps` installs them through apt;
# `make demo`, `make test` and the checks call it first, so that each works on a bare Debian machine.

JOBS ?= $(shell nproc)
# Most tests wait for links, timers and child processes, so several of them share a core. One place more, so that two
# tests that need 4 places have one other beside them.
TEST_JOBS ?= $(shell expr 4 \* $(JOBS) + 1)
PREFIX ?= /usr/local
TARGET ?= $(shell uname -m)
FUZZ_SECONDS ?= 20

.PHONY: all help deps build install test soak demo dist deb container check format layers tidy asan tsan fuzz coverage bench clean

all: build

help:
	@echo "make           build build/strait and the library"
	@echo "make deps      install what building and testing need (Debian packages, through apt)"
	@echo "make demo      train a small model over emulated slow links, then sample text from it"
	@echo "make test      run one short case of everything (minutes)"
	@echo "make soak      run many seeds, long fuzzing and the slow engines (an hour or more)"
	@echo "make check     format, layers, tidy, ASan+UBSan, TSan, short fuzzing"
	@echo "make install   install program, library, headers, manual pages and completions under PREFIX ($(PREFIX))"
	@echo "make dist      build a tarball for other machines; TARGET=x86_64 cross-builds one"
	@echo "make deb       build Debian packages; as root, try them on a bare Debian"
	@echo "make container build a container image and train in it (root)"
	@echo "make coverage  measure line coverage of src/ by the tests"
	@echo "make bench     time training steps on this machine"
	@echo "make clean     remove build/ and dist/"
	@echo "JOBS=$(JOBS) compilers and TEST_JOBS=$(TEST_JOBS) tests run at a time."

deps:
	@tools/install-packages build test

build:
	@tools/install-packages --check build
	@cmake --preset release >/dev/null
	@if [ -t 1 ]; then quiet=; else quiet="-- --quiet"; echo "building build/strait, which takes minutes the first time"; fi; \
	cmake --build --preset release --target program -j $(JOBS) $$quiet

install: build
	@cmake --install build --prefix $(PREFIX)

test: deps
	@cmake --preset release >/dev/null
	@cmake --build --preset release -j $(JOBS)
	@tools/run-tests release $(TEST_JOBS) -LE soak

soak: deps
	@tools/install-packages check soak
	@cmake --preset release >/dev/null
	@cmake --build --preset release -j $(JOBS)
	@tools/soak build

demo:
	@tools/install-packages build demo
	@$(MAKE) --no-print-directory build
	@tools/demo build/strait

dist:
	@tools/make-dist $(TARGET)
	@tools/check-dist dist/strait-*-$(TARGET)-linux.tar.gz

deb: deps
	@tools/install-packages deb
	@tools/make-deb
	@tools/check-deb dist

container:
	@tools/install-packages container
	@tools/check-container

check: format layers tidy asan tsan fuzz

format:
	@tools/install-packages check
	@tools/check-format

layers:
	@tools/check-layers

tidy: deps
	@tools/install-packages check
	@cmake --preset dev >/dev/null
	@cmake --build --preset dev --target generated >/dev/null
	@tools/check-tidy build/dev

# Tests under a sanitizer: make asan, make tsan.
asan tsan: deps
	@cmake --preset $@ >/dev/null
	@cmake --build --preset $@ -j $(JOBS)
	@tools/run-tests $@ $(TEST_JOBS) -LE 'slow|root|soak'

fuzz: deps
	@tools/install-packages check
	@cmake --preset fuzz >/dev/null
	@cmake --build --preset fuzz --target fuzz_all -j $(JOBS)
	@tools/run-fuzz build/fuzz $(FUZZ_SECONDS)

coverage: deps
	@tools/install-packages check
	@cmake --preset coverage >/dev/null
	@cmake --build --preset coverage -j $(JOBS)
	@ctest --preset coverage -j $(TEST_JOBS) -LE 'root|soak'
	@gcovr --root . --filter src/ --object-directory build/coverage --exclude-throw-branches \
	    --print-summary -o build/coverage/report.txt && tail -n 3 build/coverage/report.txt

bench: build
	@build/strait bench step bench/cpu.yaml

clean:
	@rm -rf build dist
