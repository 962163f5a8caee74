# Completion for bash, zsh and fish, from the program's own option tables.
set(COMPLETION_DIR ${PROJECT_BINARY_DIR}/completion)
file(MAKE_DIRECTORY ${COMPLETION_DIR})
add_custom_command(TARGET lockstep POST_BUILD VERBATIM
  COMMAND lockstep --help-completion=bash > ${COMPLETION_DIR}/lockstep
  COMMAND lockstep --help-completion=zsh > ${COMPLETION_DIR}/_lockstep
  COMMAND lockstep --help-completion=fish > ${COMPLETION_DIR}/lockstep.fish)
install(FILES ${COMPLETION_DIR}/lockstep DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${COMPLETION_DIR}/_lockstep DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${COMPLETION_DIR}/lockstep.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
