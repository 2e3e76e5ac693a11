# x86_64.cmake - a toolchain: programs for x86_64 Linux, built on a Debian of another kind.
# The compiler and the amd64 libraries come from `tools/install-packages x86_64`.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(CMAKE_LIBRARY_ARCHITECTURE x86_64-linux-gnu)

set(CMAKE_C_COMPILER x86_64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER x86_64-linux-gnu-g++)
set(CMAKE_STRIP x86_64-linux-gnu-strip)
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/x86_64-linux-gnu/pkgconfig:/usr/share/pkgconfig)

find_program(STRAIT_QEMU qemu-x86_64)
if(STRAIT_QEMU) # CTest then runs what was built
    set(CMAKE_CROSSCOMPILING_EMULATOR ${STRAIT_QEMU})
endif()
