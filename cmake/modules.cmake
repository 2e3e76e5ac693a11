# modules.cmake - the functions that keep every CMakeLists.txt to a list of names.

add_library(strait_flags INTERFACE)
target_compile_definitions(strait_flags INTERFACE _XOPEN_SOURCE=700)
target_compile_options(strait_flags INTERFACE
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wvla
    -Wundef -fvisibility=hidden -fno-math-errno -fno-trapping-math
    -ffile-prefix-map=${CMAKE_SOURCE_DIR}/src/= -ffile-prefix-map=${CMAKE_SOURCE_DIR}/=
    $<$<BOOL:${STRAIT_WERROR}>:-Werror>)

# Whoever sends us bytes may be lying: a memory error must end the process, not be exploited. Sanitizers
# bring their own checks, which _FORTIFY_SOURCE would hide.
include(CheckPIESupported)
check_pie_supported()
target_compile_options(strait_flags INTERFACE -fstack-protector-strong
    $<$<C_COMPILER_ID:GNU>:-fstack-clash-protection>)
if(NOT STRAIT_SANITIZE)
    target_compile_options(strait_flags INTERFACE
        $<$<NOT:$<CONFIG:Debug>>:-U_FORTIFY_SOURCE> $<$<NOT:$<CONFIG:Debug>>:-D_FORTIFY_SOURCE=3>)
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    target_compile_options(strait_flags INTERFACE -fcf-protection=full)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    target_compile_options(strait_flags INTERFACE -mbranch-protection=standard) # BTI and signed returns
endif()
target_link_options(strait_flags INTERFACE LINKER:-z,relro LINKER:-z,now LINKER:-z,noexecstack)

