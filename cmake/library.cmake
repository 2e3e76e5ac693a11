# library.cmake - libstrait, static and shared: what programs link that embed Strait.
#
# It holds the modules up to train and infer; the swarm, its metastore and the reports belong to the
# program alone. Modules are compiled with hidden visibility, so that the shared library exports only
# what include/strait/ declares with STRAIT_API (tests/headers/exports.txt).
include(GNUInstallDirs)

set(library_modules base tensor metrics backend store model optim data codec net plan config stage convert train infer)
set(library_objects "")
set(library_packages "")
foreach(module ${library_modules})
    # Objects of one instruction set are object libraries of their own among a module's sources.
    get_target_property(objects strait_${module} SOURCES)
    list(FILTER objects INCLUDE REGEX "^\\$<TARGET_OBJECTS:")
    list(APPEND library_objects $<TARGET_OBJECTS:strait_${module}> ${objects})
    get_target_property(packages strait_${module} STRAIT_PACKAGES)
    if(packages)
        list(APPEND library_packages ${packages})
    endif()
endforeach()
list(REMOVE_DUPLICATES library_packages)

# strait_library(TARGET KIND): a library of all modules, called libstrait in the build folder.
function(strait_library target kind)
    add_library(${target} ${kind} ${library_objects})
    set_target_properties(${target} PROPERTIES OUTPUT_NAME strait LINKER_LANGUAGE C
        VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
        ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR} LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
    install(TARGETS ${target} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
endfunction()

strait_library(strait_archive STATIC)

# A tarball for other machines (STRAIT_STATIC) carries no shared library: it would need theirs.
if(NOT STRAIT_STATIC)
    strait_library(strait_shared SHARED)
    target_link_libraries(strait_shared PRIVATE strait_flags Threads::Threads m ${CMAKE_DL_LIBS})
    foreach(package ${library_packages})
        strait_package(strait_shared ${package})
    endforeach()
    if(NOT STRAIT_SANITIZE) # the sanitizers' own symbols come from the program
        target_link_options(strait_shared PRIVATE LINKER:--no-undefined)
    endif()
endif()

# What the archive needs at link time. A list of -l flags instead of Requires.private: those who link
# the shared library do not need the packages' development files.
set(library_private "")
foreach(package ${library_packages})
    strait_pkg_config_name(${package} found)
    foreach(name ${${found}_STATIC_LIBRARIES})
        list(APPEND library_private -l${name})
    endforeach()
endforeach()
list(APPEND library_private -lpthread -ldl -lm)
list(REMOVE_DUPLICATES library_private)
list(JOIN library_private " " STRAIT_LIBS_PRIVATE)
configure_file(${CMAKE_SOURCE_DIR}/cmake/strait.pc.in ${CMAKE_BINARY_DIR}/strait.pc @ONLY)

install(FILES ${CMAKE_BINARY_DIR}/strait.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/strait DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
    FILES_MATCHING PATTERN "*.h")
