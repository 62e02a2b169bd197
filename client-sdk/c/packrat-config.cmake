# The targets packrat::packrat (shared) and packrat::static of an installed libpackrat:
#
#   find_package(packrat 0.1 REQUIRED)
#   target_link_libraries(program PRIVATE packrat::packrat)
get_filename_component(_packrat_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET packrat::packrat)
  find_package(Threads REQUIRED)
  add_library(packrat::packrat SHARED IMPORTED)
  set_target_properties(packrat::packrat PROPERTIES
    IMPORTED_LOCATION "${_packrat_prefix}/lib/libpackrat.so.0"
    IMPORTED_SONAME libpackrat.so.0
    INTERFACE_INCLUDE_DIRECTORIES "${_packrat_prefix}/include")
  add_library(packrat::static STATIC IMPORTED)
  set_target_properties(packrat::static PROPERTIES
    IMPORTED_LOCATION "${_packrat_prefix}/lib/libpackrat.a"
    INTERFACE_INCLUDE_DIRECTORIES "${_packrat_prefix}/include"
    INTERFACE_LINK_LIBRARIES "Threads::Threads;${CMAKE_DL_LIBS};m")
endif()
unset(_packrat_prefix)
