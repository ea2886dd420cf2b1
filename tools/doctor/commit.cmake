# Writes OUT, a header with the commit that is built: of -DCOMMIT, for a tree that is no repository, or else of git.
# The build runs it each time; the header changes with the commit only.
set(QUIRE_COMMIT "${COMMIT}")
set(QUIRE_IS_MODIFIED 0)
if(NOT QUIRE_COMMIT AND EXISTS "${SOURCE}/.git")
  execute_process(COMMAND git -C "${SOURCE}" rev-parse HEAD OUTPUT_VARIABLE QUIRE_COMMIT
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  execute_process(COMMAND git -C "${SOURCE}" diff --quiet HEAD OUTPUT_QUIET ERROR_QUIET RESULT_VARIABLE changed)
  if(QUIRE_COMMIT AND changed EQUAL 1)
    set(QUIRE_IS_MODIFIED 1)
  endif()
endif()
if(NOT QUIRE_COMMIT MATCHES "^[0-9a-f]+$")
  set(QUIRE_COMMIT unknown)
endif()
file(CONFIGURE OUTPUT "${OUT}" CONTENT "#define QUIRE_COMMIT \"@QUIRE_COMMIT@\"\n#define QUIRE_IS_MODIFIED @QUIRE_IS_MODIFIED@\n" @ONLY)
