#define SIMT_IMPL
#include "tests/simt/simt.h"
