// The functions of fmt, compiled once: as headers alone they would be compiled in every file, for
// most of the time that such a file takes, and a shared library would have to travel along.

#include "core/format.h"

#include <fmt/format-inl.h>

// What the header promises to find elsewhere.
template FMT_API auto fmt::detail::thousands_sep_impl<char>(fmt::detail::locale_ref)
    -> fmt::detail::thousands_sep_result<char>;
template FMT_API auto fmt::detail::decimal_point_impl(fmt::detail::locale_ref) -> char;
