# Sourced before a build is configured: a compiler cache, where installed, makes the second build quick.
# The settings for precompiled headers must accompany every call of it.
if command -v ccache >/dev/null; then
  export CMAKE_CXX_COMPILER_LAUNCHER="env;CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime;ccache"
fi