if(STRAIT_SANITIZE)
    target_compile_options(strait_flags INTERFACE
        -fsanitize=${STRAIT_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all
        $<$<C_COMPILER_ID:GNU>:-Wno-format-truncation>) # which is right only from -O2 on
    target_link_options(strait_flags INTERFACE -fsanitize=${STRAIT_SANITIZE})
endif()
if(STRAIT_COVERAGE)
    target_compile_options(strait_flags INTERFACE --coverage -fprofile-update=atomic)
    target_link_options(strait_flags INTERFACE --coverage)
endif()

# strait_pkg_config_name(NAME OUT): the name under which pkg-config has the package. Some systems have a name of
# its own for libuv's archive.
function(strait_pkg_config_name name out)
    if(STRAIT_STATIC AND name STREQUAL libuv)
        set(name libuv-static)
    endif()
    set(${out} ${name} PARENT_SCOPE)
endfunction()

# strait_package(TARGET NAME): links a pkg-config package. With STRAIT_STATIC its archives are linked in,
# except for the libraries that come with libc, which every Linux has.
function(strait_package target name)
    if(name STREQUAL libcurl) # headers only: metastore/etcd_curl.c opens the library at run time
        pkg_check_modules(libcurl REQUIRED libcurl)
        target_include_directories(${target} SYSTEM PUBLIC ${libcurl_INCLUDE_DIRS})
        return()
    endif()
    if(NOT STRAIT_STATIC)
        pkg_check_modules(${name} REQUIRED IMPORTED_TARGET ${name})
        target_link_libraries(${target} PUBLIC PkgConfig::${name})
        return()
    endif()
    strait_pkg_config_name(${name} package)
    pkg_check_modules(${package} REQUIRED ${package})
    target_include_directories(${target} SYSTEM PUBLIC ${${package}_STATIC_INCLUDE_DIRS})
    set(libraries ${${package}_STATIC_LIBRARIES})
    if(name STREQUAL libmicrohttpd) # without GnuTLS, which has no archive: monitor/without_tls.c
        set(libraries microhttpd)
    endif()
    foreach(library ${libraries})
        if(NOT library MATCHES "^(pthread|dl|rt|m)$")
            find_library(STRAIT_ARCHIVE_${library} lib${library}.a
                HINTS ${${package}_STATIC_LIBRARY_DIRS} REQUIRED)
            set(library ${STRAIT_ARCHIVE_${library}})
        endif()
        target_link_libraries(${target} PUBLIC ${library})
    endforeach()
endfunction()

# strait_module(NAME [SOURCES a.c b.c] DEPENDS lower modules PACKAGES pkg-config names). Without SOURCES it
# compiles every .c file of its folder and sub-folders: a new file needs no entry anywhere.
function(strait_module name)
    cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS;PACKAGES" ${ARGN})
    if(NOT arg_SOURCES)
        file(GLOB_RECURSE arg_SOURCES CONFIGURE_DEPENDS *.c)
    endif()
    add_library(strait_${name} STATIC ${arg_SOURCES})
    target_include_directories(strait_${name}
        PUBLIC ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(strait_${name} PUBLIC strait_flags)
    foreach(module ${arg_DEPENDS})
        target_link_libraries(strait_${name} PUBLIC strait_${module})
    endforeach()
    foreach(package ${arg_PACKAGES})
        strait_package(strait_${name} ${package})
    endforeach()
    set_target_properties(strait_${name} PROPERTIES STRAIT_PACKAGES "${arg_PACKAGES}") # for libstrait
endfunction()

# strait_isa_objects(MODULE NAME ISA FILES files... FLAGS flags...): compiles files of a module once more, for one
# instruction set, as the target strait_NAME_ISA. STRAIT_ISA ends their symbols.
function(strait_isa_objects module name isa)
    cmake_parse_arguments(PARSE_ARGV 3 arg "" "" "FILES;FLAGS")
    set(target strait_${name}_${isa})
    add_library(${target} OBJECT ${arg_FILES})
    target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(${target} PRIVATE strait_flags)
    target_compile_definitions(${target} PRIVATE STRAIT_ISA=${isa})
    target_compile_options(${target} PRIVATE ${arg_FLAGS})
    target_sources(strait_${module} PRIVATE $<TARGET_OBJECTS:${target}>)
endfunction()

# Without a cache of thread stacks, tests/leaks.c sees no memory after the last thread has ended.
set(STRAIT_TEST_ENVIRONMENT GLIBC_TUNABLES=glibc.pthread.stack_cache_size=0)

# strait_test(NAME SOURCE file.c MODULES modules it tests [LABELS fast|slow|root|soak])
function(strait_test name)
    cmake_parse_arguments(arg "" "SOURCE" "MODULES;LABELS" ${ARGN})
    add_executable(test_${name} ${arg_SOURCE})
    foreach(module ${arg_MODULES})
        target_link_libraries(test_${name} PRIVATE strait_${module})
    endforeach()
    target_include_directories(test_${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
    target_link_libraries(test_${name} PRIVATE strait_flags cmocka)
    add_test(NAME ${name} COMMAND test_${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    if(NOT arg_LABELS)
        set(arg_LABELS fast)
    endif()
    set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT 1200
        SKIP_RETURN_CODE 77)
    if(TARGET test_leaks)
        target_link_libraries(test_${name} PRIVATE test_leaks)
        set_tests_properties(${name} PROPERTIES ENVIRONMENT "${STRAIT_TEST_ENVIRONMENT}")
    endif()
    if("slow" IN_LIST arg_LABELS) # start long tests first
        set_tests_properties(${name} PROPERTIES COST 200)
    endif()
endfunction()

# strait_quiet(NAMES...): these tests measure time, or keep short timeouts. They begin first, at most two at a time, and
# beside one other test: 4 of the 9 places that `make test` has on two cores.
function(strait_quiet)
    foreach(name ${ARGN})
        if(TEST ${name})
            set_tests_properties(${name} PROPERTIES PROCESSORS 4 COST 1000)
        endif()
    endforeach()
endfunction()

# strait_fuzz(NAME SOURCE file.c MODULES ... [SEEDS file.c]): a libFuzzer target; its corpus is
# tests/fuzz/corpus/NAME, or what the program seeds_NAME writes into the folder it is given.
function(strait_fuzz name)
    cmake_parse_arguments(arg "" "SOURCE;SEEDS" "MODULES" ${ARGN})
    if(NOT TARGET fuzz_all)
        add_custom_target(fuzz_all)
    endif()
    add_executable(fuzz_${name} ${arg_SOURCE})
    add_dependencies(fuzz_all fuzz_${name})
    foreach(module ${arg_MODULES})
        target_link_libraries(fuzz_${name} PRIVATE strait_${module})
    endforeach()
    target_link_libraries(fuzz_${name} PRIVATE strait_flags)
    target_compile_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    if(arg_SEEDS)
        add_executable(seeds_${name} ${arg_SEEDS})
        foreach(module ${arg_MODULES})
            target_link_libraries(seeds_${name} PRIVATE strait_${module})
        endforeach()
        target_link_libraries(seeds_${name} PRIVATE strait_flags)
        add_dependencies(fuzz_all seeds_${name})
    endif()
endfunction()

# strait_embed(TARGET NAME file...): adds files to a module as the table NAME (base/embedded.h).
function(strait_embed target name)
    set(generated ${CMAKE_CURRENT_BINARY_DIR}/${name}.c)
    add_custom_command(OUTPUT ${generated}
        COMMAND ${CMAKE_COMMAND} -DOUT=${generated} -DNAME=${name} "-DFILES=${ARGN}" -P ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
        DEPENDS ${ARGN} ${CMAKE_SOURCE_DIR}/cmake/embed.cmake COMMENT "Embedding ${name}" VERBATIM)
    target_sources(${target} PRIVATE ${generated})
endfunction()
