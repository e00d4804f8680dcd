# Sourced before a build is configured: a compiler cache makes the second build quick where somebody installed one.
# What it has to be told to look through precompiled headers belongs to every call of it.
if command -v ccache >/dev/null; then
  export CMAKE_CXX_COMPILER_LAUNCHER="env;CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime;ccache"
fi
