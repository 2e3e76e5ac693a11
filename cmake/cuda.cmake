# cuda.cmake - compiles kernels for NVIDIA devices into one module file next to the program.
#
# Nothing of CUDA is linked: the program opens the driver and cublasLt at run time. The toolkit
# provides headers (types) and nvcc (device code, which does not depend on the host architecture).

find_program(STRAIT_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
find_path(STRAIT_CUDA_INCLUDE cublasLt.h HINTS $ENV{CUDA_HOME}/include /usr/local/cuda/include
    NO_CMAKE_FIND_ROOT_PATH)
if(STRAIT_NVCC AND STRAIT_CUDA_INCLUDE AND EXISTS ${STRAIT_CUDA_INCLUDE}/cuda.h)
    set(has_cuda ON)
else()
    set(has_cuda OFF)
    message(STATUS "No CUDA toolkit found: this build will not support device cuda")
endif()
option(STRAIT_CUDA "Build the cuda backend" ${has_cuda})
option(STRAIT_CUDA_KERNELS "Compile device code too (off for sanitizers, which do not see it)" ON)
set(STRAIT_CUDA_ARCHS "90" CACHE STRING
    "Compute capabilities to build kernels for, the last also as PTX: 75;80;86;89;90 for all")
set(STRAIT_CUDA_MODULE ${CMAKE_BINARY_DIR}/strait.cuda)

# Sets `out` to nvcc's targets for a source file: machine code for every architecture, and PTX of the last, from one
# compilation for both. sm_90a adds warp-group instructions that every 9.0 device has and PTX for later devices must not
# use: it takes a compilation of its own, which only files that ask for these instructions need.
function(strait_cuda_targets out source)
    file(STRINGS ${source} features REGEX "__CUDA_ARCH_FEAT_SM90_ALL")
    list(GET STRAIT_CUDA_ARCHS -1 last)
    set(targets "")
    foreach(arch ${STRAIT_CUDA_ARCHS})
        set(code sm_${arch})
        if(arch EQUAL 90 AND features)
            list(APPEND targets -gencode=arch=compute_90a,code=sm_90a)
            set(code "")
        endif()
        if(arch EQUAL last)
            list(APPEND code compute_${arch})
        endif()
        if(code)
            list(JOIN code , codes)
            list(APPEND targets "-gencode=arch=compute_${arch},code=[${codes}]")
        endif()
    endforeach()
    set(${out} ${targets} PARENT_SCOPE)
endfunction()

# strait_cuda_module(a.cu b.cu ...): builds ${STRAIT_CUDA_MODULE}, an ar archive. Its first member is
# the stamp, a digest of the sources, which stamp.h holds too, so that a program can refuse kernels of
# another build; then one fatbin per source file.
function(strait_cuda_module)
    set(strict "")
    if(STRAIT_WERROR)
        # 177, unreferenced function: code for one architecture is unused on the others.
        set(strict -Werror all-warnings -diag-suppress 177)
    endif()
    set(members "")
    foreach(source ${ARGN})
        get_filename_component(name ${source} NAME_WE)
        set(member ${CMAKE_CURRENT_BINARY_DIR}/${name}.fatbin)
        strait_cuda_targets(targets ${CMAKE_CURRENT_SOURCE_DIR}/${source})
        add_custom_command(OUTPUT ${member}
            COMMAND ${STRAIT_NVCC} -fatbin -std=c++17 -O3 ${strict}
                -I${CMAKE_SOURCE_DIR}/src -I${CMAKE_SOURCE_DIR}/include ${targets}
                -MD -MF ${member}.d -o ${member} ${CMAKE_CURRENT_SOURCE_DIR}/${source}
            DEPENDS ${source} DEPFILE ${member}.d
            COMMENT "Compiling device code ${source}" VERBATIM)
        list(APPEND members ${member})
    endforeach()
    file(GLOB shared CONFIGURE_DEPENDS cuda/*.cuh cuda/*.h)
    list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ OUTPUT_VARIABLE stamped)
    list(APPEND stamped ${shared})
    list(JOIN stamped " " stamped_text)
    set(stamp ${CMAKE_CURRENT_BINARY_DIR}/stamp)
    set(script ${CMAKE_SOURCE_DIR}/cmake/cuda_stamp.cmake)
    add_custom_command(OUTPUT ${stamp} ${stamp}.h
        COMMAND ${CMAKE_COMMAND} -DFILES=${stamped_text} -DHEADER=${stamp}.h -DTEXT=${stamp}
            -P ${script}
        DEPENDS ${stamped} ${script} COMMENT "Stamping device code" VERBATIM)
    add_custom_target(strait_cuda_stamp DEPENDS ${stamp}.h)
    add_custom_command(OUTPUT ${STRAIT_CUDA_MODULE}
        COMMAND ${CMAKE_COMMAND} -E rm -f ${STRAIT_CUDA_MODULE}
        COMMAND ${CMAKE_AR} rcD ${STRAIT_CUDA_MODULE} ${stamp} ${members}
        DEPENDS ${stamp} ${members} COMMENT "Gathering strait.cuda" VERBATIM)
    if(STRAIT_CUDA_KERNELS)
        add_custom_target(strait_cuda_module ALL DEPENDS ${STRAIT_CUDA_MODULE})
    endif()
endfunction()
