#include <support/parsed.hpp>

namespace weir {

template any_resource parse<any_resource>(std::string_view text);
template basic_any_resource<false, false> parse<basic_any_resource<false, false>>(std::string_view text);

}  // namespace weir
