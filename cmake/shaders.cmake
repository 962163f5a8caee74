# Shaders: src/device/*.comp and src/shaders/*.comp, compiled to SPIR-V by glslc, as C arrays in one file: NAME.comp is
# const uint32_t NAME_spv[] and const size_t NAME_spv_bytes. What they include are src/shaders/*.glsl. Without glslc, or
# without Vulkan's headers (1.3 or newer), there are none. Both are looked for each time, as other optional headers are.
unset(VULKAN_INCLUDE CACHE)
unset(GLSLC CACHE)
if(LOCKSTEP_VULKAN)
  find_path(VULKAN_INCLUDE vulkan/vulkan_core.h)
endif()
if(LOCKSTEP_SHADERS)
  find_program(GLSLC glslc)
endif()
set(SHADER_ARRAYS)
if(VULKAN_INCLUDE)
  file(STRINGS ${VULKAN_INCLUDE}/vulkan/vulkan_core.h vulkan_1_3 REGEX "define VK_VERSION_1_3 " LIMIT_COUNT 1)
endif()
if(NOT VULKAN_INCLUDE OR NOT vulkan_1_3)
  set(GLSLC "")
  return()
endif()
file(GLOB DEVICE_SOURCES ${PROJECT_SOURCE_DIR}/src/device/*.c)
set_property(SOURCE ${DEVICE_SOURCES} APPEND PROPERTY COMPILE_DEFINITIONS LOCKSTEP_HAS_VULKAN)
if(NOT GLSLC)
  return()
endif()
file(GLOB SHADER_SOURCES ${PROJECT_SOURCE_DIR}/src/shaders/*.c)
set_property(SOURCE ${DEVICE_SOURCES} ${SHADER_SOURCES} APPEND PROPERTY COMPILE_DEFINITIONS LOCKSTEP_HAS_SHADERS)

# For which extensions this glslc compiles what uses matrix units (matrix_unit.glsl): KHR's came in 2023. A flavour that it
# does not compile is left out.
set(MATRIX_FLAVOURS EMULATED)
foreach(flavour KHR NV)
  foreach(shader device/roof_matrix shaders/matmul_matrix)
    execute_process(COMMAND ${GLSLC} --target-env=vulkan1.2 -I${PROJECT_SOURCE_DIR}/src/shaders -D${flavour}
      -o ${PROJECT_BINARY_DIR}/matrix_${flavour}.spv ${PROJECT_SOURCE_DIR}/src/${shader}.comp
      RESULT_VARIABLE refused OUTPUT_QUIET ERROR_QUIET)
    if(NOT refused EQUAL 0)
      break()
    endif()
  endforeach()
  if(refused EQUAL 0)
    list(APPEND MATRIX_FLAVOURS ${flavour})
    set_property(SOURCE ${DEVICE_SOURCES} ${SHADER_SOURCES} APPEND PROPERTY
      COMPILE_DEFINITIONS LOCKSTEP_HAS_MATRIX_${flavour})
  endif()
endforeach()

# The names of a shader's variants: plain; with FMAs by f64, where it includes exact.glsl; with packed dot products, where
# it asks for DOT or includes matmul.glsl. NAME_f64, NAME_dot, NAME_dot_f64 are compiled with these words defined. With
# matrix units, where it includes matrix_unit.glsl, those alone: NAME_emulated, NAME_emulated_f64, NAME_khr and so on.
function(shader_variants out shader)
  set(variants "plain")
  file(STRINGS ${shader} has_exact REGEX "include \"exact.glsl\"")
  file(STRINGS ${shader} has_dot REGEX "ifdef DOT|include \"matmul.glsl\"")
  if(has_exact)
    list(APPEND variants F64)
  endif()
  if(has_dot)
    list(APPEND variants DOT DOT_F64)
  endif()
  file(STRINGS ${shader} has_matrix REGEX "include \"matrix_unit.glsl\"")
  if(has_matrix)
    set(variants ${MATRIX_FLAVOURS})
    if(has_exact)
      list(TRANSFORM variants APPEND _F64)
      list(APPEND variants ${MATRIX_FLAVOURS})
    endif()
  endif()
  set(${out} ${variants} PARENT_SCOPE)
endfunction()

# Sets `out` to a C file with the arrays of the shaders; dir: where it and what it is made of lie.
function(shader_arrays out dir)
  set(numbers)
  set(text "/* Made by cmake/shaders.cmake. */\n#include <stddef.h>\n#include <stdint.h>\n")
  foreach(shader ${ARGN})
    get_filename_component(base ${shader} NAME_WE)
    shader_variants(variants ${shader})
    foreach(variant ${variants})
      set(name ${base})
      set(defines)
      if(NOT variant STREQUAL "plain")
        string(TOLOWER "${base}_${variant}" name)
        string(REPLACE "_" ";-D" defines "-D${variant}")
      endif()
      set(to ${dir}/${name}.inc)
      add_custom_command(OUTPUT ${to} DEPENDS ${shader} DEPFILE ${to}.d VERBATIM
        COMMAND ${GLSLC} --target-env=vulkan1.2 -O -I${PROJECT_SOURCE_DIR}/src/shaders -mfmt=c ${defines}
          -MD -MF ${to}.d -MT ${to} -o ${to} ${shader})
      list(APPEND numbers ${to})
      string(APPEND text "\nextern const uint32_t ${name}_spv[];\nextern const size_t ${name}_spv_bytes;\n"
        "const uint32_t ${name}_spv[] =\n#include \"${name}.inc\"\n    ;\n"
        "const size_t ${name}_spv_bytes = sizeof ${name}_spv;\n")
    endforeach()
  endforeach()
  file(CONFIGURE OUTPUT ${dir}/arrays.c CONTENT "${text}" @ONLY)
  set_source_files_properties(${dir}/arrays.c PROPERTIES OBJECT_DEPENDS "${numbers}")
  set(${out} ${dir}/arrays.c PARENT_SCOPE)
endfunction()

file(GLOB SHADERS CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/device/*.comp ${PROJECT_SOURCE_DIR}/src/shaders/*.comp)
shader_arrays(SHADER_ARRAYS ${PROJECT_BINARY_DIR}/shaders ${SHADERS})
