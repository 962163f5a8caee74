# The library for other programs: include/lockstep/lockstep.h, what implements it, and what that needs
# of lockstep_core. Static and shared hold the same code and show lockstep_* alone, so that a program
# may have a median() of its own (tests/test_library.sh).
#
#   lockstep::static, lockstep::shared   each of them
#   lockstep::lockstep                   the one that BUILD_SHARED_LIBS chooses
#
# docs/library.md says what a change of LOCKSTEP_ABI means.
set(LOCKSTEP_ABI 0)

if(LOCKSTEP_SANITIZE) # whose runtime wants to see all symbols
  add_library(lockstep::lockstep ALIAS lockstep_core)
  return()
endif()

# One object file, in which the linker has resolved what is hidden; then these names are local.
# Apple's linker makes them local by itself.
# The linker of the cross build for macOS cannot (-r), and takes the files themselves.
if(APPLE AND CMAKE_CROSSCOMPILING)
  set(LOCKSTEP_OBJECT $<TARGET_OBJECTS:lockstep_core>)
else()
  set(LOCKSTEP_OBJECT ${PROJECT_BINARY_DIR}/lockstep.o)
  add_executable(lockstep_object
    $<FILTER:$<TARGET_OBJECTS:lockstep_core>,INCLUDE,/src/engine/api|/src/ranks/worker>)
  set_target_properties(lockstep_object PROPERTIES LINKER_LANGUAGE C OUTPUT_NAME lockstep SUFFIX .o
    RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR} LINK_DEPENDS $<TARGET_FILE:lockstep_core>)
  target_link_libraries(lockstep_object PRIVATE $<TARGET_FILE:lockstep_core>)
  target_link_options(lockstep_object PRIVATE -r -nostdlib)
  add_dependencies(lockstep_object lockstep_core)
  if(NOT APPLE)
    add_custom_command(TARGET lockstep_object POST_BUILD VERBATIM
      COMMAND ${CMAKE_OBJCOPY} --localize-hidden $<TARGET_FILE:lockstep_object>)
  endif()
  set_source_files_properties(${LOCKSTEP_OBJECT} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
endif()

foreach(kind STATIC SHARED)
  string(TOLOWER ${kind} name)
  add_library(lockstep_${name} ${kind} ${LOCKSTEP_OBJECT})
  if(TARGET lockstep_object)
    add_dependencies(lockstep_${name} lockstep_object)
  endif()
  target_include_directories(lockstep_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(lockstep_${name} PRIVATE ${CORE_LIBRARIES})
  set_target_properties(lockstep_${name} PROPERTIES OUTPUT_NAME lockstep EXPORT_NAME ${name}
    LINKER_LANGUAGE C VERSION ${LOCKSTEP_ABI}.${PROJECT_VERSION_MINOR}.${PROJECT_VERSION_PATCH}
    SOVERSION ${LOCKSTEP_ABI})
  add_library(lockstep::${name} ALIAS lockstep_${name})
endforeach()
target_link_options(lockstep_shared PRIVATE ${HARDENED_LINK})
if(BUILD_SHARED_LIBS)
  add_library(lockstep::lockstep ALIAS lockstep_shared)
else()
  add_library(lockstep::lockstep ALIAS lockstep_static)
endif()

# ---- what is installed -----------------------------------------------------------------------
foreach(name static shared)
  install(TARGETS lockstep_${name} EXPORT lockstep-${name} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT lockstep-${name} NAMESPACE lockstep:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)
endforeach()
install(FILES include/lockstep/lockstep.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/lockstep)

# find_package(lockstep)
include(CMakePackageConfigHelpers)
configure_package_config_file(cmake/lockstep-config.cmake.in lockstep-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)
write_basic_package_version_file(lockstep-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/lockstep-config.cmake ${PROJECT_BINARY_DIR}/lockstep-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)

# pkg-config lockstep
if(APPLE)
  set(LOCKSTEP_SYSTEM_LIBS "-lm")
else()
  set(LOCKSTEP_SYSTEM_LIBS "-lm -lpthread -lrt -ldl")
endif()
# From the .pc file's own folder, so that the installed tree may be moved. What packagers give as an absolute path stays there.
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  set(LOCKSTEP_PC_PREFIX "${CMAKE_INSTALL_PREFIX}")
else()
  file(RELATIVE_PATH LOCKSTEP_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
  set(LOCKSTEP_PC_PREFIX "\${pcfiledir}/${LOCKSTEP_PC_PREFIX}")
endif()
foreach(dir LIBDIR INCLUDEDIR)
  set(LOCKSTEP_PC_${dir} "${CMAKE_INSTALL_${dir}}")
  if(NOT IS_ABSOLUTE "${CMAKE_INSTALL_${dir}}")
    string(PREPEND LOCKSTEP_PC_${dir} "\${prefix}/")
  endif()
endforeach()
configure_file(lockstep.pc.in lockstep.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/lockstep.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
