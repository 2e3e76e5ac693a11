# The front door. `make` builds build/strait; `make test`, `make demo`, `make check`, `make bench`.
# What is missing is installed through apt. The work itself is CMake's (CMakePresets.json).

.PHONY: all packages build install test demo dist check format tidy layers asan tsan fuzz coverage bench clean help

all: build

help:
	@echo "make           install what is missing, build build/strait"
	@echo "make test      and run every test"
	@echo "make demo      and train a small model, then let it speak"
	@echo "make install   the program, its manual pages and its completion under PREFIX (/usr/local)"
	@echo "make dist      a tarball for other machines; TARGET=x86_64: for those, from any machine"
	@echo "make check     format, tidy, layers, tests under ASan+UBSan and TSan, short fuzzing"
	@echo "make coverage  line coverage of src/ by the tests"
	@echo "make bench     time training steps here"
	@echo "make clean     remove build/ and dist/"

packages:
	@tools/install-packages build test

build: packages
	@cmake --preset release -DSTRAIT_WERROR=OFF >/dev/null
	@cmake --build --preset release

PREFIX ?= /usr/local
install: build
	@cmake --install build --prefix $(PREFIX)

test: build
	@ctest --preset release

demo: build
	@tools/install-packages demo
	@tools/demo build/strait

TARGET ?= $(shell uname -m)
dist:
	@tools/make-dist $(TARGET)
	@tools/check-dist dist/strait-*-$(TARGET)-linux.tar.gz

check: format layers tidy asan tsan fuzz

format:
	@tools/install-packages check
	@tools/check-format

layers:
	@tools/check-layers

tidy: packages
	@tools/install-packages check
	@cmake --preset dev >/dev/null
	@tools/check-tidy build

# Tests under a sanitizer: make asan, make tsan.
asan tsan: packages
	@cmake --preset $@ >/dev/null
	@cmake --build --preset $@
	@ctest --preset $@ -LE 'slow|root'

FUZZ_SECONDS ?= 20
fuzz: packages
	@tools/install-packages check
	@cmake --preset fuzz >/dev/null
	@cmake --build --preset fuzz --target fuzz_all
	@tools/run-fuzz build/fuzz $(FUZZ_SECONDS)

coverage: packages
	@tools/install-packages check
	@cmake --preset coverage >/dev/null
	@cmake --build --preset coverage
	@ctest --preset coverage -LE root
	@gcovr --root . --filter src/ --object-directory build/coverage --exclude-throw-branches \
	    --print-summary -o build/coverage/report.txt && tail -n 3 build/coverage/report.txt

bench: build
	@build/strait bench step bench/cpu.yaml

clean:
	@rm -rf build dist
