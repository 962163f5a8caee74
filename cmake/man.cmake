# Man pages from the program's own help tables: lockstep.1 and lockstep-COMMAND.1 for every command
# that people use. Run at build time: cmake -DLOCKSTEP=... -DNAMES=... -DOUT=... -P man.cmake
file(MAKE_DIRECTORY ${OUT})
execute_process(COMMAND ${LOCKSTEP} --help-man OUTPUT_FILE ${OUT}/lockstep.1 COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE "," ";" NAMES "${NAMES}")
foreach(name ${NAMES})
  execute_process(COMMAND ${LOCKSTEP} ${name} --help-man OUTPUT_FILE ${OUT}/lockstep-${name}.1
    COMMAND_ERROR_IS_FATAL ANY)
endforeach()
