# mpi.cmake - strait-mpi.so, the module that moves messages by MPI, where Open MPI's headers are.
option(STRAIT_MPI "Build strait-mpi.so where Open MPI is installed" ON)
if(STRAIT_MPI AND NOT CMAKE_CROSSCOMPILING)
    pkg_check_modules(mpi QUIET ompi-c)
endif()
if(NOT mpi_FOUND)
    message(STATUS "Open MPI was not found: `strait train` does not work under mpirun and srun (`make deps` installs it)")
    return()
endif()
add_library(strait_mpi_module MODULE ${CMAKE_SOURCE_DIR}/src/net/mpi/module.c)
set_target_properties(strait_mpi_module PROPERTIES OUTPUT_NAME strait-mpi PREFIX "" SKIP_BUILD_RPATH ON
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
target_include_directories(strait_mpi_module SYSTEM PRIVATE ${mpi_INCLUDE_DIRS})
target_link_directories(strait_mpi_module PRIVATE ${mpi_LIBRARY_DIRS})
target_link_libraries(strait_mpi_module PRIVATE strait_flags ${mpi_LIBRARIES} Threads::Threads)
install(TARGETS strait_mpi_module LIBRARY DESTINATION bin) # looked for beside the program
