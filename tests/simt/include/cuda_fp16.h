// CUDA's header of this name, for g++: the emulator.
#pragma once
#include "tests/simt/simt.h"
