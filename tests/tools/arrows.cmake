# cmake -P: compiles two one-line files with the include folders of a target. ALLOWED must build, so that a broken
# set-up cannot pass for a closed door; HEADER must not, because no folder has it.
string(REPLACE "|" ";-I" includes "-I${INCLUDES}")
file(MAKE_DIRECTORY ${SCRATCH})
foreach(header ${ALLOWED} ${HEADER})
  string(MAKE_C_IDENTIFIER "${FOLDER}_${HEADER}_${header}" name)
  file(WRITE ${SCRATCH}/${name}.cc "#include \"${header}\"\n")
  execute_process(COMMAND ${COMPILER} -std=c++20 -fsyntax-only ${includes} ${SCRATCH}/${name}.cc
                  RESULT_VARIABLE result ERROR_VARIABLE errors)
  if(header STREQUAL ALLOWED AND NOT result EQUAL 0)
    message(FATAL_ERROR "${FOLDER}/ cannot include ${header}:\n${errors}")
  elseif(header STREQUAL HEADER)
    if(result EQUAL 0)
      message(FATAL_ERROR "${FOLDER}/ can include ${header}, against the arrows")
    elseif(NOT errors MATCHES "${header}: No such file or directory|'${header}' file not found")
      message(FATAL_ERROR "${header} was found and failed for another reason:\n${errors}")
    endif()
  endif()
endforeach()
